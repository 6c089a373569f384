"""What is to happen when: a list of calls in order of time."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

Act = Callable[[float], None]
"""Takes the time at which it happens."""


class Agenda:
    """Calls in order of time; those of one moment in the order in which they were entered."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Act]] = []
        self._numbers = count()

    def at(self, t: float, act: Act) -> None:
        """Enters a call. There is no taking back: a call that may have become pointless looks for itself."""
        heapq.heappush(self._heap, (t, next(self._numbers), act))

    def due(self) -> float | None:
        """Time of the next call, or None."""
        return self._heap[0][0] if self._heap else None

    def run(self, until: float) -> None:
        """Makes all calls up to that moment, each with its own time; calls may enter others."""
        while self._heap and self._heap[0][0] <= until:
            t, _, act = heapq.heappop(self._heap)
            act(t)
