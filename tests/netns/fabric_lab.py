"""Running a Python function inside a real sandbox of the testbed, and getting its answer as JSON."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPO_ROOT = Path(__file__).resolve().parent.parent.parent
ENTER = "import sys; from testbed import sandbox; sys.exit(sandbox.run_inside(sys.argv[1:]))"
PREPARE = "from testbed import sandbox; sandbox.prepare()\n"


def argv_of(code: str) -> list[str]:
    """A command that runs `code` as the first process of a sandbox, which it must prepare itself."""
    return [sys.executable, "-c", ENTER, sys.executable, "-c", code]


def start(code: str, **options: Any) -> subprocess.Popen[str]:
    """Starts `code` in a sandbox; the process returned is the outer one. Its mark is TESTBED_RUN=<pid of it>-..."""
    return subprocess.Popen(argv_of(code), cwd=REPO_ROOT, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, **options)


def ask(function: Callable[..., Any], *arguments: str, timeout_s: float = 120.0) -> Any:
    """What `function` returns (JSON-able) when called in a sandbox. It imports what it needs itself, helpers of this folder by bare name.

    AssertionError with its output.
    """
    answer = f"import json; print('\\nANSWER ' + json.dumps({function.__name__}(*{arguments!r})))"
    code = f"from __future__ import annotations\n{PREPARE}{textwrap.dedent(inspect.getsource(function))}\n{answer}"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        argv_of(code), cwd=REPO_ROOT, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.rpartition("ANSWER ")[2])


def marked(outer: int) -> list[int]:
    """Living processes that carry the mark of the sandbox that process `outer` made."""
    mark = f"TESTBED_RUN={outer}-".encode()
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and mark in _environment(entry)]


def children(parent: int) -> list[int]:
    """Living children of a process."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True, check=False).stdout
    return [int(pid) for pid in found.split()]


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:  # gone, or none of ours
        return b""


def traces() -> dict[str, Any]:
    """What a sandbox might leave on this machine: interfaces, mounts, files below /run, BPF pins, network namespaces in use."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    return {
        "interfaces": sorted(line.split(":")[1] for line in links.splitlines()),
        "mounts": Path("/proc/self/mounts").read_text(),
        "run": sorted(
            str(path) for path in Path("/run").rglob("*") if "testbed" in str(path) or "frr" in str(path) or "openvswitch" in str(path)
        ),
        "pins": sorted(os.listdir("/sys/fs/bpf")),
    }
