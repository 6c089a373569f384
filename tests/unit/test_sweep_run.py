"""A sweep's run with arms that only copy files: what runs when, what is left in the folder, and how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sweep_lab import GOOD, SCENARIO, Event, FakeArms, install_fake_arms, read

import testbed.run.session
from testbed.errors import HostError
from testbed.reporting import SilentReporter
from testbed.run import RunOutcome, run_sweep
from testbed.run.arm import ArmOutcome
from testbed.run.fidelity import Observations, judge
from testbed.run.sweep import WORST_FIRST, worst
from testbed.scenario import draw, load_text


@pytest.fixture
def arms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeArms:
    return install_fake_arms(monkeypatch, tmp_path / "synthetic", repeats=2)


def sweep(tmp_path: Path, *overrides: str) -> RunOutcome:
    scenario = load_text(SCENARIO, overrides)
    return run_sweep(scenario, [draw(single) for single in scenario.single_runs()], tmp_path / "results", reporter=SilentReporter())


def states(outcome: RunOutcome) -> list[str]:
    return [point["state"] for point in read(outcome.folder / "manifest.json")["points"]]


def raising(error: BaseException, at: Event) -> Any:
    def on_run(event: Event) -> None:
        if event == at:
            raise error

    return on_run


def test_all_points_of_a_repeat_come_before_the_next_repeat(tmp_path: Path, arms: FakeArms) -> None:
    sweep(tmp_path, "repeats=2", "arms=[mrc]", "sweep.only=[10Mbps, 5Mbps]")
    assert arms.ran == [(10.0, "mrc", 1), (5.0, "mrc", 1), (10.0, "mrc", 2), (5.0, "mrc", 2)]


def test_each_point_is_a_complete_run_of_its_own(tmp_path: Path, arms: FakeArms) -> None:
    folder = sweep(tmp_path, "arms=[mrc]", "sweep.only=[5Mbps]").folder / "2-5Mbps"
    assert {path.name for path in folder.iterdir()} >= {"manifest.json", "scenario.yaml", "faults.json", "summary.json", "report.html"}
    manifest = read(folder / "manifest.json")
    assert (manifest["complete"], manifest["scenario"]["links"]["rate_bps"]) == (True, 5e6)


def test_the_top_folder_says_what_all_points_say(tmp_path: Path, arms: FakeArms) -> None:
    outcome = sweep(tmp_path)
    assert {path.name for path in outcome.folder.iterdir() if path.is_file()} == {
        "manifest.json",
        "scenario.yaml",
        "sweep.json",
        "report.html",
    }
    assert {path.name for path in (outcome.folder / "plots").iterdir()} == {"sweep.png", "sweep.svg"}
    assert (tmp_path / "results" / "latest").resolve() == outcome.folder.resolve()
    assert states(outcome) == ["complete"] * 3
    assert read(outcome.folder / "sweep.json")["points"][0]["arms"].keys() == {"mrc", "rc-bgp"}


def test_a_missed_expectation_names_its_point_and_makes_the_exit_code_1(tmp_path: Path, arms: FakeArms) -> None:
    outcome = sweep(tmp_path)
    assert outcome.exit_code == 1
    (problem,) = outcome.problems
    assert problem.startswith("5Mbps: mrc: crashes >= 1: NOT met")


def test_a_sweep_that_meets_everything_is_good(tmp_path: Path, arms: FakeArms) -> None:
    outcome = sweep(tmp_path, "arms=[mrc]", "sweep.only=[10Mbps]")
    assert (outcome.exit_code, outcome.problems) == (0, [])


def test_an_interrupt_keeps_finished_points_and_marks_the_rest(tmp_path: Path, arms: FakeArms) -> None:
    arms.on_run = raising(KeyboardInterrupt(), (5.0, "mrc", 1))
    outcome = sweep(tmp_path)
    assert (outcome.exit_code, outcome.interrupted) == (130, True)
    assert states(outcome) == ["complete", "interrupted", "not run"]
    assert (outcome.folder / "1-10Mbps" / "report.html").is_file()
    assert (outcome.folder / "2-5Mbps" / "report.html").is_file()
    assert not (outcome.folder / "3-2Mbps").exists()
    assert read(outcome.folder / "manifest.json")["complete"] is False
    assert "Not a whole sweep: 1 of 3" in (outcome.folder / "report.html").read_text()


def test_an_interrupt_in_the_second_repeat_leaves_the_first_of_all_points(tmp_path: Path, arms: FakeArms) -> None:
    arms.on_run = raising(KeyboardInterrupt(), (10.0, "mrc", 2))
    outcome = sweep(tmp_path, "repeats=2", "arms=[mrc]")
    assert states(outcome) == ["interrupted", "incomplete", "incomplete"]
    assert all((outcome.folder / name / "report.html").is_file() for name in ("1-10Mbps", "2-5Mbps", "3-2Mbps"))


def test_a_point_that_fails_leaves_the_others_alone(tmp_path: Path, arms: FakeArms) -> None:
    arms.on_run = raising(HostError("no such qdisc"), (10.0, "mrc", 1))
    outcome = sweep(tmp_path, "repeats=2", "arms=[mrc]")
    assert outcome.exit_code == 3
    assert states(outcome) == ["failed", "complete", "complete"]
    assert (10.0, "mrc", 2) not in arms.ran
    assert any(problem.startswith("10Mbps: ") and "no such qdisc" in problem for problem in outcome.problems)


def test_the_worst_point_decides_whether_the_sweep_is_believed(tmp_path: Path, arms: FakeArms, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = judge(Observations([1.0], [0.0], [0.001], [1.0], 0, 0, 0))
    real = testbed.run.session.ArmRun

    def arm_run(*arguments: Any, **more: Any) -> Any:
        arm = real(*arguments, **more)
        execute = arm.execute

        def with_verdict() -> ArmOutcome:
            outcome: ArmOutcome = execute()
            outcome.fidelity = busy if arm.event[0] == 2.0 else GOOD
            return outcome

        arm.execute = with_verdict
        return arm

    monkeypatch.setattr(testbed.run.session, "ArmRun", arm_run)
    outcome = sweep(tmp_path, "arms=[mrc]")
    assert outcome.exit_code == 4
    assert any(problem.startswith("2Mbps: mrc repeat 1 is not valid") for problem in outcome.problems)


@pytest.mark.parametrize(("codes", "code"), [((), 0), ((0, 1), 1), ((1, 4), 4), ((4, 3, 0), 3), ((3, 130), 130), ((130, 99), 99)])
def test_the_exit_code_is_the_worst_of_the_points(codes: tuple[int, ...], code: int) -> None:
    assert worst(codes) == code
    assert WORST_FIRST[-1] == 0
