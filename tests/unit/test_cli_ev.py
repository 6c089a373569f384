"""`testbed ev`: which run it finds, what it says, and its exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import main
from testbed.control import NAME, Request
from testbed.run.control import Control, Desk

ROWS = [{"host": "h1", "peer": "h3", "ev": 0, "state": "DENIED", "tx_packets": 7, "lost_packets": 1, "path": ["h1-t0_1_1", "h3-t0_1_2"]}]


class Denials:
    """Answers every request with `told`, and remembers it."""

    def __init__(self, told: Any) -> None:
        self.told, self.asked = told, list[Request]()

    def ask(self, request: Request) -> Future[Any]:
        self.asked.append(request)
        reply: Future[Any] = Future()
        reply.set_result(ROWS if request.do == "list" else self.told)
        return reply


@contextlib.contextmanager
def running(folder: Path, told: Any = None) -> Iterator[Denials]:
    """A run in `folder` whose job runs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text("{}")
    denials, control = Denials({"h1": {"h3": [0, 1]}} if told is None else told), Control(folder)
    with contextlib.closing(control), control.serving(Desk("mrc", 1, denials)):  # type: ignore[arg-type]
        yield denials


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results"


def test_the_only_run_that_is_going_on_is_asked(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(results / "quick" / "1") as denials:
        assert main(["ev", "deny", "--link", "h1-t0_1_1"]) == 0
        assert main(["ev", "allow", "--host", "h1", "--peer", "h3", "--ev", "1", "--ev", "2"]) == 0
    assert denials.asked == [Request("deny", ("h1-t0_1_1",)), Request("allow", (), "h1", "h3", (1, 2))]
    assert capsys.readouterr().out == "denied from h1 to h3: EV 0, 1\nallowed from h1 to h3: EV 0, 1\n"


def test_a_list_names_every_ev_with_state_and_path(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(results / "quick" / "1") as denials:
        assert main(["ev", "list", "--host", "h1"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert main(["ev", "list", "--json"]) == 0
    assert "arm mrc, repeat 1, 1 EV" in lines[0]
    assert lines[2].split() == ["h1", "h3", "0", "DENIED", "7", "1", "h1-t0_1_1,", "h3-t0_1_2"]
    assert json.loads(capsys.readouterr().out)["evs"] == ROWS
    assert [request.host for request in denials.asked] == ["h1", None]


def test_a_command_that_concerns_no_ev_says_so(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(results / "quick" / "1", told={}):
        assert main(["ev", "deny", "--link", "h1-t0_1_1"]) == 0
    assert capsys.readouterr().out == "nothing is denied: no EV of this job is concerned\n"


@pytest.mark.parametrize(
    "arguments",
    [["deny"], ["deny", "--host", "h1"], ["allow", "--ev", "1"], ["deny", "--ev", "-1"], ["deny", "--ev", "x"], ["list", "--ev", "1"]],
)
def test_wrong_usage_is_told_before_any_run_is_looked_for(results: Path, arguments: list[str]) -> None:
    assert main(["ev", *arguments]) == 2


WITHOUT = [["list"], ["list", "--run", "quick"], ["list", "--run", "latest"], ["list", "--results", "elsewhere"]]


@pytest.mark.parametrize("arguments", WITHOUT)
def test_without_a_run_the_exit_code_is_3(results: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ev", *arguments]) == 3
    assert "run" in capsys.readouterr().err


def test_several_runs_are_named_and_one_can_be_chosen(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(results / "quick" / "1") as first, running(results / "slow" / "2") as second:
        assert main(["ev", "list"]) == 3
        told = capsys.readouterr().err
        assert main(["ev", "list", "--run", "slow"]) == 0
        assert main(["ev", "list", "--run", str(results / "quick" / "1")]) == 0
    assert "quick/1" in told
    assert "slow/2" in told
    assert (len(first.asked), len(second.asked)) == (1, 1)


def test_a_killed_run_is_not_taken_for_one_that_is_going_on(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (results / "old" / "1").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as dead:
        monkeypatch.chdir(results / "old" / "1")
        dead.bind(NAME)
        monkeypatch.chdir(results.parent)
    with running(results / "quick" / "1") as denials:
        assert main(["ev", "list"]) == 0
    assert len(denials.asked) == 1


def test_a_sweep_is_found_by_the_folder_of_its_point(results: Path) -> None:
    with running(results / "swept" / "1") as denials:
        point = results / "swept" / "1" / "1-default"
        point.mkdir()
        (point / "manifest.json").write_text("{}")
        assert main(["ev", "list", "--run", str(point)]) == 0
    assert len(denials.asked) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_who_is_not_root_is_told_so(tmp_path: Path) -> None:
    """In a process of its own, which cannot come back to root."""
    folder = tmp_path / "results" / "quick" / "1"
    script = (
        f"import os, sys; from pathlib import Path; from testbed.control import ask, is_live; folder = Path({str(folder)!r})\n"
        "descriptor = os.open(folder, os.O_PATH); os.fchdir(descriptor); os.setuid(65534); here = Path('.')\n"
        "assert is_live(here)\n"
        "try:\n    ask(here, {'do': 'list'})\nexcept Exception as error:\n    sys.exit(f'{error.exit_code} {error}')\n"
    )
    with running(folder) as denials:
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr.startswith("3 only root may talk to the run")
    assert denials.asked == []
