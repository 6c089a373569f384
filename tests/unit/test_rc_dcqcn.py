"""DCQCN: who sends CNPs and when, what they do to a QP's rate, and what a shared link sees of it."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rc_lab import A, B, Ends, raw

from hosts.core import PeerSpec, Transmit
from hosts.rc import RcCore, RcParams, wire
from hosts.rc.rate import Rate
from testbed.errors import UsageError

LINE_BPS = 10e6
ON = {"dcqcn": True, "link_rate_bps": LINE_BPS}
PARAMS = RcParams(**ON)  # type: ignore[arg-type]
SECOND = PARAMS.dcqcn_time_scale * 1e-6  # of emulated time a microsecond of the paper's
CNP_S, STEP_S = PARAMS.dcqcn_cnp_interval_us * SECOND, PARAMS.dcqcn_increase_timer_us * SECOND


def marked(ends: Ends, count: int = 1) -> list[Transmit]:
    """CNPs that so many marked packets cause."""
    for _ in range(count):
        ends.write(b"x")
        ends.to_b(*ends.data(), marked=True)
    return [packet for packet in ends.answers() if wire.parse_bth(raw(packet)).opcode == wire.CNP]


def cnp(ends: Ends, qpn: int | None = None) -> bytearray:
    """A CNP as `b` would build it, to another QP if asked."""
    own, other = ends.attributes["b"]["receive"]["a"][0], ends.attributes["a"]["send"]["b"][0]
    flow = wire.Flow(B.address, A.address, own["source_port"], other["qpn"] if qpn is None else qpn)
    header, trailer = flow.build(wire.CNP, 0, wire.CNP_RESERVED, b"", wire.BECN)
    return bytearray(header + trailer)


def test_marked_packet_causes_a_cnp_in_the_control_class_that_names_the_sending_qp():
    ends = Ends(**ON)
    (packet,) = marked(ends)
    bth = wire.parse_bth(raw(packet))
    assert (bth.opcode, bth.qpn, bth.psn, packet.control) == (wire.CNP, ends.attributes["a"]["send"]["b"][0]["qpn"], 0, True)
    assert raw(packet)[4] == 0x40  # BECN
    assert len(raw(packet)) == wire.CNP_BYTES == 12 + 16 + 4


def test_no_marks_no_cnps():
    ends = Ends(**ON)
    ends.write(b"x")
    ends.to_b(*ends.data())
    assert [wire.parse_bth(raw(packet)).opcode for packet in ends.answers()] == [wire.ACK]


def test_mark_belongs_to_one_packet_only():
    ends = Ends(qps=2, **ON)
    ends.write(b"x")
    ends.write(b"y")
    first, second = ends.data()
    ends.to_b(first, marked=True)
    ends.to_b(second)
    assert ends.b.report()["marked_packets_received"] == 1


def test_at_most_one_cnp_a_qp_and_interval():
    ends = Ends(**ON)
    assert len(marked(ends, 5)) == 1
    ends.now = 0.99 * CNP_S
    assert marked(ends, 5) == []
    ends.now = CNP_S
    assert len(marked(ends, 5)) == 1
    assert ends.b.report()["marked_packets_received"] == 15


def test_without_dcqcn_marks_mean_nothing_and_a_cnp_is_counted():
    ends = Ends()
    assert marked(ends) == []
    ends.a.on_datagram(0.0, 0, memoryview(cnp(ends)))
    assert ends.a.report()["drops"] == {"cnp_without_dcqcn": 1}


def test_cnp_counts_as_a_mark_of_the_flow_and_path():
    ends = Ends(qps=2, **ON)
    ends.to_a(*marked(ends))
    assert (ends.a.flow_rows()[0][-1], [row[-1] for row in ends.a.path_rows()]) == (1, [1, 0])
    assert (ends.b.report()["cnps_sent"], ends.a.report()["cnps_received"]) == (1, 1)


def test_forged_cnps_are_counted_and_change_nothing():
    ends = Ends(**ON)
    damaged, longer = cnp(ends), cnp(ends) + b"more"
    damaged[14] ^= 1
    unknown = next(qpn for qpn in range(16, 1 << 24) if qpn != ends.attributes["a"]["send"]["b"][0]["qpn"])
    for packet in (damaged, longer, cnp(ends, unknown)):
        ends.a.on_datagram(0.0, 0, memoryview(packet))
    assert ends.a.report()["drops"] == {"bad_icrc": 1, "bad_length": 1, "unknown_qp": 1}
    assert ends.a.flow_rows()[0][-1] == 0


def test_cnp_to_a_receive_qp_is_of_an_unknown_qp():
    ends = Ends(**ON)
    ends.b.on_datagram(0.0, 0, memoryview(cnp(ends, ends.attributes["b"]["receive"]["a"][0]["qpn"])))
    assert ends.b.report()["drops"] == {"unknown_qp": 1}


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40))
def test_garbage_that_calls_itself_a_cnp_never_raises_and_changes_nothing(garbage: bytes):
    ends = Ends(**ON)
    for core in (ends.a, ends.b):
        core.on_datagram(0.0, 0, memoryview(bytes([wire.CNP]) + garbage))
        assert sum(core.report()["drops"].values()) == 1
    assert ends.a.report()["cnps_received"] == 0


def test_flood_of_cnps_costs_no_more_than_one_each_half_interval():
    ends = Ends(**ON)
    for at in range(1000):
        ends.a.on_datagram(at / 1000 * CNP_S, 0, memoryview(cnp(ends)))
    assert ends.a.report()["cnps_received"] == 2
    assert ends.a.report()["drops"] == {"cnp_too_early": 998}


def test_line_rate_until_the_first_cnp():
    rate = Rate(PARAMS)
    rate.on_sent(0.0, 4096)
    assert (rate.limited, rate.lets(0.0), rate.current * 8) == (False, True, LINE_BPS)


def test_first_cnp_halves_the_rate_and_spaces_packets_by_it():
    rate = Rate(PARAMS)
    rate.on_sent(0.0, 4096)
    assert rate.on_cnp(0.0) is None
    assert rate.current * 8 == LINE_BPS / 2
    gap = 4096 * 8 / (LINE_BPS / 2)
    assert rate.due() == pytest.approx(min(gap, STEP_S))
    assert (rate.lets(0.9 * gap), rate.lets(gap)) == (False, True)


def test_fast_recovery_halves_the_distance_to_the_rate_before_in_five_steps():
    rate = Rate(PARAMS)
    rate.on_cnp(0.0)
    told = []
    for step in range(1, 5):
        rate.advance(step * STEP_S)
        told.append(rate.current * 8 / LINE_BPS)
    assert told == pytest.approx([1 - 2**-2, 1 - 2**-3, 1 - 2**-4, 1 - 2**-5])


def test_alpha_rises_with_cnps_and_decays_without():
    rate = Rate(PARAMS)
    rate.on_cnp(0.0)
    assert rate.alpha == 1.0
    rate.on_cnp(100 * PARAMS.dcqcn_alpha_timer_us * SECOND)
    decayed = (255 / 256) ** 100
    assert rate.alpha == pytest.approx(decayed + (1 - decayed) / 256)


def test_additive_then_hyper_increase():
    rate = Rate(PARAMS)
    for at in range(5):
        rate.on_cnp(at * CNP_S)
    start, target = 4 * CNP_S, rate.target
    rate.advance(start + 4.5 * STEP_S)
    assert rate.target == target
    rate.advance(start + 5.5 * STEP_S)
    assert rate.target - target == pytest.approx(PARAMS.dcqcn_additive_share * LINE_BPS / 8)
    for _ in range(6):
        rate.on_sent(start + 5.5 * STEP_S, round(PARAMS.dcqcn_byte_counter_us * SECOND * LINE_BPS / 8) + 1)
    before = rate.target
    rate.advance(start + 6.5 * STEP_S)
    assert rate.target - before == pytest.approx(PARAMS.dcqcn_hyper_share * LINE_BPS / 8)


def test_recovered_qp_is_not_limited_any_more():
    rate = Rate(PARAMS)
    rate.on_cnp(0.0)
    rate.advance(1000 * STEP_S)
    assert (rate.limited, rate.current * 8) == (False, LINE_BPS)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 0.1), st.booleans(), st.integers(62, 4200)), max_size=200))
def test_rate_stays_between_its_bounds_and_never_lets_more_through_than_line_rate(steps: list[tuple[float, bool, int]]):
    rate, now, sent = Rate(PARAMS), 0.0, 0
    rate.on_cnp(0.0)
    for wait, is_cnp, size in steps:
        now += wait
        if is_cnp:
            rate.on_cnp(now)
        if rate.lets(now) and rate.limited:
            rate.on_sent(now, size)
            sent += size
        assert PARAMS.dcqcn_min_rate_share * LINE_BPS / 8 <= rate.current <= rate.target <= LINE_BPS / 8
        assert 0 < rate.alpha <= 1
    assert sent <= now * LINE_BPS / 8 + 2 * 4200 + 0.002 * LINE_BPS / 8


def test_each_packet_asks_for_an_ack_when_the_rate_is_so_low_that_a_coalesced_one_would_come_after_the_timeout():
    ends = Ends(dcqcn=True, link_rate_bps=1e6, timeout_exponent=14, dcqcn_time_scale=1.0, dcqcn_increase_timer_us=1e6)
    ends.write(bytes(64 * 40))
    first = ends.data()
    for at in range(12):
        ends.now = at * 50e-6
        ends.a.on_datagram(ends.now, 0, memoryview(cnp(ends)))
    ends.to_b(*first)
    ends.to_a(*ends.answers())
    ends.now = 0.3  # a packet of 142 bytes at the least rate, 625 bytes a second, takes 0.23 s
    (slow,) = ends.data()
    assert [wire.parse_bth(raw(packet)).ack_request for packet in (first[0], slow)] == [False, True]


def test_dcqcn_without_the_links_rate_is_refused():
    with pytest.raises(UsageError, match="link_rate_bps"):
        Ends(dcqcn=True)


@dataclass
class Bottleneck:
    """Two senders into one link of 10 Mbit/s, which marks between 2 and 8 full frames as the testbed's links do; all else is instant."""

    params: RcParams
    room_frames: float = 1000.0
    delay_s: float = 0.002
    now: float = 0.0
    dropped: int = 0
    depths: list[float] = field(default_factory=list)

    def run(self, duration_s: float) -> dict[str, int]:
        """Bytes acknowledged by sender; `depths` are the queue's, in full frames, a sample each arrival of the last half."""
        region = memoryview(bytearray(1 << 20))
        receiver_peers = {"a": A, "c": PeerSpec("c", "fd00::3", ())}
        self.b = RcCore("b", B.address, self.params, {}, receiver_peers, region, 1)
        senders = {
            name: RcCore(name, spec.address, self.params, {"b": B}, {}, memoryview(bytearray(8)), 1)
            for name, spec in receiver_peers.items()
        }
        attributes = {"b": self.b.attributes(), **{name: core.attributes() for name, core in senders.items()}}
        for core in (self.b, *senders.values()):
            core.connect(attributes)
        draw, queue, busy_until = random.Random(1), deque[tuple[float, Transmit, bool]](), 0.0
        back: deque[tuple[float, str, Transmit]] = deque()
        message, home = memoryview(bytes(1 << 16)), {spec.address: name for name, spec in receiver_peers.items()}
        while self.now < duration_s:
            for core in senders.values():
                while core.outstanding_messages("b") < 4:
                    core.post_write(self.now, "b", message, 0, 1)
                core.on_timer(self.now)
                for packet in core.transmit(self.now):
                    backlog = max(0.0, busy_until - self.now) * LINE_BPS / 8 / 4366
                    self.depths += [backlog] if self.now > duration_s / 2 else []
                    if backlog > self.room_frames:
                        self.dropped += 1
                        continue
                    mark = draw.random() < (backlog - 2) / 6
                    busy_until = max(busy_until, self.now) + (len(raw(packet)) + 62) * 8 / LINE_BPS
                    queue.append((busy_until + self.delay_s, packet, mark))
            while queue and queue[0][0] <= self.now:
                _, packet, mark = queue.popleft()
                if mark:
                    self.b.on_marked()
                self.b.on_datagram(self.now, 0, raw(packet))
            back += [(self.now + self.delay_s, home[packet.destination], packet) for packet in self.b.transmit(self.now)]
            while back and back[0][0] <= self.now:
                _, name, packet = back.popleft()
                senders[name].on_datagram(self.now, 0, raw(packet))
            self.now += 0.0005
        return {name: core.acked_bytes() for name, core in senders.items()}


def test_two_senders_share_a_link_with_a_shallow_queue_and_use_it():
    plain, controlled = Bottleneck(RcParams(link_rate_bps=LINE_BPS)), Bottleneck(PARAMS)
    without, acked = plain.run(16.0), controlled.run(16.0)
    mean = {lab is controlled: sum(lab.depths) / len(lab.depths) for lab in (plain, controlled)}
    assert mean[True] < mean[False] / 3, mean
    assert sum(acked.values()) > 0.8 * sum(without.values()), (acked, without)
    assert min(acked.values()) > 0.6 * max(acked.values()), acked


def test_a_short_queue_that_two_windows_overflow_loses_less():
    plain, controlled = Bottleneck(RcParams(link_rate_bps=LINE_BPS), 20.0), Bottleneck(PARAMS, 20.0)
    without, acked = plain.run(8.0), controlled.run(8.0)
    assert plain.dropped > 100
    assert controlled.dropped < plain.dropped / 5, (controlled.dropped, plain.dropped)
    assert sum(acked.values()) > sum(without.values()), (acked, without)
