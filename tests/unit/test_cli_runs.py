"""Which run a RUN argument means, and what commands answer after the engine has done its part."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed import requirements, sandbox
from testbed.cli import main
from testbed.cli.targets import find_run
from testbed.errors import UsageError


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for name in ("quick/20250101-100000", "quick/20250102-100000", "one-cut/20250103-100000"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "manifest.json").write_text("{}")
    (tmp_path / "quick" / "20250109-100000").mkdir()
    (tmp_path / "latest").symlink_to("one-cut/20250103-100000")
    return tmp_path


def test_a_scenarios_name_means_its_latest_run(results: Path) -> None:
    assert find_run("quick", results).name == "20250102-100000"


def test_latest_means_the_last_run_of_all(results: Path) -> None:
    assert find_run("latest", results) == results / "one-cut" / "20250103-100000"


def test_a_folder_means_itself(results: Path) -> None:
    assert find_run(str(results / "quick" / "20250101-100000"), results).name == "20250101-100000"


def test_a_path_below_results_will_do(results: Path) -> None:
    assert find_run("quick/20250101-100000", results).name == "20250101-100000"


def test_an_unknown_run_has_a_hint(results: Path) -> None:
    with pytest.raises(UsageError, match="did you mean `quick`"):
        find_run("quik", results)


def test_a_folder_that_is_no_run_is_refused(results: Path) -> None:
    with pytest.raises(UsageError, match=r"is a folder, but holds no run: there is no manifest\.json in it"):
        find_run(str(results), results)


@pytest.fixture
def fake_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """An engine that says things on standard output and ends as it is told."""

    def install(exit_code: int, problems: list[str]) -> None:
        def run_scenario(scenario, drawn, results, *, reporter, capture):
            os.write(1, b"noise of a child process\n")
            sys.stdout.write("noise of a library\n")
            reporter.note("a note")
            return SimpleNamespace(folder=tmp_path / "run", exit_code=exit_code, problems=problems, summary={"x": float("nan")})

        import testbed.run

        monkeypatch.setattr(testbed.run, "run_scenario", run_scenario)
        monkeypatch.setattr(sandbox, "inside", lambda: True)
        monkeypatch.setattr(sandbox, "prepare", lambda keep: None)

    return install


def test_a_runs_json_is_alone_on_standard_output(fake_run, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    fake_run(0, [])
    assert main(["run", "quick", "--json", "--results", str(tmp_path)]) == 0
    captured = capfd.readouterr()
    assert json.loads(captured.out) == {"run": str(tmp_path / "run"), "exit_code": 0, "problems": [], "summary": {"x": None}}
    assert "noise of a child process" in captured.err
    assert "noise of a library" in captured.err


def test_a_missed_expectation_is_exit_code_1(fake_run, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    fake_run(1, ["mrc: crashes == 0: NOT met"])
    assert main(["run", "quick", "--results", str(tmp_path)]) == 1
    assert "NOT met" in capfd.readouterr().out


@pytest.fixture
def fake_sandbox(monkeypatch: pytest.MonkeyPatch):
    """A machine that has all that is needed, and a sandbox that ends with a status; returns what it was started with."""

    def install(status: int) -> list[list[str]]:
        started: list[list[str]] = []

        def enter(argv: list[str]) -> int:
            started.append(list(argv))
            return status

        monkeypatch.setattr(sandbox, "inside", lambda: False)
        monkeypatch.setattr(sandbox, "require_root", lambda: None)
        monkeypatch.setattr(requirements, "require", lambda arms: None)
        monkeypatch.setattr(sandbox, "enter", enter)
        return started

    return install


@pytest.mark.parametrize("status", [0, 1, 4, 130])
def test_the_sandboxs_exit_code_is_handed_on_without_a_second_answer(fake_sandbox, capsys: pytest.CaptureFixture[str], status: int) -> None:
    fake_sandbox(status)
    assert main(["run", "quick", "--json"]) == status
    assert capsys.readouterr().out == ""


def test_the_sandbox_gets_the_same_arguments(fake_sandbox) -> None:
    started = fake_sandbox(0)
    main(["run", "quick", "--seed", "3", "--set", "job.vector=1MiB"])
    assert started == [["run", "quick", "--seed", "3", "--set", "job.vector=1MiB"]]


def test_a_killed_sandbox_is_told(fake_sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    fake_sandbox(137)
    assert main(["run", "quick", "--json"]) == 3
    assert "SIGKILL" in json.loads(capsys.readouterr().out)["error"]


def test_a_bad_scenario_never_reaches_the_sandbox(fake_sandbox) -> None:
    started = fake_sandbox(0)
    assert main(["run", "quick", "--set", "run.duration=1"]) == 2
    assert not started


@pytest.mark.parametrize(("missing", "exit_code"), [(False, 0), (True, 3)])
def test_doctor_is_exit_code_3_when_something_is_missing(monkeypatch: pytest.MonkeyPatch, missing: bool, exit_code: int) -> None:
    found = [requirements.Check("tc", not missing, "x", "apt install iproute2", True), requirements.Check("frr", False, "x", "y", False)]
    monkeypatch.setattr(requirements, "checks", lambda: found)
    assert main(["doctor"]) == exit_code


def test_doctor_says_what_to_do(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(requirements, "checks", lambda: [requirements.Check("tc", False, "not installed", "apt install iproute2", True)])
    main(["doctor"])
    assert "apt install iproute2" in capsys.readouterr().out
