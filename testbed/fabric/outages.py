"""Switches taken out for several reasons at once: the first reason stops a switch, the last one to go boots it. Overlaps heal exactly."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable

from testbed.errors import HostError
from testbed.fabric.admin import Times


class Outages:
    """Counts each switch's reasons to be off. Thread-safe; a switch does one thing at a time, different switches act side by side."""

    def __init__(self, switches: Iterable[str]) -> None:
        self._reasons: Counter[str] = Counter()
        self._locks = {switch: threading.Lock() for switch in switches}

    def begin(self, switch: str, stop: Callable[[], Times]) -> Times:
        """One more reason to be off. A switch that is off already stays as it is, and the times are those of this call."""
        with self._locks[switch]:
            issued = time.monotonic()
            effective = issued if self._reasons[switch] else stop()[1]
            self._reasons[switch] += 1
            return issued, effective

    def end(self, switch: str, boot: Callable[[], object]) -> Times:
        """One reason less; it boots with the last one. HostError for a switch that runs."""
        with self._locks[switch]:
            if not self._reasons[switch]:
                raise HostError(f"switch {switch} runs already: it can be booted only after it was stopped")
            issued = time.monotonic()
            if self._reasons[switch] == 1:
                boot()
            self._reasons[switch] -= 1
            return issued, time.monotonic()
