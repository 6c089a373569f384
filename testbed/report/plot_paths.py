"""Picture of one pair's EVs over time: what each carried, when it was retired and probed, which faults lay on its path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from testbed.report import effects, style, tables
from testbed.report.context import first_runs, in_list, label
from testbed.report.findings import plural
from testbed.report.model import ArmRun
from testbed.report.reading import RunData
from testbed.scenario.derived_links import HASHED_ARMS

BIN_S = 0.5  # width of a cell of the picture of paths: five samples
MAX_EVS = 32  # more rows than this cannot be read
BAD_COLOUR, DENIED_COLOUR = style.VERMILLION, style.BLACK


# --- paths of one pair -------------------------------------------------------------------------------------------------------------------


@dataclass
class EvRow:
    """One EV of the pair over time: data packets sent by bin, when it was ASSUMED_BAD or DENIED, when it was probed, its path if known."""

    ev: int
    sent: Counter[int] = field(default_factory=Counter)
    bad: list[tuple[float, float]] = field(default_factory=list)
    denied: list[tuple[float, float]] = field(default_factory=list)
    probes: list[float] = field(default_factory=list)
    path: tuple[str, ...] = ()


def most_affected_pair(runs: Iterable[ArmRun]) -> tuple[str, str] | None:
    """The (host, peer) whose EVs were retired most often; None if none was."""
    seen = Counter((str(event["source"]), str(event.get("peer"))) for run in runs for event in effects.retirements(run))
    return max(sorted(seen), key=lambda pair: seen[pair], default=None)


def read_pair(folder: Path, run: ArmRun, pair: tuple[str, str] | None) -> tuple[tuple[str, str] | None, list[EvRow]]:
    """The EVs of `pair` (or of the first pair found, if None) from paths.csv and the history."""
    samples = tables.path_samples(folder, run)
    pair = pair or next(((host, peer) for _, host, peer, _, _ in samples), None)
    rows: dict[int, EvRow] = {}
    last: dict[int, float] = {}
    for t_s, host, peer, ev, sent in sorted(samples):
        if (host, peer) == pair:
            rows.setdefault(ev, EvRow(ev)).sent[int(t_s // BIN_S)] += max(0, int(sent - last.get(ev, sent)))
            last[ev] = sent
    _add_history(rows, run, pair)
    return pair, [rows[ev] for ev in sorted(rows)]


def _add_history(rows: dict[int, EvRow], run: ArmRun, pair: tuple[str, str] | None) -> None:
    mine = effects.pair_events(run, pair)
    for event in mine:
        row = rows.setdefault(int(event["ev"]), EvRow(int(event["ev"])))
        if event["event"] == "ev_state":
            row.path = tuple(event.get("path") or row.path)
    bad, denied, probes = effects.bad_spans(run, mine), effects.bad_spans(run, mine, "DENIED"), effects.probe_times(mine)
    for ev, row in rows.items():
        row.bad, row.denied, row.probes = bad.get(ev, []), denied.get(ev, []), probes.get(ev, [])


def paths_of_pair(data: RunData, footer: Sequence[str]) -> Figure:
    """One row an EV of the pair whose EVs were retired most often: packets, ASSUMED_BAD, probes, faults on the path; a panel an arm."""
    chosen = first_runs(data)
    pair = most_affected_pair(chosen)
    panels = []
    for run in chosen:
        panels.append((run, *read_pair(data.folder, run, pair)))
        pair = pair or panels[-1][1]
    panels = [(run, seen, rows[:MAX_EVS]) for run, seen, rows in panels if rows]
    heights = [0.9 + 0.42 * len(rows) for _, _, rows in panels] or [1.5]
    figure = style.frame(_paths_title(panels), footer, 1.2 + sum(heights))
    axes = style.panels(figure, heights, _paths_legend(chosen, [row for _, _, rows in panels for row in rows]) if panels else [])
    if not panels:
        style.say_nothing_to_show(axes[0], "no paths.csv was found, or it is empty")
        return figure
    for panel, (run, seen, rows) in zip(axes, panels, strict=True):
        _paths_panel(panel, run, seen, rows)
    axes[-1].set_xlabel("time since the job's start [s]")
    return figure


def _paths_title(panels: Sequence[tuple[ArmRun, tuple[str, str] | None, list[EvRow]]]) -> str:
    sprayed = [(run, pair, rows) for run, pair, rows in panels if len(rows) > 1 and pair]
    if not sprayed:
        return "One pair's packets over time" if panels else "Paths over time: nothing was recorded"
    (_, (source, target), first), told = sprayed[0], []
    for run, _, rows in sprayed:
        unused = [row for row in rows if not any(row.sent.values())]
        why = ", being denied" if unused and all(row.denied for row in unused) else ""
        tail = f" ({plural(len(unused), 'EV')} never used{why})" if unused else ""
        told.append(f"{in_list(run.arm)} {sum(len(row.bad) for row in rows)}{tail}")
    return f"{source} to {target}, sprayed over {len(first)} EVs; how often one was retired: {', '.join(told)}"


def _paths_panel(axes: Axes, run: ArmRun, pair: tuple[str, str] | None, rows: Sequence[EvRow]) -> None:
    bins = max(1, int(np.ceil(run.duration_s / BIN_S)))
    rates = np.array([[row.sent[index] / BIN_S for index in range(bins)] for row in rows])
    edges = np.arange(bins + 1) * BIN_S
    top = float(rates.max()) or 1.0
    mesh = axes.pcolormesh(edges, np.arange(len(rows) + 1) - 0.5, rates, cmap="Blues", vmin=0.0, vmax=top * 1.25, rasterized=True)
    for position, row in enumerate(rows):
        _row_marks(axes, run, position, row)
    names = [f"EV {row.ev}" for row in rows] if len(rows) > 1 else ["its one\npath"]
    axes.set_yticks(range(len(rows)), names, fontsize=style.TEXT_PT - 1.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, run.duration_s or 1.0)
    axes.grid(visible=False)
    axes.hlines(np.arange(1, len(rows)) - 0.5, 0, run.duration_s, color="white", linewidth=3)
    axes.set_title(f"{label(run.arm)}, repeat {run.repeat}: {' to '.join(pair or ('?', '?'))}{_unknown_paths(run, rows)}")
    bar = axes.figure.colorbar(mesh, ax=axes, pad=0.01, aspect=max(4.0, 3.0 * len(rows)), fraction=0.03)
    bar.set_label("data packets/s", fontsize=style.TEXT_PT - 3)
    bar.ax.tick_params(labelsize=style.TEXT_PT - 3)


def _unknown_paths(run: ArmRun, rows: Sequence[EvRow]) -> str:
    """That a panel shows no faults on its paths because nobody knows the paths; nothing where they are known."""
    if any(row.path for row in rows) or (len(rows) > 1 and run.arm not in HASHED_ARMS):
        return ""
    whose, on = ("their paths", "them") if len(rows) > 1 else ("its path", "it")
    told = f"; which faults lay on {on} is not known" if any(fault.happened for fault in run.faults) else ""
    return f" (the routers chose {whose}{told})"


def _row_marks(axes: Axes, run: ArmRun, position: int, row: EvRow) -> None:
    """Upper edge: probes; middle: ASSUMED_BAD and DENIED; lower edge: faults on the path."""
    for spans, colour in ((row.bad, BAD_COLOUR), (row.denied, DENIED_COLOUR)):
        for begin_s, end_s in spans:
            axes.add_patch(Rectangle((begin_s, position - 0.22), end_s - begin_s, 0.4, facecolor=colour, alpha=0.55, edgecolor=colour))
    axes.vlines(row.probes, position - 0.44, position - 0.26, color="black", linewidth=0.8)
    for fault in run.faults:
        if fault.happened and row.path and fault.hits(row.path, row.ev):
            colour, hatch = style.fault_look(fault.kind)
            long_s = fault.until_s(run.duration_s) - fault.begin_s
            where = (fault.begin_s, position + 0.22)
            axes.add_patch(Rectangle(where, long_s, 0.2, facecolor=colour, hatch=hatch, edgecolor="#444444", linewidth=0.5))


def _paths_legend(runs: Sequence[ArmRun], rows: Sequence[EvRow]) -> list[Any]:
    denied = any(row.denied for row in rows)
    return [
        Patch(color=BAD_COLOUR, alpha=0.55, label="ASSUMED_BAD: retired"),
        *([Patch(color=DENIED_COLOUR, alpha=0.55, label="DENIED by the administrator")] if denied else []),
        Line2D([], [], color="black", marker="|", ms=8, linestyle="", label="a probe"),
        *(Patch(facecolor=p.get_facecolor(), hatch=p.get_hatch(), edgecolor="#444444", label=f"{p.get_label()} on this path")
          for p in style.fault_handles(runs) if any(row.path for row in rows)),
    ]  # fmt: skip
