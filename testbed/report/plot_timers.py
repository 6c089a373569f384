"""The picture of a sweep over routing's timers: what a silent failure costs against the time after which routing finds it."""

from __future__ import annotations

import statistics as stdlib
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from testbed.report import style, sweep_detection
from testbed.report.context import label
from testbed.report.findings import seconds
from testbed.report.plot_steps import MEASURABLE_STALL_S, plain_seconds
from testbed.report.plot_sweep import footer

CAPTION = (
    "What a silent failure cost the job against the time after which routing's timer finds it (log axes): medians, with the range of all "
    "repeats as a bar. A hollow mark: the failure was over before routing found it. On the dotted line the stall is the detection time "
    "itself (a hold timer runs from the last keepalive, so it may end one keepalive interval sooner after the failure); a transport adds "
    "the wait until it sends again. Where the job crashed the stall ends with the crash, and its restart comes on top. A level line with a "
    "band: an arm in which nothing routes, all points together."
)


def draw(data: Mapping[str, Any]) -> Figure | None:
    """None for a sweep along which no arm's detection time differs. Use inside style.styled()."""
    arms = sweep_detection.routed_arms(data)
    if not arms:
        return None
    level = sweep_detection.unrouted_stalls(data)
    figure = style.frame(sweep_detection.title(data), _footer(data), 5.6)
    axes = style.panels(figure, [4.6], [*(_handle(arm) for arm in (*arms, *level)), *_hollow(data, arms), _diagonal()], columns=2)[0]
    entries = {arm: sweep_detection.series(data, arm) for arm in arms}
    _scale(axes, entries, level, sweep_detection.cut_s(data))
    for arm in arms:
        _points(axes, arm, entries[arm])
    _names(axes, entries[arms[0]])
    for arm, stalls in level.items():
        _level(axes, arm, stalls)
    _cut(axes, sweep_detection.cut_s(data))
    return figure


def _footer(data: Mapping[str, Any]) -> list[str]:
    """The sweep's, with what is shown here in the place of its metric, and what the transports were allowed."""
    what, _, *rest = footer(data)
    told = [str(data["transports"])] if data.get("transports") else []
    return [
        what,
        "Stall: what all steps under the silent failure lost against the healthy median, if it hit the arm's traffic",
        *rest,
        *told,
    ]


def _shown(stall_s: float) -> float:
    """A log axis knows no 0."""
    return max(stall_s, MEASURABLE_STALL_S)


def _scale(axes: Axes, entries: Mapping[str, Sequence[Any]], level: Mapping[str, Sequence[float]], cut_s: float | None) -> None:
    times = [entry["detection_s"] for told in entries.values() for entry in told]
    stalls = [stall for told in entries.values() for entry in told for stall in entry["stalls_s"]]
    heights = [_shown(stall) for stall in (*stalls, *(stall for told in level.values() for stall in told), cut_s or MEASURABLE_STALL_S)]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(min(times) / 2, max(times) * 2)
    axes.set_ylim(min(heights) / 2, max(heights) * 4)
    axes.plot([1e-4, 1e4], [1e-4, 1e4], ":", color="#888888", linewidth=1.2, zorder=1)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(10))
        axis.set_major_formatter(FuncFormatter(plain_seconds))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("time after which routing finds a silent failure: BFD's, else the hold time [s]")
    axes.set_ylabel("stall of the job [s]")


def _points(axes: Axes, arm: str, entries: Sequence[Mapping[str, Any]]) -> None:
    look = style.arm_style(arm)
    x, middle = [entry["detection_s"] for entry in entries], [_shown(stdlib.median(entry["stalls_s"])) for entry in entries]
    axes.plot(x, middle, look.line, color=look.colour, linewidth=1.5, zorder=2)
    for at, height, entry in zip(x, middle, entries, strict=True):
        ends = [[height - _shown(min(entry["stalls_s"]))], [_shown(max(entry["stalls_s"])) - height]]
        inside = look.colour if entry["detected"] else "white"
        axes.errorbar([at], [height], yerr=ends, fmt=look.marker, color=look.colour, mfc=inside, ms=9, mew=1.6, capsize=5, zorder=4)


def _names(axes: Axes, entries: Sequence[Mapping[str, Any]]) -> None:
    """The points' names above the first arm's marks."""
    for entry in entries:
        words = entry["text"] + ("" if entry["detected"] else "\nnot detected:\nover before")
        words += f"\n{sweep_detection.crash_words(entry)}" * bool(entry["crashes"])
        above = max(_shown(stall) for stall in entry["stalls_s"])
        drawn: dict[str, Any] = {"ha": "center", "fontsize": style.TEXT_PT - 2, "zorder": 6, "bbox": _PLATE}
        axes.annotate(words, (entry["detection_s"], above), xytext=(0, 9), textcoords="offset points", **drawn)


_PLATE = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}


def _level(axes: Axes, arm: str, stalls: Sequence[float]) -> None:
    look, median = style.arm_style(arm), stdlib.median(stalls)
    axes.axhspan(_shown(min(stalls)), _shown(max(stalls)), color=look.colour, alpha=0.12, linewidth=0, zorder=0)
    axes.axhline(_shown(median), color=look.colour, linestyle=look.line, linewidth=2, zorder=3)
    words = f"{label(arm)}: {seconds(median)} ({seconds(min(stalls))} to {seconds(max(stalls))}), without routing"
    place: Any = axes.get_yaxis_transform()
    axes.annotate(words, (0.99, _shown(median)), xycoords=place, xytext=(0, 5), textcoords="offset points", ha="right", color=look.colour,
                  weight="bold")  # fmt: skip


def _cut(axes: Axes, cut_s: float | None) -> None:
    if cut_s:
        axes.axhline(cut_s, color="#555555", linestyle=(0, (4, 3)), linewidth=1, zorder=1)
        place: Any = axes.get_yaxis_transform()
        axes.annotate(f"the failure lasted {seconds(cut_s)}", (0.01, cut_s), xycoords=place, xytext=(0, 4), textcoords="offset points",
                      color="#555555", fontsize=style.TEXT_PT - 1.5)  # fmt: skip


def _handle(arm: str) -> Line2D:
    look = style.arm_style(arm)
    return Line2D([], [], color=look.colour, linestyle=look.line, marker=look.marker, label=label(arm))


def _hollow(data: Mapping[str, Any], arms: Sequence[str]) -> list[Line2D]:
    missed = any(not entry["detected"] for arm in arms for entry in sweep_detection.series(data, arm))
    words = "over before routing found it"
    return [Line2D([], [], color="#444444", marker="o", mfc="white", linestyle="", ms=8, label=words)] if missed else []


def _diagonal() -> Line2D:
    return Line2D([], [], color="#888888", linestyle=":", label="stall = detection time")
