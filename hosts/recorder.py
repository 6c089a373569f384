"""The agent's own history files: events as JSON lines, steps, flows and paths as CSV, all times raw CLOCK_MONOTONIC seconds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from hosts.core import Event
from hosts.jobs.common import StepRecord
from testbed.errors import HostError

HEADERS: Mapping[str, str] = {
    "steps": "attempt,step,rank,host,start_s,compute_end_s,end_s,ok\n",
    "flows": "t_s,host,peer,tx_packets,rtx_packets,acked_bytes,cwnd_packets,srtt_s,trimmed_packets,marked_packets\n",
    "paths": "t_s,host,peer,ev,state,tx_packets,lost_packets,probes_sent,trimmed_packets,marked_packets\n",
}
FLUSH_EVERY_S = 0.5
SAMPLE_EVERY_S = 0.1


class Recorder:
    """Buffers lines and appends them to the files in whole lines, so that a killed agent leaves at most half a second out.

    A file that is not asked for is not written. Files are appended to: every attempt of a job goes into the same ones.
    """

    def __init__(self, files: Mapping[str, Path], host: str, rank: int, now: float) -> None:
        self._files = {kind: _opened(path) for kind, path in files.items()}
        self._lines: dict[str, list[str]] = {
            kind: [HEADERS[kind]] if kind in HEADERS and not file.tell() else [] for kind, file in self._files.items()
        }
        self._host, self._rank = host, rank
        self._flush_at, self._sample_at = now + FLUSH_EVERY_S, now + SAMPLE_EVERY_S
        self._samples = "flows" in files or "paths" in files
        self.due = self._next()  # when the next rows or the next flush are due

    def events(self, events: Iterable[Event]) -> None:
        """Notes events; their source is this host."""
        if "events" in self._lines:
            lines = (json.dumps({"t": event.t, "source": self._host, "event": event.event, **event.fields}) for event in events)
            self._lines["events"] += [line + "\n" for line in lines]

    def step(self, record: StepRecord) -> None:
        """Notes a step, finished or not; `ok` is 1, 0, or empty for a step that has no sum yet."""
        ok = "" if record.ok is None else int(record.ok)
        times = (record.start, record.compute_end, record.end)
        cells = [record.attempt, record.step, self._rank, self._host, *("" if t is None else f"{t:.6f}" for t in times), ok]
        self._row("steps", cells)

    def sample_due(self, now: float) -> bool:
        """Is it time for the next rows of flows and paths? Times are absolute; those that were missed are not made up."""
        if not self._samples or now < self._sample_at:
            return False
        self._sample_at += SAMPLE_EVERY_S * (1 + (now - self._sample_at) // SAMPLE_EVERY_S)
        self.due = self._next()
        return True

    def sample(self, now: float, flows: Iterable[tuple[Any, ...]], paths: Iterable[tuple[Any, ...]]) -> None:
        """Notes one row a QP and one an EV."""
        for kind, rows in (("flows", flows), ("paths", paths)):
            for row in rows:
                self._row(kind, [f"{now:.6f}", self._host, *(_cell(value) for value in row)])

    def _row(self, kind: str, cells: Iterable[Any]) -> None:
        if kind in self._lines:
            self._lines[kind].append(",".join(str(cell) for cell in cells) + "\n")

    def _next(self) -> float:
        return min(self._flush_at, self._sample_at) if self._samples else self._flush_at

    def on_timer(self, now: float) -> None:
        """Writes what is buffered, if half a second has passed."""
        if now >= self._flush_at:
            self._flush_at = now + FLUSH_EVERY_S
            self.due = self._next()
            self.flush()

    def flush(self) -> None:
        """Writes everything that is buffered."""
        for kind, lines in self._lines.items():
            if lines:
                self._files[kind].write("".join(lines))
                self._files[kind].flush()
                lines.clear()

    def close(self) -> None:
        """Writes everything and closes the files."""
        self.flush()
        for file in self._files.values():
            file.close()


def _opened(path: Path) -> IO[str]:
    try:
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise HostError(f"the agent's history file {path}: {error.strerror}: its folder must exist and be writable") from error


def _cell(value: Any) -> str:
    """A CSV cell: six decimals for times, nothing for what is not known yet."""
    if value is None:
        return ""
    return f"{value:.6f}" if isinstance(value, float) else str(value)
