"""The delays of BGP as a controller runs it are those that were asked for, exactly: time is virtual here."""

from __future__ import annotations

from typing import Any

import pytest
from pathvector_lab import FLIGHT_S, World

import topologies
from testbed.pathvector import SendKeepalive

NEAR, FAR = "t0_1_1-t1_1_1", "t1_1_1-t2_1"
# Nothing takes any time but what a test gives.
BARE: dict[str, Any] = {
    "carrier_delay_s": 0.0, "process_s": 0.0, "process_jitter": 0.0, "batch_s": 0.0, "fib_base_s": 0.0, "fib_prefix_s": 0.0,
    "session_min_s": 0.5, "session_max_s": 0.5,
}  # fmt: skip
FAT_TREE = topologies.build("fat-tree", k=4)


def world(**options: Any) -> World:
    """k=4, half a second old."""
    made = World(FAT_TREE, **{**BARE, **options})
    made.run(0.5)
    return made


def cut(link: str, for_s: float = 5.0, **options: Any) -> World:
    """A world in which a link lost its carrier at 0.5 s."""
    made = world(**options)
    made.carrier(link, False)
    made.run(for_s)
    return made


def changes(found: World, switch: str) -> list[float]:
    """When a switch's table changed, from the fault on."""
    return sorted({round(t - 0.5, 6) for t, install in found.installs if install.switch == switch})


def test_the_switch_repairs_itself_before_bgp_knows() -> None:
    found = cut(NEAR, carrier_delay_s=2.0, local_repair_s=0.25)
    assert changes(found, "t0_1_1")[0] == 0.25
    assert changes(cut(NEAR, carrier_delay_s=2.0, local_repair=False), "t0_1_1") == [2.0]


def test_each_hop_takes_its_gathering_its_work_its_flight_and_its_table() -> None:
    delays = {"batch_s": 0.1, "process_s": 0.02, "carrier_delay_s": 0.01, "fib_base_s": 0.3, "fib_prefix_s": 0.03, "propagation_s": 0.07}
    found = cut(FAR, local_repair=False, **delays)
    first_hop = 0.01 + 0.1  # t2_1 decides
    second_hop = first_hop + 0.07 + 0.02 + 0.1  # t1_2_1 has heard, worked, and decides
    assert changes(found, "t2_1") == [round(first_hop + 0.3 + 0.03 * number, 6) for number in (1, 2, 3, 4)]
    assert changes(found, "t1_2_1") == [round(second_hop + 0.3 + 0.03 * number, 6) for number in (1, 2, 3, 4)]


def test_a_message_takes_the_time_of_its_real_packet_where_that_is_longer() -> None:
    assert changes(cut(FAR), "t1_2_1") == [FLIGHT_S]


def test_messages_to_one_switch_are_worked_on_one_after_another() -> None:
    """Both T1s of a pod withdraw the host from t0_3_1; the second message waits for the first."""
    found = cut("h1-t0_1_1", process_s=1.0, for_s=10)
    arrived = [t for t, event in found.events("bgp_message", node="t0_3_1")]
    assert len(arrived) == 2
    assert arrived[0] == arrived[1]
    assert changes(found, "t0_3_1") == [round(arrived[0] - 0.5 + number, 6) for number in (1, 2)]


def test_jitter_makes_work_longer_and_never_shorter() -> None:
    for seed in range(20):
        made = World(FAT_TREE, seed, **{**BARE, "process_s": 1.0, "process_jitter": 0.5})
        made.run(0.5)
        made.carrier(FAR, False)
        made.run(5)
        (first, *_rest) = changes(made, "t1_2_1")
        assert 1.0 + FLIGHT_S <= first <= 1.5 + FLIGHT_S


def test_two_updates_to_a_neighbour_are_an_mrai_apart() -> None:
    found = world(mrai_s=2.0, session_min_s=0.1, session_max_s=0.1)
    found.run(10)
    for up in (False, True, False, True):
        found.carrier("h1-t0_1_1", up)
        found.run(0.3)
    found.run(10)
    times = [t for t, _ in found.events("bgp_message", node="t1_1_1", peer="t0_1_1")]
    assert len(times) == 2
    assert times[1] - times[0] == pytest.approx(2.0)
    assert found.settled() == found.expected()


def test_a_change_that_is_undone_within_the_mrai_is_not_told() -> None:
    found = world(mrai_s=2.0)
    found.run(10)
    for up in (False, True, False):  # told: gone; not told: back and gone again
        found.carrier("h1-t0_1_1", up)
        found.run(0.3)
    found.run(10)
    assert len(found.events("bgp_message", node="t1_1_1", peer="t0_1_1")) == 1


@pytest.mark.parametrize(("options", "wait_s", "reason"), [({}, 9.0, "hold"), ({"bfd_interval_s": 0.3, "bfd_multiplier": 3}, 0.9, "bfd")])
def test_a_silent_loss_is_seen_after_the_last_packet_and_the_patience(options: dict[str, Any], wait_s: float, reason: str) -> None:
    found = world(**options)
    found.run(10)
    found.silent(NEAR, True)
    found.run(20)
    downs = found.events("session", up=False)
    assert {(event["node"], event["reason"]) for _, event in downs} == {("t0_1_1", reason), ("t1_1_1", reason)}
    age_s = found.model.options.liveness_s + FLIGHT_S  # of the last packet, at most
    assert all(10.5 + wait_s - age_s <= t <= 10.5 + wait_s + FLIGHT_S for t, _ in downs)
    assert found.settled() == found.expected(NEAR)


def test_a_loss_one_way_is_seen_by_the_end_that_hears_nothing_and_told_to_the_other() -> None:
    found = world()
    found.one_way("t0_1_1-eth3", True)
    assert FAT_TREE.link(NEAR).end("t0_1_1").ifname == "t0_1_1-eth3"
    found.run(20)
    (first, second) = found.events("session", up=False)
    assert (first[1]["node"], first[1]["reason"]) == ("t1_1_1", "hold")
    assert (second[1]["node"], second[1]["reason"]) == ("t0_1_1", "notification")
    assert second[0] == pytest.approx(first[0] + FLIGHT_S)
    assert len(found.events("bgp_message", kind="notification")) == 1


def test_carrier_lost_at_one_end_only_leaves_the_other_to_its_hold_timer() -> None:
    found = world()
    found.remote(NEAR, "t1_1_1", True)
    found.run(20)
    assert {(event["node"], event["reason"]) for _, event in found.events("session", up=False)} == {
        ("t1_1_1", "carrier"),
        ("t0_1_1", "hold"),
    }
    assert found.settled() == found.expected(NEAR)


def test_an_end_that_did_not_see_a_short_loss_of_carrier_learns_of_it_from_the_first_packet() -> None:
    found = world()
    found.remote(NEAR, "t1_1_1", True)
    found.run(0.1)
    found.remote(NEAR, "t1_1_1", False)
    found.run(2)
    assert [event["reason"] for _, event in found.events("session", up=False)] == ["carrier", "notification"]
    assert len(found.events("session", up=True)) == 2
    assert found.settled() == found.expected()


def test_a_session_takes_its_time_to_be_established_and_only_while_packets_pass() -> None:
    found = cut(NEAR, session_min_s=0.5, session_max_s=0.5)
    found.run(1)
    began = found.now
    found.carrier(NEAR, True)
    found.run(5)
    assert {t for t, _ in found.events("session", up=True)} == {began + FLIGHT_S + 0.5}
    silent = cut(NEAR)
    silent.silent(NEAR, True)
    silent.carrier(NEAR, True)
    silent.run(30)
    assert silent.events("session", up=True) == []


def test_an_update_that_is_lost_with_its_link_does_not_arrive() -> None:
    """t1_1_1 cannot tell t2_1 that h1 is gone, until their session is over or the link passes packets again."""
    found = world()
    found.silent(FAR, True)
    found.carrier("h1-t0_1_1", False)
    found.run(1)
    host = next(install.address for _, install in found.installs if install.switch == "t0_1_1")
    assert host in found.tables["t2_1"]
    assert host not in found.tables["t2_2"]
    found.silent(FAR, False)
    found.run(2)
    assert host not in found.tables["t2_1"]
    assert found.events("session") == []


def test_a_cut_costs_the_messages_that_it_must() -> None:
    """Of a T1-T2 link: t2_1 withdraws pod 1's four hosts from the T1s of three pods, which tell nobody, as they have other ways."""
    found = cut(FAR)
    assert {(event["node"], event["peer"], event["withdrawn"]) for _, event in found.events("bgp_message")} == {
        (f"t1_{pod}_1", "t2_1", 4) for pod in (2, 3, 4)
    }
    assert len(found.events("bgp_message")) == 3


def test_keepalives_go_out_at_their_interval_on_every_port_between_switches() -> None:
    found = world()
    before = found.packets
    found.run(30)
    assert found.packets - before == 64 * 10


def test_nothing_is_sent_on_a_port_without_carrier() -> None:
    made = world()
    made.carrier(NEAR, False)
    for _ in range(100):
        made.now += 0.1
        sent = [action.ifname for action in made.model.advance(made.now) if isinstance(action, SendKeepalive)]
        assert not {"t0_1_1-eth3", "t1_1_1-eth1"} & set(sent)
