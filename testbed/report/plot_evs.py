"""Picture of one fault and the EVs that it hit: packets an EV over time, leaving and coming back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from testbed.report import effects, style, tables
from testbed.report.context import TRANSPORT_OF_ARM, first_runs, in_list, label
from testbed.report.counters import bin_edges, growth
from testbed.report.findings import number, plural, seconds
from testbed.report.model import ArmRun, FaultInterval
from testbed.report.reading import RunData

BEFORE_S, AFTER_S = 2.0, 4.0  # shown before the fault and after its end
MAX_LATE_S = 20.0  # an EV that comes back later than this after the fault's end is not waited for
BIN_S = 0.1  # paths.csv is sampled this often
HIT_COLOURS = (style.VERMILLION, style.PURPLE, style.ORANGE, style.GREEN)
HIT_LINES: tuple[style.Line, ...] = ("-", "--", "-.", ":")

Pair = tuple[str, str]


@dataclass(frozen=True)
class Scene:
    """One fault in one arm and repeat, seen by one pair: the EVs that it hit, what each EV sent a bin, when which EV was ASSUMED_BAD.

    `retired`: when its EVs were ASSUMED_BAD because of it, not of another fault. `others`: what else lay on the paths of its EVs.
    """

    run: ArmRun
    fault: FaultInterval
    pair: Pair
    hit: tuple[int, ...]
    sent: Mapping[int, NDArray[np.float64]]
    bad: Mapping[int, list[tuple[float, float]]]
    probes: Mapping[int, list[float]]
    retired: Sequence[tuple[float, float]] = ()
    others: Sequence[FaultInterval] = ()

    @property
    def span(self) -> tuple[float, float]:
        """What is shown, in seconds: the fault, and until its EVs are back."""
        end_s = self.fault.until_s(self.run.duration_s)
        back_s = max((end for _, end in self.retired if end <= end_s + MAX_LATE_S), default=end_s)
        return max(0.0, self.fault.begin_s - BEFORE_S), min(self.run.duration_s, max(end_s, back_s) + AFTER_S)


def evs_of_fault(data: RunData, footer: Sequence[str]) -> Figure | None:
    """The first fault that retired an EV (or names its EVs), a panel an arm that has EVs. None if there is none."""
    found = (scene(data.folder, run) for run in first_runs(data) if TRANSPORT_OF_ARM.get(run.arm) == "mrc")
    scenes = [told for told in found if told is not None]
    if not scenes:
        return None
    heights = [3.0] * len(scenes)
    figure = style.frame(_title(scenes), footer, 1.3 + sum(heights))
    panels = style.panels(figure, heights, _legend(scenes), columns=3)
    for axes, told in zip(panels, scenes, strict=True):
        _panel(axes, told)
    panels[0].set_xlim(min(told.span[0] for told in scenes), max(told.span[1] for told in scenes))
    panels[-1].set_xlabel("time since the job's start [s]")
    return figure


def scene(folder: Path, run: ArmRun) -> Scene | None:
    """What there is to show of one arm and repeat; None without a fault that hit an EV of a pair with records."""
    seen = _fault_and_pair(run)
    if seen is None:
        return None
    fault, pair = seen
    samples = [row for row in tables.path_samples(folder, run) if pair is None or row[1:3] == pair]
    if not samples:
        return None
    pair = pair or samples[0][1:3]
    sent = _sent([row for row in samples if row[1:3] == pair], run.duration_s)
    events = effects.pair_events(run, pair)
    retired_for_it = (e for e in effects.retirements(run) if (e["source"], e.get("peer")) == pair and effects.blamed(run, e) == fault)
    blamed = {(int(e["ev"]), float(e["t_s"])) for e in retired_for_it}
    hit = tuple(sorted(ev for ev in {ev for ev, _ in blamed} | _named_evs(fault) if ev in sent))
    if not hit or len(sent) < 2:
        return None
    all_bad, all_probes = effects.bad_spans(run, events), effects.probe_times(events)
    bad, probes = {ev: all_bad.get(ev, []) for ev in hit}, {ev: all_probes.get(ev, []) for ev in hit}
    retired = [span for ev, spans in bad.items() for span in spans if (ev, span[0]) in blamed]
    return Scene(run, fault, pair, hit, sent, bad, probes, retired, _others(run, fault, events, hit))


def _others(run: ArmRun, fault: FaultInterval, events: Sequence[Mapping[str, Any]], hit: Sequence[int]) -> list[FaultInterval]:
    """The other faults on the paths of these EVs, as far as their events tell the paths."""
    paths = {int(event["ev"]): event["path"] for event in events if event.get("path")}
    return [other for other in run.faults if other.happened and other != fault and any(other.hits(paths.get(ev, ()), ev) for ev in hit)]


def _fault_and_pair(run: ArmRun) -> tuple[FaultInterval, Pair | None] | None:
    """A fault that names its EVs comes before one that only retired some; the pair is the first whose EV was retired for it."""
    blamed = [(effects.blamed(run, event), (str(event["source"]), str(event.get("peer")))) for event in effects.retirements(run)]
    named = [fault for fault in run.faults if fault.happened and _named_evs(fault)]
    known = [(fault, pair) for fault, pair in blamed if fault is not None]
    if named:
        return named[0], next((pair for fault, pair in known if fault == named[0]), None)
    return known[0] if known else None


def _named_evs(fault: FaultInterval) -> set[int]:
    told = fault.params.get("evs")
    return {ev for ev in told if isinstance(ev, int)} if isinstance(told, list | tuple) else set()


def _sent(samples: Sequence[tables.PathRow], duration_s: float) -> dict[int, NDArray[np.float64]]:
    """Packets that each EV sent, a bin of BIN_S each."""
    series: dict[int, list[tuple[float, float]]] = {}
    for t_s, _, _, ev, packets in sorted(samples):
        series.setdefault(ev, []).append((t_s, packets))
    edges = bin_edges(duration_s, BIN_S)
    counts = {ev: np.array(told).T for ev, told in sorted(series.items())}
    return {ev: np.maximum(0.0, growth(t_s, packets, edges)) for ev, (t_s, packets) in counts.items()}


# --- drawing -----------------------------------------------------------------------------------------------------------------------------


def _panel(axes: Axes, told: Scene) -> None:
    others = np.array([sent for ev, sent in told.sent.items() if ev not in told.hit])
    t_s = (np.arange(len(next(iter(told.sent.values())))) + 0.5) * BIN_S
    shown = (t_s >= told.span[0]) & (t_s <= told.span[1])
    _fault_lane(axes, told, told.fault, 0.94, 1.0)
    for other in _seen_others(told):
        _fault_lane(axes, told, other, 0.88, 0.93)
    until_s = told.fault.until_s(told.run.duration_s)
    axes.axvspan(told.fault.begin_s, until_s, ymax=0.94, facecolor="#000000", alpha=0.09, linewidth=0, zorder=0)
    if len(others):
        axes.fill_between(t_s, others.min(axis=0), others.max(axis=0), color=style.BLUE, alpha=0.2, linewidth=0, step="mid")
        axes.step(t_s, np.median(others, axis=0), where="mid", color=style.BLUE, linewidth=1.4)
    for number_, ev in enumerate(told.hit[: len(HIT_COLOURS)]):
        axes.step(t_s, told.sent[ev], HIT_LINES[number_], where="mid", color=HIT_COLOURS[number_], linewidth=2.2, zorder=4)
        for begin_s, end_s in told.bad[ev]:
            axes.axvspan(begin_s, end_s, ymin=0.01 + 0.035 * number_, ymax=0.035 + 0.035 * number_, color=HIT_COLOURS[number_], linewidth=0)
    top = max(float(sent[shown].max()) for sent in told.sent.values()) or 1.0
    marked = 0.05 + 0.035 * (min(len(told.hit), len(HIT_COLOURS)) - 1)
    axes.set_ylim(-top * 1.2 * marked / (1 - marked), top * 1.2)
    probes = [t for ev in told.hit for t in told.probes[ev] if told.span[0] <= t <= told.span[1]]
    axes.plot(probes, np.zeros(len(probes)), "|", color="black", ms=8, mew=1.0, zorder=5)
    where = f"{told.fault.kind} fault on {told.fault.target}"
    axes.set_title(f"{label(told.run.arm)}, repeat {told.run.repeat}: {' to '.join(told.pair)}, {where}")
    axes.set_ylabel("data packets in 100 ms")


def _fault_lane(axes: Axes, told: Scene, fault: FaultInterval, low: float, high: float) -> None:
    colour, hatch = style.fault_look(fault.kind)
    look: dict[str, Any] = {"facecolor": colour, "hatch": hatch, "edgecolor": "#666666", "linewidth": 0.8, "zorder": 3}
    axes.axvspan(fault.begin_s, fault.until_s(told.run.duration_s), ymin=low, ymax=high, **look)


def _seen_others(told: Scene) -> list[FaultInterval]:
    """The other faults on its EVs' paths in the time that is shown."""
    begin_s, end_s = told.span
    return [other for other in told.others if other.begin_s < end_s and other.until_s(told.run.duration_s) > begin_s]


def _title(scenes: Sequence[Scene]) -> str:
    """When the hit EVs were retired and came back, in the first arm."""
    told = scenes[0]
    begin_s, end_s = told.fault.begin_s, told.fault.until_s(told.run.duration_s)
    spans = told.retired
    what = f"{in_list(told.run.arm)}, {told.fault.kind} fault on the path of {plural(len(told.hit), 'EV')} of {len(told.sent)}"
    if not spans:
        return f"{what}: none was retired"
    first, back = min(span[0] for span in spans), max(span[1] for span in spans)
    many, again = len(told.hit) > 1, len(spans) > len(told.hit)
    last = "the last one was " if many else "at last " if again else ""
    came = f"{last}back {seconds(abs(back - end_s))} {'after' if back >= end_s else 'before'} its end"
    if back in effects.crash_times(told.run):
        came = "gone with the job's crash"
    elif back >= told.run.duration_s:
        came = "not all of them came back" if many else "never back"
    retired = f"retired {len(spans)} times, first" if again else f"{'the first was ' * many}retired"
    return f"{what}: {retired} {seconds(max(0.0, first - begin_s))} after its begin, {came}"


def _legend(scenes: Sequence[Scene]) -> list[Any]:
    evs = list(dict.fromkeys(told.hit[: len(HIT_COLOURS)] for told in scenes))
    handles: list[Any] = [Patch(color=style.BLUE, alpha=0.2, label="the other EVs: lowest to highest"),
                          Line2D([], [], color=style.BLUE, linewidth=1.4, label="the other EVs: median")]  # fmt: skip
    for index in range(max(len(hit) for hit in evs)):
        names = dict.fromkeys(f"EV {number(hit[index])}" for hit in evs if index < len(hit))
        words = f"{' / '.join(names)}: hit by the fault"
        handles.append(Line2D([], [], color=HIT_COLOURS[index], linestyle=HIT_LINES[index], linewidth=2.2, label=words))
    handles.append(Patch(color="#777777", label="bar at the foot: that EV is ASSUMED_BAD"))
    handles.append(Line2D([], [], color="black", marker="|", ms=8, linestyle="", label="a probe on it"))
    if any(_seen_others(told) for told in scenes):
        handles.append(Patch(facecolor="white", edgecolor="#666666", label="lower lane: other faults on its path"))
    return handles + style.fault_handles([_only(told) for told in scenes])


def _only(told: Scene) -> ArmRun:
    """An arm with nothing but the faults that are drawn, for their legend entries."""
    return ArmRun(told.run.arm, told.run.repeat, told.run.duration_s, faults=(told.fault, *_seen_others(told)))
