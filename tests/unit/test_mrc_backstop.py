"""The receiver's window, NACKs that are no trims, retries, and what a QP leaves behind when it is done or has failed."""

from __future__ import annotations

import gc
import math

import pytest
from mrc_lab import NOW, START_S, Pair, World, answers, entropy_of, on_wire, psn_of, states, tell

from hosts import wire
from hosts.mrc import MrcParams
from hosts.mrc.backoff import Backoff
from hosts.mrc.channel import Conditions
from hosts.mrc.frames import NackFields, SackFields, parse_sack
from hosts.mrc.loss import Packet, Tx
from hosts.mrc.window import RttEstimator

BUSY = (wire.NO_BITMAP, wire.NO_PKT_BUFFER, wire.NO_RESOURCE)


def sack(pair: Pair, say: SackFields, now: float = NOW) -> list[bytes]:
    """Gives a a SACK that b did not send; returns what a sends then."""
    pair.a.on_datagram(now, 0, memoryview(pair.sack(say)))
    pair.a.on_receive_done(now)
    return [on_wire(each) for each in pair.a.transmit(now)]


def nack(pair: Pair, reason: int, packet: bytes, now: float = NOW) -> list[bytes]:
    """Has b refuse a packet; returns what a sends then."""
    say = NackFields(reason, entropy_of(packet), psn_of(packet), wire.timestamp(NOW))
    pair.a.on_datagram(now, 0, memoryview(pair.nack(say)))
    return [on_wire(each) for each in pair.a.transmit(now)]


def said(pair: Pair, *packets: bytes) -> SackFields:
    """What b says of these packets, in its last SACK."""
    return parse_sack(memoryview(on_wire(answers(pair, *packets)[-1])))


# The receiver's window


def wide(**params: float) -> Pair:
    """The window of the congestion control is out of the way."""
    return Pair(cwnd_initial_packets=2048, cwnd_max_packets=2048, payload_bytes=16, initial_psn=0, **params)


def test_the_receivers_window_bounds_what_is_sent() -> None:
    packets = wide(mpr_packets=128).send(300 * 16)
    assert len(packets) == 128


def test_a_sack_may_widen_the_window() -> None:
    pair = wide(mpr_packets=128)
    packets = pair.send(600 * 16)
    more = sack(pair, said(pair, packets[0], *packets[1:4])._replace(number=9, mpr=3))
    assert [psn_of(packet) for packet in more] == list(range(128, 4 + 3 * 128))


def test_a_sack_may_narrow_the_window_and_then_nothing_beyond_is_sent_new_or_again() -> None:
    pair = wide(mpr_packets=512)
    packets = pair.send(600 * 16)
    assert sack(pair, said(pair, *packets[:4])._replace(number=9, mpr=1)) == []
    assert nack(pair, wire.PSN_OOR_WINDOW, packets[500]) == []
    assert [psn_of(packet) for packet in nack(pair, wire.PSN_OOR_WINDOW, packets[100])] == [100]
    assert [psn_of(packet) for packet in sack(pair, said(pair, *packets[4:500])._replace(number=10, mpr=1))][:1] == [500]


def test_a_window_that_has_grown_does_not_make_the_sender_forget_what_it_sent_first() -> None:
    pair = wide(mpr_packets=128)
    packets = pair.send(300 * 16)
    packets += sack(pair, said(pair, *packets[:4])._replace(mpr=32), NOW + 0.001)
    assert psn_of(packets[7]) + 128 in [psn_of(packet) for packet in packets]  # as far behind as the window was wide
    tell(pair, *answers(pair, *packets[4:8]))
    assert (pair.a.report()["drops"], pair.a.acked_bytes()) == ({}, 8 * 16)


@pytest.mark.parametrize("mpr", [0, 33, 255])
def test_a_window_that_is_none_is_counted_and_ignored(mpr: int) -> None:
    pair = wide(mpr_packets=128)
    packets = pair.send(300 * 16)
    more = sack(pair, said(pair, *packets[:4])._replace(mpr=mpr))
    assert [psn_of(packet) for packet in more] == list(range(128, 132))
    assert pair.a.report()["drops"] == {"mpr_out_of_range": 1}


def test_an_overtaken_sack_does_not_change_the_window() -> None:
    pair = wide(mpr_packets=128)
    packets = pair.send(300 * 16)
    old = said(pair, *packets[:4])
    sack(pair, said(pair, *packets[4:8])._replace(number=9))
    assert sack(pair, old._replace(number=8, mpr=3)) == []


# NACKs that are no trims


def test_a_packet_outside_the_window_goes_back_without_a_verdict_or_a_smaller_window() -> None:
    pair = Pair()
    packets = pair.send(8 * 4096)
    before = pair.a.flow_rows()[0]
    (again,) = nack(pair, wire.PSN_OOR_WINDOW, packets[3])
    assert psn_of(again) == psn_of(packets[3])
    assert entropy_of(again) != entropy_of(packets[3])
    assert states(pair.a) == ["GOOD"] * 4
    assert pair.a.flow_rows()[0][4] == before[4]
    assert pair.a.report()["nacks_received"] == {"PSN_OOR_WINDOW": 1}


@pytest.mark.parametrize("reason", BUSY)
def test_a_peer_that_is_short_of_something_is_answered_like_a_trim(reason: int) -> None:
    pair = Pair(cwnd_initial_packets=16, cwnd_max_packets=16)
    packets = pair.send(16 * 4096)
    tell(pair, *answers(pair, *packets[:4]))
    before = pair.a.flow_rows()[0][4]
    (again,) = nack(pair, reason, packets[5])[:1]
    assert (psn_of(again), entropy_of(again) != entropy_of(packets[5])) == (psn_of(packets[5]), True)
    assert pair.a.flow_rows()[0][4] == before - 1
    assert states(pair.a) == ["GOOD"] * 4
    assert pair.a.report()["trimmed_packets"] == 0
    assert set(pair.a.report()["recoveries"]) == {"refused"}


def test_an_unexpected_event_at_the_peer_is_the_qps_error() -> None:
    pair = Pair()
    packets = pair.send(4 * 4096)
    assert nack(pair, wire.UNEXPECTED_EVENT, packets[1]) == []
    assert [error.reason for error in pair.a.take_errors()] == ["the peer met an UNEXPECTED_EVENT"]


def test_a_peer_that_refuses_everything_is_given_up() -> None:
    world = World(Conditions(trimming=1.0), linear_retries=1, exponential_retries=1)
    world.post(1 << 16)
    world.run(60)
    (error,) = world.errors
    assert "though the peer answers" in error.reason
    assert world.channel.now - START_S < 3 * MrcParams(linear_retries=1, exponential_retries=1).backstop_s


# Retries


def waits(**params: float) -> tuple[list[float], str]:
    """The waits until a QP fails, and why it does."""
    settings = MrcParams.from_mapping({"initial_rtt_s": 0.001, **params})
    backoff, now, intervals = Backoff(settings, RttEstimator(settings)), 0.0, list[float]()
    for _ in range(200):
        intervals.append(backoff.interval_s)
        now += intervals[-1]
        reason = backoff.passed(now)
        if reason is not None:
            return intervals, reason
    return intervals, ""


def test_the_probe_timeout_doubles_up_to_the_ack_timeout_then_come_the_retries() -> None:
    timeout_s = 1.024e-6 * 2**14
    intervals, reason = waits(ack_timeout_exponent=14, linear_retries=2, exponential_retries=3)
    quick = [interval for interval in intervals if interval < timeout_s]
    assert quick == pytest.approx([0.006 * 2**i for i in range(len(quick))])
    assert intervals[len(quick) :] == pytest.approx([timeout_s * factor for factor in (1, 1, 1, 2, 4, 8)])
    assert reason == f"no acknowledgement after 2 linear and 3 exponential retries, the last wait {8 * timeout_s:.3g} s long"


def test_the_defaults_keep_a_qp_alive_for_about_20_s_without_any_acknowledgement() -> None:
    assert 18 < sum(waits()[0]) < 22


def test_25_exponential_retries_are_for_ever_with_a_longest_wait() -> None:
    intervals, reason = waits(ack_timeout_exponent=10, exponential_retries=25)
    assert (len(intervals), reason) == (200, "")
    assert max(intervals) == pytest.approx(64 * 1.024e-6 * 2**10)
    assert math.isinf(MrcParams(exponential_retries=25).backstop_s)


def test_progress_gives_all_retries_back() -> None:
    settings = MrcParams(ack_timeout_exponent=10, linear_retries=1, exponential_retries=0)
    backoff = Backoff(settings, RttEstimator(settings))
    for now in range(50):
        assert backoff.passed(now) is None
        backoff.progress(now + 0.5)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"linear_retries": 8}, "linear_retries must be 0 to 7"), ({"exponential_retries": 26}, r"0 to 25 \(for ever\)"),
        ({"ack_timeout_exponent": 32}, "0 to 31"), ({"qps": 0}, "qps must be 1 to 16"), ({"qps": 17}, "qps must be 1 to 16"),
        ({"write_bytes": -1}, "write_bytes must be at least 0"),
    ],
)  # fmt: skip
def test_limits_of_the_parameters_of_a_qps_life(raw: dict[str, float], words: str) -> None:
    with pytest.raises(Exception, match=words):
        MrcParams.from_mapping(raw)


# What is left behind


@pytest.mark.parametrize("ending", ["delivered", "failed"])
def test_without_the_collector_of_cycles_nothing_is_kept_of_packets(ending: str) -> None:
    """An agent runs without it: what refers to each other must be taken apart."""
    dead = tuple((path, START_S + 0.2, START_S + 900) for path in range(4)) if ending == "failed" else ((1, START_S + 0.1, START_S + 0.5),)
    gc.collect()
    gc.disable()
    try:
        world = World(
            Conditions(loss=0.03, trimming=0.03, duplication=0.02, jitter_s=0.002, dead=dead),
            linear_retries=1, exponential_retries=0, payload_bytes=500,
        )  # fmt: skip
        for _ in range(30):
            world.post(20_000)
            world.run(0.5)
        world.run(60)
        assert bool(world.errors) == (ending == "failed")
        left = [item for item in gc.get_objects() if isinstance(item, Packet) and (item.payload or item.tx is not None)]
        kept = sum(isinstance(item, Tx) for item in gc.get_objects())
    finally:
        gc.enable()
    assert left == []
    assert kept < 4 * 100


def test_no_measured_rtt_makes_the_wait_longer_than_two_ack_timeouts_or_its_retrys() -> None:
    """A packet that was replayed much later measures a RTT without bound; the QP must fail in time all the same."""
    params = MrcParams()
    rtt = RttEstimator(params)
    rtt.sample(0.0, 60.0)
    backoff, waits = Backoff(params, rtt), []
    while backoff.passed(0.0) is None:
        waits.append(backoff.interval_s)
    assert waits[0] == 2 * params.ack_timeout_s
    assert sum(waits) < 2 * params.backstop_s
