"""Pictures of the job: step times over time, distribution of stalls, lost job time."""

from __future__ import annotations

import math
import statistics as stdlib
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from testbed.percentile import percentile
from testbed.report import findings, style
from testbed.report import statistics as stats
from testbed.report.context import FEW_ARMS, label
from testbed.report.model import ArmRun, JobStep
from testbed.report.reading import RunData

CRASH_COLOUR = "#B00020"
MEASURABLE_STALL_S = 1e-3  # stalls below this are drawn no finer: the emulation's own noise is larger


def plain_seconds(value: float, _position: object = None) -> str:
    """Tick labels without powers: 0.2, 5, 10."""
    return f"{value:g}"


# --- step time over time ---------------------------------------------------------------------------------------------------------------


def step_times(data: RunData, summary: Mapping[str, Any], footer: Sequence[str]) -> Figure:
    """Every step of every arm over time, on one time axis and one (log) scale; the first repeat in full colour, the others light."""
    arms = {arm: runs for arm, runs in data.arms.items() if runs}
    everything = [run for runs in arms.values() for run in runs]
    heights = [2.7 if len(arms) <= FEW_ARMS else 1.75] * max(1, len(arms))
    figure = style.frame(findings.steps_title(summary), footer, 1.1 + sum(heights))
    missed = {arm: missed_faults(summary, arm, runs[0].repeat) for arm, runs in arms.items()}
    legend = _step_legend(everything) + [style.missed_handle()] * any(missed.values()) if arms else []
    panels = style.panels(figure, heights, legend)
    if not arms:
        style.say_nothing_to_show(panels[0], "no arm was measured")
        return figure
    kinds = style.fault_kinds(everything)
    for axes, (arm, runs) in zip(panels, arms.items(), strict=True):
        style.shade_faults(axes, runs[0], kinds, missed[arm])
        _panel(axes, arm, runs, 1 - style.lanes_height(kinds))
    _scale(panels, everything, 1 - style.lanes_height(kinds))
    panels[-1].set_xlabel("time since the job's start [s]")
    return figure


def missed_faults(summary: Mapping[str, Any], arm: str, repeat: int) -> set[str]:
    """The faults that hit no traffic in one arm and repeat (the arm's first one, if it has no such repeat)."""
    repeats = summary["arms"].get(arm, {}).get("repeats") or [{"repeat": repeat, "faults": []}]
    entry = next((entry for entry in repeats if entry["repeat"] == repeat), repeats[0])
    return {fault["fault"] for fault in entry["faults"] if fault["hit"] is False}


def _panel(axes: Axes, arm: str, runs: Sequence[ArmRun], top: float) -> None:
    look, chosen = style.arm_style(arm), runs[0]
    for run in runs[1:]:
        _draw_other(axes, run, look, top)
    steps = stats.job_steps(chosen)
    median_s = stats.healthy_median(chosen, steps).median_s
    _draw_steps(axes, stats.judged_steps(steps, median_s), look)
    _draw_crashes(axes, chosen, top)
    if median_s:
        axes.axhline(median_s, color="#333333", linewidth=1.0, linestyle=(0, (4, 3)), zorder=2)
    axes.set_title(f"{label(arm)}, repeat {chosen.repeat}: {_panel_words(steps, median_s)}")
    axes.set_ylabel("step time [s]")


def _panel_words(steps: Sequence[JobStep], median_s: float | None) -> str:
    judged = stats.judged_steps(steps, median_s)
    if not judged or not median_s:
        return "no complete step"
    slowest = max(step.time_s for step in judged)
    return f"healthy median {findings.seconds(median_s)}, slowest step {findings.seconds(slowest)} ({findings.number(slowest / median_s)}x)"


def _draw_other(axes: Axes, run: ArmRun, look: style.ArmStyle, top: float) -> None:
    """Another repeat: light points, and a thin line for a crash; no words, because repeats crash at about the same time."""
    steps = [step for step in stats.job_steps(run) if step.complete]
    axes.plot([step.end_s for step in steps], [step.time_s for step in steps], look.marker, color=look.colour, alpha=0.3, ms=3.5, mew=0)
    for event in run.named("job_crash"):
        axes.axvline(float(event["t_s"]), ymax=top, color=CRASH_COLOUR, linewidth=1.0, linestyle=":")


def _draw_steps(axes: Axes, steps: Sequence[JobStep], look: style.ArmStyle) -> None:
    """A step is a bar from its start to its end at the height of its time, with a marker at its end."""
    useful = [step for step in steps if step.complete and step.useful]
    redone = [step for step in steps if step.complete and not step.useful]
    cut = [step for step in steps if not step.complete and step.time_s > 0]
    for group in (useful, redone, cut):
        dotted = ":" if group is cut else "-"
        starts, ends = [step.start_s for step in group], [step.end_s for step in group]
        axes.hlines([step.time_s for step in group], starts, ends, color=look.colour, linewidth=1.6, linestyle=dotted)
    axes.plot([step.end_s for step in useful], [step.time_s for step in useful], look.marker, color=look.colour, ms=4, mew=0)
    axes.plot([step.end_s for step in redone], [step.time_s for step in redone], look.marker, color=look.colour, ms=4.5, mfc="white", mew=1)
    axes.plot([step.end_s for step in cut], [step.time_s for step in cut], ">", color=look.colour, ms=6, mfc="white", mew=1.2)


def _draw_crashes(axes: Axes, run: ArmRun, top: float) -> None:
    """A crash is a line up to `top` (share of the panel) with a bar at the bottom until the job is back."""
    restarts = [float(event["t_s"]) for event in run.named("job_restart")]
    for event in run.named("job_crash"):
        t_s = float(event["t_s"])
        back_s = min((restart for restart in restarts if restart > t_s), default=run.duration_s)
        axes.axvspan(t_s, back_s, ymax=0.06, color=CRASH_COLOUR, alpha=0.8, linewidth=0)
        axes.axvline(t_s, ymax=top, color=CRASH_COLOUR, linewidth=1.5)
        axes.annotate(" crash", (t_s, top - 0.03), xycoords=("data", "axes fraction"), color=CRASH_COLOUR, va="top", weight="bold")


def _scale(panels: Sequence[Axes], runs: Sequence[ArmRun], top: float) -> None:
    """One log scale for all panels that holds every step, also one cut short, and leaves what is above `top` (share) to the faults."""
    steps = [step for run in runs for step in stats.job_steps(run) if step.time_s > 0]
    low = min((step.time_s for step in steps if step.complete), default=0.1) / 1.5
    high = max(max((step.time_s for step in steps), default=1.0), low * 4) * 1.4
    high_end = low * (high / low) ** (1 / top)
    panels[0].set_xlim(0, max((run.duration_s for run in runs), default=1.0) or 1.0)
    for panel in panels:
        panel.set_yscale("log")
        panel.set_ylim(low, high_end)
        panel.yaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
        panel.yaxis.set_major_formatter(FuncFormatter(plain_seconds))
        panel.yaxis.set_minor_formatter(NullFormatter())


def _step_legend(runs: Sequence[ArmRun]) -> list[Any]:
    handles: list[Any] = [
        Line2D([], [], color="#444444", marker="o", ms=4, linewidth=1.6, label="a step, from its start to its end"),
        Line2D([], [], color="#333333", linestyle=(0, (4, 3)), linewidth=1, label="healthy median"),
    ]
    every = [step for run in runs for step in stats.job_steps(run)]
    if any(step.complete and not step.useful for step in every):
        handles.append(Line2D([], [], color="#444444", marker="o", mfc="white", ms=4.5, linewidth=1.6, label="redone after a crash"))
    if any(not step.complete and step.cut == "crash" for step in every):
        handles.append(Line2D([], [], color="#444444", marker=">", mfc="white", linestyle=":", label="cut short by a crash"))
    if any(run.repeat != 1 for run in runs):
        handles.append(Line2D([], [], color="#444444", marker="o", ms=3, alpha=0.3, linestyle="", label="steps of other repeats"))
    if any(run.named("job_crash") for run in runs):
        handles.append(Patch(color=CRASH_COLOUR, alpha=0.8, label="crash and restart"))
    if any(run.repeat != 1 and run.named("job_crash") for run in runs):
        handles.append(Line2D([], [], color=CRASH_COLOUR, linestyle=":", linewidth=1, label="crash of another repeat"))
    return handles + style.fault_handles(runs)


# --- stalls ------------------------------------------------------------------------------------------------------------------------------


def arm_stalls(runs: Sequence[ArmRun]) -> list[float]:
    """The stalls of all judged steps of all repeats, each against its own repeat's healthy median."""
    stalls: list[float] = []
    for run in runs:
        steps = stats.job_steps(run)
        median_s = stats.healthy_median(run, steps).median_s
        if median_s:
            stalls += [stats.stall_s(step, median_s) for step in stats.judged_steps(steps, median_s)]
    return sorted(stalls)


def stall_distribution(data: RunData, summary: Mapping[str, Any], footer: Sequence[str]) -> Figure:
    """CCDF of the stalls on log axes, one line an arm, all repeats together."""
    figure = style.frame(findings.stalls_title(summary), footer, 5.8)
    stalls = {arm: found for arm, runs in data.arms.items() if (found := arm_stalls(runs))}
    axes = style.panels(figure, [4.8], [_ccdf_handle(arm, found) for arm, found in stalls.items()], columns=2)[0]
    if not stalls:
        style.say_nothing_to_show(axes, "no stall can be computed: no arm has complete steps")
        return figure
    for arm, found in stalls.items():
        _ccdf(axes, arm, found, named=len(stalls) <= FEW_ARMS)
    _ccdf_axes(axes, list(stalls.values()))
    return figure


QUANTILES = (("P50", 0.5), ("P99", 0.99), ("P100", 1.0))


def _ccdf_handle(arm: str, stalls: Sequence[float]) -> Line2D:
    """The legend's words: the quantiles, and the share that a log axis cannot show."""
    look, count = style.arm_style(arm), len(stalls)
    none = sum(stall < MEASURABLE_STALL_S for stall in stalls)
    told = ", ".join(f"{name} {findings.seconds(percentile(stalls, share) or 0.0)}" for name, share in QUANTILES)
    words = f"{label(arm)}: {told}\n{none / count:.0%} of {count} steps had no measurable stall (< 1 ms)"
    return Line2D([], [], color=look.colour, linestyle=look.line, marker=look.marker, linewidth=2, label=words)


def _ccdf(axes: Axes, arm: str, stalls: Sequence[float], named: bool) -> None:
    """At x: the share of all steps that stalled for x or longer; drawn from the smallest measurable stall on. `named`: whether the marks
    have words, which would lie on one another where there are many arms."""
    look, count = style.arm_style(arm), len(stalls)
    points = [(stall, 1 - index / count) for index, stall in enumerate(stalls) if stall >= MEASURABLE_STALL_S]
    if points:
        first = (MEASURABLE_STALL_S, points[0][1])
        axes.plot(*zip(first, *points, strict=True), look.line, color=look.colour, linewidth=2, drawstyle="steps-pre")
    marks: dict[float, list[str]] = {}
    for name, share in QUANTILES:
        marks.setdefault(percentile(stalls, share) or 0.0, []).append(name)
    for value, names in marks.items():
        if value >= MEASURABLE_STALL_S:
            _mark(axes, " = ".join(names) if named else "", value, sum(stall >= value for stall in stalls) / count, look)


def _mark(axes: Axes, name: str, value: float, share: float, look: style.ArmStyle) -> None:
    axes.plot([value], [share], look.marker, color=look.colour, ms=9, mec="white", mew=1.2, zorder=5)
    axes.annotate(name, (value, share), xytext=(7, 7), textcoords="offset points", color=look.colour, weight="bold",
                  fontsize=style.TEXT_PT - 1)  # fmt: skip


def _ccdf_axes(axes: Axes, stalls: Sequence[Sequence[float]]) -> None:
    longest, count = max(max(found) for found in stalls), max(len(found) for found in stalls)
    highest = max(sum(stall >= MEASURABLE_STALL_S for stall in found) / len(found) for found in stalls)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(MEASURABLE_STALL_S, max(0.1, 4 * longest))
    axes.set_ylim(0.5 / count, min(1.6, 3 * max(highest, 1 / count)))
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(plain_seconds))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _position: f"{share:.4g}"))
    axes.set_xlabel("stall: step time above the healthy median [s]")
    axes.set_ylabel("share of steps that stalled this long or longer")


# --- lost job time -----------------------------------------------------------------------------------------------------------------------


def lost_job_time(data: RunData, summary: Mapping[str, Any], footer: Sequence[str]) -> Figure:
    """A bar an arm: the mean lost job time, split into stalls and crashes (only means add up), with every repeat as a point."""
    arms = [arm for arm in data.arms if findings.values(summary, arm, "lost_job_time_s")]
    figure = style.frame(findings.lost_title(summary), footer, 1.6 + 1.1 * max(1, len(arms)))
    axes = figure.subplots()
    if not arms:
        style.say_nothing_to_show(axes, "no arm has a healthy median to compare with")
        return figure
    for position, arm in enumerate(arms):
        _lost_bar(axes, position, arm, summary)
    durations = [run.duration_s for runs in data.arms.values() for run in runs if run.duration_s > 0]
    axes.set_yticks(range(len(arms)), [label(arm) for arm in arms])
    axes.set_ylim(len(arms) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, _room(summary, arms))
    of = f", of {findings.seconds(stdlib.median(durations))} job time" if durations else ""
    axes.set_xlabel(f"lost job time a repeat [s]{of}")
    axes.legend(handles=_lost_legend(summary, arms), loc="best", fontsize=style.TEXT_PT - 1.5)
    return figure


def _room(summary: Mapping[str, Any], arms: Sequence[str]) -> float:
    """The axis' end: room for the words right of the longest bar."""
    longest = max(value for arm in arms for value in findings.values(summary, arm, "lost_job_time_s"))
    return (longest or 1.0) * 1.4


def _lost_bar(axes: Axes, position: int, arm: str, summary: Mapping[str, Any]) -> None:
    look = style.arm_style(arm)
    totals = findings.values(summary, arm, "lost_job_time_s")
    stall = stdlib.mean(findings.values(summary, arm, "lost_stall_s"))
    crash = stdlib.mean(findings.values(summary, arm, "lost_crash_s"))
    axes.barh(position, stall, 0.5, color=look.colour, alpha=0.75)
    axes.barh(position, crash, 0.5, left=stall, color=CRASH_COLOUR, alpha=0.55, hatch="xx", edgecolor="white")
    offsets = [position + (index - (len(totals) - 1) / 2) * min(0.1, 0.4 / len(totals)) for index in range(len(totals))]
    axes.plot(totals, offsets, look.marker, color="black", ms=6, mfc="white", mew=1.3, linestyle="", zorder=4, clip_on=False)
    median = summary["arms"][arm]["lost_job_time_s"]["median"]
    low, high = findings.seconds(min(totals)), findings.seconds(max(totals))
    spread = f"  median {findings.seconds(median)}\n  ({low} to {high})" if len(totals) > 1 else f"  {low}"
    axes.annotate(spread, (max(*totals, stall + crash), position), xytext=(6, 0), textcoords="offset points", va="center")


def _lost_legend(summary: Mapping[str, Any], arms: Sequence[str]) -> list[Any]:
    several = any(len(findings.values(summary, arm, "lost_job_time_s")) > 1 for arm in arms)
    mean = " (mean of the repeats)" * several
    handles: list[Any] = [Patch(color="#888888", alpha=0.75, label=f"stalls{mean}")]
    if any(math.fsum(findings.values(summary, arm, "lost_crash_s")) > 0 for arm in arms):
        handles.append(Patch(facecolor=CRASH_COLOUR, alpha=0.55, hatch="xx", edgecolor="white", label=f"crashes{mean}"))
    return [*handles, Line2D([], [], color="black", marker="o", mfc="white", linestyle="", label="one repeat")]
