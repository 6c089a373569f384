"""Pictures of the faults: what each one cost the job, and how fast dead paths were left."""

from __future__ import annotations

import statistics as stdlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from testbed.report import findings, style
from testbed.report.context import FEW_ARMS, label

Row = tuple[str, str]  # arm, and what its points have in common


def _spread(count: int) -> Any:
    """Offsets from a row's middle, evenly spread and the same every time (golden ratio)."""
    return 0.24 * (np.modf(np.arange(count) * 0.618)[0] * 2 - 1)


def _symlog(axes: Axes, linear_to: float, longest: float) -> None:
    """An axis that is linear up to `linear_to`, so that 0 has its place, and logarithmic above."""
    axes.set_xscale("symlog", linthresh=linear_to, linscale=0.5)
    axes.set_xlim(-0.12 * linear_to, max(10 * linear_to, 3 * longest))
    axes.xaxis.set_major_formatter(lambda value, _position: f"{value:g}")
    axes.grid(visible=False, axis="y")


def _names(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names, fontsize=style.TEXT_PT - 1)
    axes.set_ylim(len(names) - 0.5, -0.75)


def _median(axes: Axes, position: int, median: float, words: str) -> None:
    axes.vlines([median], position - 0.3, position + 0.3, color="black", linewidth=2)
    axes.annotate(words, (median, position - 0.32), xytext=(-2, 0), textcoords="offset points", va="bottom", fontsize=style.TEXT_PT - 1.5)


# --- what a fault cost -------------------------------------------------------------------------------------------------------------------

STALL_LINEAR_S = 0.01


def fault_costs(summary: Mapping[str, Any], footer: Sequence[str]) -> Figure | None:
    """A point a fault that hit traffic: the job time it cost; a row a kind of fault and arm. None without any fault."""
    rows = fault_rows(summary)
    if not rows:
        return None
    row_in = 0.8 if len(summary["arms"]) <= FEW_ARMS else 0.5
    figure = style.frame(findings.kinds_title(summary), footer, 1.5 + (row_in + 0.05) * len(rows))
    shared = any(fault["overlapping"] for faults in rows.values() for fault in faults)
    axes = style.panels(figure, [1.0 + row_in * len(rows)], _cost_legend(shared), columns=3)[0]
    for position, ((arm, _), faults) in enumerate(rows.items()):
        _cost_row(axes, position, arm, [fault for fault in faults if fault["stall_s"] is not None])
    _names(axes, [f"{kind}, {label(arm)}\n{_hit_words(faults)}" for (arm, kind), faults in rows.items()])
    stalls = [fault["stall_s"] for faults in rows.values() for fault in faults if fault["stall_s"] is not None]
    _symlog(axes, STALL_LINEAR_S, max(stalls, default=0.0))
    axes.set_xlabel(f"job time that the fault cost [s] (linear below {STALL_LINEAR_S:g} s)")
    return figure


def fault_rows(summary: Mapping[str, Any]) -> dict[Row, list[Mapping[str, Any]]]:
    """Every fault that happened, of all repeats, by arm and kind; kinds together, so that the arms stand side by side."""
    found: dict[Row, list[Mapping[str, Any]]] = {}
    for arm, told in summary["arms"].items():
        for fault in (fault for entry in told["repeats"] for fault in entry["faults"]):
            if fault["stall_s"] is not None or fault["hit"] is False:
                found.setdefault((arm, fault["kind"]), []).append(fault)
    kinds = list(dict.fromkeys(kind for _, kind in found))
    return {row: found[row] for row in sorted(found, key=lambda row: kinds.index(row[1]))}


def _hit_words(faults: Sequence[Mapping[str, Any]]) -> str:
    return f"{sum(fault['hit'] is not False for fault in faults)} of {len(faults)} hit its traffic"


def _cost_row(axes: Axes, position: int, arm: str, faults: Sequence[Mapping[str, Any]]) -> None:
    look = style.arm_style(arm)
    for fault, offset in zip(faults, _spread(len(faults)), strict=True):
        point: dict[str, Any] = {"color": look.colour, "mfc": "white" if fault["overlapping"] else look.colour, "ms": 7, "mew": 1.4}
        axes.plot([fault["stall_s"]], [position + offset], look.marker, alpha=0.85, clip_on=False, **point)
    alone = [fault["stall_s"] for fault in faults if not fault["overlapping"]]
    used = alone or [fault["stall_s"] for fault in faults]
    if used:
        median = stdlib.median(used)
        which = f" of {findings.plural(len(alone), 'fault')} alone" if 0 < len(alone) < len(faults) else ""
        _median(axes, position, median, f"median {findings.seconds(median)}{which}")
    else:
        axes.annotate("no impact: none hit its traffic", (0, position), va="center", color="#555555", fontsize=style.TEXT_PT - 1)


def _cost_legend(shared: bool) -> list[Line2D]:
    handles = [Line2D([], [], color="#444444", marker="o", ms=7, linestyle="", label="a fault that hit traffic")]
    if shared:
        words = "its stall is shared with another fault"
        handles.append(Line2D([], [], color="#444444", marker="o", ms=7, mfc="white", mew=1.4, linestyle="", label=words))
    return [*handles, Line2D([], [], color="black", linewidth=2, label="median")]


# --- detection ---------------------------------------------------------------------------------------------------------------------------

LINEAR_MS, LINEAR_RTTS = 1.0, 1.0


def detection_times(summary: Mapping[str, Any], footer: Sequence[str]) -> Figure | None:
    """A point a retired EV: time to the last data packet sent on it, from the first loss and from the fault's effect.

    Left in milliseconds, right in base RTTs, if any is known; a row an arm, kind of fault and starting point. None if no EV was retired for
    a fault.
    """
    found = detection_rows(summary)
    if not found:
        return None
    figure = style.frame(findings.detection_title(summary), footer, 1.3 + 0.9 * len(found))
    in_rtts = {row: [rtts for _, rtts in points if rtts is not None] for row, points in found.items()}
    left, *others = figure.subplots(1, 1 + any(in_rtts.values()), sharey=True, squeeze=False)[0]
    _detection_panel(left, {row: [ms for ms, _ in points] for row, points in found.items()}, LINEAR_MS)
    for right in others:
        _detection_panel(right, in_rtts, LINEAR_RTTS)
        right.set_xlabel("the same in base RTTs of the pair (idle probes)")
    _names(left, [f"{label(arm)}, {row}\nn = {len(points)}" for (arm, row), points in found.items()])
    left.set_xlabel("until the last data packet sent on the EV [ms]")
    return figure


def detection_rows(summary: Mapping[str, Any]) -> dict[Row, list[tuple[float, float | None]]]:
    """(milliseconds, base RTTs or None) of every retirement, by arm and row of the picture."""
    found: dict[Row, list[tuple[float, float | None]]] = {}
    for start, field_name in (("first loss", "after_first_loss_s"), ("effect", "after_effect_s")):
        for arm, told in summary["arms"].items():
            for detection in (detection for entry in told["repeats"] for detection in entry["detections"]):
                after_s, rtt_s = detection[field_name], detection["base_rtt_s"]
                if after_s is not None:
                    row = (arm, f"{detection['kind']}, from {start}")
                    found.setdefault(row, []).append((after_s * 1e3, after_s / rtt_s if rtt_s else None))
    return found


def _detection_panel(axes: Axes, rows: Mapping[Row, Sequence[float]], linear_to: float) -> None:
    for position, ((arm, _), values) in enumerate(rows.items()):
        look, offsets = style.arm_style(arm), position + _spread(len(values))
        if values:  # points without a place, and not clipped, take all the room from the layout
            axes.plot(values, offsets, look.marker, color=look.colour, alpha=0.5, ms=6, mew=0, linestyle="", clip_on=False)
            _median(axes, position, stdlib.median(values), f"median {findings.number(stdlib.median(values))}")
    _symlog(axes, linear_to, max((value for values in rows.values() for value in values), default=0.0))
