"""A whole run: its folder and manifest, every arm and repeat in turn, then the summary, the pictures and the verdict."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from testbed.errors import FidelityError, HostError, TestbedError
from testbed.files import give_to_invoker, write_json, write_text
from testbed.report import judge, write_plots, write_report, write_summary
from testbed.reporting import Reporter
from testbed.run.arm import ArmOutcome, ArmRun
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


def run_scenario(scenario: Scenario, drawn: Drawn, results: Path, *, reporter: Reporter) -> RunOutcome:
    """Runs every arm `repeats` times against the same drawn faults. Must be called inside the sandbox."""
    folder = _new_folder(results, scenario.name)
    reporter.note(f"results: {folder}")
    try:
        write_faults(folder / "faults.json", drawn)
        write_text(folder / "scenario.yaml", scenario.source or yaml.safe_dump(scenario.resolved(), sort_keys=False))
        outcome = RunOutcome(folder)
        arms = _run_arms(scenario, drawn, outcome, reporter)
        _point_latest(results, folder, reporter)
        if any(folder.glob("*/*/arm.json")):
            _evaluate(scenario, outcome, reporter)
        _decide(outcome, arms)
        return outcome
    finally:
        give_to_invoker(results / "latest", folder.parent, folder, *folder.rglob("*"))


def _run_arms(scenario: Scenario, drawn: Drawn, outcome: RunOutcome, reporter: Reporter) -> list[ArmOutcome]:
    """The arms that came to their end. What stopped the run is in `outcome`, and in the manifest whether it is complete."""
    manifest, arms = _manifest(scenario), list[ArmOutcome]()
    write_json(outcome.folder / "manifest.json", manifest)
    try:
        for arm_run in _arm_runs(scenario, drawn, outcome.folder, reporter):
            arms.append(arm_run.execute())
    except KeyboardInterrupt:
        outcome.interrupted = True
        reporter.warn("interrupted: what was measured so far is kept, and marked")
    except (TestbedError, OSError) as error:
        outcome.exit_code = error.exit_code if isinstance(error, TestbedError) else HostError.exit_code
        outcome.problems.append(f"the run stopped, and what was measured before is kept: {error}")
    finally:
        ended = {"ended": _now(), "interrupted": outcome.interrupted, "complete": len(arms) == _total(scenario)}
        write_json(outcome.folder / "manifest.json", manifest | ended)
    return arms


def _arm_runs(scenario: Scenario, drawn: Drawn, folder: Path, reporter: Reporter) -> Iterator[ArmRun]:
    """Repeats are the outer loop, so that slow changes of the machine hit all arms alike."""
    left_s = total_duration_s(scenario)
    for repeat in range(1, scenario.repeats + 1):
        for arm in scenario.arms:
            reporter.note(f"arm {arm}, repeat {repeat} of {scenario.repeats}: about {format_duration(round(left_s))} left in all")
            left_s -= arm_duration_s(scenario)
            yield ArmRun(scenario, scenario.build_topology(), drawn.faults, arm, repeat, folder / arm / str(repeat), reporter)


def _total(scenario: Scenario) -> int:
    return scenario.repeats * len(scenario.arms)


def _evaluate(scenario: Scenario, outcome: RunOutcome, reporter: Reporter) -> None:
    reporter.phase("summary, plots and report")
    outcome.summary = write_summary(outcome.folder)
    verdicts = judge(scenario.expect, outcome.summary)
    outcome.problems += [verdict.sentence for verdict in verdicts if not verdict.met]
    write_plots(outcome.folder)
    reporter.note(f"report: {write_report(outcome.folder)}")


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
        outcome.exit_code = 130


def _manifest(scenario: Scenario) -> dict[str, Any]:
    return {
        "scenario": scenario.resolved(),
        "seed": scenario.seed,
        "arms": list(scenario.arms),
        "repeats": scenario.repeats,
        "command": sys.argv,
        "started": _now(),
        "machine": describe_machine(),
        "versions": versions(),
        "revision": git_revision(Path(__file__).resolve().parents[2]),
    }


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


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


def _point_latest(results: Path, folder: Path, reporter: Reporter) -> None:
    """Moves `latest` in one step; two runs that end together each make a link of their own first."""
    temporary = results / f".latest-{secrets.token_hex(4)}"
    try:
        temporary.symlink_to(folder.relative_to(results))
        temporary.replace(results / "latest")
    except OSError as error:  # a folder of that name, or a file system without links: the run itself is as good
        temporary.unlink(missing_ok=True)
        reporter.warn(f"{results / 'latest'} does not point at this run: {error.strerror}")
