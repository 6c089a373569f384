"""What all tests share: markers that need root, the repository's place, and Python code run in namespaces of its own."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

REPO_ROOT = Path(__file__).resolve().parent.parent
# Helper modules of the tests (tests/docs_blocks.py) are imported by name from any folder below.
sys.path.insert(0, str(REPO_ROOT / "tests"))

# The same for code that runs in namespaces. By bare name: a package that Ryu brings calls itself `tests`.
HELPER_FOLDERS = (REPO_ROOT, REPO_ROOT / "tests", REPO_ROOT / "tests" / "netns")

ROOT_MARKERS = ("netns", "fabric")
NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def in_ci() -> bool:
    """True where a skipped test would go unnoticed: CI=true in the environment."""
    return os.environ.get("CI") == "true"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without root, tests marked netns or fabric are skipped with a reason; in CI that is an error, because nothing may be missed there."""
    need_root = [item for item in items if any(item.get_closest_marker(name) for name in ROOT_MARKERS)]
    if os.geteuid() == 0 or not need_root:
        return
    if in_ci():
        raise pytest.UsageError(f"CI must run as root: {len(need_root)} selected tests need it, the first is {need_root[0].nodeid}")
    for item in need_root:
        item.add_marker(pytest.mark.skip(reason="needs root: sudo ./testbed.sh test"))


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The top folder of the clone."""
    return REPO_ROOT


def source_of(code: str | Callable[[], None]) -> str:
    """Python source as it is, or that of a function without arguments (which imports what it needs itself) and a call of it."""
    if isinstance(code, str):
        return textwrap.dedent(code)
    return f"{textwrap.dedent(inspect.getsource(code))}\n{code.__name__}()\n"


def run_in_namespaces(code: str | Callable[[], None], timeout_s: float = 120.0) -> str:
    """Runs `code` as the first process of new net, mount and pid namespaces; whatever it starts dies with it.

    Returns its standard output. Raises AssertionError with both outputs when it fails or is not done after `timeout_s` seconds.
    """
    argv = [*NAMESPACES, sys.executable, "-c", source_of(code)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, HELPER_FOLDERS))}
    try:
        done = subprocess.run(
            argv, cwd=REPO_ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"not done after {timeout_s} s in the namespaces; so far: {late.stdout!r} {late.stderr!r}") from None
    assert done.returncode == 0, f"status {done.returncode} in the namespaces\nstdout: {done.stdout}\nstderr: {done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def sandboxed() -> Callable[..., str]:
    """`run_in_namespaces`, for tests marked netns or fabric."""
    return run_in_namespaces
