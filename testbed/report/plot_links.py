"""Picture of the links: how much of its rate each link direction carried, sorted, so that hot and idle ones are seen."""

from __future__ import annotations

import statistics as stdlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from testbed.report import link_use, style
from testbed.report.context import first_runs, in_list, label
from testbed.report.findings import number
from testbed.report.findings_streams import share
from testbed.report.model import ArmRun, link_tier
from testbed.report.reading import RunData

USED_SHARE = 0.01  # a link direction that carried less than this share of the busiest one carried no data: only probes and acknowledgements
MAX_BARS = 40  # more bars side by side become one outline an arm

Direction = tuple[str, str]  # (link, sending node)
Panel = dict[str, list[float]]  # arm -> what its link directions carried, most first


def link_use_picture(data: RunData, footer: Sequence[str]) -> Figure:
    """What each link direction inside the fabric carried, sorted: a row a tier, a column a way, the arms side by side.

    In shares of the links' rate, or in MB if the rate is not known.
    """
    chosen = [run for run in first_runs(data) if run.links]
    in_shares = bool(chosen) and all(run.rate_bps is not None for run in chosen)
    told = panels_of(chosen, in_shares)
    tiers = [tier for tier in link_use.FABRIC_TIERS if any(told.get((tier, way)) for way in link_use.WAYS)]
    figure = style.frame(_title(told), footer, 1.2 + 2.7 * max(1, len(tiers)))
    if not tiers:
        style.say_nothing_to_show(figure.subplots(), "no link inside the fabric was used, or links.csv is missing")
        return figure
    grid = figure.add_gridspec(len(tiers) + 1, 2, height_ratios=[*[1.0] * len(tiers), 0.14])
    top = max(volume for panel in told.values() for volumes in panel.values() for volume in volumes)
    for row, tier in enumerate(tiers):
        for column, way in enumerate(link_use.WAYS):
            _panel(figure.add_subplot(grid[row, column]), f"{tier} links, {way}wards", told.get((tier, way), {}), top, in_shares)
    below = figure.add_subplot(grid[len(tiers), :])
    below.set_axis_off()
    below.legend(handles=_legend(chosen), loc="center", ncols=3, fontsize=style.TEXT_PT - 1.5, borderpad=0)
    return figure


def panels_of(runs: Sequence[ArmRun], in_shares: bool) -> dict[tuple[str, str], Panel]:
    """(tier, way) -> what each arm's link directions carried. Of a job of steps only directions that carried data in any arm: a ring
    cannot use the others."""
    everything = any(run.streams for run in runs)
    used = used_directions(runs)
    found: dict[tuple[str, str], Panel] = {}
    for run in runs:
        for counter in run.links:
            if everything or (counter.link, counter.from_node) in used:
                volume = (link_use.utilisation(run, counter) or 0.0) if in_shares else counter.tx_bytes / 1e6
                place = (link_tier(counter.link), link_use.way_of(counter))
                found.setdefault(place, {}).setdefault(run.arm, []).append(volume)
    return {place: {arm: sorted(volumes, reverse=True) for arm, volumes in panel.items()} for place, panel in found.items()}


def used_directions(runs: Iterable[ArmRun]) -> set[Direction]:
    """The link directions that carried data in any of the arms: those that the job could use."""
    used: set[Direction] = set()
    for run in runs:
        busiest = max((counter.tx_bytes for counter in run.links), default=0.0)
        used |= {(c.link, c.from_node) for c in run.links if c.tx_bytes > USED_SHARE * busiest}
    return used


def _panel(axes: Axes, title: str, told: Panel, top: float, in_shares: bool) -> None:
    axes.set_title(title)
    axes.set_xticks([])
    axes.grid(visible=False, axis="x")
    if not told:
        style.say_nothing_to_show(axes, "not used")
        return
    longest = max(len(volumes) for volumes in told.values())
    scale = 100.0 if in_shares else 1.0
    for position, (arm, volumes) in enumerate(told.items()):
        _bars(axes, arm, position, len(told), np.array(volumes) * scale)
    axes.set_xlim(-0.8, longest - 0.2)
    axes.set_ylim(0, (top or 1.0) * scale * (1.1 + 0.11 * len(told)))
    if in_shares:
        axes.set_yticks([tick for tick in range(0, 101, 20) if tick <= top * 120])
    axes.set_ylabel("use of the link's rate [%]" if in_shares else "data sent [MB]")
    axes.set_xlabel("link directions, busiest first", fontsize=style.TEXT_PT - 1)
    words = "\n".join(f"{in_list(arm)}: {_evenness(volumes, in_shares)}" for arm, volumes in told.items())
    axes.text(0.985, 0.98, words, transform=axes.transAxes, ha="right", va="top", fontsize=style.TEXT_PT - 3, linespacing=1.25,
              bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5})  # fmt: skip


def _bars(axes: Axes, arm: str, position: int, arms: int, volumes: np.ndarray) -> None:
    look, count = style.arm_style(arm), len(volumes)
    if count * arms > MAX_BARS * 2:
        axes.step(np.arange(count), volumes, where="mid", color=look.colour, linestyle=look.line, linewidth=2)
        return
    width = 0.84 / arms
    where = np.arange(count) - 0.42 + width * (position + 0.5)
    axes.bar(where, volumes, width, color=look.colour, alpha=0.85, hatch=look.hatch, edgecolor="white", linewidth=0)


def _evenness(volumes: Sequence[float], in_shares: bool) -> str:
    mean = stdlib.fmean(volumes)
    if mean <= 0:
        return "nothing sent"
    idle = sum(volume < USED_SHARE * max(volumes) for volume in volumes)
    figures = f"max {share(max(volumes))}, mean {share(mean)}" if in_shares else f"busiest {number(max(volumes) / mean)}x the mean"
    return f"{figures}, CV {stdlib.pstdev(volumes) / mean:.2f}, {idle} of {len(volumes)} idle"


def _legend(runs: Sequence[ArmRun]) -> list[Patch]:
    looks = {run.arm: style.arm_style(run.arm) for run in runs}
    return [Patch(facecolor=look.colour, hatch=look.hatch, label=label(arm), alpha=0.85, edgecolor="white") for arm, look in looks.items()]


def _title(told: Mapping[tuple[str, str], Panel]) -> str:
    """Each arm's least even tier and way: they are not mixed, because a job may load one more than the other."""
    worst: dict[str, float] = {}
    for (tier, _way), panel in told.items():
        for arm, volumes in panel.items() if tier in link_use.FABRIC_TIERS else ():
            if stdlib.fmean(volumes) > 0:
                worst[arm] = max(worst.get(arm, 0.0), max(volumes) / stdlib.fmean(volumes))
    parts = [f"{in_list(arm)} {number(ratio)}x" for arm, ratio in worst.items()]
    return f"Busiest link against the mean of its tier and direction: {', '.join(parts)}" if parts else "Use of links: nothing was recorded"
