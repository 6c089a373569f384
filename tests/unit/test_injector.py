"""The injector with a fabric that only writes down what is done to it."""

import threading
import time

import pytest
from waiting import eventually

from testbed.errors import HostError, TestbedError
from testbed.faults.actions import ACTIONS, flap_changes
from testbed.faults.injector import Injector
from testbed.link_settings import LinkSettings
from testbed.scenario.faults import Fault
from testbed.scenario.kinds import KINDS

LINK, SWITCH = "t0_1_1-t1_1_1", "t1_1_1"


class Recorder:
    """A fabric. `boots` is held up until the test lets it go."""

    def __init__(self):
        self.done, self.may_boot = [], threading.Event()
        self.may_boot.set()
        self.error = None
        self.settings = LinkSettings(10_000_000)
        self.has_controller = True

    def act(self, *what):
        if self.error is not None:
            raise self.error
        self.done.append(what)
        return time.monotonic(), time.monotonic()

    def set_carriers(self, links, up):
        return self.act("carrier", *links, up)

    def set_silent(self, link, on):
        return self.act("silent", link, on)

    def set_remote(self, link, seen_by, on):
        return self.act("remote", link, seen_by, on)

    def set_one_way(self, link, sender, on):
        return self.act("one-way", link, sender, on)

    def set_port(self, port, up):
        return self.act("port", port, up)

    def set_hang(self, switch, on):
        return self.act("hang", switch, on)

    def lose(self, link, reason, share, sender=None, evs=()):
        return self.act("lose", link, reason, share, sender, tuple(evs))

    def stop_losing(self, link, reason):
        return self.act("stop losing", link, reason)

    def slow_link(self, link, reason, rate_bps, sender=None):
        return self.act("slow", link, reason, rate_bps, sender)

    def restore_rate(self, link, reason):
        return self.act("restore", link, reason)

    def slow_host(self, host, reason, share, period_s):
        return self.act("slow host", host, reason, share, period_s)

    def restore_host(self, host, reason):
        return self.act("restore host", host, reason)

    def stop_switch(self, node, orderly):
        return self.act("stop", node, orderly)

    def set_controller(self, up):
        return self.act("controller", up)

    def boot_switch(self, node):
        assert self.may_boot.wait(30)
        return self.act("boot", node)


def fault(name, kind, target, at_s, for_s, links=None, **params):
    links = links if links is not None else ((target,) if "-" in target else ())
    return Fault(name, kind, target, "link" if "-" in target else "switch", "T1", at_s, for_s, "$", params, links)


@pytest.fixture
def fabric():
    return Recorder()


def injector_of(fabric, faults, events=None):
    return Injector(fabric, faults, time.monotonic(), (events if events is not None else []).append)


def test_every_kind_begins_and_ends(fabric):
    faults = [fault("f1", "carrier", "a-b", 0, 0.01), fault("f2", "silent", "c-d", 0, 0.01)]
    faults += [fault("f3", "switch-kill", "s1", 0, 0.01), fault("f4", "switch-reboot", "s2", 0, 0.01)]
    injector = injector_of(fabric, faults)
    injector.start()
    eventually(lambda: len(fabric.done) == 8)
    injector.finish()
    assert sorted(fabric.done, key=str) == [
        ("boot", "s1"), ("boot", "s2"), ("carrier", "a-b", False), ("carrier", "a-b", True),
        ("silent", "c-d", False), ("silent", "c-d", True), ("stop", "s1", False), ("stop", "s2", True),
    ]  # fmt: skip


def controller_kill(fabric):
    """Events of one that lasts a moment."""
    events = []
    injector = injector_of(fabric, [Fault("f1", "controller-kill", "controller", "controller", "controller", 0, 0.01, "$")], events)
    injector.start()
    eventually(lambda: len(events) == 2)
    injector.finish()
    return events


def test_a_controller_dies_and_is_started_again(fabric):
    assert ["applies" in event for event in controller_kill(fabric)] == [False, False]
    assert fabric.done == [("controller", False), ("controller", True)]


def test_where_there_is_no_controller_nothing_is_done_and_history_says_so(fabric):
    fabric.has_controller = False
    assert [(event["event"], event["applies"]) for event in controller_kill(fabric)] == [("fault_begin", False), ("fault_end", False)]
    assert fabric.done == []


def test_a_switch_that_boots_is_not_killed_again_before_it_is_up(fabric):
    fabric.may_boot.clear()
    injector = injector_of(fabric, [fault("f2", "switch-kill", SWITCH, 0.01, 0.01), fault("f1", "switch-kill", SWITCH, 0, 0.01)])
    injector.start()
    eventually(lambda: fabric.done)
    time.sleep(0.1)  # the second fault's time is long past
    assert fabric.done == [("stop", SWITCH, False)]
    fabric.may_boot.set()
    eventually(lambda: len(fabric.done) == 4)
    assert [what for what, *_ in fabric.done] == ["stop", "boot", "stop", "boot"]


def test_the_end_of_a_run_heals_what_is_on_and_begins_nothing(fabric):
    injector = injector_of(fabric, [fault("f1", "silent", LINK, 0, 3600), fault("f2", "carrier", LINK, 3600, 1)])
    injector.start()
    eventually(lambda: fabric.done)
    injector.finish()
    assert fabric.done == [("silent", LINK, True), ("silent", LINK, False)]


def test_times_are_on_the_jobs_clock(fabric):
    events = []
    injector = injector_of(fabric, [fault("f1", "silent", LINK, 0.02, 0.03)], events)
    injector.start()
    eventually(lambda: len(events) == 2)
    assert [(event["event"], event["planned_s"]) for event in events] == [("fault_begin", 0.02), ("fault_end", 0.05)]
    assert all(event["planned_s"] <= event["issued_s"] <= event["effective_s"] for event in events)


@pytest.mark.parametrize("error", [TestbedError("no"), OSError(5, "no"), ValueError("no")])
def test_whatever_goes_wrong_in_a_fault_ends_the_run(fabric, error):
    fabric.error = error
    injector = injector_of(fabric, [fault("f1", "silent", LINK, 0, 1)])
    injector.start()
    with pytest.raises(type(error), match="no"):
        injector.finish()


def test_a_fault_that_the_kernel_refuses_is_named(fabric):
    fabric.error = HostError("No such device")
    injector = injector_of(fabric, [fault("f1", "silent", LINK, 0, 1)])
    injector.start()
    with pytest.raises(HostError, match=rf"silent on {LINK} \(f1\) could not be carried out: No such device"):
        injector.finish()


def test_what_cannot_be_healed_is_named(fabric):
    fabric.may_boot.clear()
    injector = injector_of(fabric, [fault("f1", "switch-kill", SWITCH, 0, 0.01)])
    injector.start()
    eventually(lambda: fabric.done)
    with pytest.raises(TestbedError, match=f"not healed.*{SWITCH}"):
        injector.finish(timeout_s=0.2)
    fabric.may_boot.set()


def test_every_kind_of_a_scenario_has_an_action():
    assert set(ACTIONS) == set(KINDS)


@pytest.mark.parametrize(
    ("kind", "target", "params", "done"),
    [
        ("remote", LINK, {"seen_by": "t0_1_1"}, [("remote", LINK, "t0_1_1", True), ("remote", LINK, "t0_1_1", False)]),
        ("one-way", LINK, {"from": SWITCH}, [("one-way", LINK, SWITCH, True), ("one-way", LINK, SWITCH, False)]),
        ("loss", LINK, {"share": 0.5}, [("lose", LINK, "f1", 0.5, None, ()), ("stop losing", LINK, "f1")]),
        ("loss", LINK, {"share": 1, "from": SWITCH, "evs": [3]}, [("lose", LINK, "f1", 1, SWITCH, (3,)), ("stop losing", LINK, "f1")]),
        ("rate", LINK, {"rate_bps": 2e6}, [("slow", LINK, "f1", 2e6, None), ("restore", LINK, "f1")]),
        ("rate", LINK, {"share": 0.25, "from": SWITCH}, [("slow", LINK, "f1", 2.5e6, SWITCH), ("restore", LINK, "f1")]),
        ("port", "h1-eth0", {}, [("port", "h1-eth0", False), ("port", "h1-eth0", True)]),
        ("switch-hang", SWITCH, {}, [("hang", SWITCH, True), ("hang", SWITCH, False)]),
        ("host-slow", "h1", {"share": 0.2, "period_s": 0.1}, [("slow host", "h1", "f1", 0.2, 0.1), ("restore host", "h1", "f1")]),
    ],
)
def test_a_kind_does_and_undoes(fabric, kind, target, params, done):
    only = fault("f1", kind, target, 0, 1, **params)
    ACTIONS[kind].begin(fabric, only)
    ACTIONS[kind].end(fabric, only)
    assert fabric.done == done


def test_the_fibres_of_a_bundle_are_cut_in_one_call(fabric):
    bundle = fault("f1", "bundle", "a-b+1", 0, 1, links=("a-b", "c-d"), of="carrier")
    ACTIONS["bundle"].begin(fabric, bundle)
    assert fabric.done == [("carrier", "a-b", "c-d", False)]


def test_a_silent_bundle_silences_each_link(fabric):
    bundle = fault("f1", "bundle", "a-b+1", 0, 1, links=("a-b", "c-d"), of="silent")
    ACTIONS["bundle"].end(fabric, bundle)
    assert fabric.done == [("silent", "a-b", False), ("silent", "c-d", False)]


def flap(for_s, down_s=0.2, up_s=0.8, of="carrier"):
    return fault("f1", "flap", LINK, 0, for_s, down_s=down_s, up_s=up_s, of=of)


def test_a_flapping_link_is_up_and_down_by_turns():
    assert list(flap_changes(flap(2.1))) == [(0.2, True), (1.0, False), (1.2, True), (2.0, False)]


def test_the_end_of_a_flap_is_no_change_of_its_own():
    assert list(flap_changes(flap(1.0))) == [(0.2, True)]
    assert list(flap_changes(flap(0.2))) == []


@pytest.mark.parametrize(("for_s", "changes"), [(0.05, [True, False]), (0.06, [True, False, True])])
def test_a_flap_ends_up_and_heals_as_often_as_it_cuts(fabric, for_s, changes):
    events = []
    injector = injector_of(fabric, [flap(for_s, 0.02, 0.01, "silent")], events)
    injector.start()
    eventually(lambda: any(event["event"] == "fault_end" for event in events))
    injector.finish()
    states = [on for _silent, _link, on in fabric.done]
    assert states == [True, False] * (len(states) // 2)
    assert [event["event"] for event in events] == ["fault_begin", *["flap"] * len(changes), "fault_end"]
    assert [event["up"] for event in events[1:-1]] == changes


def test_a_run_that_ends_while_a_flapping_link_is_down_brings_it_up(fabric):
    injector = injector_of(fabric, [flap(3600, 3000, 1)])
    injector.start()
    eventually(lambda: fabric.done)
    injector.finish()
    assert fabric.done == [("carrier", LINK, False), ("carrier", LINK, True)]


def test_a_run_that_ends_while_a_flapping_link_is_up_leaves_it(fabric):
    injector = injector_of(fabric, [flap(3600, 0.01, 3000)])
    injector.start()
    eventually(lambda: len(fabric.done) == 2)
    injector.finish()
    assert fabric.done == [("carrier", LINK, False), ("carrier", LINK, True)]


def test_a_lossy_link_may_be_cut_meanwhile(fabric):
    injector = injector_of(fabric, [fault("f1", "loss", LINK, 0, 3600, share=0.1), fault("f2", "carrier", LINK, 0.01, 0.01)])
    injector.start()
    eventually(lambda: ("carrier", LINK, True) in fabric.done)
    injector.finish()
    assert [what for what, *_ in fabric.done] == ["lose", "carrier", "carrier", "stop losing"]
