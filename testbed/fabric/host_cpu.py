"""Slow hosts: the programs of a host are stopped and continued by turns, so that they run for a share of each period only."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.errors import HostError, UsageError

Times = tuple[float, float]
END_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Pace:
    """Programs run for `share` of each `period_s`."""

    share: float
    period_s: float

    def __post_init__(self) -> None:
        if not 0 < self.share < 1 or not self.period_s > 0:
            raise UsageError(
                f"a host that runs {self.share:g} of each {self.period_s:g} s: give a share between 0 and 1, and a period above 0"
            )


class HostCpu:
    """Knows the programs that were started on each host, and slows them down. Thread-safe; no process that it did not start is touched.

    Each host has any number of reasons to be slow, the smallest share counts. Nothing stays stopped after the last has gone or `close`.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._processes: dict[str, list[subprocess.Popen[Any]]] = {}
        self._reasons: dict[str, dict[str, Pace]] = {}
        self._turns: dict[str, _Turns] = {}

    def add(self, host: str, process: subprocess.Popen[Any]) -> None:
        """A program was started on that host."""
        with self._lock:
            living = [known for known in self._processes.get(host, []) if known.returncode is None]
            self._processes[host] = [*living, process]

    def slow(self, host: str, reason: str, pace: Pace) -> Times:
        """One more reason to be slow; effective when the programs have been stopped for the first time."""
        with self._lock:
            issued = time.monotonic()
            self._reasons.setdefault(host, {})[reason] = pace
            self._restart(host)
            return issued, time.monotonic()

    def restore(self, host: str, reason: str) -> Times:
        """One reason less; effective when the programs go on, for good if it was the last."""
        with self._lock:
            issued = time.monotonic()
            if self._reasons.get(host, {}).pop(reason, None) is not None:
                self._restart(host)
            return issued, time.monotonic()

    def close(self) -> None:
        """All hosts go on at full speed."""
        with self._lock:
            for reasons in self._reasons.values():
                reasons.clear()
            for host in list(self._turns):
                self._restart(host)

    def _restart(self, host: str) -> None:
        if host in self._turns:
            self._turns.pop(host).end()
        if pace := _slowest(self._reasons[host]):
            self._turns[host] = _Turns(host, pace, self._processes)


def _slowest(reasons: Mapping[str, Pace]) -> Pace | None:
    return min(reasons.values(), key=lambda pace: pace.share, default=None)


class _Turns:
    """The thread that stops and continues the programs of one host. Made, it has stopped them once."""

    def __init__(self, host: str, pace: Pace, processes: Mapping[str, list[subprocess.Popen[Any]]]) -> None:
        self._host, self._pace, self._processes = host, pace, processes
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"slow-{host}", daemon=True)
        self._began = time.monotonic()
        self._signal(signal.SIGSTOP)
        self._thread.start()

    def end(self) -> None:
        """Returns when the programs go on. HostError if the thread does not end."""
        self._ended.set()
        self._thread.join(END_TIMEOUT_S)
        self._signal(signal.SIGCONT)
        if self._thread.is_alive():
            raise HostError(f"host {self._host}: it could not be brought back to full speed within {END_TIMEOUT_S:g} s; discard this run")

    def _run(self) -> None:
        """Stopped first, then running, in each period; a turn that comes late is cut short, not put off."""
        stopped_s, period_s = (1 - self._pace.share) * self._pace.period_s, self._pace.period_s
        begin = self._began
        try:
            while not self._wait(begin + stopped_s):
                self._signal(signal.SIGCONT)
                begin += period_s * max(1, (time.monotonic() - begin) // period_s)
                if self._wait(begin):
                    return
                self._signal(signal.SIGSTOP)
        finally:
            self._signal(signal.SIGCONT)

    def _wait(self, until: float) -> bool:
        return self._ended.wait(max(0.0, until - time.monotonic()))

    def _signal(self, number: signal.Signals) -> None:
        """send_signal knows of a process that has ended, so that its number is never another one's."""
        for process in list(self._processes.get(self._host, ())):
            process.send_signal(number)
