"""The `sandboxed` fixture: code runs in namespaces of its own, its failures are seen, and nothing survives it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.netns
Sandboxed = Callable[..., str]


def print_interfaces() -> None:
    import socket

    print([name for _, name in socket.if_nameindex()])  # noqa: T201 - its output is what the fixture returns


def test_a_function_sees_loopback_only(sandboxed: Sandboxed) -> None:
    assert "'lo'" in sandboxed(print_interfaces)
    assert "eth0" not in sandboxed(print_interfaces)


def test_the_code_is_the_first_process(sandboxed: Sandboxed) -> None:
    assert sandboxed("import os; print(os.getpid())") == "1\n"


def test_a_failure_is_an_assertion_with_its_output(sandboxed: Sandboxed) -> None:
    with pytest.raises(AssertionError, match="made to fail"):
        sandboxed("raise SystemExit('made to fail')")


def test_a_hang_is_an_assertion_and_leaves_no_process(sandboxed: Sandboxed) -> None:
    mark = f"hang-of-{os.getpid()}"
    with pytest.raises(AssertionError, match=r"not done after 1\.0 s"):
        sandboxed(f"import time; mark = '{mark}'; time.sleep(600)", timeout_s=1.0)
    # The kernel kills them when the outer process is gone, which is a moment later.
    deadline = time.monotonic() + 10
    while runs_with(mark) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not runs_with(mark)


def runs_with(mark: str) -> bool:
    """Whether any process has `mark` in its arguments."""
    return mark in "".join(map(command_line, Path("/proc").glob("[0-9]*/cmdline")))


def command_line(path: Path) -> str:
    """A process's arguments, or nothing when it ended meanwhile."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
