"""A sweep: one folder with a complete run a point, and on top what all points say together (docs/sweeps.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from testbed.capture.plan import NO_CAPTURE, CapturePlan
from testbed.errors import INTERRUPTED, FidelityError, HostError, TestbedError, UsageError
from testbed.files import write_json
from testbed.report import write_sweep
from testbed.reporting import Reporter
from testbed.run.arm import Surroundings
from testbed.run.control import control_of
from testbed.run.session import OpenRun, RunOutcome, manifest, now, point_latest, results_folder, write_scenario
from testbed.scenario import Drawn, Scenario, arm_duration_s, total_duration_s
from testbed.units import format_duration

# The exit code of a sweep is the worst of its points: what stopped most counts most, then what cannot be believed, then what it found.
WORST_FIRST = (INTERRUPTED, HostError.exit_code, UsageError.exit_code, FidelityError.exit_code, TestbedError.exit_code, 0)


def run_sweep(
    scenario: Scenario, drawn: Sequence[Drawn], results: Path, *, reporter: Reporter, capture: CapturePlan = NO_CAPTURE
) -> RunOutcome:
    """Runs every point of the scenario's sweep; `drawn` holds the faults of each. Must be called inside the sandbox."""
    with results_folder(results, scenario.name, reporter) as folder:
        with control_of(folder, reporter) as control:
            sweep = SweepRun(scenario, drawn, folder, Surroundings(reporter, capture, control))
            sweep.run()
        point_latest(results, folder, reporter)
        return sweep.finish()


def schedule(scenario: Scenario) -> Iterator[tuple[int, int, str]]:
    """(repeat, index of the point, arm): all points of a repeat before the next, so that slow changes of the machine hit all alike."""
    yield from product(range(1, scenario.repeats + 1), range(len(scenario.points)), scenario.arms)


def worst(exit_codes: Sequence[int]) -> int:
    """The exit code that counts most; one that is not in the list counts as the most."""
    return min(exit_codes, key=lambda code: WORST_FIRST.index(code) if code in WORST_FIRST else -1, default=0)


class SweepRun:
    """A sweep while it runs. A point's folder is made when its first arm begins, and finished as soon as its last has ended."""

    def __init__(self, scenario: Scenario, drawn: Sequence[Drawn], folder: Path, around: Surroundings) -> None:
        self.scenario, self.drawn, self.folder, self.around = scenario, drawn, folder, around
        self._runs: dict[int, OpenRun] = {}
        self._finished: set[int] = set()
        self._interrupted = False
        self._manifest = manifest(scenario, around.capture) | {"kind": "sweep"}
        write_scenario(folder, scenario)
        self._write_manifest()

    def run(self) -> None:
        """Every arm and repeat of every point. A point that stops with an error leaves the others alone; an interrupt ends them all."""
        left_s = total_duration_s(self.scenario)
        try:
            for repeat, index, arm in schedule(self.scenario):
                self._say(repeat, index, arm, left_s)
                left_s -= arm_duration_s(self.scenario.points[index].scenario)
                self._run_arm(repeat, index, arm)
                if self._interrupted:
                    return
        except KeyboardInterrupt:  # between two arms; within one, its run has told
            self._interrupted = True
            self.around.reporter.warn("interrupted: what was measured so far is kept, and marked")

    def finish(self) -> RunOutcome:
        """The reports of points that were cut short, then what all points say together."""
        for index in sorted(self._runs.keys() - self._finished):
            self._finish_point(index)
        self._write_manifest(ended=now(), interrupted=self._interrupted, complete=self._complete)
        self.around.reporter.phase("sweep: summary, picture and report")
        summary = write_sweep(self.folder)
        self.around.reporter.note(f"report: {self.folder / 'report.html'}")
        codes = [run.outcome.exit_code for run in self._runs.values()] + [INTERRUPTED] * self._interrupted
        return RunOutcome(self.folder, worst(codes), list(summary["problems"]), summary, self._interrupted)

    @property
    def _complete(self) -> bool:
        return len(self._runs) == len(self.scenario.points) and all(run.complete for run in self._runs.values())

    def _say(self, repeat: int, index: int, arm: str, left_s: float) -> None:
        points = self.scenario.points
        where = f"point {points[index].text} ({index + 1} of {len(points)}), arm {arm}, repeat {repeat} of {self.scenario.repeats}"
        self.around.reporter.note(f"{where}: about {format_duration(round(left_s))} left in all")

    def _run_arm(self, repeat: int, index: int, arm: str) -> None:
        if index in self._finished:  # it stopped with an error
            return
        run = self._opened(index)
        run.run_arm(arm, repeat)
        self._interrupted = run.outcome.interrupted
        if run.complete or run.stopped:
            self._finish_point(index)

    def _opened(self, index: int) -> OpenRun:
        if index not in self._runs:
            point = self.scenario.points[index]
            folder = self.folder / point.folder
            folder.mkdir()
            self._runs[index] = OpenRun(point.scenario, self.drawn[index], folder, self.around)
        return self._runs[index]

    def _finish_point(self, index: int) -> None:
        self._runs[index].finish()
        self._finished.add(index)
        self._write_manifest()

    def _write_manifest(self, **more: Any) -> None:
        points = [self._point(index) for index in range(len(self.scenario.points))]
        write_json(self.folder / "manifest.json", self._manifest | {"points": points} | more)

    def _point(self, index: int) -> dict[str, Any]:
        point, run = self.scenario.points[index], self._runs.get(index)
        told: dict[str, Any] = {"value": point.value, "text": point.text, "folder": point.folder, "state": _state(run)}
        return told | ({"exit_code": run.outcome.exit_code, "problems": list(dict.fromkeys(run.outcome.problems))} if run else {})


def _state(run: OpenRun | None) -> str:
    if run is None:
        return "not run"
    if run.complete:
        return "complete"
    return "interrupted" if run.outcome.interrupted else "failed" if run.stopped else "incomplete"
