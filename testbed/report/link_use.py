"""How evenly links are used: the utilisation of each link direction, by tier and direction. Pure functions on plain data."""

from __future__ import annotations

import statistics as stdlib
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.report.counters import growth, since_start
from testbed.report.fair_share import on_between
from testbed.report.goodput import Span, settled
from testbed.report.model import ArmRun, LinkCounter, link_tier

# Tier and way of a link direction: "T0-T1 up" carries towards T1.
FABRIC_TIERS = ("T0-T1", "T1-T2")
WAYS = ("up", "down")


def way_of(counter: LinkCounter) -> str:
    """ "up" if the lower end sends, else "down"."""
    return "up" if counter.link.partition("-")[0] == counter.from_node else "down"


def judged_span(run: ArmRun) -> Span:
    """The time over which use is taken: of streams from the first flow's settling to the last one's end, else the whole run."""
    spans = [settled(on_between(flow, run.duration_s)) for flow in run.flows]
    return (min(start for start, _ in spans), max(end for _, end in spans)) if run.streams and spans else (0.0, run.duration_s)


def utilisation(run: ArmRun, counter: LinkCounter) -> float | None:
    """Bytes that one link direction sent in the judged span, as a share of what its rate allows; None if that is not known."""
    span = judged_span(run)
    if run.rate_bps is None or not counter.octets or span[1] <= span[0]:
        return None
    return float(growth(*since_start(counter.octets), span)[0]) * 8 / (run.rate_bps * (span[1] - span[0]))


def by_tier(run: ArmRun) -> dict[str, dict[str, list[tuple[str, float]]]]:
    """tier -> way -> (link, utilisation), busiest first, of every link that has counters."""
    found: dict[str, dict[str, list[tuple[str, float]]]] = {}
    for counter in run.links:
        used = utilisation(run, counter)
        if used is not None:
            found.setdefault(link_tier(counter.link), {}).setdefault(way_of(counter), []).append((counter.link, used))
    return {
        tier: {way: sorted(ways[way], key=lambda entry: -entry[1]) for way in WAYS if way in ways} for tier, ways in sorted(found.items())
    }


def use_summary(run: ArmRun) -> dict[str, dict[str, dict[str, Any]]]:
    """tier -> way -> links, max (and the link), mean, cv (standard deviation / mean, null if nothing was sent)."""
    return {tier: {way: _described(used) for way, used in ways.items()} for tier, ways in by_tier(run).items()}


def _described(used: Sequence[tuple[str, float]]) -> dict[str, Any]:
    shares = [share for _, share in used]
    mean = stdlib.fmean(shares)
    cv = stdlib.pstdev(shares) / mean if mean > 0 else None
    return {"links": len(used), "max": used[0][1], "busiest": used[0][0], "mean": mean, "cv": cv}


def use_metrics(told: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, float | None]:
    """The links inside the fabric: the busiest, the mean of all, and the coefficient of variation of the least even tier and way."""
    groups = [group for tier in FABRIC_TIERS for group in told.get(tier, {}).values()]
    links = sum(group["links"] for group in groups)
    return {
        "link_use_max": max((group["max"] for group in groups), default=None),
        "link_use_mean": sum(group["mean"] * group["links"] for group in groups) / links if links else None,
        "link_use_cv": max((group["cv"] for group in groups if group["cv"] is not None), default=None),
    }
