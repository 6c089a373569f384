"""What is trimmed on its way is asked for and sent again at once; it is no loss, and proves nothing about what was sent before it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mrc_lab import NOW, PAIR_BYTES, Pair, answers, empty_packet, entropy_of, ev_set, on_wire, opcode_of, psn_of, states, tell

from hosts import wire
from hosts.mrc import MrcParams
from hosts.mrc.evs import EvSet
from hosts.mrc.frames import NackFields, parse_nack, parse_sack
from hosts.mrc.loss import Allowance, Flight
from hosts.mrc.receiver import MOST_READY
from hosts.mrc.window import RttEstimator

# The receiver


@pytest.mark.parametrize("reason", [wire.TRIMMED, wire.TRIMMED_LASTHOP])
def test_a_trimmed_packet_is_nacked_at_once(reason: int) -> None:
    pair = Pair()
    packet = pair.send(3 * 4096)[1]
    (answer,) = answers(pair, wire.trimmed(packet, reason))
    assert parse_nack(memoryview(on_wire(answer))) == NackFields(reason, entropy_of(packet), 1001, wire.timestamp(NOW))
    assert answer.control
    assert pair.region == bytes(PAIR_BYTES)
    assert pair.b.report()["nacks_sent"] == 1


def test_a_trimmed_last_packet_completes_nothing() -> None:
    pair = Pair()
    answers(pair, *(wire.trimmed(packet) for packet in pair.send()))
    assert pair.b.take_completions() == []


def test_nacks_take_one_path_after_another() -> None:
    pair = Pair()
    sent = answers(pair, *(wire.trimmed(packet) for packet in pair.send(4 * 4096)))
    assert len({answer.destination for answer in sent}) == 4


@pytest.mark.parametrize("arrived", [False, True])
def test_answers_to_a_flood_of_trimmed_packets_keep_to_the_evs_that_there_are(arrived: bool) -> None:
    pair = Pair()
    packet, rest = pair.send(3 * 4096)[:2]
    answers(pair, rest, *([packet] if arrived else []))
    sent = answers(pair, *[wire.trimmed(packet)] * 50)
    assert {entropy_of(on_wire(answer)) for answer in sent} == {0, 1, 2, 3}


def test_a_trimmed_duplicate_is_acknowledged_not_nacked() -> None:
    pair = Pair()
    (packet,) = pair.send()
    answers(pair, packet)
    sent = answers(pair, wire.trimmed(packet))
    assert {opcode_of(answer) for answer in sent} == {wire.SACK}
    assert all(parse_sack(memoryview(on_wire(answer))).cc_flags & wire.DUPLICATE for answer in sent)


def with_bytes(packet: bytes, offset: int, value: bytes) -> bytes:
    return packet[:offset] + value + packet[offset + len(value) :]


def with_lengths(packet: bytes) -> bytes:
    """`packet` with IPv6 and UDP lengths that say what it has."""
    length = (len(packet) - 40).to_bytes(2, "big")
    return with_bytes(with_bytes(packet, 4, length), 44, length)


RETH_VA, RETH_RKEY, RETH_LENGTH = 68, 76, 80


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda cut: with_bytes(cut, RETH_RKEY, b"\0\0\0\1"), "rkey"),
        (lambda cut: with_bytes(cut, RETH_VA, bytes(8)), "address"),
        (lambda cut: with_bytes(cut, RETH_LENGTH, b"\xff\xff\xff\xff"), "address"),
        (lambda cut: with_bytes(cut, 57, (1000 + 1024).to_bytes(3, "big")), "psn_out_of_window"),
        (lambda cut: with_bytes(cut, 57, (999).to_bytes(3, "big")), "psn_out_of_window"),
        (lambda cut: with_bytes(cut, 53, b"\0\0\1"), "unknown_qp"),
        (lambda cut: with_bytes(cut, 39, b"\x0c"), "wrong_address"),
        (lambda cut: cut[:-1], "truncated"),
        (lambda cut: cut + b"x", "overlong"),
        (lambda cut: with_lengths(cut + b"icrc"), "bad_length"),
        (lambda cut: with_lengths(cut[:-4]), "bad_length"),
        (lambda cut: with_bytes(cut, wire.BTH_OFFSET, bytes([wire.SACK])), "not_trimmable"),
        (lambda cut: with_bytes(cut, 0, b"\x60\x00"), "icrc"),
    ],
)
def test_mutilated_trimmed_packets_are_counted_and_change_nothing(change, reason: str) -> None:
    pair = Pair()
    packet = pair.send(3 * 4096)[0]
    assert answers(pair, change(wire.trimmed(packet))) == []
    assert pair.drops() == {reason: 1}
    assert pair.b.next_deadline() is None


def test_the_dscp_of_a_trimmed_packet_excuses_nothing_else_from_its_icrc() -> None:
    pair = Pair()
    header, _trailer = pair.framer.probe(0, 1, 1)
    forged = bytearray(bytes(header) + b"fake")
    forged[0:2] = (0x6000 | 12 << 6).to_bytes(2, "big")
    assert answers(pair, bytes(forged)) == []
    assert pair.drops() == {"not_trimmable": 1}


def test_the_nacks_that_wait_are_bounded() -> None:
    pair = Pair()
    packet = wire.trimmed(pair.send(3 * 4096)[0])
    for _ in range(MOST_READY + 50):
        pair.b.on_datagram(NOW, 0, memoryview(packet))
    assert len(list(pair.b.transmit(NOW))) == MOST_READY


# The sender


def test_a_nacked_packet_is_sent_again_at_once_on_another_ev() -> None:
    pair = Pair()
    packets = pair.send(3 * 4096)
    (again,) = tell(pair, *answers(pair, wire.trimmed(packets[1])), now=NOW + 0.001)
    assert (psn_of(again), wire.BTH.unpack(again, wire.BTH_OFFSET)["rtx"]) == (1001, 1)
    assert entropy_of(again) != entropy_of(packets[1])
    pair.give(packets[0], again, packets[2])
    assert bytes(pair.region[: 3 * 4096]) == Random(3).randbytes(3 * 4096)


def test_a_trimmed_packet_is_not_lost() -> None:
    pair = Pair()
    packets = pair.send(3 * 4096)
    tell(pair, *answers(pair, wire.trimmed(packets[1])))
    ((_, tx, rtx, *_, trimmed, marked),) = pair.a.flow_rows()
    assert (tx, rtx, trimmed, marked) == (4, 1, 1, 0)
    assert [row[4] for row in pair.a.path_rows()] == [0, 0, 0, 0]
    assert sum(row[6] for row in pair.a.path_rows()) == pair.a.report()["trimmed_packets"] == 1
    assert pair.a.take_events() == []


def test_the_trimmed_packet_leaves_the_window_at_once() -> None:
    pair = Pair(cwnd_initial_packets=4)
    packets = pair.send(8 * 4096)
    assert len(packets) == 4
    for answer in answers(pair, *(wire.trimmed(packet) for packet in packets)):
        pair.a.on_datagram(NOW, 0, memoryview(on_wire(answer)))
    assert pair.a._send["b"].qps[0].flight.count == 0
    assert psn_of(on_wire(next(iter(pair.a.transmit(NOW))))) == 1000


def test_the_trimmed_ev_is_skipped_once() -> None:
    pair = Pair()
    (packet,) = pair.send()
    tell(pair, *answers(pair, wire.trimmed(packet)))
    named = entropy_of(packet)
    assert states(pair.a)[named] == "SKIP" or states(pair.a) == ["GOOD"] * 4
    used = [entropy_of(each) for each in pair.send(9 * 4096)]
    assert states(pair.a) == ["GOOD"] * 4
    assert named not in used[:5]  # the rest of the first rotation, and the one that passes it over
    assert sorted(used[5:]) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("say", "reason"),
    [
        (NackFields(1, 0, 5000, wire.timestamp(NOW)), "nack_unknown"),
        (NackFields(1, 0, 999, wire.timestamp(NOW)), "nack_unknown"),
        (NackFields(1, 77, 1000, wire.timestamp(NOW)), "nack_unknown"),
        (NackFields(1, 0, 1000, 1), "nack_unknown"),
        (NackFields(0x19, 77, 1000, wire.timestamp(NOW)), "nack_unknown"),
        (NackFields(0x33, 0, 1000, wire.timestamp(NOW)), "nack_reason"),
    ],
)
def test_a_nack_that_names_nothing_known_is_counted_and_changes_nothing(say: NackFields, reason: str) -> None:
    pair = Pair()
    pair.send(3 * 4096)
    before = pair.a.flow_rows(), pair.a.path_rows(), pair.a.next_deadline()
    pair.a.on_datagram(NOW, 0, memoryview(pair.nack(say)))
    assert list(pair.a.transmit(NOW)) == []
    assert pair.a.report()["drops"] == {reason: 1}
    assert (pair.a.flow_rows(), pair.a.path_rows(), pair.a.next_deadline()) == before


def test_a_doubled_nack_counts_once() -> None:
    pair = Pair()
    said = answers(pair, wire.trimmed(pair.send(3 * 4096)[1]))
    assert len(tell(pair, *said, *said)) == 1
    assert pair.a.report()["trimmed_packets"] == 1
    assert pair.a.report()["drops"] == {"nack_unknown": 1}


def test_a_nack_is_no_evidence_against_earlier_packets_of_its_path() -> None:
    pair = Pair(paths=1)
    packets = pair.send(8 * 4096)
    said = answers(pair, wire.trimmed(packets[7]), now=NOW + 0.001)
    again = tell(pair, *said, now=NOW + 0.001)
    assert [psn_of(packet) for packet in again] == [1007]
    assert states(pair.a) in (["GOOD"], ["SKIP"])


def test_a_nack_is_not_the_newest_arrival() -> None:
    """Packets far older than any allowance, and a NACK of one sent just now: nobody was outrun by whole packets."""
    pair = Pair()
    tell(pair, *answers(pair, *pair.send()), now=NOW + 0.001)  # a RTT sample
    old = pair.send(4 * 4096, now=NOW + 0.002)
    later = NOW + 0.003 + 0.001
    new = pair.send(4096, now=later)
    again = tell(pair, *answers(pair, wire.trimmed(new[0]), now=later), now=later + 0.0001)
    assert {psn_of(packet) for packet in again} == {psn_of(new[0])}
    assert psn_of(old[0]) not in {psn_of(packet) for packet in again}
    assert pair.a.take_events() == []


def test_a_sack_faster_than_the_nack_condemns_nobody() -> None:
    pair = Pair(paths=1)
    packets = pair.send(4 * 4096)
    slow = answers(pair, wire.trimmed(packets[0]), now=NOW + 0.001)
    fast = answers(pair, *packets[1:], now=NOW + 0.001)
    assert parse_sack(memoryview(on_wire(fast[0]))).cc_flags & wire.NACKED
    tell(pair, *fast, now=NOW + 0.001)
    assert pair.a.take_events() == []
    again = tell(pair, *slow, now=NOW + 0.001)
    assert [psn_of(packet) for packet in again] == [1000]
    (say,) = pair.give(*again, now=NOW + 0.002)
    assert (say.cack, say.cc_flags) == (1003, 0)


def test_a_real_loss_beside_a_trimmed_packet_is_found_once_the_trimmed_one_is_here() -> None:
    pair = Pair(paths=1)
    packets = pair.send(8 * 4096)
    slow = answers(pair, wire.trimmed(packets[0]), now=NOW + 0.001)
    again = tell(pair, *slow, *answers(pair, *packets[2:], now=NOW + 0.001), now=NOW + 0.001)
    assert pair.a.take_events() == []
    tell(pair, *answers(pair, *again, now=NOW + 0.002), now=NOW + 0.002)
    (event,) = (event for event in pair.a.take_events() if event.event == "ev_state")
    assert event.fields["reason"] == "loss_fifo"


def test_a_late_nack_of_what_was_judged_lost_is_a_false_alarm() -> None:
    pair = Pair()
    (first,) = pair.send()
    tell(pair, *answers(pair, first, now=NOW + 0.001), now=NOW + 0.001)
    victim = pair.send(4096, now=NOW + 0.002)[0]
    slow = answers(pair, wire.trimmed(victim), now=NOW + 0.003)
    rest = pair.send(16 * 4096, now=NOW + 0.5)
    said = answers(pair, *(packet for packet in rest if psn_of(packet) != psn_of(victim)), now=NOW + 0.501)
    tell(pair, *said, now=NOW + 0.501)
    assert states(pair.a).count("ASSUMED_BAD") == 1
    tell(pair, *slow, now=NOW + 0.502)
    assert states(pair.a).count("ASSUMED_BAD") == 0
    assert pair.a.report()["spurious_verdicts"] == 1


def test_the_recovery_of_a_trimmed_packet_is_timed() -> None:
    pair = Pair()
    packets = pair.send(3 * 4096)
    tell(pair, *answers(pair, wire.trimmed(packets[1]), now=NOW + 0.002), now=NOW + 0.002)
    found = pair.a.report()["recoveries"]
    assert set(found) == {"trimmed"}
    assert found["trimmed"]["count"] == 1
    assert found["trimmed"]["median_s"] == pytest.approx(0.002, rel=0.02)
    assert found["trimmed"]["p99_srtt"] == pytest.approx(0.002 / pair.a.flow_rows()[0][5], rel=0.02)


def test_every_packet_avoids_the_ev_of_its_own_nack_though_all_are_skipped() -> None:
    pair = Pair(paths=2)
    packets = pair.send(12 * 4096)
    again = tell(pair, *answers(pair, *(wire.trimmed(packet) for packet in packets)), now=NOW + 0.01)
    while again[-1] and len(again) < len(packets):
        again += tell(pair, *answers(pair, *again, now=NOW + 0.02), now=NOW + 0.02)
    was = {psn_of(packet): entropy_of(packet) for packet in packets}
    assert {psn_of(packet) for packet in again} == set(was)
    assert all(entropy_of(packet) != was[psn_of(packet)] for packet in again)


def test_a_nack_of_an_older_transmission_sends_no_third_one() -> None:
    pair = Pair()
    (first,) = pair.send()
    late = pair.a.next_deadline()
    assert late is not None
    pair.a.on_timer(late)
    assert [psn_of(on_wire(each)) for each in pair.a.transmit(late)] == [1000]
    assert tell(pair, *answers(pair, wire.trimmed(first), now=late), now=late) == []


def test_a_nack_ends_the_doubling_of_the_timeout() -> None:
    pair = Pair()
    (packet,) = pair.send()
    now = NOW
    for _ in range(5):
        now = pair.a.next_deadline() or now
        pair.a.on_timer(now)
        packet = next((on_wire(each) for each in pair.a.transmit(now) if each.payload), packet)
    tell(pair, *answers(pair, wire.trimmed(packet), now=now), now=now)
    assert (pair.a.next_deadline() or 0.0) - now < 0.1


def test_what_came_after_all_is_no_longer_called_nacked() -> None:
    pair = Pair()
    packets = pair.send(8 * 4096)
    answers(pair, wire.trimmed(packets[1]))
    (say,) = pair.give(packets[1], *packets[3:6])
    assert (say.cack, say.cc_flags) == (999, 0)


# The books of what is under way


def flight() -> tuple[Flight, EvSet]:
    params = MrcParams()
    return Flight(Allowance(params, RttEstimator(params))), ev_set(2)


def test_the_only_transmission_beside_a_trimmed_one_is_known_to_have_arrived() -> None:
    books, evs = flight()
    packet = empty_packet()
    books.trimmed(books.send(packet, evs.evs[0], NOW, 1))
    books.send(packet, evs.evs[1], NOW, 2)
    books.arrived(packet, NOW, None)
    assert [ev.acked_order for ev in evs.evs] == [-1, 1]


def test_nothing_is_remembered_of_an_ev_on_which_everything_is_trimmed() -> None:
    books, evs = flight()
    for number in range(100):
        books.trimmed(books.send(empty_packet(number), evs.evs[0], NOW, number))
    assert (len(evs.evs[0].sent), books.count, books.oldest()) == (0, 0, None)


def test_a_trimmed_copy_is_never_taken_for_what_arrived() -> None:
    books, evs = flight()
    packet = empty_packet()
    books.send(packet, evs.evs[0], NOW, 1)
    books.trimmed(books.send(packet, evs.evs[1], NOW, 2))
    books.arrived(packet, NOW, None)
    assert [ev.acked_order for ev in evs.evs] == [-1, -1]
    assert books.count == 0


@settings(deadline=None, max_examples=200)
@given(offset=st.integers(0, 87), flip=st.integers(1, 255))
def test_a_changed_byte_of_a_trimmed_packet_writes_nothing(offset: int, flip: int) -> None:
    pair = Pair()
    changed = bytearray(wire.trimmed(pair.send(4096)[0]))
    changed[offset % len(changed)] ^= flip
    answers(pair, bytes(changed))
    assert pair.region == bytes(PAIR_BYTES)
    assert pair.b.take_completions() == []


@settings(deadline=None, max_examples=200)
@given(offset=st.integers(0, 83), flip=st.integers(1, 255))
def test_a_changed_byte_of_a_nack_changes_nothing(offset: int, flip: int) -> None:
    pair = Pair()
    (answer,) = answers(pair, wire.trimmed(pair.send(3 * 4096)[1]))
    changed = bytearray(on_wire(answer))
    changed[offset % len(changed)] ^= flip
    before = pair.a.path_rows()
    pair.a.on_datagram(NOW, 0, memoryview(bytes(changed)))
    assert pair.a.path_rows() == before or wire.icrc(changed[:-4]) == changed[-4:]
