"""Picture of congestion: what links did to packets over time, and what senders' windows made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from testbed.report import congestion, style
from testbed.report.context import TRANSPORT_OF_ARM, first_runs, label
from testbed.report.counters import Column, bin_edges, growth, middles, since_start
from testbed.report.fair_share import on_between
from testbed.report.findings import number
from testbed.report.findings_streams import congestion_title
from testbed.report.model import ArmRun
from testbed.report.plot_steps import missed_faults
from testbed.report.reading import RunData

BIN_S = 0.5  # links.csv is sampled this often
LINEAR_TO = 10.0  # packets/s; below this the axis is linear, so that 0 has its place
# outcome -> (words, colour, line, marker)
LOOKS: Mapping[str, tuple[str, str, style.Line, str]] = {
    "trimmed_packets": ("trimmed", style.BLUE, "-", "o"),
    "marked_packets": ("marked (ECN)", style.ORANGE, "--", "^"),
    "queue_dropped_packets": ("dropped (queue full)", style.VERMILLION, ":", "s"),
}


def congestion_over_time(data: RunData, summary: Mapping[str, Any], footer: Sequence[str]) -> Figure | None:
    """Trimmed, marked and dropped packets a second over all links, a panel an arm; below, the windows of MRC's senders.

    None if no arm's links trimmed, marked or dropped anything in the first repeat.
    """
    chosen = first_runs(data)
    if not any(congestion.outcome_total(run, name) for run in chosen for name in LOOKS):
        return None
    chosen = [run for run in chosen if any(counter.outcomes for counter in run.links)]
    windows = [run for run in chosen if TRANSPORT_OF_ARM.get(run.arm) == "mrc" and run.qps]
    heights = [2.2] * len(chosen) + [2.6] * bool(windows)
    figure = style.frame(congestion_title(summary), footer, 1.3 + sum(heights))
    missed = {run.arm: missed_faults(summary, run.arm, run.repeat) for run in chosen}
    panels = style.panels(figure, heights, _legend(chosen, windows), columns=3)
    kinds = style.fault_kinds(chosen)
    for axes, run in zip(panels, chosen, strict=False):
        style.shade_faults(axes, run, kinds, missed[run.arm])
        _outcomes(axes, run)
    _same_scale(panels[: len(chosen)], style.lanes_height(kinds))
    if windows:
        _windows(panels[-1], windows)
    panels[0].set_xlim(0, max(run.duration_s for run in chosen) or 1.0)
    panels[-1].set_xlabel("time since the job's start [s]")
    return figure


def outcome_rates(run: ArmRun, name: str) -> tuple[Column, Column]:
    """(middle of each bin in s, packets a second of one outcome over all links)."""
    edges = bin_edges(run.duration_s, BIN_S)
    known = [series for counter in run.links if (series := counter.outcomes.get(name))]
    return middles(edges), sum((growth(*since_start(series), edges) for series in known), np.zeros(len(edges) - 1)) / BIN_S


def _outcomes(axes: Axes, run: ArmRun) -> None:
    told = []
    for name, (words, colour, line, marker) in LOOKS.items():
        total = congestion.outcome_total(run, name)
        if total:
            axes.plot(*outcome_rates(run, name), marker + line, color=colour, linewidth=1.6, ms=3.5, mew=0)
        told += [f"{number(total)} {words}"] if total else []
    axes.set_title(f"{label(run.arm)}, repeat {run.repeat}: {', '.join(told) or 'nothing trimmed, marked or dropped'}")
    axes.set_ylabel("packets/s, all links")


def _same_scale(panels: Sequence[Axes], lanes: float) -> None:
    """One axis for all, linear up to LINEAR_TO and logarithmic above, with room for the lanes of faults."""
    highest = max([LINEAR_TO, *(float(np.max(line.get_ydata())) for axes in panels for line in axes.get_lines())])
    for axes in panels:
        axes.set_yscale("symlog", linthresh=LINEAR_TO)
        axes.set_ylim(0, highest * 1.5 * 10 ** (2 * lanes))
        axes.yaxis.set_major_formatter(lambda value, _position: f"{value:g}")


def _windows(axes: Axes, runs: Sequence[ArmRun]) -> None:
    """Median over the sending QPs, and the band of the middle 80 %; of an incast only its senders."""
    for run in runs:
        look = style.arm_style(run.arm)
        bands = window_bands(run)
        if bands is not None:
            t_s, low, middle, high = bands
            axes.fill_between(t_s, low, high, color=look.colour, alpha=0.18, linewidth=0)
            axes.plot(t_s, middle, look.line, color=look.colour, linewidth=1.8)
    axes.set_ylim(bottom=0)
    incast = any(flow.role == "incast" for run in runs for flow in run.flows)
    axes.set_title(f"Congestion window of {'the senders of the incast' if incast else 'all senders'}: median and middle 80 %")
    axes.set_ylabel("window [packets]")


def window_bands(run: ArmRun) -> tuple[Column, ...] | None:
    """(t_s, 10th percentile, median, 90th percentile) of the windows in bins; None without a sample. A bin without a sample is NaN.

    Of an incast only its senders, and only while they send: an idle sender's window says nothing.
    """
    on = {(flow.source, flow.target): on_between(flow, run.duration_s) for flow in run.flows if flow.role == "incast"}
    samples = [
        (int(t_s // BIN_S), window)
        for qp in run.qps if not on or (qp.host, qp.peer) in on
        for t_s, window in zip(qp.t_s, qp.cwnd_packets, strict=True) if not on or _is_in(on[qp.host, qp.peer], t_s)
    ]  # fmt: skip
    t_s = middles(bin_edges(run.duration_s, BIN_S))
    shares = np.full((3, len(t_s)), np.nan)
    for index, same in groupby(sorted(samples), key=itemgetter(0)):
        if 0 <= index < len(t_s):
            shares[:, index] = np.percentile([window for _, window in same], (10, 50, 90))
    return (t_s, *shares) if samples else None


def _is_in(span: tuple[float, float], t_s: float) -> bool:
    return span[0] <= t_s <= span[1]


def _legend(runs: Sequence[ArmRun], windows: Sequence[ArmRun]) -> list[Any]:
    handles: list[Any] = [
        Line2D([], [], color=colour, linestyle=line, marker=marker, ms=4, linewidth=1.6, label=words)
        for name, (words, colour, line, marker) in LOOKS.items() if any(congestion.outcome_total(run, name) for run in runs)
    ]  # fmt: skip
    for run in windows:
        look = style.arm_style(run.arm)
        handles.append(Line2D([], [], color=look.colour, linestyle=look.line, linewidth=1.8, label=f"window, {label(run.arm)}"))
    if windows:
        handles.append(Patch(color="#666666", alpha=0.18, label="middle 80 % of the windows"))
    return handles + style.fault_handles(runs)
