"""The data that the statistics work on: one arm and repeat as plain values. Pure; `reading` fills it from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Event = Mapping[str, Any]


@dataclass(frozen=True)
class StepRow:
    """One step of one rank. `end_s` None = unfinished when the run ended or crashed; `ok` None = unknown for the same reason."""

    attempt: int
    step: int
    rank: int
    start_s: float
    end_s: float | None
    ok: bool | None


@dataclass(frozen=True)
class FaultInterval:
    """One fault as it happened in one arm and repeat. Times are seconds since the job's start, None = did not happen."""

    id: str
    kind: str
    target: str
    target_type: str
    tier: str
    planned_s: float
    planned_end_s: float
    issued_s: float | None
    effective_s: float | None
    end_s: float | None

    @property
    def happened(self) -> bool:
        """Whether the history knows a beginning of it."""
        return self.effective_s is not None or self.issued_s is not None

    @property
    def begin_s(self) -> float:
        """When it took effect; when it was issued or planned, if no effect was recorded."""
        return next(time for time in (self.effective_s, self.issued_s, self.planned_s) if time is not None)

    @property
    def from_s(self) -> float:
        """The earliest it may have had any effect: when it was issued. The effect is confirmed a little after it begins."""
        return min(self.begin_s, self.begin_s if self.issued_s is None else self.issued_s)

    def until_s(self, duration_s: float) -> float:
        """When it was over; the run's end if no end was recorded."""
        return duration_s if self.end_s is None else self.end_s

    def hits(self, path: Sequence[str]) -> bool:
        """Whether a path (link names) runs over the faulted link, or through the faulted switch."""
        if self.target_type == "switch":
            return any(self.target in link.split("-") for link in path)
        return self.target in path


@dataclass(frozen=True)
class JobStep:
    """One step of the whole job: over when its slowest rank was done. `cut` = "crash" or "run end" if it was never finished.

    `time_s` is the time since the previous step of the same attempt was over, or since the attempt began; for a step that was cut, up
    to then.
    """

    attempt: int
    step: int
    start_s: float
    end_s: float
    cut: str = ""
    useful: bool = True

    @property
    def time_s(self) -> float:
        """Seconds that the job spent in this step."""
        return self.end_s - self.start_s

    @property
    def complete(self) -> bool:
        """Whether every rank finished it."""
        return not self.cut


@dataclass(frozen=True)
class LinkCounter:
    """The counters of one link direction at the run's end; drops and packets sent over time as (t_s, cumulative packets)."""

    link: str
    from_node: str
    tx_packets: float
    tx_bytes: float
    dropped: tuple[tuple[float, float], ...] = ()
    sent: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class ArmRun:
    """One arm and repeat. Missing files leave their part empty and a sentence in `problems`."""

    arm: str
    repeat: int
    duration_s: float
    steps: Sequence[StepRow] = ()
    faults: Sequence[FaultInterval] = ()
    events: Sequence[Event] = ()
    links: Sequence[LinkCounter] = ()
    agents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def named(self, *names: str) -> list[Event]:
        """The events with one of these names, in order of time."""
        return [event for event in self.events if event.get("event") in names]
