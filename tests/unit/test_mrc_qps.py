"""Several QPs a host pair: turns, completions in the order of posting, one failure for all, and what each may have in flight."""

from __future__ import annotations

import statistics
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mrc_lab import NOW, START_S, Pair, World, answers, on_wire, tell

from hosts import wire
from hosts.mrc.channel import Conditions, Queue
from hosts.mrc.frames import NackFields

RATE_BPS = 50e6


def destination_qp(packet: bytes) -> int:
    return wire.BTH.unpack(packet, wire.BTH_OFFSET)["destination_qp"]


def post(pair: Pair, imm: int | None, size_bytes: int = 100) -> list[bytes]:
    """Posts a message to an address of its own and returns its packets."""
    pair.a.post_write(NOW, "b", memoryview(bytes([imm or 0]) * size_bytes), (imm or 0) * size_bytes, imm)
    return [on_wire(packet) for packet in pair.a.transmit(NOW)]


def immediates(pair: Pair) -> list[int]:
    return [completion.imm for completion in pair.b.take_completions()]


def test_messages_take_the_qps_in_turn_and_plain_writes_stay_with_their_immediate() -> None:
    pair = Pair(qps=3)
    qps = pair.b.attributes()["receive_qps"]["a"]
    used = [destination_qp(post(pair, imm)[0]) for imm in (1, None, None, 2, 3, 4, None)]
    assert used == [qps[0], qps[1], qps[1], qps[1], qps[2], qps[0], qps[1]]


def test_completions_wait_for_the_qp_whose_turn_it_is() -> None:
    pair = Pair(qps=3)
    packets = [post(pair, imm)[0] for imm in range(6)]
    pair.give(packets[1], packets[2], packets[4])
    assert immediates(pair) == []
    pair.give(packets[0])
    assert immediates(pair) == [0, 1, 2]
    pair.give(packets[5], packets[3])
    assert immediates(pair) == [3, 4, 5]


def test_what_is_outstanding_counts_from_the_first_message_that_is_not_acknowledged() -> None:
    pair = Pair(qps=3)
    packets = [post(pair, imm)[0] for imm in range(6)]
    tell(pair, *answers(pair, *packets[1:5]))
    assert pair.a.outstanding_messages("b") == 6
    tell(pair, *answers(pair, packets[0]))
    assert pair.a.outstanding_messages("b") == 1
    tell(pair, *answers(pair, packets[5]))
    assert pair.a.outstanding_messages("b") == 0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32), qps=st.integers(1, 16), write_bytes=st.sampled_from([0, 1500, 5000]))
def test_the_first_so_many_posted_are_done_and_complete_whatever_the_network_does(seed: int, qps: int, write_bytes: int) -> None:
    rng = Random(seed)
    network = Conditions(
        loss=rng.choice((0, 0.05)), jitter_s=0.002, duplication=0.02, trimming=rng.choice((0, 0.05)), dead=((1, START_S, START_S + 0.2),)
    )
    world = World(network, seed=seed, qps=qps, write_bytes=write_bytes, payload_bytes=1000)
    sizes = [rng.choice((0, 1, 900, 1000, 4000, 12_000)) for _ in range(40)]
    world.post_row(sizes)
    done_before = [0]

    def promise_holds() -> bool:
        settled, done = world.settled(), len(sizes) - world.a.outstanding_messages("b")
        assert done >= done_before[0]
        assert done <= len(world.completions)
        assert world.region[: sum(sizes[:done])] == world.expected[: sum(sizes[:done])]
        done_before[0] = done
        return settled

    world.channel.run(START_S + 60, promise_holds)
    world.assert_delivered()


def test_one_qp_that_fails_takes_the_others_with_it_once() -> None:
    pair = Pair(qps=3)
    packets = [post(pair, imm)[0] for imm in range(3)]
    number = pair.a.attributes()["send_qps"]["b"][1]
    psn = pair.a._send["b"].qps[1].first_psn
    ev = wire.entropy_of(int.from_bytes(packets[1][40:42], "big"), 0)
    say = NackFields(wire.UNEXPECTED_EVENT, ev, psn, wire.timestamp(NOW))
    framer = type(pair.framer)("fd00::b", "fd00::a", 1, number, wire.UDP_PORT)
    header, trailer = framer.nack(0, say)
    pair.a.on_datagram(NOW, 0, memoryview(bytes(header) + trailer))
    errors = pair.a.take_errors()
    assert [(error.peer, error.reason) for error in errors] == [("b", "the peer met an UNEXPECTED_EVENT")]
    assert [event.fields["peer"] for event in pair.a.take_events() if event.event == "qp_error"] == ["b"]
    assert pair.a.outstanding_messages("b") == 0
    assert pair.a.next_deadline() is None
    assert list(pair.a.transmit(NOW + 1)) == []
    tell(pair, *answers(pair, *packets))
    assert pair.a.report()["drops"] == {"unknown_qp": 3}


def test_evs_are_numbered_on_and_a_pair_is_one_row_of_flows() -> None:
    world = World(qps=3)
    world.post_row([20_000] * 6)
    world.run(5)
    world.assert_delivered()
    rows = world.a.path_rows()
    assert [row[1] for row in rows] == list(range(12))
    assert all(row[3] > 0 for row in rows)
    (flow,) = world.a.flow_rows()
    assert flow[1] == sum(row[3] for row in rows)
    assert flow[3] == 120_000


def test_the_events_of_a_path_name_the_pairs_ev() -> None:
    world = World(Conditions(dead=((2, START_S, START_S + 900),)), qps=2, idle_probes=0)
    world.post_row([100_000] * 4)
    world.run(30)
    world.assert_delivered()
    assert {event.fields["ev"] for event in world.states("ASSUMED_BAD")} == {2, 6}
    assert {event.fields["path"][0] for event in world.states("ASSUMED_BAD")} == {"b-path2"}


def test_an_administrator_names_the_evs_of_any_qp_of_the_pair() -> None:
    pair = Pair(qps=2)
    assert pair.a.deny(NOW, (), {"b": [1, 5]}, True) == {"b": [1, 5]}
    assert [row[1] for row in pair.a.path_rows() if row[2] == "DENIED"] == [1, 5]
    assert pair.a.deny(NOW, ["b-path2"], {}, True) == {"b": [2, 6]}


@pytest.mark.parametrize("given_packets", [{"cwnd_initial_packets": 32, "cwnd_max_packets": 64}, {"cwnd_initial_packets": 0}])
def test_all_qps_together_may_have_as_much_in_flight_as_one(given_packets: dict[str, int]) -> None:
    one, four = (Pair(qps=qps, **given_packets).a.flow_rows()[0][4] for qps in (1, 4))
    assert four == one


@pytest.mark.parametrize("qps", [1, 4])
def test_what_all_qps_have_in_flight_counts_against_the_window(qps: int) -> None:
    pair = Pair(qps=qps, cwnd_initial_packets=6, cwnd_max_packets=6)
    for imm in range(4):
        pair.a.post_write(NOW, "b", memoryview(bytes(3 * 4096)), 0, imm)
    packets = [on_wire(packet) for packet in pair.a.transmit(NOW)]
    assert len(packets) == 6
    assert len({destination_qp(packet) for packet in packets}) == min(qps, 4)


def test_no_qp_waits_while_others_have_the_whole_window() -> None:
    world = World(Conditions(rate_bps=RATE_BPS), qps=4, cwnd_initial_packets=1, cwnd_max_packets=1)
    world.post_row([50_000] * 16)
    sent = list[int]()
    world.channel.on_send = lambda now, host, path, packet: sent.append(destination_qp(on_wire(packet))) if packet.payload else None
    world.run(30)
    world.assert_delivered()
    first = sent[: len(sent) // 2]
    assert max(first.count(qp) for qp in set(sent)) < 2 * min(first.count(qp) for qp in set(sent))


@pytest.mark.parametrize("qps", [2, 8])
def test_more_qps_do_not_make_the_queue_longer_nor_the_rate_smaller(qps: int) -> None:
    """One bottleneck that trims and marks, as in an incast: queueing delay and rate as with one QP."""
    (few_s, few_bps), (many_s, many_bps) = bottleneck(1), bottleneck(qps)
    assert many_bps > 0.9 * few_bps
    assert many_s < 1.3 * few_s


def bottleneck(qps: int) -> tuple[float, float]:
    """(mean RTT in s, rate in bit/s) of 8 s through one link of RATE_BPS."""
    queue = Queue(ecn_min_bytes=8 * 4300, ecn_max_bytes=24 * 4300, trim_bytes=32 * 4300, shared=True)
    world = World(Conditions(delay_s=0.002, rate_bps=RATE_BPS, queue=queue), qps=qps, link_rate_bps=RATE_BPS, trimming=True)
    rtts_s, acked = list[float](), list[int]()
    for second in range(80):
        while world.a.outstanding_messages("b") < 32:
            world.post(1 << 16, 0)
        world.channel.run(START_S + second / 10, lambda: world.settled() and False)
        rtts_s.append(world.a.flow_rows()[0][5])
        acked.append(world.a.acked_bytes())
    return statistics.mean(rtts_s[20:]), statistics.mean((after - before) * 80 for before, after in pairwise(acked[20:]))
