"""What all jobs have in common: the contract with whatever drives them, and the book-keeping of a lockstep job."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from hosts.commands import Start
from hosts.core import taken
from testbed.errors import TestbedError, UsageError

# The immediate: attempt, step and phase, each by its low bits. Completions come in order, so these only have to tell neighbours apart.
ATTEMPT_BITS, STEP_BITS, PHASE_BITS = 6, 14, 12

CONTRIBUTION_OFFSETS = 4093

Outstanding = Callable[[str], int]  # messages to a peer that it has not wholly acknowledged, in order


class JobError(TestbedError):
    """The transport broke its promise: a completion out of order, or from another attempt."""


class Write(NamedTuple):
    """A Write-with-Immediate to `peer`; `data` is memory that nothing changes any more."""

    peer: str
    data: memoryview
    remote_offset: int
    imm: int


class Wrong(NamedTuple):
    """Data that is not what it should be: in this step (streams: message number), from this peer, None where that cannot be told."""

    step: int
    peer: str | None


@dataclass
class StepRecord:
    """One step of one rank, times in CLOCK_MONOTONIC seconds; `end` is None for a step that was not finished."""

    attempt: int
    step: int
    start: float
    compute_end: float | None = None
    end: float | None = None
    ok: bool | None = None


class Job(Protocol):
    """What the agent's loop needs of a job."""

    @property
    def moves_on_acknowledgements(self) -> bool:
        """Whether `advance` has something to do when a peer has acknowledged, not only after completions and at deadlines."""

    def start(self, start: Start) -> None:
        """The job begins at `start.at`."""

    def on_completion(self, peer: str, imm: int) -> None:
        """A write from `peer` has completed, in order. No acknowledgement of it has left this host yet."""

    def on_error(self, peer: str) -> None:
        """The QP to or from `peer` has failed for good."""

    def advance(self, now: float, outstanding: Outstanding) -> None:
        """Does all that can be done now."""

    def next_deadline(self) -> float | None:
        """When `advance` must be called even if nothing arrives."""

    def take_writes(self) -> list[Write]:
        """Writes to post since the last call, in order."""

    def take_records(self) -> list[StepRecord]:
        """Steps that ended since the last call."""

    def take_wrong(self) -> list[Wrong]:
        """Wrong data found since the last call."""

    def unfinished(self) -> StepRecord | None:
        """The running step."""

    def report(self) -> dict[str, Any]:
        """Counters for agents.json."""


def immediate(attempt: int, step: int, phase: int) -> int:
    """The 32 bits that go with a write of a lockstep job."""
    return ((attempt % (1 << ATTEMPT_BITS)) << STEP_BITS | step % (1 << STEP_BITS)) << PHASE_BITS | phase


@dataclass(frozen=True)
class LockstepPlan:
    """What every rank of a lockstep job must agree upon: `vector_bytes` is what one rank holds. UsageError says what makes no sense."""

    ranks: int
    vector_bytes: int
    compute_s: float
    seed: int

    def __post_init__(self) -> None:
        """Refuses what no lockstep job can do."""
        if not self.compute_s >= 0:
            raise UsageError(f"job.compute_s is {self.compute_s}: give 0 or more seconds")

    def contribution_offset(self, rank: int, step: int) -> int:
        """Where on the table of contributions that of `rank` to `step` begins, below CONTRIBUTION_OFFSETS."""
        return zlib.crc32(f"{self.seed} {rank} {step}".encode()) % CONTRIBUTION_OFFSETS


class Lockstep:
    """Base of the jobs that go step by step: which step runs, what is to be posted and told."""

    moves_on_acknowledgements = False

    def __init__(self) -> None:
        self._now: StepRecord | None = None
        self._writes: list[Write] = []
        self._records: list[StepRecord] = []
        self._wrong: list[Wrong] = []
        self._finished = self._wrong_steps = 0

    def start(self, start: Start) -> None:
        """Opens the first step at the given time."""
        self._open(start.at, start.first_step, start.attempt)

    def _open(self, at: float, step: int, attempt: int) -> None:
        """Begins a step."""
        self._now = StepRecord(attempt, step, at)

    def _close(self, step: StepRecord, now: float, wrong: list[Wrong]) -> None:
        """Records the step with what was wrong in it, and opens the next one where this one ended."""
        step.end, step.ok = now, not wrong
        self._finished += 1
        self._wrong_steps += not step.ok
        self._wrong += wrong
        self._records.append(step)
        self._open(now, step.step + 1, step.attempt)

    def on_error(self, peer: str) -> None:
        """Nothing: without the peer's writes no step ends, and the run aborts the job."""

    def take_writes(self) -> list[Write]:
        """Writes to post since the last call, in order."""
        return taken(self._writes)

    def take_records(self) -> list[StepRecord]:
        """Steps that ended since the last call."""
        return taken(self._records)

    def take_wrong(self) -> list[Wrong]:
        """Wrong sums and slices since the last call."""
        return taken(self._wrong)

    def unfinished(self) -> StepRecord | None:
        """The running step."""
        return self._now

    def report(self) -> dict[str, Any]:
        """Steps finished, and how many had a wrong result."""
        return {"steps": self._finished, "wrong_sums": self._wrong_steps}
