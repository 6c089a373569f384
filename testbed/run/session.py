"""A whole run: its folder and manifest, every arm and repeat in turn, then the summary, the pictures and the verdict."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from testbed.capture.plan import NO_CAPTURE, CapturePlan
from testbed.errors import INTERRUPTED, FidelityError, HostError, TestbedError
from testbed.files import give_to_invoker, write_json, write_text
from testbed.report import judge, write_results
from testbed.reporting import Reporter
from testbed.run.arm import ArmOutcome, ArmRun, Surroundings
from testbed.run.control import control_of
from testbed.run.manifest import describe_machine, git_revision, versions
from testbed.scenario import Scenario, arm_duration_s, total_duration_s
from testbed.scenario.faults import Drawn, write_faults
from testbed.units import format_duration


@dataclass
class RunOutcome:
    """What a run ended with. `exit_code` as in docs/architecture.md."""

    folder: Path
    exit_code: int = 0
    problems: list[str] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    interrupted: bool = False


class OpenRun:
    """One run while its arms run, one after the other: its folder, its manifest, what came of each arm so far.

    `stopped`: an interrupt or an error keeps its other arms from running.
    """

    def __init__(self, scenario: Scenario, drawn: Drawn, folder: Path, around: Surroundings) -> None:
        """Writes the folder's first files; `folder` is there already."""
        self.scenario, self.drawn, self.around, self.stopped = scenario, drawn, around, False
        self.outcome, self.arms, self._manifest = RunOutcome(folder), list[ArmOutcome](), manifest(scenario, around.capture)
        write_faults(folder / "faults.json", drawn)
        write_scenario(folder, scenario)
        write_json(folder / "manifest.json", self._manifest)

    @property
    def complete(self) -> bool:
        """Whether every arm and repeat came to its end."""
        return len(self.arms) == self.scenario.repeats * len(self.scenario.arms)

    def run_arm(self, arm: str, repeat: int) -> None:
        """One arm, one repeat. What stopped it is in `outcome`, and in the manifest whether the run is complete."""
        folder = self.outcome.folder
        try:
            topology = self.scenario.build_topology()
            run = ArmRun(self.scenario, topology, self.drawn.faults, arm, repeat, folder / arm / str(repeat), self.around)
            self.arms.append(run.execute())
        except KeyboardInterrupt:
            self.outcome.interrupted = self.stopped = True
            self.around.reporter.warn("interrupted: what was measured so far is kept, and marked")
        except (TestbedError, OSError) as error:
            self.stopped = True
            self.outcome.exit_code = error.exit_code if isinstance(error, TestbedError) else HostError.exit_code
            self.outcome.problems.append(f"the run stopped, and what was measured before is kept: {error}")
        finally:
            ended = {"ended": now(), "interrupted": self.outcome.interrupted, "complete": self.complete}
            write_json(folder / "manifest.json", self._manifest | ended)

    def finish(self) -> RunOutcome:
        """Summary, plots, report and exit code."""
        if any(self.outcome.folder.glob("*/*/arm.json")):
            _evaluate(self.scenario, self.outcome, self.around.reporter)
        _decide(self.outcome, self.arms)
        return self.outcome


def run_scenario(scenario: Scenario, drawn: Drawn, results: Path, *, reporter: Reporter, capture: CapturePlan = NO_CAPTURE) -> RunOutcome:
    """Runs every arm `repeats` times against the same drawn faults. Must be called inside the sandbox."""
    with results_folder(results, scenario.name, reporter) as folder:
        with control_of(folder, reporter) as control:
            run = OpenRun(scenario, drawn, folder, Surroundings(reporter, capture, control))
            _run_arms(run)
        point_latest(results, folder, reporter)
        return run.finish()


def _run_arms(run: OpenRun) -> None:
    """Repeats are the outer loop, so that slow changes of the machine hit all arms alike."""
    scenario, left_s = run.scenario, total_duration_s(run.scenario)
    for repeat, arm in product(range(1, scenario.repeats + 1), scenario.arms):
        run.around.reporter.note(f"arm {arm}, repeat {repeat} of {scenario.repeats}: about {format_duration(round(left_s))} left in all")
        run.run_arm(arm, repeat)
        left_s -= arm_duration_s(scenario)
        if run.stopped:
            return


def _evaluate(scenario: Scenario, outcome: RunOutcome, reporter: Reporter) -> None:
    reporter.phase("summary, plots and report")
    outcome.summary = write_results(outcome.folder)
    verdicts = judge(scenario.expect, outcome.summary)
    outcome.problems += [verdict.sentence for verdict in verdicts if not verdict.met]
    reporter.note(f"report: {outcome.folder / 'report.html'}")


def _decide(outcome: RunOutcome, arms: list[ArmOutcome]) -> None:
    """The exit code: an interrupt counts most, then a run that cannot be believed, then what it found."""
    for arm in arms:
        name = f"{arm.arm} repeat {arm.repeat}"
        if arm.wrong_sums:
            outcome.problems.append(f"{name}: {arm.wrong_sums} wrong sums: the transport delivered wrong data")
        if arm.tables_unchanged is False:
            outcome.problems.append(f"{name}: the switches' tables changed during the run")
        if arm.fidelity is not None and arm.fidelity.verdict == "invalid":
            outcome.exit_code = outcome.exit_code or FidelityError.exit_code
            outcome.problems.append(f"{name} is not valid: {'; '.join(arm.fidelity.reasons)}")
    if outcome.problems and outcome.exit_code == 0:
        outcome.exit_code = TestbedError.exit_code
    if outcome.interrupted:
        outcome.exit_code = INTERRUPTED


def manifest(scenario: Scenario, capture: CapturePlan) -> dict[str, Any]:
    """What ran, where and when, as far as it is known before."""
    return {
        "scenario": scenario.resolved(),
        "seed": scenario.seed,
        "arms": list(scenario.arms),
        "repeats": scenario.repeats,
        "command": sys.argv,
        "captures": capture.as_dict(),
        "started": now(),
        "machine": describe_machine(),
        "versions": versions(),
        "revision": git_revision(Path(__file__).resolve().parents[2]),
    }


def now() -> str:
    """The wall clock, for people."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def write_scenario(folder: Path, scenario: Scenario) -> None:
    """Writes scenario.yaml: the text as it was given."""
    write_text(folder / "scenario.yaml", scenario.source or yaml.safe_dump(scenario.resolved(), sort_keys=False))


@contextmanager
def results_folder(results: Path, name: str, reporter: Reporter) -> Iterator[Path]:
    """A new folder for a run or a sweep; whatever ends it, all that is in it belongs to the invoker."""
    folder = _new_folder(results, name)
    reporter.note(f"results: {folder}")
    try:
        yield folder
    finally:
        give_to_invoker(results / "latest", folder.parent, folder, *folder.rglob("*"))


def _new_folder(results: Path, name: str) -> Path:
    """`results/<scenario>/<time>/`; two runs that start in the same second get folders of their own."""
    stem = time.strftime("%Y%m%d-%H%M%S")
    for suffix in ("", *(f"-{number}" for number in range(2, 100))):
        folder = results / name / (stem + suffix)
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise TestbedError(f"cannot make a new folder in {results / name}: a hundred runs started in the same second")


def point_latest(results: Path, folder: Path, reporter: Reporter) -> None:
    """Moves `latest` in one step; two runs that end together each make a link of their own first."""
    temporary = results / f".latest-{secrets.token_hex(4)}"
    try:
        temporary.symlink_to(folder.relative_to(results))
        temporary.replace(results / "latest")
    except OSError as error:  # a folder of that name, or a file system without links: the run itself is as good
        temporary.unlink(missing_ok=True)
        reporter.warn(f"{results / 'latest'} does not point at this run: {error.strerror}")
