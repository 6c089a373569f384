"""Pictures of a measurement of convergence: a panel a fault and class of flows, a line a profile, time from the effect on a log axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from testbed.converge.analysis import BEGIN, END, NO_IMPACT, NOT_REPAIRED, NOTHING_LOST, PHASES
from testbed.converge.classes import CLASSES, LOCAL
from testbed.report import style
from testbed.report.converge_words import CLASS_WORDS, STATE_WORDS, UNSETTLED_WORDS, footer
from testbed.report.findings import seconds

Row = Mapping[str, Any]
LEAST_S = 1e-3  # the axis begins here: less than the probes can tell
LINE_IN, PANEL_IN = 0.21, 0.75  # height of a profile's line, and of what is around the lines of a panel
FAMILIES = (("traditional", style.PURPLE), ("datacenter", style.BLUE), ("ovs", style.GREEN), ("static", style.BLACK))
TITLES = {
    BEGIN: "From a fault's effect until the last packet was lost: who only skips a next hop, and who waits until others were told",
    END: "From a fault's end until the last packet was lost: what healing costs",
}
CAPTIONS = {
    f"converge-{BEGIN}": (
        "Time from a fault's effect to the last lost probe (log axis), for each fault, class of flows and profile: dot = median, bar = "
        "range, small marks = every repeat; a tick = median of the last FIB change anywhere. Grey: less than a stream's probes are apart, "
        "so what lies there is short, and not known better. The dashed line is when the fault ended. "
        "Left: local flows, whose deciding router sits at the fault; right: remote flows, for which other routers must be told."
    ),
    f"converge-{END}": (
        "The same from the fault's end on: what is lost while the old paths come back. A switch counts from the command to boot."
    ),
}


def draw(content: Mapping[str, Any]) -> Iterator[tuple[str, Figure]]:
    """(name, figure) of each phase. Use inside style.styled()."""
    for phase in PHASES:
        rows = [row for row in content["rows"] if row["phase"] == phase]
        if rows:
            yield f"converge-{phase}", _figure(content, rows, phase)


def _figure(content: Mapping[str, Any], rows: Sequence[Row], phase: str) -> Figure:
    faults, profiles = list(dict.fromkeys(row["fault"] for row in rows)), list(content["profiles"])
    height_in = LINE_IN * len(profiles) + PANEL_IN
    figure = style.frame(TITLES[phase], footer(content), height_in * len(faults) + 0.5)
    grid = figure.add_gridspec(len(faults) + 1, 2, height_ratios=[height_in] * len(faults) + [0.3])
    limit = _limit(rows)
    for at, fault in enumerate(faults):
        for column, name in enumerate(CLASSES):
            axes = figure.add_subplot(grid[at, column])
            of_panel = {row["profile"]: row for row in rows if row["fault"] == fault and row["class"] == name}
            axes.axvspan(LEAST_S / 2, float(content["resolution_s"]), color="#eeeeee", lw=0, zorder=0)
            _panel(axes, of_panel, profiles, limit, phase)
            _labels(axes, profiles, next(row for row in rows if row["fault"] == fault), name, at == len(faults) - 1)
    below = figure.add_subplot(grid[len(faults), :])
    below.set_axis_off()
    below.legend(handles=_legend(), loc="center", ncols=4, fontsize=style.TEXT_PT - 2, borderpad=0)
    return figure


def _limit(rows: Sequence[Row]) -> float:
    """The right end of the axis: beyond the longest time of all panels."""
    ends = [row[name][end] for row in rows for name in ("outage_s", "fib_last_s") for end in ("median", "max")]
    lasted = [row["lasted_s"] for row in rows if row["phase"] == BEGIN]
    return 3.0 * max(float(value) for value in (*ends, *lasted, 1.0) if value is not None)


def _panel(axes: Axes, of_panel: Mapping[str, Row], profiles: Sequence[str], limit: float, phase: str) -> None:
    axes.set_xscale("log")
    axes.set_xlim(LEAST_S / 1.4, limit)
    axes.set_ylim(len(profiles) - 0.4, -0.6)
    if not of_panel:
        axes.text(0.5, 0.5, "no flows of this class", ha="center", va="center", transform=axes.transAxes, color="#777777")
        return
    lasted = next(iter(of_panel.values()))["lasted_s"]
    if phase == BEGIN and lasted:
        axes.axvline(lasted, color="#777777", ls="--", lw=1, zorder=1)
    for at, profile in enumerate(profiles):
        if profile in of_panel:
            _line(axes, at, of_panel[profile], limit)


def _line(axes: Axes, at: int, row: Row, limit: float) -> None:
    """One profile: its repeats, and what is no time in words."""
    colour, state = _colour(row["profile"]), row["state"]
    told: Mapping[str, Any] = row["outage_s"]
    for value in row["samples_s"]:
        if value is not None:
            axes.plot(max(value, LEAST_S), at, ".", color=colour, ms=4, alpha=0.55, zorder=2)
    if told["median"] is not None:
        low, middle, high = (max(told[name] if told[name] is not None else limit, LEAST_S) for name in ("min", "median", "max"))
        axes.plot([low, high], [at, at], "-", color=colour, lw=2, alpha=0.8, zorder=3)
        axes.plot(middle, at, "o", color=colour, ms=6.5, mfc="white" if state == NOTHING_LOST else colour, zorder=4)
    fib = row["fib_last_s"]["median"]
    if fib is not None and fib > 0:
        axes.plot(max(fib, LEAST_S), at, "|", color="#222222", ms=9, mew=1.3, zorder=5)
    _words(axes, at, row, colour)


def _words(axes: Axes, at: int, row: Row, colour: str) -> None:
    """States that are no time: of the median, and of single repeats."""
    state, states = row["state"], row["states"]
    if state == NO_IMPACT:
        axes.text(LEAST_S, at, STATE_WORDS[NO_IMPACT], color="#777777", size=8, va="center", style="italic")
    elif state == NOT_REPAIRED and row["phase"] == BEGIN and row["lasted_s"]:
        axes.plot(row["lasted_s"], at, "x", color=colour, ms=7, mew=2, zorder=4)
        axes.text(row["lasted_s"] * 0.8, at, STATE_WORDS[NOT_REPAIRED], color=colour, size=8, va="center", ha="right")
    elif state == NOT_REPAIRED:
        axes.text(LEAST_S * 1.5, at, UNSETTLED_WORDS, color=colour, size=8, va="center")
    elif state == NOTHING_LOST:
        axes.text(LEAST_S * 1.5, at, STATE_WORDS[NOTHING_LOST], color=colour, size=8, va="center")
    elif states.get(NOT_REPAIRED):
        told = f"{states[NOT_REPAIRED]} of {row['repeats']} {STATE_WORDS[NOT_REPAIRED]}"
        axes.text(0.99, at, told, color=colour, size=7.5, va="center", ha="right", transform=axes.get_yaxis_transform())


def _labels(axes: Axes, profiles: Sequence[str], row: Row, name: str, is_last: bool) -> None:
    lasted = f", lasts {seconds(row['lasted_s'])}" if row["phase"] == BEGIN and row["lasted_s"] else ""
    axes.set_title(f"{row['kind']} {row['target']}{lasted}: {name} flows", size=style.TEXT_PT - 1)
    axes.set_yticks(range(len(profiles)), profiles if name == LOCAL else [""] * len(profiles), fontsize=8)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", labelsize=8)
    if is_last:
        axes.set_xlabel(f"time from the {'effect' if row['phase'] == BEGIN else 'end'} (log axis); {CLASS_WORDS[name]}", size=8)


def _colour(profile: str) -> str:
    return next((colour for start, colour in FAMILIES if profile.startswith(start)), style.VERMILLION)


def _legend() -> list[Line2D]:
    dark: dict[str, Any] = {"color": "#333333", "ls": ""}
    return [
        Line2D([], [], marker="o", ms=6.5, label="median until the last lost packet; bar: range", **dark),
        Line2D([], [], marker="o", ms=6.5, mfc="white", label="nothing lost", **dark),
        Line2D([], [], marker="x", ms=7, mew=2, label="lost until the fault's end", **dark),
        Line2D([], [], marker="|", ms=9, mew=1.3, label="last FIB change anywhere", **dark),
    ]
