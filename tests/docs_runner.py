"""Runs a documented command as its reader would, but with this interpreter's `testbed` and in a scratch folder."""

from __future__ import annotations

import doctest
import shlex
import subprocess
import sys
from pathlib import Path

from docs_blocks import Command

START = "import sys; from testbed.cli import main; sys.argv[0] = 'testbed'; sys.exit(main())"
LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


# A run that came to its end with a verdict, as docs/architecture.md lists the codes. On a busy machine it is often not a good one.
VERDICTS = {0: "good", 1: "an expectation was not met", 4: "not valid"}
# What no busy machine excuses.
NEVER = ("wrong_sums", "tables_unchanged")


def scratch_folder(repo_root: Path, folder: Path) -> Path:
    """Makes `folder` look like the clone, but with a results folder of its own: what a command writes stays there."""
    for entry in repo_root.iterdir():
        if not entry.name.startswith(".") and entry.name not in ("results", "build"):
            (folder / entry.name).symlink_to(entry)
    (folder / "results").mkdir()
    return folder


def run(command: Command, folder: Path, timeout_s: float) -> str:
    """Runs `./testbed.sh ...` in `folder`; returns its standard output.

    AssertionError when it fails. A scenario that ran to its end may have any verdict about speed, because CI's machines are busy.
    subprocess.TimeoutExpired after `timeout_s` seconds.
    """
    assert command.arguments is not None, f"{command} is not a testbed command: tag its block with a reason to skip it"
    argv = [sys.executable, "-c", START, *shlex.split(command.arguments)]
    done = subprocess.run(argv, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False)
    good = done.returncode == 0 or ran_to_its_end(command.arguments, done)
    assert good, f"{command}\nended with status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def ran_to_its_end(arguments: str, done: subprocess.CompletedProcess[str]) -> bool:
    """Whether this was `run` with a verdict, a named folder of results, and nothing wrong but its speed."""
    has_verdict = done.returncode in VERDICTS and done.stdout.startswith("results: ")
    return arguments.startswith("run ") and has_verdict and not any(word in done.stdout for word in NEVER)


def difference(command: Command, output: str) -> str:
    """Empty when `output` is what the page shows (`...` stands for anything, spaces count as one); else both, one above the other."""
    if not command.output or doctest.OutputChecker().check_output(command.output, output, LOOSE):
        return ""
    return f"{command}\nthe page shows:\n{command.output}\nit printed:\n{output}"
