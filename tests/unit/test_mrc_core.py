"""What a core refuses, counts and says: forged and broken packets, parameters, SACK content, EV bookkeeping."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mrc_lab import NOW, PAIR_BYTES, Pair, answers, empty_packet, entropy_of, ev_set, on_wire, psn_of

from hosts import wire
from hosts.mrc import MrcCore, MrcParams
from hosts.mrc.channel import peer_spec
from hosts.mrc.evs import EvSet
from hosts.mrc.frames import Framer, SackFields, parse_nack, parse_sack
from hosts.mrc.loss import Tx
from hosts.mrc.window import RttEstimator
from hosts.wire import timestamp
from testbed.errors import UsageError


def forged(pair: Pair, psn: int = 1000, va: int | None = None, rkey: int | None = None, opcode: int = wire.WRITE_ONLY_IMM) -> bytes:
    payload = memoryview(b"\xee" * 64)
    at = pair.base if va is None else va
    header, trailer = pair.framer.data(1, opcode, wire.TS_BIT | psn, (0, 0), 0, at, pair.rkey if rkey is None else rkey, payload, 7)
    return bytes(header) + bytes(payload) + trailer


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rkey": 1}, "rkey"), ({"va": 0}, "address"), ({"va": (1 << 64) - 1}, "address"), ({"psn": 1 << 20}, "psn_out_of_window"),
        ({"psn": 999}, "psn_out_of_window"), ({"opcode": 0xCF}, "unknown_opcode"), ({"opcode": 0xD1}, "unknown_qp"),
    ],
)  # fmt: skip
def test_forged_packets_are_counted_and_change_nothing(change: dict[str, int], reason: str) -> None:
    pair = Pair()
    assert pair.give(forged(pair, **change)) == []
    assert pair.drops() == {reason: 1}
    assert pair.region == bytes(PAIR_BYTES)
    assert pair.b.take_completions() == []


@pytest.mark.parametrize("ahead", [1024, 1024 + 4095])
def test_a_sound_packet_ahead_of_the_window_is_asked_for_again(ahead: int) -> None:
    pair = Pair()
    (answer,) = answers(pair, forged(pair, psn=1000 + ahead))
    assert parse_nack(memoryview(on_wire(answer)))[:3] == (wire.PSN_OOR_WINDOW, 1, 1000 + ahead)
    assert (pair.drops(), pair.region) == ({"psn_out_of_window": 1}, bytes(PAIR_BYTES))


@pytest.mark.parametrize("change", [{"rkey": 1}, {"va": 0}, {"va": (1 << 64) - 1}])
def test_what_would_not_be_placed_is_not_asked_for_again(change: dict[str, int]) -> None:
    pair = Pair()
    assert answers(pair, forged(pair, psn=1000 + 1024, **change)) == []
    assert pair.drops() == {"psn_out_of_window": 1}


def test_a_write_just_over_the_regions_end_is_refused() -> None:
    pair = Pair()
    pair.give(forged(pair, va=pair.base + PAIR_BYTES - 63))
    assert pair.drops() == {"address": 1}


def test_a_write_to_the_regions_end_is_accepted() -> None:
    pair = Pair()
    pair.give(forged(pair, va=pair.base + PAIR_BYTES - 64))
    assert pair.region[-64:] == b"\xee" * 64


def test_another_hosts_qp_is_unknown() -> None:
    pair = Pair()
    header, trailer = Framer("fd00::a", "fd00::b", 1, pair.qp ^ 1, wire.UDP_PORT).probe(0, 1, 1)
    pair.give(bytes(header) + trailer)
    assert pair.drops() == {"unknown_qp": 1}


def test_a_length_that_belies_the_payload_is_refused() -> None:
    pair = Pair()
    packet = bytearray(pair.send()[0])
    packet[83] ^= 1  # RETH's DMA length
    packet[-4:] = wire.icrc(packet[:-4])
    pair.give(bytes(packet))
    assert pair.drops() == {"bad_length": 1}


def test_duplicates_do_not_rewrite() -> None:
    pair = Pair()
    (packet,) = pair.send()
    pair.give(packet)
    pair.region[:4] = b"mine"
    pair.give(packet)
    assert pair.region[:4] == b"mine"
    assert pair.drops() == {"duplicate": 1}
    assert len(pair.b.take_completions()) == 1


def test_a_duplicate_is_answered_at_once_on_its_own_and_on_another_path() -> None:
    pair = Pair()
    (packet,) = pair.send()
    pair.b.on_datagram(NOW, 0, memoryview(packet))
    pair.b.on_receive_done(NOW)
    (first,) = pair.b.transmit(NOW)
    pair.b.on_datagram(NOW, 0, memoryview(packet))
    again, other = pair.b.transmit(NOW)
    assert again.destination == first.destination != other.destination
    assert all(parse_sack(memoryview(on_wire(each))).cc_flags & wire.DUPLICATE for each in (again, other))


def test_completion_waits_for_what_is_missing() -> None:
    pair = Pair()
    packets = pair.send(3 * 4096)
    pair.give(packets[2], packets[0])
    assert pair.b.take_completions() == []
    pair.give(packets[1])
    assert [done.imm for done in pair.b.take_completions()] == [42]


def test_a_sack_waits_for_four_packets() -> None:
    pair = Pair()
    packets = pair.send(6 * 4096)
    assert pair.give(*packets[:3]) == []
    (say,) = pair.give(packets[3])
    assert (say.cack, say.bitmap, say.cc_flags) == (1003, 0, 0)


def test_the_last_packet_of_a_message_is_acknowledged_at_once() -> None:
    pair = Pair()
    (say,) = pair.give(*pair.send())
    assert say.cack == 1000


def test_a_waiting_sack_is_sent_after_its_delay_and_says_so() -> None:
    pair = Pair()
    pair.give(pair.send(3 * 4096)[0])
    due = pair.b.next_deadline()
    assert due == pytest.approx(NOW + MrcParams.ack_delay_s)
    pair.b.on_timer(due)
    (transmit,) = pair.b.transmit(due)
    assert parse_sack(memoryview(on_wire(transmit))).cc_flags == wire.HELD


def test_a_gap_shortens_the_wait() -> None:
    pair = Pair()
    pair.give(pair.send(3 * 4096)[1])
    assert pair.b.next_deadline() == pytest.approx(NOW + MrcParams.ack_gap_delay_s)


def test_a_sack_names_the_packet_that_caused_it() -> None:
    pair = Pair()
    packets = pair.send(3 * 4096)
    (say,) = pair.give(packets[2])
    assert (say.cack + say.ack_psn_offset, say.entropy, say.stamp) == (1002, entropy_of(packets[2]), wire.timestamp(NOW))
    assert (say.cack + say.sack_offset, say.bitmap) == (1000, 0b100)


def test_news_far_apart_is_covered_by_several_sacks() -> None:
    pair = Pair(cwnd_initial_packets=300, cwnd_max_packets=300)
    pair.a.post_write(NOW, "b", memoryview(bytes(16 * 300)), 0, 1)
    payload = memoryview(bytes(16))
    packets = []
    for psn in range(1001, 1200):
        header, trailer = pair.framer.data(1, wire.WRITE_MIDDLE, wire.TS_BIT | psn, (0, 0), 0, pair.base, pair.rkey, payload, None)
        packets.append(bytes(header) + bytes(payload) + trailer)
    said = pair.give(*packets)
    covered = {say.cack + say.sack_offset + bit for say in said for bit in range(64) if say.bitmap >> bit & 1}
    assert covered == set(range(1001, 1200))


def test_a_sack_of_packets_never_sent_is_refused() -> None:
    pair = Pair()
    pair.send()
    pair.a.on_datagram(NOW, 0, memoryview(pair.sack(SackFields(1, False, 0, 0, 5000, 0, 8, 1, 0, 0, 0, 0))))
    assert pair.a.report()["drops"] == {"sack_out_of_window": 1}
    assert pair.a.outstanding_messages("b") == 1


@pytest.mark.parametrize("wrong", [{"entropy": 4}, {"stamp": 1}, {"ack_psn_offset": 2}])
def test_a_sack_that_names_no_transmission_acknowledges_nothing(wrong: dict[str, int]) -> None:
    pair = Pair()
    packet = pair.send(8 * 4096)[0]
    right = SackFields(1, False, psn_of(packet) - 999, entropy_of(packet), 999, 0, 8, 1, 0xFF, timestamp(NOW), 0, 0)
    for say, acked in ((right._replace(**wrong), 0), (right, 8 * 4096)):
        pair.a.on_datagram(NOW, 0, memoryview(pair.sack(say, ev=1)))
        assert pair.a.acked_bytes() == acked
    assert pair.a.report()["drops"] == {"sack_unknown": 1}


@pytest.mark.parametrize("ahead", [1, 500, 4000])
def test_a_sack_that_names_a_packet_that_was_never_sent_is_refused(ahead: int) -> None:
    """Nothing was sent on EV 0 at time 0, though an empty memory would look like that."""
    pair = Pair()
    (packet,) = pair.send()
    (sack,) = pair.give(packet)
    forged = sack._replace(ack_psn_offset=sack.ack_psn_offset + ahead, entropy=0, stamp=0)
    pair.a.on_datagram(NOW, 0, memoryview(pair.sack(forged)))
    assert pair.a.report()["drops"] == {"sack_unknown": 1}
    assert pair.a.outstanding_messages("b") == 1


def test_only_the_peer_of_a_qp_may_speak_to_it() -> None:
    pair = Pair()
    pair.framer = Framer("fd00::c", "fd00::b", 1, pair.qp, wire.UDP_PORT)
    assert pair.give(forged(pair)) == []
    assert pair.drops() == {"wrong_source": 1}
    assert pair.region == bytes(PAIR_BYTES)


def test_old_data_with_a_wrong_key_is_not_even_answered() -> None:
    pair = Pair()
    pair.give(forged(pair))
    assert pair.give(forged(pair, rkey=1)) == []
    assert pair.drops() == {"rkey": 1}


def test_a_probe_is_answered_on_the_path_it_came_on() -> None:
    pair = Pair()
    header, trailer = pair.framer.probe(3, 0xFFFE, 5)
    pair.b.on_datagram(NOW, 0, memoryview(bytes(header) + trailer))
    (transmit,) = pair.b.transmit(NOW)
    say = parse_sack(memoryview(on_wire(transmit)))
    assert (transmit.destination, say.probe_reply, say.ack_psn_offset & 0xFFFF, transmit.control) == ("3", True, 0xFFFE, True)


def test_before_connect_nothing_is_placed_or_answered() -> None:
    pair, region = Pair(), bytearray(PAIR_BYTES)
    settings = MrcParams.from_mapping({"initial_psn": 1000, "idle_probes": 0})
    late = MrcCore("b", "fd00::b", settings, {}, {"a": peer_spec("a", "fd00::a", 4)}, memoryview(region), 1)  # with b's numbers and keys
    header, trailer = pair.framer.probe(3, 1, 5)
    for packet in (*pair.send(), bytes(header) + trailer):
        late.on_datagram(NOW, 0, memoryview(packet))
    late.connect({"a": pair.a.attributes()})
    assert list(late.transmit(NOW)) == []
    assert region == bytes(PAIR_BYTES)
    assert late.report()["drops"] == {"not_connected": 2}


def test_sacks_and_probes_not_taken_stay_for_the_next_call() -> None:
    pair = Pair()
    for probe_id in (1, 2, 3):
        header, trailer = pair.framer.probe(3, probe_id, 5)
        pair.b.on_datagram(NOW, 0, memoryview(bytes(header) + trailer))
    taken = [next(iter(pair.b.transmit(NOW))) for _ in range(3)]
    assert [parse_sack(memoryview(on_wire(transmit))).ack_psn_offset for transmit in taken] == [1, 2, 3]


def test_two_qps_do_not_disturb_each_other() -> None:
    params, region = MrcParams(idle_probes=0), bytearray(8192)
    spec_b = peer_spec("b", "fd00::b", 2)
    a1 = MrcCore("a1", "fd00::a1", params, {"b": spec_b}, {}, memoryview(bytearray(0)), 1)
    a2 = MrcCore("a2", "fd00::a2", params, {"b": spec_b}, {}, memoryview(bytearray(0)), 1)
    froms = {"a1": peer_spec("a1", "fd00::a1", 2), "a2": peer_spec("a2", "fd00::a2", 2)}
    b = MrcCore("b", "fd00::b", params, {}, froms, memoryview(region), 1)
    b.connect({"a1": a1.attributes(), "a2": a2.attributes()})
    for core, offset, letter in ((a1, 0, b"1"), (a2, 4096, b"2")):
        core.connect({"b": b.attributes()})
        core.post_write(NOW, "b", memoryview(letter * 4096), offset, 9)
        for transmit in core.transmit(NOW):
            b.on_datagram(NOW, 0, memoryview(on_wire(transmit)))
    assert region == b"1" * 4096 + b"2" * 4096
    assert sorted(done.peer for done in b.take_completions()) == ["a1", "a2"]


def test_an_empty_message_completes() -> None:
    pair = Pair()
    pair.give(*pair.send(0))
    assert [done.imm for done in pair.b.take_completions()] == [42]


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_garbage_is_counted_and_never_raised(garbage: bytes) -> None:
    pair = Pair()
    pair.give(garbage)
    assert sum(pair.drops().values()) == 1


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 4187), st.integers(1, 255))
def test_a_changed_byte_never_puts_wrong_data_into_the_region(offset: int, flip: int) -> None:
    pair = Pair()
    (packet,) = pair.send()
    changed = bytearray(packet)
    changed[offset % len(packet)] ^= flip
    pair.give(bytes(changed))
    assert pair.region[:4096] in (bytes(4096), packet[-4100:-4])
    assert pair.region[4096:] == bytes(PAIR_BYTES - 4096)


@settings(max_examples=300, deadline=None)
@given(st.integers(48, 91), st.integers(1, 255))
def test_a_changed_header_with_a_right_icrc_is_never_raised(offset: int, flip: int) -> None:
    pair = Pair()
    (packet,) = pair.send()
    changed = bytearray(packet)
    changed[offset] ^= flip
    changed[-4:] = wire.icrc(changed[:-4])
    answers(pair, bytes(changed))
    assert len(pair.region) == PAIR_BYTES


# EVs, RTT, window, parameters


def loss_on(ev_index: int, evs: EvSet) -> Tx:
    return Tx(empty_packet(), evs.evs[ev_index], 0, NOW, 0)


def test_each_rotation_uses_every_good_ev_once() -> None:
    evs = ev_set(8)
    for _ in range(5):
        assert sorted(evs.pick().index for _ in range(8)) == list(range(8))


def test_rotations_differ() -> None:
    evs = ev_set(8)
    assert len({tuple(evs.pick().index for _ in range(8)) for _ in range(5)}) == 5


def test_the_avoided_ev_is_not_picked_while_there_is_another() -> None:
    evs = ev_set(2)
    assert all(evs.pick(evs.evs[0]) is evs.evs[1] for _ in range(20))


def test_the_floor_reuses_the_ev_retired_longest_ago_in_turn() -> None:
    evs, used = ev_set(3), []
    for index in (1, 0, 2):
        evs.retire(NOW + index, evs.evs[index], loss_on(index, evs))
    for step in range(6):
        used.append(evs.pick().index)
        evs.retire(NOW + 10 + step, evs.evs[used[-1]], loss_on(used[-1], evs))
    assert used == [0, 1, 2, 0, 1, 2]


def test_ev_min_active_is_kept() -> None:
    evs = ev_set(8, ev_min_active=4)
    for index in range(8):
        evs.retire(NOW + index, evs.evs[index], loss_on(index, evs))
    assert {evs.pick().index for _ in range(16)} == {0, 1, 2, 3}


def test_an_unanswered_probe_ends_the_row_of_successes() -> None:
    evs = ev_set(2)
    evs.retire(NOW, evs.evs[0], loss_on(0, evs))
    evs.schedule_probe(NOW, evs.evs[0], 0.001)
    now = NOW
    for answered in (True, True, False, True, True):
        now += 1.0
        (ev,) = evs.due_probes(now, 0.001)
        if answered:
            assert evs.probe_answered(NOW, ev.probe_id) == (ev, False)
    (ev,) = evs.due_probes(now + 1.0, 0.001)
    assert evs.probe_answered(NOW, ev.probe_id) == (ev, True)


def test_a_doubled_probe_answer_counts_once() -> None:
    evs = ev_set(2)
    evs.retire(NOW, evs.evs[0], loss_on(0, evs))
    (ev,) = evs.due_probes(NOW + 1, 0.001)
    assert evs.probe_answered(NOW, ev.probe_id) is not None
    assert evs.probe_answered(NOW, ev.probe_id) is None


def test_the_base_rtt_is_forgotten_after_its_window() -> None:
    rtt = RttEstimator(MrcParams(base_rtt_window_s=10.0))
    rtt.sample(NOW, 0.001)
    for second in range(1, 12):
        rtt.sample(NOW + second, 0.005)
    assert rtt.base_s == 0.005


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"evz": 4}, "did you mean 'evs'"), ({"evs": 1.5}, "whole number"), ({"evs": "4"}, "must be a number"),
        ({"mpr_packets": 100}, "multiple of 128"), ({"payload_bytes": 0}, "payload_bytes"),
        ({"udp_port": 80}, "4791"), ({"cwnd_min_packets": 99, "cwnd_initial_packets": 16}, "min <= initial <= max"),
        ({"evs": float("inf")}, "evs must be a number"), ({"rack_rttvar": float("nan")}, "rack_rttvar must be a number"),
        ({"link_rate_bps": 10**400}, "link_rate_bps must be a number"),
        ({"link_rate_bps": -1}, "link_rate_bps must be at least 0"), ({"linear_retries": 8}, "linear_retries must be 0 to 7"),
        ({"pto_min_s": 0, "ack_every": 0}, "ack_every must be at least 1; pto_min_s must be above 0"),
    ],
)  # fmt: skip
def test_bad_parameters_are_refused_with_a_sentence(raw: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        MrcParams.from_mapping(raw)
