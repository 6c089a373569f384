"""What congestion did: packets trimmed, marked, dropped by full queues, sent again, and how soon. Pure functions on plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from testbed.report.model import ArmRun

CAUSES = ("trimmed", "loss_fifo", "loss_rack", "timeout", "port_down", "peer_port_down")  # of a retransmission, as agents.json names them
OUTCOMES = ("trimmed_packets", "marked_packets", "queue_dropped_packets")


def congestion_metrics(run: ArmRun) -> dict[str, float | None]:
    """Counts of the links' outcomes, the share of packets sent again, and the median recovery; None for what was not counted."""
    sent = sum(float(qp.tx_packets[-1]) for qp in run.qps)
    again = sum(float(qp.rtx_packets[-1]) for qp in run.qps)
    return {
        **{name: outcome_total(run, name) for name in OUTCOMES},
        "retransmitted_share": again / sent if sent > 0 else None,
        "recovery_median_srtt": recovery_median_srtt(run),
    }


def outcome_total(run: ArmRun, name: str) -> float | None:
    """Packets of one outcome over all links; None if links.csv has no such column."""
    known = [counter.outcomes[name] for counter in run.links if name in counter.outcomes]
    return sum((series[-1][1] for series in known if series), 0.0) if known else None


def recoveries(run: ArmRun) -> dict[str, dict[str, float]]:
    """cause -> count, median_srtt (median of the hosts' medians, by their counts), p99_srtt (the worst host's); empty without any."""
    return {cause: told for cause in CAUSES if (told := _of_cause(run, cause))}


def _of_cause(run: ArmRun, cause: str) -> dict[str, float]:
    known = [entry for agent in run.agents.values() if (entry := _entry(agent, cause))]
    if not known:
        return {}
    median = weighted_median([(entry["median_srtt"], entry["count"]) for entry in known])
    return {"count": sum(entry["count"] for entry in known), "median_srtt": median, "p99_srtt": max(entry["p99_srtt"] for entry in known)}


def _entry(agent: Mapping[str, Any], cause: str) -> dict[str, float]:
    """One host's figures for one cause, if it has them all and saw the cause at all."""
    told = agent.get("recoveries")
    entry = told.get(cause) if isinstance(told, Mapping) else None
    if not isinstance(entry, Mapping):
        return {}
    found = {name: entry.get(name) for name in ("count", "median_srtt", "p99_srtt")}
    known = {name: float(value) for name, value in found.items() if isinstance(value, int | float) and math.isfinite(value)}
    return known if len(known) == len(found) and known["count"] > 0 else {}


def recovery_median_srtt(run: ArmRun) -> float | None:
    """From the sending of a lost packet to its retransmission, in smoothed RTTs: median over all hosts and causes, by their counts."""
    entries = [
        (entry["median_srtt"], entry["count"]) for agent in run.agents.values() for cause in CAUSES if (entry := _entry(agent, cause))
    ]
    return weighted_median(entries) if entries else None


def weighted_median(entries: list[tuple[float, float]]) -> float:
    """The smallest value at which half of the whole weight is reached. (value, weight); at least one entry with a weight above 0."""
    half, reached = sum(weight for _, weight in entries) / 2, 0.0
    for value, weight in sorted(entries):
        reached += weight
        if reached >= half:
            return value
    raise ValueError("no entry has a weight above 0")
