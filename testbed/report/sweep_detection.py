"""Of a sweep over routing's timers: what a silent failure cost each arm at each point, against when routing was to find it. Pure."""

from __future__ import annotations

import statistics as stdlib
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.report.context import FEW_ARMS, first_runs, in_list
from testbed.report.findings import plural, seconds
from testbed.report.reading import RunData
from testbed.report.routing_words import bgp_parameters, detection_s

KIND = "silent"
"""The kind of fault that only timers find; carrier faults are found without, and a hung switch by nothing."""


def of_point(data: RunData, summary: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By arm: `detection_s` (None where nothing routes), and of the silent faults that hit its traffic, over all repeats, `stalls_s`,
    `lasted_s` (median), `detected` (how many routing found before their end) and `crashes`."""
    runs = {run.arm: run for run in first_runs(data)}
    return {arm: _of_arm(detection_s(bgp_parameters(runs[arm])), told["repeats"]) for arm, told in summary["arms"].items() if arm in runs}


def _of_arm(detects_s: float | None, repeats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    silent = [fault for entry in repeats for fault in entry["faults"] if fault["kind"] == KIND]
    hit = [fault for fault in silent if fault["hit"] is not False and fault["stall_s"] is not None]
    lasted = [_lasted(fault) for fault in silent if None not in (fault["end_s"], fault["effective_s"])]
    return {
        "detection_s": detects_s, "faults": len(silent), "stalls_s": [fault["stall_s"] for fault in hit],
        "lasted_s": stdlib.median(lasted) if lasted else None, "crashes": sum(fault["crashes"] for fault in hit),
        "detected": sum(_is_detected(fault, detects_s) for fault in hit),
    }  # fmt: skip


def _lasted(fault: Mapping[str, Any]) -> float:
    return float(fault["end_s"] - fault["effective_s"])


def _is_detected(fault: Mapping[str, Any], detects_s: float | None) -> bool:
    """A session over the link fell while the fault was on; where the history does not tell: the timer was shorter than the fault."""
    lost = (fault.get("routing") or {}).get("session_losses")
    if lost is not None:
        return bool(lost)
    return detects_s is not None and fault["end_s"] is not None and detects_s < _lasted(fault)


# --- along the points ------------------------------------------------------------------------------------------------------------------


def series(data: Mapping[str, Any], arm: str) -> list[dict[str, Any]]:
    """The points at which a routed arm was measured, by rising detection time, each with its `text`."""
    told = [{**point["detection"][arm], "text": point["text"]} for point in data["points"] if arm in point.get("detection", {})]
    known = [entry for entry in told if entry["detection_s"] and entry["stalls_s"]]
    return sorted(known, key=lambda entry: entry["detection_s"])


def routed_arms(data: Mapping[str, Any]) -> list[str]:
    """The arms whose detection time differs along the sweep; none: then there is no such picture."""
    return [arm for arm in data["arms"] if len({entry["detection_s"] for entry in series(data, arm)}) > 1]


def unrouted_stalls(data: Mapping[str, Any]) -> dict[str, list[float]]:
    """The stalls of the arms in which nothing routes, of all points together: timers do not concern them."""
    found: dict[str, list[float]] = {}
    for point in data["points"]:
        for arm, told in point.get("detection", {}).items():
            if told["detection_s"] is None and told["stalls_s"]:
                found.setdefault(arm, []).extend(told["stalls_s"])
    return found


def cut_s(data: Mapping[str, Any]) -> float | None:
    """How long the silent faults lasted (median of the points)."""
    known = [told["lasted_s"] for point in data["points"] for told in point.get("detection", {}).values() if told["lasted_s"]]
    return stdlib.median(known) if known else None


def title(data: Mapping[str, Any]) -> str:
    """What the picture shows, in words."""
    lasted = cut_s(data)
    routed = "; ".join(_routed_words(arm, series(data, arm)) for arm in routed_arms(data))
    others = "; ".join(f"{in_list(arm)} {_median_words(stalls)} whatever the timers" for arm, stalls in unrouted_stalls(data).items())
    what = f"Stall under a silent failure{f' of {seconds(lasted)}' if lasted else ''}"
    return f"{what}: {'; '.join(part for part in (routed, others) if part)}"


def _routed_words(arm: str, entries: Sequence[Mapping[str, Any]]) -> str:
    told = [f"{_median_words(entry['stalls_s'])} {point_words(entry)}" for entry in entries]
    shown = told if len(told) <= FEW_ARMS + 1 else [told[0], told[-1]]
    return f"{in_list(arm)} {', '.join(shown)}"


def point_words(entry: Mapping[str, Any]) -> str:
    """How routing came to know: after how long by its timer, or not at all."""
    after = f"with detection after {seconds(entry['detection_s'])}"
    crashed = f", {crash_words(entry)}" if entry["crashes"] else ""
    if not entry["detected"]:
        return f"{after}, not detected{crashed}"
    hit = len(entry["stalls_s"])
    some = f", detected in {entry['detected']} of {hit}" if entry["detected"] < hit else ""
    return f"{after}{some}{crashed}"


def crash_words(entry: Mapping[str, Any]) -> str:
    """Crashes of the job under the failures: then the transport gave up, whatever routing found, and the restart comes on top."""
    return plural(entry["crashes"], "crash")


def _median_words(stalls: Sequence[float]) -> str:
    return seconds(stdlib.median(stalls))
