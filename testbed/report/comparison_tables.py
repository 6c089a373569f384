"""The tables of a comparison: all arms at a glance, fault by fault, and what routing did meanwhile. Pure."""

from __future__ import annotations

import statistics as stdlib
from collections.abc import Mapping
from typing import Any

from testbed.report import comparison, findings, routing
from testbed.report.comparison import Effect, Judgement
from testbed.report.metrics import METRICS

UNKNOWN = "–"
# metric -> how the table names it
GLANCE: Mapping[str, str] = {
    "lost_job_time_s": "job time lost", "crashes": "crashes", "lost_steps": "steps done again", "steps_completed": "steps completed",
    "healthy_median_s": "healthy step",
    "step_p50_s": "step, P50", "step_p99_s": "step, P99", "step_p100_s": "step, P100", "step_over_median_p100": "slowest step / healthy",
    "packets_lost": "packets lost to faults, as links count them",
    "queue_dropped_packets": "packets lost to full queues", "bgp_updates": "BGP UPDATEs",
    "bgp_withdrawals": "prefixes withdrawn", "bgp_notifications": "BGP NOTIFICATIONs", "session_losses": "ends of sessions lost",
    "fib_changes": "changes of tables", "wrong_sums": "steps with wrong sums",
}  # fmt: skip
UNITS = {metric.name: metric.unit for metric in METRICS}
NOTES = {comparison.ALIKE: "as good as MRC", comparison.WORSE: "better than MRC"}


def glance_rows(summary: Mapping[str, Any]) -> list[tuple[str, str, list[str]]]:
    """(name for people, metric, one cell an arm), of the metrics that any arm has; a cell is median [range]."""
    rows = []
    for name, words in GLANCE.items():
        cells = [_cell(arm, name, told.get(name) or {}) for arm, told in summary["arms"].items()]
        if any(cell not in (UNKNOWN, "none") for cell in cells):
            rows.append((words, name, cells))
    return rows


def _cell(arm: str, name: str, told: Mapping[str, Any]) -> str:
    if told.get("median") is None:
        return "none" if name in (*routing.COUNTS, "fib_changes") and not routing.is_routed(arm) else UNKNOWN
    median, low, high = (_value(told[part], UNITS[name]) for part in ("median", "min", "max"))
    return median if low == high else f"{median} [{low} to {high}]"


def _value(value: float, unit: str) -> str:
    return findings.seconds(value) if unit == "s" else findings.number(value) + ("x" if unit == "x" else "")


def fault_rows(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a fault: what it was, and each arm's stall with what it was against MRC's."""
    judged = comparison.judgements(summary)
    rows = []
    for fault, effects in comparison.effects_of(summary).items():
        first = next(iter(effects.values())).entries[0]
        cells = [_fault_cell(effects.get(arm), judged.get(fault, {}).get(arm)) for arm in summary["arms"]]
        rows.append({**{name: first[name] for name in ("fault", "kind", "tier", "target")}, "lasted": _lasted(effects), "cells": cells})
    return rows


def _lasted(effects: Mapping[str, Effect]) -> str:
    known = [
        entry["end_s"] - entry["effective_s"]
        for effect in effects.values() for entry in effect.entries if None not in (entry["end_s"], entry["effective_s"])
    ]  # fmt: skip
    return findings.seconds(stdlib.median(known)) if known else UNKNOWN


def _fault_cell(effect: Effect | None, judgement: Judgement | None) -> dict[str, str]:
    if effect is None:
        return {"stall": UNKNOWN, "note": ""}
    lost = [entry["packets_lost"] for entry in effect.hits if entry["packets_lost"] is not None]
    taken = [f"{findings.number(stdlib.median(lost))} packets taken"] if lost else []
    verdict = [NOTES[judgement.outcome]] if judgement and judgement.outcome in NOTES else []
    return {"stall": comparison.stall_words(effect), "note": "; ".join([*taken, *verdict])}


def routing_rows(summary: Mapping[str, Any]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """(the arms in which something routes, one row a fault with one cell each); no rows where no arm does."""
    arms = [arm for arm in summary["arms"] if routing.is_routed(arm)]
    rows = [(fault, [_routing_cell(effects.get(arm)) for arm in arms]) for fault, effects in comparison.effects_of(summary).items()]
    return arms, rows if arms else []


def _routing_cell(effect: Effect | None) -> str:
    told = [entry.get("routing") or {} for entry in effect.entries] if effect else []
    medians = {name: _median([entry.get(name) for entry in told]) for name in _PARTS}
    parts = [f"{findings.number(value)} {_PARTS[name]}" for name, value in medians.items() if value is not None and _PARTS[name]]
    if medians["fib_last_s"] is not None:
        first, last = (findings.seconds(medians[name] or 0) for name in ("fib_first_s", "fib_last_s"))
        parts.append(f"the first after {first}, the last after {last}")
    reasons = routing.reasons_of(effect.entries) if effect else []
    parts += ["shared with another fault"] * (bool(parts) and any(entry.get("shared") for entry in told))
    return ", ".join(parts) + (f" ({', '.join(reasons)})" if reasons else "") if parts else UNKNOWN


_PARTS = {
    "updates": "UPDATEs", "withdrawals": "withdrawn", "session_losses": "session ends lost", "fib_changes": "changes of tables",
    "fib_first_s": "", "fib_last_s": "",
}  # fmt: skip


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return stdlib.median(known) if known else None
