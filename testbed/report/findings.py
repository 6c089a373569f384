"""Findings in words, made from the numbers of a summary: whoever was better is named, and a draw is called a draw. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from testbed.report.context import label

ALIKE_SHARE = 0.1  # arms that differ by less than this share of the larger value are called alike


def seconds(value: float) -> str:
    """A duration for people: three digits, in s or ms."""
    if value == 0:
        return "0 s"
    return f"{value * 1e3:.3g} ms" if abs(value) < 1 else f"{value:.3g} s" if abs(value) < 100 else f"{value:.0f} s"


def number(value: float) -> str:
    """A number for people: three digits, whole ones without a point."""
    return f"{value:.0f}" if value == round(value) or abs(value) >= 100 else f"{value:.3g}"


def plural(count: float, noun: str) -> str:
    """"no crash", "1 crash", "3 crashes"."""
    many = noun + ("es" if noun.endswith(("sh", "s")) else "s")
    return f"no {noun}" if count == 0 else f"1 {noun}" if count == 1 else f"{count:.0f} {many}"


def values(summary: Mapping[str, Any], arm: str, metric: str) -> list[float]:
    """The known values of a metric across the repeats."""
    told = summary["arms"][arm].get(metric) or {}
    return [value for value in told.get("values", ()) if value is not None]


def crashes(summary: Mapping[str, Any], arm: str) -> str:
    """"no crash", or how many in how many repeats."""
    seen = values(summary, arm, "crashes")
    total = float(sum(seen))
    return plural(total, "crash") + (f" in {len(seen)} repeats" if len(seen) > 1 and total else "")


def steps_title(summary: Mapping[str, Any]) -> str:
    """The slowest step of each arm, worst repeat."""
    parts = []
    for arm in summary["arms"]:
        worst = max(values(summary, arm, "step_over_median_p100"), default=None)
        told = f"slowest step {number(worst or 0)}x the healthy median" if worst else "no step was completed"
        measured = values(summary, arm, "steps_completed")
        parts.append(f"{label(arm)}: {told}, {crashes(summary, arm)}" if measured else f"{label(arm)}: not measured")
    return "; ".join(parts) or "No arm was measured"


def healthy_sentence(summary: Mapping[str, Any]) -> str:
    """The arms' own healthy medians: stalls and losses are measured against these, so a reader must see when they differ."""
    medians = {arm: told["healthy_median_s"]["median"] for arm, told in summary["arms"].items()}
    known = [f"{label(arm)} {seconds(median)}" for arm, median in medians.items() if median is not None]
    return f"Healthy step (median), against which each arm is measured: {', '.join(known) or 'not measured'}."


def stalls_title(summary: Mapping[str, Any]) -> str:
    """The longest stall of each arm, worst repeat, and who was better."""
    worst = {arm: max(values(summary, arm, "stall_p100_s"), default=None) for arm in summary["arms"]}
    return _ranking("Longest stall of a step", {arm: value for arm, value in worst.items() if value is not None}, "shorter")


def lost_title(summary: Mapping[str, Any]) -> str:
    """Lost job time of each arm, median of the repeats, and who was better; overlapping ranges are no clear difference."""
    arms = {arm: values(summary, arm, "lost_job_time_s") for arm in summary["arms"]}
    medians = {arm: float(summary["arms"][arm]["lost_job_time_s"]["median"]) for arm, seen in arms.items() if seen}
    apart = _apart([seen for seen in arms.values() if seen])
    several = any(len(seen) > 1 for seen in arms.values())
    return _ranking("Job time lost" + " (median of the repeats)" * several, medians, "less", apart)


def _apart(ranges: Sequence[Sequence[float]]) -> bool:
    """Whether no two arms' ranges overlap."""
    ordered = sorted((min(seen), max(seen)) for seen in ranges)
    return all(low[1] < high[0] for low, high in pairwise(ordered))


def _ranking(what: str, told: Mapping[str, float], better: str, apart: bool = True) -> str:
    if not told:
        return f"{what}: not measured"
    listed = ", ".join(f"{label(arm)} {seconds(value)}" for arm, value in told.items())
    return f"{what}: {listed}{_tail(told, better, apart)}"


def _tail(told: Mapping[str, float], better: str, apart: bool) -> str:
    best, worst = min(told, key=lambda arm: told[arm]), max(told, key=lambda arm: told[arm])
    if len(told) < 2:
        return ""
    if told[worst] - told[best] <= ALIKE_SHARE * told[worst]:
        return ": about the same"
    if not apart:
        return ": no clear difference, the repeats' ranges overlap"
    if told[best] <= 0:
        return f": {label(best)} is ahead"
    return f": {label(best)} {number(told[worst] / told[best])}x {better} than {label(worst)}"


def detection_title(summary: Mapping[str, Any]) -> str:
    """How long EVs were used after a fault, median of the repeats and maximum of all, for each arm that retires EVs."""
    parts = []
    for arm in summary["arms"]:
        told = {start: _rtts(summary, arm, name) for start, name in DETECTION_STARTS}
        known = [f"{rtts} after {start}" for start, rtts in told.items() if rtts]
        parts += [f"{label(arm)}'s last packet into a dead path: {', '.join(known)}"] if known else []
    return "; ".join(parts) or "No path was retired for a fault"


DETECTION_STARTS = (("the first loss", "after_first_loss"), ("the fault's effect", "detection"))


def _rtts(summary: Mapping[str, Any], arm: str, name: str) -> str:
    median = summary["arms"][arm].get(f"{name}_median_rtt", {}).get("median")
    longest = summary["arms"][arm].get(f"{name}_max_rtt", {}).get("max")
    return "" if median is None or longest is None else f"{number(median)} base RTTs (at most {number(longest)})"


def kinds_sentence(summary: Mapping[str, Any]) -> list[str]:
    """One sentence an arm: the stall a fault made, by kind, for faults whose stall is theirs alone where there are any."""
    return [f"{label(arm)}: {text}." for arm, told in summary["arms"].items() if (text := _kinds(told.get("by_kind", {})))]


def _kinds(groups: Mapping[str, Any]) -> str:
    parts = []
    for kind, group in groups.items():
        alone = group["alone"]
        used, count = (alone, alone["faults"]) if alone["faults"] else (group, group["faults"])
        shared = " that came alone" if alone["faults"] else ", each overlapping with another fault"
        if used["stall_median_s"] is not None:
            stalls = f"{seconds(used['stall_median_s'])} (median), {seconds(used['stall_max_s'])} (longest)"
            parts.append(f"a {kind} fault stalled the job for {stalls}, n = {count}{shared}")
    return "; ".join(parts)


def findings(summary: Mapping[str, Any]) -> list[str]:
    """The findings for the report's head."""
    if not summary["arms"]:
        return ["No arm was measured."]
    return [
        steps_title(summary) + ".", healthy_sentence(summary), lost_title(summary) + ".", stalls_title(summary) + ".",
        detection_title(summary) + ".",
        *kinds_sentence(summary),
    ]  # fmt: skip
