"""Progress on standard error: one live line on a terminal, plain lines every few seconds elsewhere. Both tell the time left."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

from testbed.reporting import Reporter
from testbed.units import format_duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

PLAIN_EVERY_S = 5.0
REFRESH_S = 0.5


class ClosableReporter(Reporter, Protocol):
    """A reporter that has something to stop."""

    def close(self) -> None:
        """Stops telling."""


def progress_line(text: str, began_s: float, eta_s: float | None, now_s: float) -> str:
    """What is going on, and the time left; without an estimate, the time so far."""
    spent_s = now_s - began_s
    if eta_s is None:
        return f"{text} ({format_duration(round(spent_s))} so far)" if spent_s >= 1 else text
    left_s = eta_s - spent_s
    if left_s > 0:
        return f"{text} (about {format_duration(max(1, round(left_s)))} left)"
    return f"{text} ({format_duration(round(-left_s))} over the estimate)" if left_s <= -1 else f"{text} (about done)"


class _Ticker:
    """Calls `tick` every `period_s` seconds from a thread, until closed."""

    def __init__(self, tick: Callable[[], None], period_s: float) -> None:
        self._tick, self._period_s, self._stop = tick, period_s, threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due_s = time.monotonic() + self._period_s
        while not self._stop.wait(max(0.0, due_s - time.monotonic())):
            self._tick()
            due_s += self._period_s

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


class PlainReporter:
    """For logs and pipes: a line when a phase begins, and one every few seconds while it lasts."""

    def __init__(self, stream: TextIO | None = None, every_s: float = PLAIN_EVERY_S) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._lock = threading.Lock()
        self._phase: tuple[str, float, float | None] = ("", 0.0, None)
        self._ticker = _Ticker(self._tell, every_s)

    def phase(self, text: str, eta_s: float | None = None) -> None:
        """Begins a phase."""
        with self._lock:
            self._phase = (text, time.monotonic(), eta_s)
        self._tell()

    def note(self, text: str) -> None:
        """A line that stays."""
        self._write(text)

    def warn(self, text: str) -> None:
        """A line that begins with "warning"."""
        self._write(f"warning: {text}")

    def close(self) -> None:
        """Stops telling."""
        self._ticker.close()

    def _tell(self) -> None:
        with self._lock:
            text, began_s, eta_s = self._phase
        if text:
            self._write(progress_line(text, began_s, eta_s, time.monotonic()))

    def _write(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads standard error any more: a run goes on without telling
            self._stream = io.StringIO()


class TerminalReporter:
    """For a terminal: a line that is redrawn, notes above it."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console: Console = Console(stderr=True, highlight=False)
        self._status: Status = self._console.status("", spinner="line")
        self._phase: tuple[str, float, float | None] = ("", 0.0, None)
        self._status.start()
        self._ticker = _Ticker(self._redraw, REFRESH_S)

    def phase(self, text: str, eta_s: float | None = None) -> None:
        """Begins a phase."""
        self._phase = (text, time.monotonic(), eta_s)
        self._redraw()

    def note(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """A line that stays, in yellow."""
        self._console.print(f"warning: {text}", style="yellow", markup=False, soft_wrap=True)

    def close(self) -> None:
        """Takes the live line away."""
        self._ticker.close()
        self._status.stop()

    def _redraw(self) -> None:
        from rich.markup import escape

        text, began_s, eta_s = self._phase
        self._status.update(escape(progress_line(text, began_s, eta_s, time.monotonic())))


@contextmanager
def reporting() -> Iterator[ClosableReporter]:
    """The reporter that fits standard error, closed at the end."""
    reporter: ClosableReporter = TerminalReporter() if sys.stderr.isatty() else PlainReporter()
    try:
        yield reporter
    finally:
        reporter.close()
