"""Collects history events from several threads; handed to the merger at the end of an arm."""

from __future__ import annotations

import threading
from typing import Any

Event = dict[str, Any]


class EventLog:
    """Thread-safe list of history events with raw CLOCK_MONOTONIC `t`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[Event] = []

    def record(self, event: Event) -> None:
        """Takes one event."""
        with self._lock:
            self._events.append(event)

    def events(self) -> list[Event]:
        """A copy of all so far."""
        with self._lock:
            return list(self._events)
