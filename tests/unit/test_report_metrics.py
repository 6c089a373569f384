"""Metrics of flows, faults, links and steps against the same figures worked out a second time, from random data, with numpy alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from testbed.report import congestion, fault_goodput, goodput, html, link_use, step_goodput
from testbed.report.model import ArmRun, FaultInterval, LinkCounter, QpSeries, StepRow, StreamFlow
from testbed.report.reading import RunData
from testbed.report.statistics import job_steps

T = np.round(np.arange(0, 401) * 0.1, 1)  # samples of a run of 40 s, ten a second
DURATION_S = 40.0
INCAST = [StreamFlow(source, "r", 12.0 + start, 20.0, "incast") for start, source in enumerate("abc")]  # all three on from 14 to 32 s
VICTIM = StreamFlow("v", "w", 0.0, None, "victim")


def qps(seed: int) -> dict[tuple[str, str], QpSeries]:
    """A QP a flow with random goodput while it is on; each sends 2 % again."""
    rng, found = np.random.default_rng(seed), {}
    for flow in (*INCAST, VICTIM):
        on = np.array([flow.at_s <= t < flow.at_s + (flow.for_s or DURATION_S) for t in T])
        octets = np.cumsum(rng.uniform(1e4, 1e5, T.size) * on)
        packets = np.floor(octets / 4096)
        found[flow.source, flow.target] = QpSeries(flow.source, flow.target, T, packets, packets // 50, octets, np.ones_like(T))
    return found


def arm(seed: int, **more: object) -> ArmRun:
    info = {"fabric": {"rate_bps": 10e6}, "transport": {"payload_bytes": 4096}}
    series = list(qps(seed).values())
    return ArmRun("rc-bgp", 1, DURATION_S, flows=(*INCAST, VICTIM), qps=series, info=info, job={"kind": "streams"}, **more)  # type: ignore[arg-type]


def bps(octets: np.ndarray, *spans: tuple[float, float]) -> float:
    """Mean rate over spans whose ends are samples."""
    at = {round(t, 1): value for t, value in zip(T, octets, strict=True)}
    return 8 * sum(at[end] - at[begin] for begin, end in spans) / sum(end - begin for begin, end in spans)


@pytest.mark.parametrize("seed", range(5))
def test_an_incasts_metrics(seed):
    run, told = arm(seed), goodput.stream_metrics(arm(seed))
    acked = {pair: qp.acked_bytes for pair, qp in qps(seed).items()}
    full_bps = 10e6 * (goodput.payload_share(run) or 0.0)
    senders = sum(acked[source, "r"] for source in "abc")
    assert told["bottleneck_share"] == pytest.approx(bps(senders, (16.0, 32.0)) / full_bps)
    alone_bps = bps(acked["v", "w"], (2.0, 12.0), (36.0, 40.0))  # without its first 2 s, and from 2 s after the last flow's end
    assert told["victim_share"] == pytest.approx(bps(acked["v", "w"], (16.0, 32.0)) / alone_bps)


@pytest.mark.parametrize("seed", range(5))
def test_shares_of_what_is_fair_and_jains_index(seed):
    told, acked = goodput.stream_metrics(arm(seed)), {pair: qp.acked_bytes for pair, qp in qps(seed).items()}
    full_bps = 10e6 * (goodput.payload_share(arm(seed)) or 0.0)
    # How many flows of the incast are on in each second from 12 s: 1, 2, then 3 up to 32 s, 2, 1.
    parts = {12: 1.0, 13: 1 / 2, **dict.fromkeys(range(14, 32), 1 / 3), 32: 1 / 2, 33: 1.0}
    shares = []
    for flow in INCAST:
        begin, end = flow.at_s + 2.0, flow.at_s + 20.0
        fair_bps = full_bps * np.mean([parts[second] for second in range(int(begin), int(end))])
        shares.append(bps(acked[flow.source, "r"], (begin, end)) / fair_bps)
    victim = bps(acked["v", "w"], (2.0, 40.0)) / full_bps
    assert told["flow_goodput_min_share"] == pytest.approx(min(*shares, victim))
    assert told["flow_goodput_median_share"] == pytest.approx(np.median([*shares, victim]))
    assert told["jain"] == pytest.approx(np.sum(shares) ** 2 / (3 * np.sum(np.square(shares))))


def fault(name: str, begin_s: float, end_s: float) -> FaultInterval:
    return FaultInterval(name, "rate", "a-b", "link", "T0-T1", begin_s, end_s, begin_s, begin_s, end_s)


@pytest.mark.parametrize("seed", range(5))
def test_goodput_under_faults_that_overlap(seed):
    run = arm(seed, faults=[fault("f1", 16.0, 20.0), fault("f2", 18.0, 24.0)])
    acked = {pair: qp.acked_bytes for pair, qp in qps(seed).items()}
    # Each flow from 2 s after its start, without 16 to 26 s: the two faults and 2 s more.
    free = {("a", "r"): [(14.0, 16.0), (26.0, 32.0)], ("b", "r"): [(15.0, 16.0), (26.0, 33.0)], ("c", "r"): [(26.0, 34.0)],
            ("v", "w"): [(2.0, 16.0), (26.0, 40.0)]}  # fmt: skip
    for name, span in (("f1", (16.0, 20.0)), ("f2", (18.0, 24.0))):
        under = {pair: bps(acked[pair], span) for pair in free}
        without = {pair: bps(acked[pair], *spans) for pair, spans in free.items()}
        told = next(entry for entry in fault_goodput.fault_goodputs(run) if entry.fault == name)
        assert told.goodput_share == pytest.approx(sum(under.values()) / sum(without.values()))
        assert told.worst_flow_share == pytest.approx(min(under[pair] / without[pair] for pair in free))


@pytest.mark.parametrize("seed", range(5))
def test_use_of_links(seed):
    rng, names = np.random.default_rng(seed), ["t0_1_1-t1_1_1", "t0_1_1-t1_1_2", "t0_1_2-t1_1_1", "t1_1_1-t2_1", "t1_1_2-t2_1"]
    counters, used = [], {}
    for link in names:
        for sender in link.split("-"):
            octets = np.cumsum(rng.uniform(0, 6e5, 80))  # every 500 ms
            times = np.arange(1, 81) * 0.5
            counters.append(LinkCounter(link, sender, 0.0, float(octets[-1]), octets=tuple(zip(times, octets, strict=True))))
            # From the first flow's settling (2 s, the victim's) to the last one's end (40 s).
            used[link, sender] = (octets[79] - octets[3]) * 8 / (38.0 * 10e6)
    groups = [
        [share for (link, sender), share in used.items() if link.startswith(low) and sender.startswith(end)]
        for low in ("t0", "t1") for end in ("t0", "t1", "t2") if any(k[0].startswith(low) and k[1].startswith(end) for k in used)
    ]  # fmt: skip
    told = link_use.use_metrics(link_use.use_summary(arm(seed, links=counters)))
    assert told["link_use_max"] == pytest.approx(max(used.values()))
    assert told["link_use_mean"] == pytest.approx(np.mean(list(used.values())))
    assert told["link_use_cv"] == pytest.approx(max(np.std(group) / np.mean(group) for group in groups))


@pytest.mark.parametrize("seed", range(5))
def test_the_share_of_packets_sent_again(seed):
    series = qps(seed).values()
    expected = sum(qp.rtx_packets[-1] for qp in series) / sum(qp.tx_packets[-1] for qp in series)
    assert congestion.congestion_metrics(arm(seed))["retransmitted_share"] == pytest.approx(expected)


# --- goodput of steps ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_goodput_of_steps_with_ranks_that_are_not_alike(seed):
    """Ranks begin a step where their own last one ended; the job's step ends with the slowest rank."""
    rng, starts, rows, over_s, seconds = np.random.default_rng(seed), np.zeros(4), [], 0.0, 0.0
    for step in range(10):
        computed = rng.uniform(0.1, 0.12, 4)
        ends = np.max(starts + computed) + rng.uniform(0.3, 0.5) + rng.uniform(0, 0.02, 4)
        rows += [StepRow(1, step, rank, starts[rank], ends[rank], True, starts[rank] + computed[rank]) for rank in range(4)]
        seconds += np.max(ends) - over_s - np.median(computed)
        starts, over_s = ends, np.max(ends)
    run = ArmRun("mrc", 1, float(over_s), steps=rows, job={"kind": "all-to-all", "vector_bytes": 1 << 20})
    assert step_goodput.job_goodput_bps(run, job_steps(run)) == pytest.approx(10 * 3 / 4 * (1 << 20) * 8 / seconds)


def steps(duration_s: float, last: StepRow | None = None) -> ArmRun:
    """Three steps of two ranks, 500 ms of compute and 500 ms of transfer each, and perhaps one that was not finished."""
    rows = [StepRow(1, number, rank, float(number), number + 1.0, True, number + 0.5) for number in range(3) for rank in range(2)]
    return ArmRun("mrc", 1, duration_s, steps=[*rows, *([last] if last else [])], job={"vector_bytes": 1000})


@pytest.mark.parametrize(("compute_end_s", "duration_s", "seconds"), [
    (3.5, 13.5, 1.5 + 10.0),  # the transfer hung for 10 s, until the end
    (3.5, 3.9, 1.5),  # it was no longer than the others
    (None, 13.5, 1.5),  # it had not begun
])  # fmt: skip
def test_a_transfer_that_hangs_until_the_end_lowers_the_goodput(compute_end_s, duration_s, seconds):
    run = steps(duration_s, StepRow(1, 3, 0, 3.0, None, None, compute_end_s))
    assert step_goodput.job_goodput_bps(run, job_steps(run)) == pytest.approx(3 * 1000 * 8 / seconds)


@pytest.mark.parametrize(("info", "goodput_bps"), [
    ({"interrupted": False}, 0.0), ({"interrupted": True}, None), ({"interrupted": False, "error": "an agent died"}, None), ({}, None),
])  # fmt: skip
def test_a_whole_run_without_a_completed_step_has_a_goodput_of_nought(info, goodput_bps):
    rows = [StepRow(1, 0, rank, 0.0, None, None, 0.5) for rank in range(2)]
    run = ArmRun("rc-bgp", 1, 30.0, steps=rows, info=info, job={"vector_bytes": 1000})
    assert step_goodput.job_goodput_bps(run, job_steps(run)) == goodput_bps


def bursty(vector_bytes: int, ranks: int, *links: str) -> ArmRun:
    rows = [StepRow(1, 0, rank, 0.0, 1.0, True, 0.5) for rank in range(ranks)]
    counters = [LinkCounter(link, end, 0.0, 0.0) for link in links for end in link.split("-")]
    info = {"fabric": {"burst_bytes": 2 * 4366, "mtu_bytes": 4352}, "transport": {"payload_bytes": 4096}}
    return ArmRun("mrc", 1, 1.0, steps=rows, links=counters, info=info, job={"vector_bytes": vector_bytes})


def test_a_burst_is_two_packets_and_one_more_for_each_port_of_what_a_rank_sends_a_step():
    one, two = bursty(1 << 16, 2, "h1-t0_1_1", "h2-t0_1_1"), bursty(1 << 16, 2, "h1-t0_1_1", "h1-t0_2_1", "t0_1_1-t1_1_1")
    payload = goodput.payload_share(one) or 0.0
    assert step_goodput.burst_share(one) == pytest.approx(3 * 4366 * payload / (1 << 16))
    assert step_goodput.burst_share(two) == pytest.approx(6 * 4366 * payload / (1 << 16))


def test_a_fabric_that_does_not_tell_its_burst_gives_no_share():
    assert step_goodput.burst_share(steps(3.0)) is None


@pytest.mark.parametrize(("vector_bytes", "told"), [(1 << 16, 1), (1 << 20, 0)])
def test_the_report_says_that_short_steps_are_flattered(vector_bytes, told):
    data = RunData(Path(), {}, {}, None, {"mrc": (bursty(vector_bytes, 2),)}, ())
    assert [sentence.count("19% of what a rank sends") for sentence in html.flattered(data)] == [1] * told
