"""Whole runs as a user makes them: `python -m testbed run` in a process of its own, and the files that it leaves."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from netns.fabric_lab import REPO_ROOT, children, marked, traces

PATIENCE_S = 120.0
# 4: the machine was too busy to be believed, which is the machine's business here.
RAN = (0, 1, 4)

SMALL: Mapping[str, Any] = {
    "name": "small",
    "topology": {"kind": "fat-tree", "k": 2},
    "job": {"vector": "32KiB", "compute": "100ms"},
    "run": {"duration": "4s", "warmup": "500ms", "settle": "500ms"},
    "faults": [{"kind": "silent", "link": "t0_1_1-t1_1_1", "at": "1s", "for": "300ms"}],
    "arms": ["mrc"],
}


def command(tmp_path: Path, scenario: Mapping[str, Any], *arguments: str) -> list[str]:
    """The command line of a run whose scenario file and results lie in `tmp_path`."""
    path = tmp_path / f"{scenario['name']}.yaml"
    path.write_text(yaml.safe_dump(dict(scenario)))
    return [sys.executable, "-m", "testbed", "run", str(path), "--results", str(tmp_path / "results"), *arguments]


def environment(tmp_path: Path) -> dict[str, str]:
    """With a folder of its own for temporary files, to see whether any are left."""
    (tmp_path / "tmp").mkdir(exist_ok=True)
    return {**os.environ, "PYTHONPATH": str(REPO_ROOT), "TMPDIR": str(tmp_path / "tmp")}


def start(
    tmp_path: Path, scenario: Mapping[str, Any], *arguments: str, prefix: Sequence[str] = (), **options: Any
) -> subprocess.Popen[str]:
    """Starts a run; its two streams go to `out` and `err` in `tmp_path`. `prefix`: a command that becomes the run (`unshare --mount`)."""
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        return subprocess.Popen(
            [*prefix, *command(tmp_path, scenario, *arguments)],
            cwd=tmp_path,
            env=environment(tmp_path),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            text=True,
            **options,
        )


def run(tmp_path: Path, scenario: Mapping[str, Any], *arguments: str) -> tuple[int, dict[str, Any], Path]:
    """Exit code, the one JSON object on standard output, and the run's folder."""
    status = start(tmp_path, scenario, "--json", *arguments).wait(PATIENCE_S)
    answer = json.loads((tmp_path / "out").read_text())
    assert "run" in answer, (tmp_path / "err").read_text()
    return status, answer, Path(answer["run"])


def eventually(condition: Callable[[], Any], process: subprocess.Popen[str] | None = None) -> Any:
    """What the condition gave when it held; AssertionError after a long while, or when the process ends before."""
    deadline = time.monotonic() + PATIENCE_S
    while not (held := condition()):
        assert time.monotonic() < deadline, "the condition never held"
        assert process is None or process.poll() is None, f"the run ended with {process.returncode} before" if process else ""
        time.sleep(0.01)
    return held


def found(tmp_path: Path, pattern: str, least_lines: int = 0) -> Path | None:
    """A file of the results that is there, with so many lines."""
    files = (tmp_path / "results").glob(pattern)
    return next((path for path in files if path.read_bytes().count(b"\n") >= least_lines), None)


def assert_nothing_left(outer: int, keepers: list[int], before: Mapping[str, Any], tmp_path: Path) -> None:
    """No process, interface, mount, pin, file in /run or temporary file of the run whose outer process was `outer`."""
    eventually(lambda: not marked(outer))
    eventually(lambda: not any(Path(f"/proc/{keeper}").exists() for keeper in keepers))
    assert traces() == before
    assert list((tmp_path / "tmp").iterdir()) == []


def kill(process: subprocess.Popen[str]) -> list[int]:
    """SIGKILL to the outer process only; returns the children that it had."""
    keepers = children(process.pid)
    process.kill()
    process.wait()
    return keepers


def events(folder: Path) -> list[dict[str, Any]]:
    """The history of one arm and repeat."""
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def named(folder: Path, *names: str) -> list[dict[str, Any]]:
    """Its events of some names."""
    return [event for event in events(folder) if event["event"] in names]


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def columns(path: Path) -> list[str]:
    """The header of a CSV."""
    with path.open(newline="") as file:
        return next(csv.reader(file))


def arm_folders(run_folder: Path) -> Iterator[Path]:
    """Every <arm>/<repeat>/ of a run."""
    return (path.parent for path in sorted(run_folder.glob("*/*/arm.json")))
