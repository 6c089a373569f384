"""ECN: a marked packet is acknowledged at once, its EV is passed over once, the window is told; and the receiver's penalty."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from mrc_lab import NOW, Pair, World, answers, entropy_of, ev_set, on_wire, psn_of, tell

from hosts import wire
from hosts.mrc import MrcParams
from hosts.mrc.channel import Conditions
from hosts.mrc.frames import SackFields, parse_sack
from hosts.wire import timestamp
from testbed.errors import UsageError


class Watched:
    """A window that notes what it is told."""

    cwnd_packets = 64.0

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def on_sack(self, now: float, acked_packets: int, rtt_s: float | None, limited: bool, marked: bool) -> None:
        self.told.append(("sack", acked_packets, rtt_s is not None, marked))

    def on_trimmed(self, now: float) -> None:
        self.told.append(("trimmed",))

    def on_mass_loss(self, now: float) -> None:
        self.told.append(("mass_loss",))

    def on_penalty(self, penalty: int) -> None:
        self.told.append(("penalty", penalty))


def test_a_marked_packet_is_acknowledged_at_once_and_its_ev_named() -> None:
    pair = Pair()
    packets = pair.send(6 * 4096)
    (say,) = pair.give(packets[0], wire.marked(packets[1]))
    assert (say.skip, say.entropy, say.cack, say.cack + say.ack_psn_offset) == (wire.SKIP_ONCE, entropy_of(packets[1]), 1001, 1001)
    assert not say.cc_flags & wire.HELD


def test_every_marked_packet_of_a_batch_is_echoed() -> None:
    pair = Pair()
    packets = pair.send(6 * 4096)
    echoes = pair.give(*(wire.marked(packet) for packet in packets[:3]))
    assert [(say.skip, say.entropy) for say in echoes] == [(wire.SKIP_ONCE, entropy_of(packet)) for packet in packets[:3]]


def test_unmarked_packets_are_acknowledged_as_before() -> None:
    pair = Pair()
    packets = pair.send(6 * 4096)
    assert pair.give(*packets[:3]) == []
    (say,) = pair.give(packets[3])
    assert say.skip == wire.SKIP_NONE


def test_a_mark_is_said_once_when_the_news_needs_several_sacks() -> None:
    pair = Pair(payload_bytes=64, ack_every=1000, cwnd_initial_packets=300, cwnd_max_packets=300)
    packets = pair.send(200 * 64)[1:]
    echoes = pair.give(*packets[:-1], wire.marked(packets[-1]))
    assert len(echoes) > 1
    assert [say.skip for say in echoes].count(wire.SKIP_ONCE) == 1


def test_a_marked_probe_is_only_answered() -> None:
    pair = Pair()
    header, trailer = pair.framer.probe(3, 1, 5)
    (answer,) = answers(pair, wire.marked(bytes(header) + trailer))
    say = parse_sack(memoryview(on_wire(answer)))
    assert (say.probe_reply, say.skip) == (True, wire.SKIP_NONE)


def test_the_sender_skips_the_marked_ev_and_tells_the_window() -> None:
    pair = Pair()
    window = pair.a._send["b"].qps[0].window = Watched()
    packets = pair.send(6 * 4096)
    tell(pair, *answers(pair, wire.marked(packets[0])), now=NOW + 0.001)
    assert [row[2] for row in pair.a.path_rows()].count("SKIP") == 1
    ev = entropy_of(packets[0])
    assert pair.a.path_rows()[ev][2:] == ("SKIP", [entropy_of(packet) for packet in packets].count(ev), 0, 0, 0, 1)
    assert pair.a.flow_rows()[0][6:] == (0, 1)
    assert window.told == [("sack", 1, True, True)]
    assert pair.a.take_events() == []


def test_the_window_is_told_of_each_trimmed_packet() -> None:
    pair = Pair()
    window = pair.a._send["b"].qps[0].window = Watched()
    packets = pair.send(6 * 4096)
    tell(pair, *answers(pair, *(wire.trimmed(packet) for packet in packets[:2])))
    assert window.told == [("trimmed",), ("trimmed",)]


def test_an_ev_that_is_to_be_skipped_always_is_out() -> None:
    pair = Pair()
    packet = next(packet for packet in pair.send(6 * 4096) if entropy_of(packet) == 2)
    say = SackFields(1, False, psn_of(packet) - 999, 2, 999, 0, 8, 1, 0, timestamp(NOW), 0, 0, wire.ALWAYS_SKIP)
    pair.a.on_datagram(NOW, 0, memoryview(pair.sack(say)))
    assert [row[2] for row in pair.a.path_rows()] == ["GOOD", "GOOD", "ASSUMED_BAD", "GOOD"]
    (event,) = pair.a.take_events()
    assert (event.fields["reason"], event.fields["first_lost_tx_s"]) == ("always_skip", None)
    assert pair.a.flow_rows()[0][6:] == (0, 0)


@pytest.mark.parametrize("skip", [wire.SKIP_ONCE, wire.ALWAYS_SKIP])
def test_a_mark_of_an_ev_that_nothing_was_sent_on_changes_no_ev(skip: int) -> None:
    pair = Pair()
    pair.send(6 * 4096)
    pair.a.on_datagram(NOW, 0, memoryview(pair.sack(SackFields(1, False, 0, 4, 999, 0, 8, 1, 0, 0, 0, 0, skip))))
    assert [row[2] for row in pair.a.path_rows()] == ["GOOD"] * 4
    assert pair.a.report()["drops"] == {"sack_unknown": 1}


# The rotation


def test_a_skipped_ev_misses_one_rotation_and_is_good_again() -> None:
    evs = ev_set(8)
    evs.skip(evs.evs[3])
    assert sorted(evs.pick().index for _ in range(7)) == [0, 1, 2, 4, 5, 6, 7]
    assert evs.evs[3].state == "GOOD"
    assert sorted(evs.pick().index for _ in range(8)) == list(range(8))


def test_when_all_are_skipped_the_order_goes_on_as_if_none_were() -> None:
    evs = ev_set(4)
    for ev in evs.evs:
        evs.skip(ev)
    used = [evs.pick().index for _ in range(9)]
    assert set(used) == {0, 1, 2, 3}
    assert max(used.count(index) for index in range(4)) - min(used.count(index) for index in range(4)) <= 1


@pytest.mark.parametrize("seed", range(20))
def test_the_avoided_ev_is_not_picked_though_all_others_are_skipped(seed: int) -> None:
    rng, evs = Random(seed), ev_set(3)
    for _ in range(200):
        avoid = rng.choice(evs.evs)
        for ev in evs.evs:
            if ev is not avoid or rng.random() < 0.5:
                evs.skip(ev)
        assert evs.pick(avoid) is not avoid


def test_a_skipped_ev_can_be_retired_and_a_retired_one_not_skipped() -> None:
    evs = ev_set(2)
    evs.skip(evs.evs[0])
    assert evs.retire(NOW, evs.evs[0], None)
    evs.skip(evs.evs[0])
    assert evs.evs[0].state == "ASSUMED_BAD"
    assert evs.good_count == 1


def test_a_single_ev_that_is_always_marked_carries_everything() -> None:
    world = World(Conditions(marking=1.0), paths=1)
    world.post(1 << 18, 0)
    world.run(30)
    world.assert_delivered()
    assert world.a.flow_rows()[0][2] == 0


# The receiver's penalty


def test_the_penalty_is_sent_and_handed_on_when_it_changes() -> None:
    pair = Pair(receiver_penalty=64)
    window = pair.a._send["b"].qps[0].window = Watched()
    for _ in range(2):
        tell(pair, *answers(pair, *pair.send()))
    assert window.told.count(("penalty", 64)) == 1


@pytest.mark.parametrize("penalty", [-1, 128])
def test_an_impossible_penalty_is_refused(penalty: int) -> None:
    with pytest.raises(UsageError, match="receiver_penalty must be 0 to 127"):
        MrcParams(receiver_penalty=penalty)
