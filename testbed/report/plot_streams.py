"""Pictures of a job of streams: goodput of each flow over time, and each flow's share of what is fair."""

from __future__ import annotations

import statistics as stdlib
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from testbed.report import findings_streams, goodput, style
from testbed.report.context import first_runs, label
from testbed.report.findings import plural
from testbed.report.model import ArmRun
from testbed.report.plot_steps import missed_faults
from testbed.report.reading import RunData

BIN_S = 0.5  # five samples of flows.csv; of RC, whose bytes count by whole messages, a shorter bin would show messages, not flows
MAX_NAMED_FLOWS = 24  # more names than this cannot be read
VICTIM_COLOUR, SUM_COLOUR = style.BLACK, style.PURPLE


# --- goodput over time -------------------------------------------------------------------------------------------------------------------


def flows_over_time(data: RunData, summary: Mapping[str, Any], footer: Sequence[str]) -> Figure:
    """Goodput of every flow over time, a panel an arm on the same axes: incast, victim, and the sum into the incast's receiver apart."""
    chosen = [run for run in first_runs(data) if run.flows and run.qps]
    heights = [2.7] * max(1, len(chosen))
    figure = style.frame(findings_streams.flows_title(summary), footer, 1.1 + sum(heights))
    missed = {run.arm: missed_faults(summary, run.arm, run.repeat) for run in chosen}
    legend = _time_legend(chosen) + [style.missed_handle()] * any(missed.values())
    panels = style.panels(figure, heights, legend, columns=3)
    if not chosen:
        style.say_nothing_to_show(panels[0], "no flow was recorded: flows.csv is missing or empty, or arm.json tells no flow")
        return figure
    kinds = style.fault_kinds(chosen)
    for axes, run in zip(panels, chosen, strict=True):
        style.shade_faults(axes, run, kinds, missed[run.arm])
        _time_panel(axes, run)
    top = max(line for axes in panels for line in (axes.dataLim.y1,)) * 1.08
    panels[0].set_xlim(0, max(run.duration_s for run in chosen) or 1.0)
    for axes in panels:
        axes.set_ylim(0, (top or 1.0) / (1 - style.lanes_height(kinds)))
    panels[-1].set_xlabel("time since the job's start [s]")
    return figure


def _time_panel(axes: Axes, run: ArmRun) -> None:
    look = style.arm_style(run.arm)
    receiver = next((flow.target for flow in run.flows if flow.role == "incast"), None)
    total: Any = 0.0
    for flow in sorted(run.flows, key=lambda flow: flow.role == "victim"):
        t_s, bps = goodput.goodput_series(goodput.qp_of(run, flow), run.duration_s, BIN_S)
        mbps = bps / 1e6
        total = total + mbps * (flow.target == receiver)
        if flow.role == "victim":
            axes.plot(t_s, mbps, "--", color=VICTIM_COLOUR, linewidth=2.2, zorder=4)
        else:
            axes.plot(t_s, mbps, look.line, color=look.colour, linewidth=1.2, alpha=0.65, zorder=3)
    if receiver:
        axes.plot(t_s, total, ":", color=SUM_COLOUR, linewidth=2.4, zorder=5)
    rates = goodput.host_rates_bps(run)
    if rates:
        axes.axhline(max(rates.values()) / 1e6, color="#333333", linewidth=1.0, linestyle=(0, (4, 3)), zorder=2)
    axes.set_title(f"{label(run.arm)}, repeat {run.repeat}: {_panel_words(run)}")
    axes.set_ylabel("goodput [Mbps]")


def _panel_words(run: ArmRun) -> str:
    found = [entry for entry in goodput.flow_goodputs(run) if entry.share is not None]
    if not found:
        return f"{plural(len(run.flows), 'flow')}; what is fair is not known"
    slowest = min(found, key=lambda entry: entry.share or 0.0)
    share = findings_streams.share(slowest.share or 0.0)
    which = f"slowest of {len(found)} flows" if len(found) > 1 else "the flow has"
    return f"{which} {share} of its fair share ({slowest.flow.source} to {slowest.flow.target})"


def _time_legend(runs: Sequence[ArmRun]) -> list[Any]:
    roles = {flow.role for run in runs for flow in run.flows}
    handles: list[Any] = []
    if roles - {"victim"}:
        words = "a flow of the incast" if "incast" in roles else "a flow"
        handles.append(Line2D([], [], color="#666666", linewidth=1.2, label=f"{words} (in the arm's colour)"))
    if "incast" in roles:
        handles.append(Line2D([], [], color=SUM_COLOUR, linestyle=":", linewidth=2.4, label="all flows into the incast's receiver"))
    if "victim" in roles:
        handles.append(Line2D([], [], color=VICTIM_COLOUR, linestyle="--", linewidth=2.2, label="the victim"))
    if any(goodput.host_rates_bps(run) for run in runs):
        handles.append(Line2D([], [], color="#333333", linestyle=(0, (4, 3)), linewidth=1, label="payload that a host's links can carry"))
    return handles + style.fault_handles(runs)


# --- shares of what is fair --------------------------------------------------------------------------------------------------------------


def flow_shares(summary: Mapping[str, Any], footer: Sequence[str]) -> Figure:
    """A bar a flow and arm: its goodput as a share of its fair rate, median of the repeats, with their range."""
    arms = {arm: told for arm in summary["arms"] if (told := shares_by_flow(summary, arm))}
    names = list(dict.fromkeys(name for told in arms.values() for name in told))
    figure = style.frame(findings_streams.shares_title(summary), footer, 5.0)
    axes = style.panels(figure, [3.6], _share_legend(summary, list(arms)), columns=2)[0]
    if not arms:
        style.say_nothing_to_show(axes, "no flow's share is known: flows.csv, or the links' rate in arm.json, is missing")
        return figure
    width = 0.84 / len(arms)
    for number, (arm, told) in enumerate(arms.items()):
        where = [names.index(name) - 0.42 + width * (number + 0.5) for name in told]
        _share_bars(axes, arm, where, list(told.values()), width)
    axes.axhline(1.0, color="#333333", linewidth=1.2, linestyle=(0, (4, 3)))
    axes.set_xlim(-0.7, len(names) - 0.3)
    axes.set_ylim(0, max(1.1, 1.05 * max(share for told in arms.values() for shares in told.values() for share in shares)))
    axes.grid(visible=False, axis="x")
    named = len(names) <= MAX_NAMED_FLOWS
    axes.set_xticks(range(len(names)) if named else [], names if named else [], rotation=45, ha="right", fontsize=style.TEXT_PT - 2)
    axes.set_ylabel("goodput / fair rate")
    axes.set_xlabel("flow" if named else f"{len(names)} flows, in the job's order")
    return figure


def shares_by_flow(summary: Mapping[str, Any], arm: str) -> dict[str, list[float]]:
    """Name of a flow -> its known shares, one a repeat."""
    found: dict[str, list[float]] = {}
    for flow in (flow for entry in summary["arms"][arm]["repeats"] for flow in entry["flows"]):
        if flow["share"] is not None:
            role = f" ({flow['role']})" if flow["role"] == "victim" else ""
            found.setdefault(f"{flow['from']} to {flow['to']}{role}", []).append(float(flow["share"]))
    return found


def _share_bars(axes: Axes, arm: str, where: Sequence[float], shares: Sequence[Sequence[float]], width: float) -> None:
    look = style.arm_style(arm)
    medians = [stdlib.median(seen) for seen in shares]
    axes.bar(where, medians, width, color=look.colour, alpha=0.85, hatch=look.hatch, edgecolor="white", linewidth=0)
    if any(len(seen) > 1 for seen in shares):
        axes.vlines(where, [min(seen) for seen in shares], [max(seen) for seen in shares], color="black", linewidth=1.2)


def _share_legend(summary: Mapping[str, Any], arms: Sequence[str]) -> list[Any]:
    handles: list[Any] = [_arm_handle(summary, arm) for arm in arms]
    if not arms:
        return []
    if any(len(summary["arms"][arm]["repeats"]) > 1 for arm in arms):
        handles.append(Line2D([], [], color="black", linewidth=1.2, label="range of the repeats (bars: median)"))
    return [*handles, Line2D([], [], color="#333333", linewidth=1.2, linestyle=(0, (4, 3)), label="fair: max-min over the hosts' links")]


def _arm_handle(summary: Mapping[str, Any], arm: str) -> Patch:
    look, told = style.arm_style(arm), summary["arms"][arm]
    index, median = told["jain"]["median"], told["flow_goodput_median_share"]["median"]
    words = f"{label(arm)}: median flow {findings_streams.share(median)}" + (f", Jain's index {index:.3f}" if index is not None else "")
    return Patch(facecolor=look.colour, alpha=0.85, hatch=look.hatch, edgecolor="white", linewidth=0, label=words)
