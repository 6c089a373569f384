"""Draws every picture of a run into its `plots/` folder, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from testbed.report import plot_congestion, plot_evs, plot_faults, plot_links, plot_paths, plot_steps, plot_streams, style
from testbed.report.context import footer
from testbed.report.model import STREAMS
from testbed.report.reading import RunData, read_run
from testbed.report.summary import summarise_data

FORMATS = ("png", "svg")

# name of the file -> caption in the report
CAPTIONS = {
    "steps": (
        "Step time over time. Each step is a bar from its start to its end, at the height of its duration; faults are shaded in grey for "
        "as long as they were on, with a lane a kind along the top. All arms share both axes; the scale is logarithmic."
    ),
    "stalls": (
        "Distribution of stalls over all steps and repeats (log axes): at each x, the share of steps that stalled at least that long. "
        "Marks: P50, P99 and P100. Steps without a measurable stall cannot be drawn on a log axis; the legend tells their share."
    ),
    "lost": (
        "Job time that was lost against a job of healthy steps only. Bars are means, because only means add up to stalls + crashes; each "
        "point is a repeat."
    ),
    "faults": (
        "What each fault cost the job: a point a fault and repeat, the sum of what its steps lost against the healthy median. A fault on a "
        "link that the arm's packets did not use cost nothing and is only counted; where two faults slowed the same step both are given it."
    ),
    "paths": (
        "Paths of the pair whose EVs were retired most often (of the first pair, if none was). Shade: data packets sent; the bar in the "
        "middle of a row: ASSUMED_BAD (black: DENIED); ticks on its upper edge: probes; on its lower edge: faults on the EV's path."
    ),
    "detection": (
        "How long a sender still used an EV whose path had failed, in milliseconds and in base RTTs of the pair (its median RTT of idle "
        "probes before the job): from the first packet that the fault took, and from the fault's effect. An EV that was idle when the "
        "fault came is only found out at its next packet, so the second figure holds idle time of the job (its compute phase) too."
    ),
    "links": (
        "How much of its rate each direction of each link inside the fabric carried, sorted, for each tier and way: hot and idle links "
        "stand at the two ends. Of a job of streams all link directions are shown, of other jobs those that carried data in any arm."
    ),
    "flows": (
        "Goodput of each flow over time (payload that its receiver acknowledged, in bins of 500 ms). The dashed level is what full packets "
        "on a host's links can carry; headers take the rest of the rate."
    ),
    "shares": (
        "Each flow's goodput as a share of its fair rate: max-min over the hosts' links alone, so what the fabric costs a flow is seen as "
        "a bar below 1. The first 2 s of a flow are left out."
    ),
    "congestion": (
        "Packets that all links together trimmed, marked (ECN) and dropped because a queue was full, a second, and the windows that MRC's "
        "senders kept meanwhile. What a fault or chance took is not among them."
    ),
    "evs": (
        "Data packets in 100 ms on the EVs of one pair around one fault: the EVs that it hit against the range of all others. Bars at the "
        "foot say when a hit EV was ASSUMED_BAD, ticks when it was probed."
    ),
}


def draw(data: RunData, summary: dict[str, Any]) -> Iterator[tuple[str, Figure]]:
    """Every picture that the run has data for, as (name, figure). Use inside style.styled()."""
    lines = footer(data, summary)
    yield from _of_streams(data, summary, lines) if summary["job"] == STREAMS else _of_steps(data, summary, lines)
    yield "paths", plot_paths.paths_of_pair(data, lines)
    for name, figure in (
        ("evs", plot_evs.evs_of_fault(data, lines)),
        ("detection", plot_faults.detection_times(summary, lines)),
        ("congestion", plot_congestion.congestion_over_time(data, summary, lines)),
    ):
        if figure is not None:
            yield name, figure
    yield "links", plot_links.link_use_picture(data, lines)


def _of_steps(data: RunData, summary: dict[str, Any], lines: Sequence[str]) -> Iterator[tuple[str, Figure]]:
    yield "steps", plot_steps.step_times(data, summary, lines)
    yield "stalls", plot_steps.stall_distribution(data, summary, lines)
    yield "lost", plot_steps.lost_job_time(data, summary, lines)
    costs = plot_faults.fault_costs(summary, lines)
    if costs is not None:
        yield "faults", costs


def _of_streams(data: RunData, summary: dict[str, Any], lines: Sequence[str]) -> Iterator[tuple[str, Figure]]:
    yield "flows", plot_streams.flows_over_time(data, summary, lines)
    yield "shares", plot_streams.flow_shares(summary, lines)


def write_plots(run_dir: Path) -> list[Path]:
    """Writes plots/<name>.png (150 dpi) and .svg; returns their paths. UsageError if the folder is no run."""
    data = read_run(run_dir)
    return write_figures(data, summarise_data(data))


def write_figures(data: RunData, summary: dict[str, Any]) -> list[Path]:
    """As `write_plots`, from a run that was read already."""
    with style.styled():
        figures = draw(data, summary)
        return [path for name, figure in figures for path in write_figure(data.folder, name, figure, summary["fidelity"]["verdict"])]


def write_figure(folder: Path, name: str, figure: Figure, fidelity: str) -> list[Path]:
    """Writes one picture of the run or sweep in `folder`, in every format, and returns its files. Use inside style.styled()."""
    (folder / "plots").mkdir(exist_ok=True)
    paths = [folder / "plots" / f"{name}.{kind}" for kind in FORMATS]
    style.stamp(figure, fidelity)
    for path in paths:
        style.save(figure, path)
    return paths
