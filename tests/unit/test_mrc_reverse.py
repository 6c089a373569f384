"""The way back: which path answers take, and how probes find one that is dead in this direction only."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest
from mrc_lab import START_S, World, on_wire

from hosts.core import PathSpec
from hosts.mrc import MrcCore
from hosts.mrc.channel import Conditions, peer_spec
from hosts.mrc.ev import DENIED
from hosts.mrc.evs import EvSet
from hosts.mrc.params import MOST_REVERSE_EVS, MrcParams
from hosts.mrc.reverse import LEAST_PATIENCE_S, Alarm, ReversePaths, chosen

NOW = 10.0
PARAMS = MrcParams(initial_rtt_s=0.002)


def paths(*planes: int) -> list[PathSpec]:
    return [PathSpec(ev, ev, str(ev), plane, (), ev) for ev, plane in enumerate(planes)]


def reverse(count: int = 4, **params: float) -> ReversePaths:
    settings = MrcParams.from_mapping({"initial_rtt_s": 0.002, **params})
    return ReversePaths(peer_spec("b", "fd00::b", count, ports=count).paths, settings, Random(1), Alarm())


def miss(way_back: ReversePaths, now: float = NOW) -> int:
    """Has a probe sent and not answered; the path."""
    path = way_back.due(now, 0xABC)
    assert path is not None
    way_back.due(now + LEAST_PATIENCE_S, 0xABD)
    assert way_back.dead == {path}
    return path


@pytest.mark.parametrize(
    ("planes", "wanted", "expected"),
    [
        ((1, 1, 1, 1), 0, [0, 1, 2, 3]), ((1, 1, 2, 2), 0, [0, 2, 1, 3]), ((1, 1, 2, 2), 3, [0, 2, 1]),
        ((1, 2, 3, 4), 2, [0, 1, 2, 3]), ((1,) * 100, 0, list(range(MOST_REVERSE_EVS))), ((1, 1), 64, [0, 1]),
    ],
)  # fmt: skip
def test_the_set_takes_planes_in_turn_and_has_one_of_each(planes: tuple[int, ...], wanted: int, expected: list[int]) -> None:
    assert chosen(paths(*planes), wanted) == expected


def test_an_answer_takes_the_path_of_what_it_answers() -> None:
    assert [reverse().way(entropy) for entropy in (0, 3, 4, 65537)] == [0, 3, 4, 65537]


def test_a_path_whose_probe_is_not_answered_is_left_and_the_others_are_taken_in_turn() -> None:
    way_back = reverse()
    dead = miss(way_back)
    ways = [way_back.way(dead) for _ in range(6)]
    assert set(ways) == {0, 1, 2, 3} - {dead}
    assert way_back.way(dead + 4) != dead + 4
    assert way_back.way(dead + 1) == dead + 1


def test_with_all_paths_dead_answers_go_where_they_came_from() -> None:
    way_back = reverse(2)
    way_back.on_ports(0b11, 0)
    assert [way_back.way(0), way_back.way(1)] == [0, 1]


@pytest.mark.parametrize("masks", [(0b0010, 0), (0, 0b0010)], ids=["here", "at the peer"])
def test_a_path_over_a_dead_port_is_left_and_taken_again(masks: tuple[int, int]) -> None:
    way_back = reverse()
    way_back.on_ports(*masks)
    assert way_back.way(1) != 1
    way_back.on_ports(0, 0)
    assert way_back.way(1) == 1


def test_each_ev_is_probed_once_before_any_a_second_time() -> None:
    way_back = reverse()
    sent = [way_back.due(NOW + turn, number) for turn, number in enumerate(range(8))]
    assert sorted(sent[:4]) == sorted(sent[4:]) == [0, 1, 2, 3]


def test_no_probe_goes_out_of_a_port_that_is_down() -> None:
    way_back = reverse()
    way_back.on_ports(0b0101, 0)
    assert {way_back.due(NOW + turn, turn) for turn in range(20)} == {1, 3}


def test_probes_keep_their_distance() -> None:
    way_back = reverse()
    assert way_back.due(NOW, 1) is not None
    assert way_back.due(NOW + PARAMS.reverse_probe_min_s - 0.001, 2) is None
    assert way_back.due(NOW + PARAMS.reverse_probe_min_s, 3) is not None


def test_probes_are_a_round_trip_apart_when_that_is_longer() -> None:
    way_back = reverse(initial_rtt_s=0.3)
    assert way_back.due(NOW, 1) is not None
    assert way_back.due(NOW + 0.29, 2) is None
    assert way_back.due(NOW + 0.3, 3) is not None


def test_after_a_duplicate_each_ev_is_probed_within_a_round_trip_of_the_last() -> None:
    way_back = reverse()
    way_back.due(NOW, 1)
    way_back.hurry(NOW)
    sent = [way_back.due(NOW + 0.0021 * turn, 1 + turn) for turn in range(1, 6)]
    assert [ev is not None for ev in sent] == [True, True, True, True, False]


def test_duplicates_without_end_do_not_hurry_probes_more() -> None:
    way_back = reverse()
    sent = 0
    for tenth_ms in range(10_000):  # one second
        way_back.hurry(NOW + tenth_ms / 1e4)
        sent += way_back.due(NOW + tenth_ms / 1e4, tenth_ms) is not None
    assert sent <= 1 / 0.002 + 1


def test_a_dead_path_comes_back_after_so_many_answers() -> None:
    way_back = reverse(reverse_successes=2)
    dead = miss(way_back)
    sent = answered = 0
    while way_back.dead:
        sent += 1
        path = way_back.due(NOW + sent, sent)
        way_back.answered(NOW + sent, sent)
        answered += path == dead
    assert answered == 2


def test_a_late_answer_takes_the_verdict_back() -> None:
    way_back = reverse()
    dead = miss(way_back)
    assert way_back.answered(NOW + 1, 0xABC) == dead
    assert not way_back.dead


def test_nothing_is_due_for_a_probe_that_was_answered() -> None:
    way_back = reverse()
    way_back.due(NOW, 1)
    assert way_back.due_at == NOW + LEAST_PATIENCE_S
    way_back.answered(NOW + 0.001, 1)
    assert way_back.due_at == NOW + PARAMS.reverse_probe_min_s


def test_an_answer_to_no_probe_is_none() -> None:
    way_back = reverse()
    way_back.due(NOW, 5)
    assert way_back.answered(NOW, 6) is None
    assert way_back.answered(NOW, 5) is not None
    assert way_back.answered(NOW, 5) is None


def test_a_single_path_is_never_probed() -> None:
    way_back = reverse(1)
    way_back.heard()
    way_back.hurry(NOW)
    assert way_back.due(NOW, 1) is None
    assert not way_back.asked


# In virtual time


def one_way_death(direction_from: str = "b", paths_count: int = 4, **params: float) -> World:
    """a streams 4 MiB to b over paths of 20 Mbit/s; from 0.1 s on what one of them sends on path 1 is lost."""
    conditions = Conditions(rate_bps=20e6, dead_one_way=((direction_from, 1, START_S + 0.1, START_S + 100),))
    world = World(conditions, paths=paths_count, link_rate_bps=20e6, **params)
    for _ in range(4):
        world.post(1 << 20, 0)
    return world


def test_a_dead_way_back_is_found_and_costs_no_forward_ev() -> None:
    world = one_way_death()
    world.run(10)
    world.assert_delivered()
    assert world.states("ASSUMED_BAD") == []
    assert world.b.report()["endpoint"]["ev_probes_missed"] >= 1


def test_a_dead_way_back_delays_few_of_many_short_messages() -> None:
    world = World(Conditions(rate_bps=20e6, dead_one_way=(("b", 1, START_S + 0.05, START_S + 100),)), link_rate_bps=20e6)
    for _ in range(300):
        world.post(4096, 0)
        world.run(5)
    world.assert_delivered()
    assert world.a.report()["data_packets_retransmitted"] < 20  # one in four, 75, while nobody knows


def test_an_ev_comes_back_though_its_way_back_stays_dead() -> None:
    dead = ((1, START_S + 0.1, START_S + 0.3),)
    world = World(Conditions(rate_bps=20e6, dead=dead, dead_one_way=(("b", 1, START_S + 0.3, START_S + 100),)), link_rate_bps=20e6)
    for _ in range(8):
        world.post(1 << 20, 0)
    world.run(20)
    world.run_on(1.0)
    world.assert_delivered()
    assert [event.fields["ev"] for event in world.states("ASSUMED_BAD")] == [1]
    assert [event.fields["ev"] for event in world.states("GOOD")] == [1]


def test_after_it_was_found_nothing_but_probes_goes_the_dead_way_back() -> None:
    world = one_way_death()
    late: list[int] = []

    def watch(now: float, host: str, path: int, transmit) -> None:  # type: ignore[no-untyped-def]
        if host == "b" and now > START_S + 0.5 and path == 1:
            late.append(len(transmit.header) + len(transmit.trailer))

    world.channel.on_send = watch
    world.run(10)
    world.assert_delivered()
    assert set(late) <= {92}  # an Endpoint Request: 40 + 8 + 12 + 16 + 4 B, and its padding


def test_an_idle_receiver_does_not_probe() -> None:
    world = World()
    world.post(1 << 20, 0)
    world.run(5)
    world.run_on(0.5)
    before = world.b.report()["endpoint"]["ev_probes_sent"]
    world.run_on(5)
    assert world.b.report()["endpoint"]["ev_probes_sent"] == before
    assert before > 0


def test_probes_are_less_than_a_hundredth_of_a_loaded_links_bytes() -> None:
    world = one_way_death()
    sizes = {"a": 0, "probes": 0}

    def weigh(now: float, host: str, path: int, transmit) -> None:  # type: ignore[no-untyped-def]
        size = len(transmit.header) + len(transmit.payload) + len(transmit.trailer)
        if transmit.header[48] in (0xD8, 0xD9):
            sizes["probes"] += size
        elif host == "a":
            sizes["a"] += size

    world.channel.on_send = weigh
    world.run(10)
    assert 0 < sizes["probes"] < 0.01 * sizes["a"]


# Denied by the administrator


def test_a_denied_link_is_neither_answered_on_nor_probed_until_it_is_allowed() -> None:
    way_back = reverse()
    way_back.deny(["b-path1", "elsewhere"], on=True)
    assert way_back.way(1) != 1
    assert way_back.way(2) == 2
    probed = {way_back.due(NOW + number, number) for number in range(40)}
    assert probed == {0, 2, 3}
    way_back.deny(["b-path1"], on=False)
    assert 1 in {way_back.due(NOW + 100 + number, number) for number in range(40)}


def test_an_ev_that_is_denied_on_the_way_there_is_not_probed_as_a_way_back() -> None:
    way_back = reverse()
    forward = EvSet(tuple(way_back._paths), MrcParams(), Random(1))
    way_back.forward.append(forward)
    forward.evs[3].state = DENIED
    assert {way_back.due(NOW + number, number) for number in range(40)} == {0, 1, 2}


def test_ways_back_can_be_denied_and_allowed_without_the_evs() -> None:
    world = World()
    for on, way in ((True, {0, 2, 3}), (False, {1})):
        world.a.deny_ways_back(["b-path1"], on)
        assert world.a._endpoint.peers["b"].reverse.way(1) in way
        assert {row[2] for row in world.a.path_rows()} == {"GOOD"}


@pytest.mark.parametrize("host", ["a", "b"])
def test_nothing_at_all_is_sent_over_a_denied_link(host: str) -> None:
    world = World(Conditions(rate_bps=20e6, ports=4), link_rate_bps=20e6)
    for core, peer in ((world.a, "b"), (world.b, "a")):
        core.deny(START_S, [f"{peer}-path1"], {}, on=True)
    sent: list[int] = []

    def watch(now: float, source: str, path: int, transmit) -> None:  # type: ignore[no-untyped-def]
        if source == host:
            sent.append(path)

    world.channel.on_send = watch
    for _ in range(4):
        world.post(1 << 20, 0)
    world.run(0.5)
    for core in (world.a, world.b):
        core.on_port(world.channel.now, 2, False)  # so that the peer is told, too
    world.run(10)
    world.assert_delivered()
    assert set(sent) == {0, 2, 3}


def test_a_peer_that_sends_nothing_does_not_keep_its_host_awake() -> None:
    """As in a ring, where each host hears from one neighbour and sends to the other."""
    settings = MrcParams(idle_probes=0)
    spec = {name: peer_spec(name, f"fd00::{name}", 4, 4) for name in "abc"}
    regions = {name: memoryview(bytearray(1 << 14)) for name in "abc"}
    a, b, c = (
        MrcCore(name, f"fd00::{name}", settings, {to: spec[to]}, {of: spec[of]}, regions[name], 1)
        for of, name, to in (("c", "a", "b"), ("a", "b", "c"), ("b", "c", "a"))
    )
    told = {name: core.attributes() for name, core in zip("abc", (a, b, c), strict=True)}
    for core in (a, b, c):
        core.connect(told)
    for turn in range(3):
        now = NOW + turn / 1000
        a.post_write(now, "b", memoryview(bytes(4096)), 0, turn)
        for each in a.transmit(now):
            b.on_datagram(now, 0, memoryview(on_wire(each)))
        b.on_receive_done(now)
        b.on_timer(now)
        list(b.transmit(now))
        due = b.next_deadline()
        assert due is None or due > now


def test_a_dead_way_is_probed_on_though_this_host_sends_too() -> None:
    world = World(Conditions(dead_one_way=(("b", 2, START_S, START_S + 0.5),)))
    peer = world.b._endpoint.peers["a"]
    while not peer.reverse.dead and world.channel.now < START_S + 0.5:
        world.post(4096)
        world.run_on(0.01)
    assert peer.reverse.dead == {2}
    busy = SimpleNamespace(tx_packets=0)  # a send QP to the peer, which has always just sent something
    peer.senders.append(busy)
    while peer.reverse.dead and world.channel.now < START_S + 5:
        busy.tx_packets += 1
        world.post(4096)
        world.run_on(0.01)
    assert not peer.reverse.dead
