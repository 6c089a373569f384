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


def scratch_folder(repo_root: Path, folder: Path) -> Path:
    """Makes `folder` look like the clone, but with a results folder of its own: what a command writes stays there."""
    for entry in repo_root.iterdir():
        if not entry.name.startswith(".") and entry.name not in ("results", "build"):
            (folder / entry.name).symlink_to(entry)
    (folder / "results").mkdir()
    return folder


def run(command: Command, folder: Path, timeout_s: float) -> str:
    """Runs `./testbed.sh ...` in `folder`; returns its standard output. AssertionError when it fails or takes over `timeout_s` seconds."""
    assert command.arguments is not None, f"{command} is not a testbed command: tag its block with a reason to skip it"
    argv = [sys.executable, "-c", START, *shlex.split(command.arguments)]
    done = subprocess.run(argv, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, f"{command}\nended with status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def difference(command: Command, output: str) -> str:
    """Empty when `output` is what the page shows (`...` stands for anything, spaces count as one); else both, one above the other."""
    if not command.output or doctest.OutputChecker().check_output(command.output, output, LOOSE):
        return ""
    return f"{command}\nthe page shows:\n{command.output}\nit printed:\n{output}"
