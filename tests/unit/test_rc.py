"""RoCE RC between two cores over a channel that the test controls packet by packet."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hosts.core import PeerSpec, Transmit
from hosts.rc import RcCore, RcParams, wire
from testbed.errors import UsageError

A, B = PeerSpec("a", "fd00::1", ()), PeerSpec("b", "fd00::2", ())
REGION_BYTES = 1 << 16


class Pair:
    """`a` writes to `b`. Time moves only when a test says so."""

    def __init__(self, seed: int = 3, **params: int) -> None:
        given_params = RcParams(**{"payload_bytes": 64, "timeout_exponent": 8, **params})
        self.timeout_s = given_params.ack_timeout_s
        self.region = memoryview(bytearray(REGION_BYTES))
        self.a = RcCore("a", A.address, given_params, {"b": B}, {}, memoryview(bytearray(8)), seed)
        self.b = RcCore("b", B.address, given_params, {}, {"a": A}, self.region, seed)
        self.now = 0.0

    def connect(self, first_psn: int | None = None) -> Pair:
        attributes = {"a": self.a.attributes(), "b": self.b.attributes()}
        if first_psn is not None:
            attributes["a"]["send"]["b"][0]["first_psn"] = first_psn
        self.a.connect(attributes)
        self.b.connect(attributes)
        return self

    def write(self, data: bytes, offset: int = 0, imm: int = 1) -> None:
        self.a.post_write(self.now, "b", memoryview(data), offset, imm)

    def data(self) -> list[Transmit]:
        return list(self.a.transmit(self.now))

    def acks(self) -> list[Transmit]:
        return list(self.b.transmit(self.now))

    def to_b(self, *packets: Transmit) -> None:
        for packet in packets:
            self.b.on_datagram(self.now, 0, raw(packet))
        self.b.on_receive_done(self.now)

    def to_a(self, *packets: Transmit) -> None:
        for packet in packets:
            self.a.on_datagram(self.now, 0, raw(packet))
        self.a.on_receive_done(self.now)

    def run(self, keep: Callable[[Transmit], bool] = lambda packet: True, turns: int = 10_000) -> None:
        """Until `a` has nothing outstanding or its QP failed; time jumps to the ACK timeout when nothing else happens."""
        for _ in range(turns):
            sent = [packet for packet in self.data() if keep(packet)]
            self.to_b(*sent)
            answers = [packet for packet in self.acks() if keep(packet)]
            self.to_a(*answers)
            deadline = self.a.next_deadline()
            if deadline is None and not sent:
                return
            if deadline is not None and not sent and not answers:
                self.now = deadline
                self.a.on_timer(self.now)
        raise AssertionError("no end")


def raw(packet: Transmit) -> memoryview:
    return memoryview(bytes(packet.header) + bytes(packet.payload) + packet.trailer)


def psn(packet: Transmit) -> int:
    return wire.parse_bth(raw(packet)).psn


def opcodes(packets: list[Transmit]) -> list[int]:
    return [wire.parse_bth(raw(packet)).opcode for packet in packets]


def pattern(size: int) -> bytes:
    return bytes(index % 251 for index in range(size))


def test_message_is_placed_at_its_offset_and_completes_with_its_immediate():
    pair = Pair().connect()
    pair.write(pattern(300), offset=100, imm=0xDEADBEEF)
    pair.run()
    assert (bytes(pair.region[100:400]), pair.b.take_completions()) == (pattern(300), [("a", 0xDEADBEEF)])


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, [wire.WRITE_ONLY_IMM]),
        (64, [wire.WRITE_ONLY_IMM]),
        (65, [wire.WRITE_FIRST, wire.WRITE_LAST_IMM]),
        (192, [wire.WRITE_FIRST, wire.WRITE_MIDDLE, wire.WRITE_LAST_IMM]),
    ],
)
def test_opcodes_of_a_message(size: int, expected: list[int]):
    pair = Pair().connect()
    pair.write(pattern(size))
    assert opcodes(pair.data()) == expected


@pytest.mark.parametrize("size", [1, 63, 65, 127])
def test_sizes_that_need_padding_arrive_whole(size: int):
    pair = Pair().connect()
    pair.write(pattern(size))
    pair.run()
    assert bytes(pair.region[: size + 1]) == pattern(size) + b"\0"


def test_window_bounds_what_is_outstanding():
    pair = Pair(window_packets=16).connect()
    pair.write(pattern(64 * 40))
    assert len(pair.data()) == 16


def test_source_port_is_dynamic_fixed_and_the_acks_have_their_own():
    pair = Pair().connect()
    pair.write(pattern(64 * 8))
    sent = pair.data()
    pair.to_b(*sent)
    (ack,) = pair.acks()
    ports = {packet.source_port for packet in sent}
    assert len(ports) == 1
    assert ports | {ack.source_port} <= set(range(49152, 65536))


def test_source_port_is_drawn_from_the_seed():
    ports = {Pair(seed).a.attributes()["send"]["b"][0]["source_port"] for seed in range(20)}
    again = {Pair(seed).a.attributes()["send"]["b"][0]["source_port"] for seed in range(20)}
    assert ports == again
    assert len(ports) > 15


def test_one_ack_every_four_packets_and_for_the_last():
    pair = Pair(ack_every=4).connect()
    pair.write(pattern(64 * 6))
    answers = []
    for packet in pair.data():
        pair.to_b(packet)
        answers += pair.acks()
    assert [(psn(ack) - psn(answers[0])) % 2**24 for ack in answers] == [0, 2]


def test_gap_causes_one_nak_that_names_the_missing_packet():
    pair = Pair().connect()
    pair.write(pattern(64 * 6))
    first, lost, *rest = pair.data()
    pair.to_b(first, *rest)
    (nak,) = pair.acks()
    assert (raw(nak)[wire.BTH.size], psn(nak)) == (wire.NAK_PSN_SEQUENCE, psn(lost))


def test_no_second_nak_before_the_missing_packet_came():
    pair = Pair().connect()
    pair.write(pattern(64 * 6))
    _, second, third, *_ = pair.data()
    pair.to_b(second)
    assert len(pair.acks()) == 1
    pair.to_b(third)
    assert pair.acks() == []


def test_nak_makes_the_sender_go_back_at_once():
    pair = Pair().connect()
    pair.write(pattern(64 * 6))
    first, lost, *rest = pair.data()
    pair.to_b(first, *rest)
    pair.to_a(*pair.acks())
    assert [psn(packet) for packet in pair.data()] == [psn(packet) for packet in (lost, *rest)]


def test_nak_is_an_event_with_psn_and_retries_left():
    pair = Pair(retries=7).connect()
    pair.write(pattern(64 * 3))
    _, lost, last = pair.data()
    pair.to_b(last)
    pair.to_a(*pair.acks())
    (event,) = pair.a.take_events()
    assert (event.event, event.fields["peer"], event.fields["retries_left"]) == ("rc_nak", "b", 6)
    assert event.fields["psn"] == (psn(lost) - 1) % 2**24


def test_out_of_order_packets_are_thrown_away():
    pair = Pair().connect()
    pair.write(pattern(192))
    _, middle, last = pair.data()
    pair.to_b(middle, last)
    assert (bytes(pair.region), pair.b.report()["drops"]) == (bytes(REGION_BYTES), {"out_of_order": 2})


def test_duplicate_is_acknowledged_and_not_placed_again():
    pair = Pair().connect()
    pair.write(pattern(64))
    (packet,) = pair.data()
    pair.to_b(packet)
    (first_ack,) = pair.acks()
    pair.region[:64] = bytes(64)
    pair.to_b(packet)
    (second_ack,) = pair.acks()
    assert (psn(second_ack), bytes(pair.region[:64]), len(pair.b.take_completions())) == (psn(first_ack), bytes(64), 1)


def test_timeout_sends_everything_outstanding_again():
    pair = Pair().connect()
    pair.write(pattern(64 * 3))
    before = pair.data()
    pair.now = pair.timeout_s
    pair.a.on_timer(pair.now)
    assert [psn(packet) for packet in pair.data()] == [psn(packet) for packet in before]


def test_ack_timeout_is_the_specifications_formula():
    assert RcParams(timeout_exponent=18).ack_timeout_s == pytest.approx(1.0737, abs=1e-4)


def test_no_timeout_before_its_time():
    pair = Pair().connect()
    pair.write(pattern(64))
    pair.data()
    pair.a.on_timer(pair.timeout_s * 0.999)
    assert (pair.data(), pair.a.take_events()) == ([], [])


def test_progress_starts_the_timer_again():
    pair = Pair().connect()
    pair.write(pattern(64 * 8))
    sent = pair.data()
    pair.now = 0.5 * pair.timeout_s
    pair.to_b(*sent[:4])
    pair.to_a(*pair.acks())
    assert pair.a.next_deadline() == pytest.approx(1.5 * pair.timeout_s)


def test_nothing_outstanding_means_no_timer():
    pair = Pair().connect()
    pair.write(pattern(64))
    pair.run()
    assert pair.a.next_deadline() is None


def test_retries_without_progress_end_in_a_qp_error():
    pair = Pair(retries=7).connect()
    pair.write(pattern(64))
    pair.run(keep=lambda packet: False)
    assert pair.a.take_errors() == [("b", "retry counter exceeded")]
    assert pair.now == pytest.approx(8 * pair.timeout_s)
    assert [event.fields["retries_left"] for event in pair.a.take_events()] == [6, 5, 4, 3, 2, 1, 0, 0]


def test_error_is_told_once_and_nothing_is_sent_after_it():
    pair = Pair(retries=0).connect()
    pair.write(pattern(64))
    pair.run(keep=lambda packet: False)
    assert len(pair.a.take_errors()) == 1
    pair.write(pattern(64))
    assert (pair.a.take_errors(), pair.data(), pair.a.next_deadline()) == ([], [], None)


def test_progress_gives_the_retries_back():
    pair = Pair(retries=2).connect()
    losses = iter([True, True, False, True, True, False] * 20)
    pair.write(pattern(64 * 3))
    pair.run(keep=lambda packet: packet.control or not (wire.parse_bth(raw(packet)).ack_request and next(losses)))
    assert pair.a.take_errors() == []


@pytest.mark.parametrize("first_psn", [2**24 - 1, 2**24 - 20, 2**23 - 5, 0])
def test_psn_wraps(first_psn: int):
    pair, drop = Pair().connect(first_psn), random.Random(1)
    for imm in range(10):
        pair.write(pattern(300), offset=imm * 300, imm=imm)
    pair.run(keep=lambda packet: drop.random() > 0.1)
    assert bytes(pair.region[:3000]) == pattern(300) * 10


def test_bad_icrc_is_counted_and_ignored():
    pair = Pair().connect()
    pair.write(pattern(64))
    (packet,) = pair.data()
    damaged = bytearray(raw(packet))
    damaged[50] ^= 1
    pair.b.on_datagram(0.0, 0, memoryview(damaged))
    assert (pair.b.report()["drops"], pair.b.take_completions()) == ({"bad_icrc": 1}, [])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=120))
def test_garbage_never_raises(garbage: bytes):
    pair = Pair().connect()
    pair.b.on_datagram(0.0, 0, memoryview(garbage))
    pair.a.on_datagram(0.0, 0, memoryview(garbage))
    assert pair.b.take_completions() == []


def test_write_outside_of_the_region_is_refused_and_fails_the_qp():
    pair = Pair().connect()
    pair.write(pattern(64), offset=REGION_BYTES - 63)
    pair.run()
    assert pair.a.take_errors() == [("b", "remote access error")]
    assert bytes(pair.region) == bytes(REGION_BYTES)


def test_stale_acknowledgement_changes_nothing():
    pair = Pair().connect()
    pair.write(pattern(64))
    pair.to_b(*pair.data())
    (old,) = pair.acks()
    pair.to_a(old)
    pair.write(pattern(128))
    sent = pair.data()
    pair.to_a(old)
    assert (len(sent), pair.data(), pair.a.next_deadline()) == (2, [], pair.timeout_s)


def test_acknowledgement_of_what_was_never_sent_is_counted():
    pair = Pair().connect()
    pair.write(pattern(128))
    pair.to_b(*pair.data())
    answers = pair.acks()
    fresh = Pair().connect()
    fresh.to_a(*answers)
    assert fresh.a.report()["drops"] == {"acknowledgement_out_of_window": 1}


def test_counters_tell_retransmissions_from_first_sendings():
    pair, lost = Pair().connect(), iter([False, True])
    pair.write(pattern(64 * 4))
    pair.run(keep=lambda packet: packet.control or not next(lost, False))
    ((peer, sent, again, acked, window, srtt_s, *none),) = pair.a.flow_rows()
    assert (peer, sent - again, again, acked, window, srtt_s, none) == ("b", 4, 3, 256, 16, 0.0, [0, 0])
    assert pair.a.path_rows() == [("b", 0, "GOOD", 7, 1, 0, 0, 0)]


def test_rtt_is_measured_on_packets_sent_once():
    pair = Pair().connect()
    pair.write(pattern(64))
    sent = pair.data()
    pair.now = 0.0005
    pair.to_b(*sent)
    pair.to_a(*pair.acks())
    assert pair.a.report()["base_rtt_s"] == {"b": pytest.approx(0.0005)}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(0, 0.3), st.lists(st.integers(0, 700), min_size=1, max_size=12))
def test_lossy_duplicating_reordering_channel_delivers_everything_in_order(seed: int, loss: float, sizes: list[int]):
    pair, draw = Pair(seed % 97).connect(2**24 - 9), random.Random(seed)
    for imm, size in enumerate(sizes):
        pair.write(bytes([imm + 1]) * size, offset=imm * 700, imm=imm)
    backlog: list[Transmit] = []
    for _ in range(5000):
        fresh = pair.data()
        backlog += fresh
        now, backlog = [packet for packet in backlog if draw.random() < 0.8], []
        draw.shuffle(now) if draw.random() < 0.2 else None
        pair.to_b(*(packet for packet in now for _ in range(1 + (draw.random() < 0.1)) if draw.random() >= loss))
        pair.to_a(*(ack for ack in pair.acks() if draw.random() >= loss))
        pair.now += pair.timeout_s / 20
        pair.a.on_timer(pair.now)
        if not pair.a.outstanding_messages("b") or pair.a.path_rows()[0][2] != "GOOD":
            break
    failed = pair.a.take_errors()
    completed = [completion.imm for completion in pair.b.take_completions()]
    assert completed == list(range(len(sizes))) if not failed else completed == list(range(len(completed)))
    for imm in completed:
        assert bytes(pair.region[imm * 700 : imm * 700 + sizes[imm]]) == bytes([imm + 1]) * sizes[imm]


def test_write_to_a_stranger_is_refused():
    with pytest.raises(UsageError, match="no connected QP to b"):
        Pair().write(b"data")


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"b": {}},
        {"b": {"receive": {"a": []}, "rkey": 1, "base_address": 2}},
        {"b": {"receive": {"a": [{"qpn": "x", "source_port": 5}]}, "rkey": 1, "base_address": 2}},
        {"b": {"receive": {"a": [{"qpn": 1 << 24, "source_port": 5}]}, "rkey": 1, "base_address": 2}},
        {"b": {"receive": {"a": [{"qpn": 5, "source_port": 1 << 16}]}, "rkey": 1, "base_address": 2}},
        {"b": {"receive": {"a": [{"qpn": 5, "source_port": -1}]}, "rkey": 1, "base_address": 2}},
        {"b": {"receive": {"a": [{"qpn": 5, "source_port": 5}]}, "rkey": 1 << 32, "base_address": 2}},
        {"b": {"receive": {"a": [{"qpn": 5, "source_port": 5}]}, "rkey": 1, "base_address": 1 << 63}},
    ],
)
def test_unusable_attributes_are_refused(attributes: dict):
    with pytest.raises(UsageError, match="unusable attributes"):
        Pair().a.connect(attributes)


@pytest.mark.parametrize(
    ("name", "value"),
    [("payload_bytes", 4095), ("window_packets", 0), ("ack_every", 9), ("timeout_exponent", 32), ("retries", 8), ("retries", True)],
)
def test_senseless_parameter_is_refused_by_name(name: str, value: int):
    with pytest.raises(UsageError, match=name):
        RcParams(**{name: value})


def test_unknown_parameter_is_refused_with_a_hint():
    with pytest.raises(UsageError, match="did you mean 'window_packets'"):
        RcParams.from_mapping({"window_packet": 4})
