"""Findings in words for a job of streams: the slowest flow, fairness, the incast and its victim, hot links. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from testbed.report.context import in_list
from testbed.report.findings import crashes, number, plural, values
from testbed.report.link_use import FABRIC_TIERS

Pick = Callable[[Sequence[float]], float]


def share(value: float) -> str:
    """A share for people: 94%; a small one with a digit more, and never 0 for what is not."""
    if abs(value) >= 0.1 or value == 0:
        return f"{value:.0%}"
    return f"{value:.1%}" if abs(value) >= 0.001 else f"{100 * value:.1g}%"


def worst_of(summary: Mapping[str, Any], metric: str, pick: Pick = min) -> dict[str, float]:
    """Each arm's worst repeat (the lowest value, or the highest with `pick` = max) of a metric; arms without it are left out."""
    told = {arm: values(summary, arm, metric) for arm in summary["arms"]}
    return {arm: pick(seen) for arm, seen in told.items() if seen}


def which_repeat(summary: Mapping[str, Any]) -> str:
    """ " (worst repeat)" where there are several: the pictures show one, and tables the median."""
    return " (worst repeat)" if any(len(told["repeats"]) > 1 for told in summary["arms"].values()) else ""


def listed(told: Mapping[str, float], words: Callable[[float], str] = share) -> str:
    """ "MRC 94%, RC over BGP 30%"."""
    return ", ".join(f"{in_list(arm)} {words(value)}" for arm, value in told.items())


def flows_title(summary: Mapping[str, Any]) -> str:
    """Of an incast: what the bottleneck carried and the victim kept; else the slowest flow of each arm."""
    bottleneck, victim = worst_of(summary, "bottleneck_share"), worst_of(summary, "victim_share")
    if not bottleneck:
        return shares_title(summary)
    tail = f"; goodput that the victim kept: {listed(victim)}" if victim else ""
    return f"Use of the incast's last link{which_repeat(summary)}: {listed(bottleneck)}{tail}"


def shares_title(summary: Mapping[str, Any]) -> str:
    """The slowest flow of each arm, worst repeat."""
    slowest = worst_of(summary, "flow_goodput_min_share")
    return f"Slowest flow, of its fair share{which_repeat(summary)}: {listed(slowest)}" if slowest else "Goodput of flows: not measured"


def slowest_sentence(summary: Mapping[str, Any]) -> str:
    """Each arm's slowest flow by name, with the median flow beside it."""
    parts = []
    for arm, told in summary["arms"].items():
        known = [flow for entry in told["repeats"] for flow in entry["flows"] if flow["share"] is not None]
        if known:
            slowest = min(known, key=lambda flow: float(flow["share"]))
            median = told["flow_goodput_median_share"]["median"]
            name = f"{slowest['from']} to {slowest['to']}"
            parts.append(f"{in_list(arm)} {share(slowest['share'])} ({name}; the median flow {share(median)}, {crashes(summary, arm)})")
    what = f"Slowest flow, of its max-min fair share{which_repeat(summary)}"
    return f"{what}: {'; '.join(parts)}." if parts else "Goodput of flows: not measured."


def fairness_sentence(summary: Mapping[str, Any]) -> str:
    """Jain's index of each arm, worst repeat; empty if no role has two flows."""
    told = worst_of(summary, "jain")
    what = f"Fairness among flows of the same role{which_repeat(summary)} (Jain's index, 1 = all alike)"
    return f"{what}: {listed(told, '{:.3f}'.format)}." if told else ""


def incast_sentence(summary: Mapping[str, Any]) -> str:
    """What the bottleneck carried and what the victim kept; empty without an incast."""
    bottleneck, victim = worst_of(summary, "bottleneck_share"), worst_of(summary, "victim_share")
    which = which_repeat(summary)
    link, flow = (
        "Goodput over the incast's last link while it was on, of what that can carry",
        "a flow that shares the fabric but not that link",
    )
    parts = [f"{link}{which}: {listed(bottleneck)}."] if bottleneck else []
    parts += [f"What its victim, {flow}, kept of its goodput{which}: {listed(victim)}."] if victim else []
    return " ".join(parts)


def congestion_sentence(summary: Mapping[str, Any]) -> str:
    """What the links did to packets, in the median repeat, and how many packets had to be sent again; empty if nothing was counted."""
    parts = []
    for arm, told in summary["arms"].items():
        known = [(words, told[name]["median"]) for name, words in OUTCOMES if told[name]["median"] is not None]
        again = told["retransmitted_share"]["median"]
        counts = [f"{number(count)} {words}" for words, count in known if count] or ["nothing trimmed, marked or dropped"] * bool(known)
        counts += [f"{share(again)} of all packets sent again"] if again is not None else []
        parts += [f"{in_list(arm)}: {', '.join(counts)}"] if known else []
    return f"Congestion (packets, median of the repeats): {'; '.join(parts)}." if parts else ""


def congestion_title(summary: Mapping[str, Any]) -> str:
    """The counts of each arm, median of the repeats, in three figures."""
    parts = []
    for arm, told in summary["arms"].items():
        counts = [told[name]["median"] for name, _ in OUTCOMES]
        if None not in counts:
            parts.append(f"{in_list(arm)} {' / '.join(number(count) for count in counts)}")
    return f"Packets trimmed / marked / dropped by full queues: {', '.join(parts) or 'not counted'}"


OUTCOMES = (("trimmed_packets", "trimmed"), ("marked_packets", "marked"), ("queue_dropped_packets", "dropped by full queues"))


def recovery_sentence(summary: Mapping[str, Any]) -> str:
    """How soon packets were sent again, by what told of the loss, over all repeats, false alarms included; empty if no agent tells."""
    parts = [f"{in_list(arm)}: {told}" for arm in summary["arms"] if (told := _recoveries(summary, arm))]
    why = "because it was trimmed, taken for lost, or on its way over a NIC port that went down"
    what = f"From a packet's sending to its retransmission, {why} (median, in smoothed RTTs)"
    return f"{what}: {'; '.join(parts)}." if parts else ""


def _recoveries(summary: Mapping[str, Any], arm: str) -> str:
    repeats = [entry["recoveries"] for entry in summary["arms"][arm]["repeats"]]
    causes = dict.fromkeys(cause for told in repeats for cause in told)
    parts = []
    for cause in causes:
        seen = [told[cause] for told in repeats if cause in told]
        slowest = max(entry["median_srtt"] for entry in seen)
        parts.append(f"{cause} {number(slowest)} ({plural(sum(entry['count'] for entry in seen), 'packet')})")
    return ", ".join(parts)


def hot_spot_sentence(summary: Mapping[str, Any]) -> str:
    """The busiest link direction inside the fabric, against the mean of its tier and direction; empty if use is not known."""
    parts = [f"{in_list(arm)} {told}" for arm in summary["arms"] if (told := _hot_spot(summary, arm))]
    return f"Busiest link direction inside the fabric: {'; '.join(parts)}." if parts else ""


def _hot_spot(summary: Mapping[str, Any], arm: str) -> str:
    tiers = [(tier, ways) for entry in summary["arms"][arm]["repeats"] for tier, ways in entry["links"].items() if tier in FABRIC_TIERS]
    groups = [(tier, way, group) for tier, ways in tiers for way, group in ways.items()]
    if not groups:
        return ""
    tier, way, group = max(groups, key=lambda told: float(told[2]["max"]))
    return f"{share(group['max'])} of its rate ({group['busiest']} {way}; mean of {tier} {way}: {share(group['mean'])})"


def faults_sentence(summary: Mapping[str, Any]) -> str:
    """What faults left of the flows' goodput, by kind; empty without a fault."""
    kinds = dict.fromkeys(fault["kind"] for told in summary["arms"].values() for entry in told["repeats"] for fault in entry["faults"])
    parts = [f"{kind}: {told}" for kind in kinds if (told := _under_kind(summary, kind))]
    what = "Goodput of all flows while a fault was on, of theirs while none was (and of the worst flow)"
    return f"{what}: {'; '.join(parts)}." if parts else ""


def _under_kind(summary: Mapping[str, Any], kind: str) -> str:
    parts = []
    for arm, told in summary["arms"].items():
        faults = (fault for entry in told["repeats"] for fault in entry["faults"])
        seen = [fault for fault in faults if fault["kind"] == kind and fault["goodput_share"] is not None]
        if seen:
            all_flows, worst = (min(fault[name] for fault in seen) for name in ("goodput_share", "worst_flow_share"))
            parts.append(f"{in_list(arm)} {share(all_flows)} ({share(worst)})")
    return ", ".join(parts)


def network_findings(summary: Mapping[str, Any]) -> list[str]:
    """What holds for any job whose links were counted: congestion, recovery, hot links."""
    return [told for told in (congestion_sentence(summary), recovery_sentence(summary), hot_spot_sentence(summary)) if told]


def stream_findings(summary: Mapping[str, Any]) -> list[str]:
    """The findings of a job of streams for the report's head."""
    told = (slowest_sentence(summary), fairness_sentence(summary), incast_sentence(summary), faults_sentence(summary))
    return [sentence for sentence in told if sentence]
