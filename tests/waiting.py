"""Waiting for what must come, in tests."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 30.0


def eventually(condition: Callable[[], object]) -> None:
    """Waits for a condition, for a generous while; AssertionError when it never held."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)
