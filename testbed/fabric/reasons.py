"""Counting reasons: what several faults ask for is there from the first until the last of them has gone."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

K = TypeVar("K")


def count(reasons: Counter[K], key: K, more: bool) -> bool:
    """One reason more, or one less if there is any; whether that was the first to come or the last to go."""
    before = reasons[key]
    reasons[key] = max(0, before + (1 if more else -1))
    return (before == 0) != (reasons[key] == 0)
