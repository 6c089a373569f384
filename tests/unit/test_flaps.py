"""Which ends of sessions a fault explains, and which make a run suspect."""

from __future__ import annotations

import pytest

from testbed.pathvector import BgpOvsOptions
from testbed.routing.options import BgpOptions
from testbed.run.flaps import fabric_flaps, grace_s, session_flaps
from testbed.run.plan import fabric_options
from testbed.scenario.faults import Fault
from testbed.scenario.load import load_text
from topologies import build

K4 = build("fat-tree", k=4)
START, ENDED = 1000.0, 1060.0
CUT = Fault("f1", "carrier", "t0_1_1-t1_1_1", "link", "T0-T1", 10.0, 5.0, "", {}, ("t0_1_1-t1_1_1",))
KILL = Fault("f2", "switch-kill", "t1_1_1", "switch", "T1", 10.0, 5.0, "", {}, tuple(link.name for link in K4.links_of("t1_1_1")))
SLOW = Fault("f3", "host-slow", "h1", "host", "host", 10.0, 5.0, "", {}, ())


def fell(at_s: float, node: str = "t0_1_1", peer: str = "t1_1_1", event: str = "session", reason: str = "hold") -> dict:
    return {"t": START + at_s, "source": "routing", "event": event, "node": node, "peer": peer, "up": False, "reason": reason}


def carried_out(fault: Fault, ended: bool = True) -> list[dict]:
    begin = {"t": START + 10.0, "event": "fault_begin", "fault": fault.id, "issued_s": 10.0, "effective_s": 10.1}
    end = {"t": START + 15.2, "event": "fault_end", "fault": fault.id, "issued_s": 15.0, "effective_s": 15.2}
    return [begin, end] if ended else [begin]


def flaps(events: list[dict], *faults: Fault) -> tuple[str, ...]:
    return session_flaps(events, faults, K4, start=START, ended=ENDED, grace_s=19.0)


@pytest.mark.parametrize("at_s", [9.95, 10.0, 12.0, 15.2, 34.1])
def test_a_fault_explains_what_falls_on_its_link_until_the_grace_is_over(at_s):
    assert flaps([*carried_out(CUT), fell(at_s)], CUT) == ()


@pytest.mark.parametrize("at_s", [9.8, 34.3])
def test_before_a_fault_and_long_after_it_explains_nothing(at_s):
    assert flaps([*carried_out(CUT), fell(at_s)], CUT) == (f"t0_1_1-t1_1_1 at {at_s:.1f} s (hold)",)


def test_a_fault_on_another_link_explains_nothing():
    assert flaps([*carried_out(CUT), fell(12.0, peer="t1_1_2")], CUT) == ("t0_1_1-t1_1_2 at 12.0 s (hold)",)


def test_a_fault_of_a_switch_explains_all_its_links():
    told = [*carried_out(KILL), fell(12.0), fell(12.0, "t2_1", "t1_1_1"), fell(12.0, "t0_1_2", "t1_1_1")]
    assert flaps(told, KILL) == ()


def test_a_slow_host_explains_no_session():
    assert len(flaps([*carried_out(SLOW), fell(12.0)], SLOW)) == 1


def test_a_fault_that_did_not_happen_explains_nothing():
    assert len(flaps([fell(12.0)], CUT)) == 1


def test_a_fault_without_an_end_explains_until_the_runs_end():
    assert flaps([*carried_out(CUT, ended=False), fell(55.0)], CUT) == ()


@pytest.mark.parametrize("at_s", [-0.5, 60.5])
def test_the_start_and_the_orderly_end_do_not_count(at_s):
    assert flaps([fell(at_s)]) == ()


def test_what_comes_up_is_no_flap():
    assert flaps([fell(12.0) | {"up": True}]) == ()


def test_both_ends_and_both_protocols_are_one_flap():
    told = [
        fell(12.0, event="bfd", reason="control-expired"),
        fell(12.01, reason="bfd"),
        fell(12.3, "t1_1_1", "t0_1_1", reason="notification"),
    ]
    assert flaps(told) == ("t0_1_1-t1_1_1 at 12.0 s (control-expired, bfd, notification)",)


def test_two_flaps_of_a_link_are_two():
    assert len(flaps([fell(12.0), fell(20.0), fell(20.0, "t2_1", "t1_1_1")])) == 3


def test_the_grace_is_a_hold_time_and_what_it_takes_at_most_to_be_established_again():
    assert grace_s(BgpOptions(keepalive_s=3, hold_s=9, connect_retry_s=10)) == 19
    assert grace_s(BgpOvsOptions(hold_s=9.0, session_max_s=2.5)) == 11.5


@pytest.mark.parametrize(("arm", "count"), [("rc-bgp", 1), ("tcp-bgp", 1), ("rc-bgp-ovs", 1), ("mrc", 0)])
def test_sessions_of_every_arm_that_routes_count_routers_or_model(arm: str, count: int):
    text = "name: try\ntopology: {kind: fat-tree, k: 4}\nrun: {duration: 20s}\narms: [mrc, rc-bgp, tcp-bgp, rc-bgp-ovs]\n"
    options = fabric_options(load_text(text, ()), arm)
    told = [*carried_out(CUT), fell(12.0), fell(50.0)]
    assert len(fabric_flaps(options, told, [CUT], K4, start=START, ended=ENDED)) == count
