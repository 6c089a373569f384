"""Switches that trim and mark, in virtual time: everything arrives once, and no path is taken for dead."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from mrc_lab import START_S, World

from hosts.mrc.channel import Conditions, Queue


def test_a_burst_that_is_trimmed_again_and_again_makes_progress() -> None:
    world = World(Conditions(trimming=0.9), idle_probes=1)
    world.post(1 << 18, 0)
    world.run(60)
    world.assert_delivered()
    assert world.channel.log["trimmed"] > 320
    assert world.states("ASSUMED_BAD") == []


def test_a_bottleneck_that_trims_costs_no_ev_and_recovers_within_two_rtts() -> None:
    queue = Queue(ecn_min_bytes=8_500, ecn_max_bytes=34_000, trim_bytes=42_500, shared=True)
    world = World(Conditions(rate_bps=20e6, queue=queue), paths=8, link_rate_bps=20e6, trimming=True, cwnd_initial_packets=0)
    for _ in range(4):
        world.post(1 << 20, 0)
    world.run(60)
    world.assert_delivered()
    report = world.a.report()
    assert (world.states("ASSUMED_BAD"), report["spurious_verdicts"]) == ([], 0)
    assert report["trimmed_packets"] == world.channel.log["trimmed"] > 0
    assert report["marked_packets"] == world.channel.log["marked"] > 0
    assert set(report["recoveries"]) == {"trimmed"}
    assert report["recoveries"]["trimmed"]["median_s"] < 2 * world.a.flow_rows()[0][5]


def test_without_trimming_the_same_bottleneck_loses_packets_and_still_delivers() -> None:
    queue = Queue(limit_bytes=42_500, shared=True)
    world = World(Conditions(rate_bps=20e6, queue=queue), paths=8, cwnd_initial_packets=64, cwnd_max_packets=64)
    world.post(1 << 20, 0)
    world.run(60)
    world.assert_delivered()
    assert world.channel.log["queue_dropped"] > 0
    assert world.states("ASSUMED_BAD")


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 1 << 16),
    paths=st.integers(1, 6),
    trimming=st.sampled_from([0.0, 0.05, 0.5]),
    marking=st.sampled_from([0.0, 0.3, 1.0]),
    queue=st.sampled_from(
        [Queue(), Queue(2_000, 20_000, 30_000), Queue(0, 0, 20_000, last_hop=True, shared=True), Queue(limit_bytes=40_000)]
    ),
    loss=st.sampled_from([0.0, 0.01, 0.1]),
    duplication=st.sampled_from([0.0, 0.1]),
    jitter_s=st.sampled_from([0.0, 0.001, 0.01]),
    deaths=st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1), st.floats(0, 3)), max_size=4),
    sizes=st.lists(st.integers(0, 120_000), min_size=1, max_size=6),
)
def test_every_message_arrives_once_whatever_switches_do(
    seed, paths, trimming, marking, queue, loss, duplication, jitter_s, deaths, sizes
) -> None:
    dead = tuple((path % paths, START_S + start, START_S + start + length) for path, start, length in deaths)
    conditions = Conditions(0.001, jitter_s, 100e6, loss, duplication, {}, {}, dead, trimming, marking, queue)
    world = World(conditions, paths, seed)
    world.post_row(sizes)
    world.run(120)
    assert world.settled()
    if not world.errors:
        world.assert_delivered()


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 1 << 16),
    paths=st.integers(1, 8),
    trimming=st.sampled_from([0.01, 0.2, 0.7]),
    marking=st.sampled_from([0.0, 0.5]),
    jitter_s=st.sampled_from([0.0, 0.0002, 0.001]),
    sizes=st.lists(st.integers(1, 250_000), min_size=1, max_size=4),
)
def test_trims_and_marks_alone_never_make_a_path_bad(seed, paths, trimming, marking, jitter_s, sizes) -> None:
    world = World(Conditions(jitter_s=jitter_s, trimming=trimming, marking=marking), paths, seed)
    world.post_row(sizes)
    world.run(120)
    world.assert_delivered()
    assert world.states("ASSUMED_BAD") == []
    assert sum(row[4] for row in world.a.path_rows()) == 0
