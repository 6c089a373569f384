"""The controller's brain and bookkeeping: gathering, listening, adopting tables, carrying out, and never losing a packet by a change."""

import socket

import pytest
from controller_lab import Lab

from testbed.controller import keepalive, openflow
from testbed.controller.config import Config
from testbed.controller.messages import PacketIn, Refused
from testbed.controller.tables import SwitchTables
from testbed.errors import HostError, UsageError
from topologies import build, ecmp

NEAR, FAR = "t0_1_1-t1_1_1", "t0_1_2-t1_1_1"


@pytest.fixture
def lab():
    made = Lab()
    made.run(0.5)
    return made


def test_it_begins_with_the_settled_tables(lab):
    assert lab.brain.settled
    assert lab.tables() == lab.expected()


def test_a_cut_leads_to_other_tables_and_mending_back(lab):
    lab.cut(NEAR)
    lab.run(2)
    assert lab.tables() == lab.expected(down_links=[NEAR])
    lab.cut(NEAR, up=True)
    lab.run(5)
    assert lab.tables() == lab.expected()


def test_a_silent_link_is_left_after_the_hold_time_and_not_before(lab):
    lab.broken.add(FAR)
    lab.run(lab.options.hold_s - lab.options.keepalive_s)
    assert lab.tables() == lab.expected()
    lab.run(lab.options.keepalive_s + 1)
    assert lab.tables() == lab.expected(down_links=[FAR])


def test_a_change_is_history_only_when_the_switch_has_confirmed_it(lab):
    before = len(lab.fib_events())
    lab.cut(NEAR)
    while not (changed := _one_step_with_a_write(lab)):
        assert lab.now < 110
    assert len(lab.fib_events()) == before
    lab.run(0.02)
    assert lab.fib_events()[before]["node"] in changed


def _one_step_with_a_write(lab):
    counts = {name: len(switch.written) for name, switch in lab.switches.items()}
    lab.run(0.01)
    return [name for name, switch in lab.switches.items() if len(switch.written) > counts[name]]


def test_a_switch_that_comes_back_gets_its_tables_and_its_neighbours_theirs(lab):
    lab.disconnect("t1_1_1")
    lab.run(5)
    assert lab.tables() == lab.expected(down_switches=["t1_1_1"])
    lab.connect("t1_1_1")
    lab.run(5)
    assert lab.tables() == lab.expected()


def test_a_new_connection_before_the_end_of_the_old_one_is_a_switch_that_was_away(lab):
    old = lab.switches["t1_1_1"]
    lab.connect("t1_1_1", {"fd00:0:0:8001::1": (2,)})
    lab.switches["t1_1_1"], newer = old, lab.switches["t1_1_1"]
    lab.disconnect("t1_1_1")
    lab.switches["t1_1_1"] = newer
    lab.run(5)
    assert lab.tables() == lab.expected()
    assert newer.written[0].kind == "del"


def test_a_successor_touches_nothing_that_is_right():
    lab = Lab(tables=Lab().expected())
    lab.run(3)
    assert [switch.written for switch in lab.switches.values()] == [[]] * 4


def test_a_successor_learns_of_a_cut_from_the_ports_and_writes_only_that():
    lab = Lab(tables=Lab().expected())
    lab.cut(NEAR)
    lab.run(1)
    assert lab.tables() == lab.expected(down_links=[NEAR])
    assert {name for name, switch in lab.switches.items() if switch.written} == {"t0_1_1", "t0_1_2", "t1_1_1"}


def test_a_successor_does_not_believe_in_a_link_that_passes_nothing():
    """Its predecessor had found it out; the hold time must not begin anew."""
    before = Lab()
    lab = Lab(tables=before.expected(down_links=[FAR]))
    lab.broken.add(FAR)
    lab.run(4)
    assert lab.tables() == lab.expected(down_links=[FAR])
    assert all(not switch.written for switch in lab.switches.values())
    told = [(event["node"], event["peer"], event["up"], event["reason"]) for event in lab.history]
    assert sorted(told) == [("t0_1_2", "t1_1_1", False, "silent"), ("t1_1_1", "t0_1_2", False, "silent")]
    lab.broken.clear()
    lab.run(5)
    assert lab.tables() == lab.expected()


def test_a_switch_that_does_not_come_is_told_and_waited_for_no_longer():
    lab = Lab()
    lab.disconnect("t1_1_2")
    lab.run(4)
    assert not lab.brain.running
    lab.run(4)
    assert lab.brain.settled
    assert lab.brain.missing == ("t1_1_2",)
    assert lab.tables() == lab.expected(down_switches=["t1_1_2"])


def test_a_fabric_that_boots_slowly_is_waited_for_as_long_as_switches_come():
    lab = Lab()
    names = list(lab.switches)
    for name in names:
        lab.disconnect(name)
    for name in names:
        lab.run(4)
        assert not lab.brain.running
        lab.connect(name)
    lab.run(1)
    assert (lab.brain.settled, lab.brain.missing, lab.tables()) == (True, (), lab.expected())


def test_a_switch_that_refuses_is_an_error(lab):
    lab.inbox.append(Refused(lab.now, lab.switches["t0_1_1"], "error type 5, code 2"))
    with pytest.raises(HostError, match=r"t0_1_1 refused .* error type 5, code 2"):
        lab.run(0.1)


def test_a_switch_of_another_fabric_is_an_error(lab):
    lab.switches["t0_1_1"].datapath_id = 0xBAD
    lab.cut(NEAR)
    with pytest.raises(HostError, match="0xbad"):
        lab.run(0.1)


def test_only_keepalives_keep_a_session(lab):
    """A packet of somebody else that has their protocol number is none."""
    lab.broken.add(FAR)
    frame = keepalive.frame(lab.topology.link(FAR).a)
    for _ in range(8):
        other = frame.replace(keepalive.PAYLOAD, b"x" * len(keepalive.PAYLOAD))
        lab.inbox.append(PacketIn(lab.now, lab.switches["t1_1_1"], lab.topology.link(FAR).b.port, other))
        lab.run(0.5)
    assert lab.tables() == lab.expected(down_links=[FAR])


def test_the_keepalive_is_ipv6_of_the_routing_class():
    end = build("fat-tree", k=4).link(NEAR).a
    frame = keepalive.frame(end)
    assert frame[:14].hex() == "333300000001" + "020010010003" + "86dd"
    assert frame[14] >> 4 == 6
    assert (frame[14] << 8 | frame[15]) >> 6 & 0x3F == 48
    assert (frame[20], frame[21]) == (253, 1)
    assert socket.inet_ntop(socket.AF_INET6, frame[38:54]) == "ff02::1"
    assert int.from_bytes(frame[18:20], "big") == len(frame) - 54
    assert keepalive.is_keepalive(frame)


@pytest.fixture
def tables():
    return SwitchTables(build("fat-tree", k=4), "t0_1_1", 7)


def test_what_a_route_refers_to_is_there_first_and_goes_last(tables):
    first = tables.change("fd00::a", (3, 4))
    assert [rule.choice for rule in first.before] == [(0b1100, 0), (0b1100, 1)]
    assert (first.kind, first.after) == ("add", ())
    second = tables.change("fd00::b", (3, 4))
    assert second.before == ()
    third = tables.change("fd00::a", (4,))
    assert (third.kind, third.before, third.after) == ("replace", (), ())
    last = tables.change("fd00::b", ())
    assert (last.kind, last.route, last.after) == ("del", None, (0b1100,))


def test_what_is_so_already_is_no_change(tables):
    tables.change("fd00::a", (3, 4))
    assert tables.change("fd00::a", (3, 4)) is None
    assert tables.changes_to({"fd00::a": (3, 4)}) == []
    assert [change.address for change in tables.changes_to({"fd00::b": (3,)})] == ["fd00::a", "fd00::b"]


def test_the_changes_of_a_switch_that_has_nothing_give_exactly_its_rules():
    lab = Lab()
    lab.run(0.5)
    for name, switch in lab.switches.items():
        given = {rule for change in switch.written for rule in (*change.before, change.route)}
        fib = {address: [f"{name}-eth{port}" for port in ports] for address, ports in switch.routes.items()}
        assert {*given, *ecmp.base_rules()} == set(ecmp.rules(lab.topology, name, fib, lab.options.ecmp_seed))


def test_the_config_survives_its_file():
    config = Config("fat-tree", {"k": 4}, {"hold_s": 9.0}, 3, "/s", "/e", ("t0_1_1",), "auto")
    assert Config.parse(config.text()) == config


def test_an_unknown_library_is_refused():
    with pytest.raises(UsageError, match="TESTBED_OPENFLOW=nox: choose one of ryu, os-ken, auto"):
        openflow.find("nox")


def test_auto_falls_back_and_says_so(monkeypatch):
    def importing(name, path):
        if name == "ryu":
            raise ImportError("no module named ryu")

    monkeypatch.setattr(openflow, "_module", importing)
    monkeypatch.setattr(openflow.importlib.metadata, "version", lambda name: "4.2.2")
    found = openflow.find("auto")
    assert (found.name, openflow.told(found)) == ("os-ken", "os-ken 4.2.2 (TESTBED_OPENFLOW=auto)")
    with pytest.raises(HostError, match="ryu: no module named ryu; install it"):
        openflow.find("ryu")


def test_what_a_handler_raises_is_not_lost():
    raised = []
    on = openflow._guarded(lambda event, states: lambda method: method, raised.append)

    class Application:
        @on("event", "states")
        def handle(self, event):
            raise KeyError(event)

    Application().handle("packet")
    assert repr(raised) == "[KeyError('packet')]"
