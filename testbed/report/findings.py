"""Findings in words, made from the numbers of a summary: whoever was better is named, and a draw is called a draw. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from testbed.report.context import FEW_ARMS, in_list
from testbed.report.statistics import NEGLIGIBLE_SHARE, STALLED_RATIO
from testbed.scenario.derived_links import HASHED_ARMS
from testbed.units import format_rate

MOST_TIMES = 100  # larger ratios say no more than this
ALIKE_SHARE = 0.1  # arms that differ by less than this share of the larger value are called alike


def seconds(value: float) -> str:
    """A duration for people: three digits, in s or ms."""
    if value == 0:
        return "0 s"
    rounded = float(f"{value:.3g}")  # what is a whole second in three digits is told as one
    return f"{value * 1e3:.3g} ms" if abs(rounded) < 1 else f"{value:.3g} s" if abs(rounded) < 100 else f"{value:.0f} s"


def rate(value_bps: float) -> str:
    """A rate for people: three digits and a unit."""
    return format_rate(float(f"{value_bps:.3g}"))


def number(value: float) -> str:
    """A number for people: three digits, whole ones without a point."""
    return f"{value:.0f}" if value == round(value) or abs(value) >= 100 else f"{value:.3g}"


def plural(count: float, noun: str) -> str:
    """ "no crash", "1 crash", "3 crashes"."""
    many = noun + ("es" if noun.endswith(("sh", "s")) else "s")
    return f"no {noun}" if count == 0 else f"1 {noun}" if count == 1 else f"{count:.0f} {many}"


def values(summary: Mapping[str, Any], arm: str, metric: str) -> list[float]:
    """The known values of a metric across the repeats."""
    told = summary["arms"][arm].get(metric) or {}
    return [value for value in told.get("values", ()) if value is not None]


def crashes(summary: Mapping[str, Any], arm: str) -> str:
    """ "no crash", or how many in how many repeats."""
    seen = values(summary, arm, "crashes")
    total = float(sum(seen))
    return plural(total, "crash") + (f" in {len(seen)} repeats" if len(seen) > 1 and total else "")


def steps_title(summary: Mapping[str, Any]) -> str:
    """The slowest step of each arm, worst repeat."""
    if len(summary["arms"]) > FEW_ARMS:
        return _many_steps_title(summary)
    parts = []
    for arm in summary["arms"]:
        worst = max(values(summary, arm, "step_over_median_p100"), default=None)
        told = f"slowest step {number(worst or 0)}x the healthy median" if worst else "no step was completed"
        measured = values(summary, arm, "steps_completed")
        parts.append(f"{in_list(arm)}: {told}, {crashes(summary, arm)}" if measured else f"{in_list(arm)}: not measured")
    return "; ".join(parts) or "No arm was measured"


def _many_steps_title(summary: Mapping[str, Any]) -> str:
    """The same in few words: of many arms only those that crashed are named once more."""
    slowest = {arm: max(values(summary, arm, "step_over_median_p100"), default=None) for arm in summary["arms"]}
    told = [f"{in_list(arm)} " + ("not measured" if worst is None else f"{number(worst)}x") for arm, worst in slowest.items()]
    crashed = [f"{in_list(arm)} {number(sum(seen))}" for arm in slowest if sum(seen := values(summary, arm, "crashes"))]
    return f"Slowest step / healthy median: {', '.join(told)}; crashes: {', '.join(crashed) or 'none'}"


def healthy_sentence(summary: Mapping[str, Any]) -> str:
    """The arms' own healthy medians: stalls and losses are measured against these, so a reader must see when they differ."""
    medians = {arm: told["healthy_median_s"]["median"] for arm, told in summary["arms"].items()}
    known = [f"{in_list(arm)} {seconds(median)}" for arm, median in medians.items() if median is not None]
    strays = [f"{in_list(arm)} {share:.1%}" for arm in summary["arms"] if (share := _stray(summary, arm)) is not None]
    tail = f" The slowest step that no fault touched was above it by: {', '.join(strays)}." if strays else ""
    return f"Healthy step (median), against which each arm is measured: {', '.join(known) or 'not measured'}.{tail}"


def _stray(summary: Mapping[str, Any], arm: str) -> float | None:
    """How far the slowest step without a fault lies above the healthy median, as a share of it; worst repeat."""
    repeats = summary["arms"][arm].get("repeats", ())
    told = [(entry.get("healthy_slowest_s"), entry["metrics"].get("healthy_median_s")) for entry in repeats]
    return max((slowest / median - 1 for slowest, median in told if slowest and median), default=None)


def job_goodput_sentence(summary: Mapping[str, Any]) -> str:
    """What a rank sent while it was not computing, median of the repeats; empty if no arm's is known."""
    medians = {arm: (told.get("job_goodput_bps") or {}).get("median") for arm, told in summary["arms"].items()}
    known = [f"{in_list(arm)} {rate(median)}" for arm, median in medians.items() if median is not None]
    return f"Goodput of a rank outside its compute phases (median of the repeats): {', '.join(known)}." if known else ""


def stalls_title(summary: Mapping[str, Any]) -> str:
    """The longest stall of each arm, worst repeat, and who was better."""
    worst = {arm: max(values(summary, arm, "stall_p100_s"), default=None) for arm in summary["arms"]}
    return _ranking(summary, "Longest stall of a step", {arm: value for arm, value in worst.items() if value is not None}, "shorter")


def lost_title(summary: Mapping[str, Any]) -> str:
    """Lost job time of each arm, median of the repeats, and who was better; overlapping ranges are no clear difference."""
    arms = {arm: values(summary, arm, "lost_job_time_s") for arm in summary["arms"]}
    medians = {arm: float(summary["arms"][arm]["lost_job_time_s"]["median"]) for arm, seen in arms.items() if seen}
    apart = _apart([arms[arm] for arm in {choose(medians, key=lambda arm: medians[arm]) for choose in (min, max)}]) if medians else True
    several = any(len(seen) > 1 for seen in arms.values())
    return _ranking(summary, "Job time lost" + " (median of the repeats)" * several, medians, "less", apart)


def _apart(ranges: Sequence[Sequence[float]]) -> bool:
    """Whether no two arms' ranges overlap."""
    ordered = sorted((min(seen), max(seen)) for seen in ranges)
    return all(low[1] < high[0] for low, high in pairwise(ordered))


def _ranking(summary: Mapping[str, Any], what: str, told: Mapping[str, float], better: str, apart: bool = True) -> str:
    if not told:
        return f"{what}: not measured"
    listed = ", ".join(f"{in_list(arm)} {seconds(value)}" for arm, value in told.items())
    tail = _unlike(summary, told) or _tail(told, negligible_s(summary, told), better, apart)
    return f"{what}: {listed}{tail}"


def _unlike(summary: Mapping[str, Any], arms: Iterable[str]) -> str:
    """That times lost against the arms' healthy medians cannot be compared, because these differ: an arm may be slow all the time."""
    medians = {arm: summary["arms"][arm].get("healthy_median_s", {}).get("median") for arm in arms}
    known = {arm: median for arm, median in medians.items() if median}
    if not known or max(known.values()) - min(known.values()) <= ALIKE_SHARE * max(known.values()):
        return ""
    return f"; not comparable, a healthy step takes {', '.join(f'{in_list(arm)} {seconds(median)}' for arm, median in known.items())}"


def negligible_s(summary: Mapping[str, Any], arms: Iterable[str]) -> float:
    """What a stall must exceed to say anything, in seconds: a share of the largest healthy median; 0 if no median is known."""
    medians = (summary["arms"][arm].get("healthy_median_s", {}).get("median") for arm in arms)
    return NEGLIGIBLE_SHARE * max((median for median in medians if median), default=0.0)


def _tail(told: Mapping[str, float], floor: float, better: str, apart: bool) -> str:
    best, worst = min(told, key=lambda arm: told[arm]), max(told, key=lambda arm: told[arm])
    if len(told) < 2:
        return ""
    if told[worst] - told[best] <= max(ALIKE_SHARE * told[worst], floor):
        return ": about the same"
    if not apart:
        return ": no clear difference, the repeats' ranges overlap"
    if told[best] <= floor:  # a ratio to next to nothing would be a large number without meaning
        return f": {in_list(best)} under {NEGLIGIBLE_SHARE:.0%} of a step" if floor else f": {in_list(best)} is ahead"
    return f": {in_list(best)} {_times(told[worst] / told[best])} {better} than {in_list(worst)}"


def _times(ratio: float) -> str:
    """A ratio for people; how far a large one goes depends on noise in the smaller value, so it is not told."""
    return f"over {MOST_TIMES}x" if ratio > MOST_TIMES else f"{number(ratio)}x"


# --- detection ---------------------------------------------------------------------------------------------------------------------------

DETECTION_STARTS = (("its first loss", "after_first_loss"), ("the fault", "detection"))


def detection_title(summary: Mapping[str, Any]) -> str:
    """How long EVs were used after a fault, as medians, for each arm that retires EVs."""
    parts = []
    for arm in summary["arms"]:
        known = [f"{told} after {start}" for start, name in DETECTION_STARTS if (told := _in_both(summary, arm, f"{name}_median"))]
        parts += [f"{in_list(arm)}'s last packet into a failed path (median): {', '.join(known)}"] if known else []
    told = "" if set(HASHED_ARMS).isdisjoint(summary["arms"]) else " that is known"
    return "; ".join(parts) or f"No path{told} was retired for a fault"


def detection_sentence(summary: Mapping[str, Any]) -> str:
    """As the title, with the longest times and the base that the round trips are counted in."""
    longest = [
        f"{in_list(arm)} {told} after {start}"
        for arm in summary["arms"] for start, name in DETECTION_STARTS if (told := _in_both(summary, arm, f"{name}_max", "max"))
    ]  # fmt: skip
    tail = f" At most: {', '.join(longest)}. Base RTT: the pair's median of idle probes before the job." if longest else ""
    return f"{detection_title(summary)}.{tail}{_false_ones(summary)}{_unplaced(summary)}"


def _unplaced(summary: Mapping[str, Any]) -> str:
    """How often EVs were retired whose paths nobody knows."""
    told = {arm: values(summary, arm, "retirements") for arm in summary["arms"] if arm in HASHED_ARMS}
    why = "for which faults is not known, because routers chose the paths"
    often = {arm: f"{plural(sum(seen), 'time')}{_taken_back(summary, arm)}" for arm, seen in told.items() if seen}
    return "".join(f" {in_list(arm)} retired an EV {words}; {why}." for arm, words in often.items())


def _taken_back(summary: Mapping[str, Any], arm: str) -> str:
    count = sum(values(summary, arm, "taken_back"))
    return f", of which it took back {number(count)}: the packet had arrived" if count else ""


def _false_ones(summary: Mapping[str, Any]) -> str:
    """How often an EV was retired without a fault or random loss on its path; nothing for an arm that has no EVs."""
    told = {arm: values(summary, arm, "false_retirements") for arm in summary["arms"]}
    return "".join(f" {in_list(arm)} {_false_words(summary, arm, seen)}." for arm, seen in told.items() if seen)


def _false_words(summary: Mapping[str, Any], arm: str, seen: Sequence[float]) -> str:
    total, why = sum(seen), "without a fault or random loss on its path"
    often = f"{plural(total, 'time')}" + (f" in {len(seen)} repeats" if len(seen) > 1 else "")
    full = ", while links dropped packets because their queues were full" if any(values(summary, arm, "queue_dropped_packets")) else ""
    return f"retired an EV {often} {why}{full}" if total else f"retired no EV {why}"


def _in_both(summary: Mapping[str, Any], arm: str, name: str, which: str = "median") -> str:
    """A duration as "12 ms = 6 base RTTs"; empty if it was not measured."""
    told = [summary["arms"][arm].get(f"{name}_{unit}", {}).get(which) for unit in ("s", "rtt")]
    rtts = "" if told[1] is None else f" = {number(told[1])} base RTTs"
    return "" if told[0] is None else f"{seconds(told[0])}{rtts}"


# --- kinds of fault ----------------------------------------------------------------------------------------------------------------------

WHAT_KIND_IS: Mapping[str, str] = {
    "carrier": "both ends see it, so routers leave the link at once, without a timer",
    "silent": "nobody is told: routing waits for its hold timer or the fault's end, a transport for its own timers",
    "switch-kill": "the switch's neighbours lose carrier; the switch itself says nothing",
    "switch-reboot": "the switch's neighbours lose carrier, and its tables or sessions have to come back",
    "switch-hang": "links and sessions stay up, and data is not forwarded",
    "remote": "only one end sees it, the other keeps sending into it",
    "one-way": "what one end sends is lost and nobody is told; the other way works",
    "loss": "a share of the packets is lost by chance",
    "rate": "the link is slower, and loses nothing by itself",
    "port": "the host's own port goes down, both ends see it",
    "bundle": "several links fail at once",
    "flap": "the link goes down and comes back again and again",
    "host-slow": "a host's processes get a share of the CPU; the network is sound",
    "controller-kill": "the controller that programs the switches is gone; what they hold stays, and nobody changes it",
}


def kinds_sentence(summary: Mapping[str, Any]) -> list[str]:
    """One sentence a kind of fault: what it is, what a fault of it cost each arm, and who came off better."""
    kinds = dict.fromkeys(kind for told in summary["arms"].values() for kind in told.get("by_kind", {}))
    return [_kind(summary, kind) for kind in kinds]


def _kind(summary: Mapping[str, Any], kind: str) -> str:
    groups = {arm: told["by_kind"][kind] for arm, told in summary["arms"].items() if kind in told.get("by_kind", {})}
    what = f" ({WHAT_KIND_IS[kind]})" if kind in WHAT_KIND_IS else ""
    cost = "; ".join(f"{in_list(arm)} {_cost(group)}" for arm, group in groups.items())
    medians = {arm: _alone_first(group)["stall_median_s"] for arm, group in groups.items()}
    known = {arm: median for arm, median in medians.items() if median is not None}
    return f"A {kind} fault{what} cost the job: {cost}{_kind_tail(summary, known)}."


def _kind_tail(summary: Mapping[str, Any], medians: Mapping[str, float]) -> str:
    """Who came off better; a fault that cost every arm less than what makes a step count as stalled was no trouble to any."""
    floor = negligible_s(summary, medians)
    if len(medians) > 1 and max(medians.values()) < floor / NEGLIGIBLE_SHARE * (STALLED_RATIO - 1):
        return ": by the medians less than half a step in each arm, so neither stalled"
    return _tail(medians, floor, "less", apart=True) if len(medians) > 1 else ""


def _alone_first(group: Mapping[str, Any]) -> Mapping[str, Any]:
    """The faults that came alone, where there are any: nobody can divide the stall of the others."""
    alone: Mapping[str, Any] = group["alone"]
    return alone if alone["faults"] else group


def _cost(group: Mapping[str, Any]) -> str:
    hit, used = group.get("hit", group["faults"]), _alone_first(group)
    traffic = f"{hit} of {group['faults']} hit its traffic"
    if used["stall_median_s"] is None:
        return f"nothing ({traffic})"
    alone = f" of {group['alone']['faults']} alone" if group["alone"]["faults"] else ", each shared with another fault"
    shared = " shared with another fault" if alone.startswith(" of") and group["stall_max_s"] > used["stall_max_s"] else ""
    return f"{seconds(used['stall_median_s'])} (median{alone}; at most {seconds(group['stall_max_s'])}{shared}; {traffic})"


def step_findings(summary: Mapping[str, Any]) -> list[str]:
    """The findings of a job of steps for the report's head."""
    return [
        steps_title(summary) + ".", healthy_sentence(summary), lost_title(summary) + ".", stalls_title(summary) + ".",
        *([told] if (told := job_goodput_sentence(summary)) else []), *kinds_sentence(summary), detection_sentence(summary),
    ]  # fmt: skip


def kinds_title(summary: Mapping[str, Any]) -> str:
    """For the picture of faults: the median cost of a fault of each kind, for each arm."""
    kinds = dict.fromkeys(kind for told in summary["arms"].values() for kind in told.get("by_kind", {}))
    words = _kind_medians if len(summary["arms"]) <= FEW_ARMS else _kind_ends
    parts = [f"{kind}: {told}" for kind in kinds if (told := words(summary, kind))]
    return f"Job time that a fault cost (median): {'; '.join(parts)}" if parts else "No fault happened"


def _kind_ends(summary: Mapping[str, Any], kind: str) -> str:
    """Of many arms the one that a fault of the kind cost least, and the one that it cost most."""
    groups = {arm: told["by_kind"][kind] for arm, told in summary["arms"].items() if kind in told.get("by_kind", {})}
    medians = {arm: _alone_first(group)["stall_median_s"] for arm, group in groups.items()}
    known = sorted((median, arm) for arm, median in medians.items() if median is not None)
    if not known:
        return "no impact"
    return " to ".join(dict.fromkeys(f"{seconds(median)} ({in_list(arm)})" for median, arm in (known[0], known[-1])))


def _kind_medians(summary: Mapping[str, Any], kind: str) -> str:
    groups = {arm: told["by_kind"][kind] for arm, told in summary["arms"].items() if kind in told.get("by_kind", {})}
    medians = {arm: _alone_first(group)["stall_median_s"] for arm, group in groups.items()}
    return ", ".join(f"{in_list(arm)} {'no impact' if median is None else seconds(median)}" for arm, median in medians.items())
