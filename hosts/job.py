"""The jobs that run over a transport, as state machines without I/O or clock: the lockstep ring all-reduce, and a stream for benchmarks.

Whatever drives a job hands it completions and the time, and takes from it writes to post, step records and the next deadline.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from testbed.errors import TestbedError, UsageError

Vector = npt.NDArray[np.float32]
FLOAT_BYTES = 4

# The immediate: attempt, step and phase, each by its low bits. Completions come in order, so these only have to tell neighbours apart.
ATTEMPT_BITS, STEP_BITS, PHASE_BITS = 6, 14, 12
MAX_RANKS = 2 ** (PHASE_BITS - 1)

# Elements lie in 0..255, so a float32 sum over MAX_RANKS ranks stays below 2^24 and is exact in any order of addition.
ELEMENT_LIMIT = 256
CONTRIBUTION_OFFSETS = 4093


class JobError(TestbedError):
    """The transport broke its promise: a completion out of order, or from another attempt."""


class Write(NamedTuple):
    """A Write-with-Immediate to the next rank; `data` is memory of its own, which nothing changes any more."""

    data: memoryview
    remote_offset: int
    imm: int


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

    region_bytes: int

    def start(self, at: float, first_step: int, attempt: int) -> None:
        """The job begins at `at`."""

    def on_completion(self, imm: int) -> None:
        """A write from the previous rank has completed, in order."""

    def advance(self, now: float, acked_bytes: int) -> None:
        """Does all that can be done now; `acked_bytes` is what the next rank has acknowledged so far."""

    def next_deadline(self) -> float | None:
        """When `advance` must be called even if nothing arrives."""

    def take_writes(self) -> list[Write]:
        """Writes to post since the last call."""

    def take_records(self) -> list[StepRecord]:
        """Steps that ended since the last call."""

    def unfinished(self) -> StepRecord | None:
        """The running step."""

    def report(self) -> dict[str, Any]:
        """Counters for agents.json."""


@dataclass(frozen=True)
class RingPlan:
    """What every rank must agree upon; UsageError says what makes no sense."""

    ranks: int
    vector_bytes: int
    compute_s: float
    seed: int

    def __post_init__(self) -> None:
        """Refuses what the ring or the immediate cannot carry."""
        if not 1 <= self.ranks <= MAX_RANKS:
            raise UsageError(f"job.ranks is {self.ranks}: give 1 to {MAX_RANKS}")
        if self.vector_bytes % FLOAT_BYTES or self.vector_bytes < FLOAT_BYTES * self.ranks:
            raise UsageError(
                f"job.vector_bytes is {self.vector_bytes}: give a multiple of 4, at least 4 a rank ({FLOAT_BYTES * self.ranks})"
            )
        if not self.compute_s >= 0:
            raise UsageError(f"job.compute_s is {self.compute_s}: give 0 or more seconds")

    @property
    def elements(self) -> int:
        """float32 elements of the vector."""
        return self.vector_bytes // FLOAT_BYTES

    @property
    def phases(self) -> int:
        """Ring phases of a step: reduce-scatter and all-gather, ranks - 1 each."""
        return 2 * (self.ranks - 1)

    @property
    def slot_bytes(self) -> int:
        """Room for the largest chunk."""
        return -(-self.elements // self.ranks) * FLOAT_BYTES

    @property
    def region_bytes(self) -> int:
        """Receive slots: two parities of the step, one slot a phase."""
        return 2 * self.phases * self.slot_bytes

    def chunk(self, index: int) -> slice:
        """The elements of chunk `index` (modulo the ranks); sizes differ by at most one element."""
        index %= self.ranks
        return slice(self.elements * index // self.ranks, self.elements * (index + 1) // self.ranks)

    def slot(self, step: int, phase: int) -> int:
        """Byte offset in the region of the receive slot of a phase."""
        return (step % 2 * self.phases + phase) * self.slot_bytes

    def imm(self, attempt: int, step: int, phase: int) -> int:
        """The immediate that goes with a phase's chunk."""
        return ((attempt % (1 << ATTEMPT_BITS)) << STEP_BITS | step % (1 << STEP_BITS)) << PHASE_BITS | phase


class Contributions:
    """Each rank's input of each step: a view, placed by (seed, rank, step), on one random table of small whole numbers."""

    def __init__(self, plan: RingPlan) -> None:
        self._plan = plan
        draw = np.random.default_rng(plan.seed % 2**32)
        self._table: Vector = draw.integers(0, ELEMENT_LIMIT, plan.elements + CONTRIBUTION_OFFSETS).astype(np.float32)

    def of(self, rank: int, step: int) -> Vector:
        """The vector that `rank` brings to `step`: a view, not to be changed."""
        offset = zlib.crc32(f"{self._plan.seed} {rank} {step}".encode()) % CONTRIBUTION_OFFSETS
        window: Vector = self._table[offset : offset + self._plan.elements]
        return window


class RingJob:
    """One rank of the lockstep job: compute (a wait), ring all-reduce, check, next step.

    In phase p of the reduce-scatter (p = 0 .. n-2) rank r sends chunk r - p and adds what arrives to chunk r - p - 1, so that it
    ends with the whole sum of chunk r + 1; in phase n-1+q of the all-gather it sends chunk r + 1 - q and takes chunk r - q.

    Why two parities of receive slots suffice. The predecessor P writes slot (parity of s, phase p) in step s and again in step s + 2. It
    starts step s + 2 only after it finished step s + 1, for which it needed every whole sum of step s + 1, and each of those holds this
    rank's contribution to step s + 1, which this rank sends only after it finished step s, with every slot of step s read. So nothing
    unread is overwritten. For the same reason P is never more than one step ahead. A late duplicate of an old packet cannot do harm
    either: both transports drop what they have received already, by PSN.

    Why no send buffer changes before it is acknowledged: every write carries an array made for it (a copy, or a fresh sum), which nothing
    refers to but the write and read-only uses here. The transport keeps it alive until it is acknowledged.
    """

    def __init__(self, plan: RingPlan, rank: int, region: memoryview) -> None:
        if not 0 <= rank < plan.ranks:
            raise UsageError(f"rank is {rank}: give 0 to {plan.ranks - 1}")
        if len(region) < plan.region_bytes:
            raise UsageError(f"the region has {len(region)} bytes: the ring needs {plan.region_bytes}")
        self.plan, self.rank, self._region = plan, rank, region
        self.region_bytes = plan.region_bytes
        self._data = Contributions(plan)
        self._arrived: deque[int] = deque()  # immediates of completions that are not used yet
        self._writes: list[Write] = []
        self._records: list[StepRecord] = []
        self._now: StepRecord | None = None
        self._phase = self._summed = 0  # phases done, and ranks that are in `_expected`
        self._vector: Vector = np.empty(0, np.float32)
        self._expected: Vector = self._vector
        self._finished = self._wrong = 0

    def start(self, at: float, first_step: int, attempt: int) -> None:
        """Opens `first_step` at `at`."""
        self._open(at, first_step, attempt)

    def _open(self, at: float, step: int, attempt: int) -> None:
        """Begins a step."""
        self._now = StepRecord(attempt, step, at)
        self._phase = self._summed = 0
        self._vector = self._data.of(self.rank, step).copy()
        self._expected = np.zeros(self.plan.elements, np.float32)

    def _sum_one(self, step: StepRecord) -> None:
        """Adds one rank's input to the expected sum: one at a time, so that the loop answers the network in between."""
        self._expected += self._data.of(self._summed, step.step)
        self._summed += 1

    def on_completion(self, imm: int) -> None:
        """Remembers a completion; the previous rank may be ahead, even by a step, or start before this one does."""
        self._arrived.append(imm)

    def next_deadline(self) -> float | None:
        """The end of the compute phase, absolute, so that lateness does not add up; its beginning while the expected sum is not ready."""
        step = self._now
        if step is None or step.compute_end is not None:
            return None
        return step.start + (self.plan.compute_s if self._summed == self.plan.ranks else 0.0)

    def advance(self, now: float, acked_bytes: int) -> None:
        """Goes on as far as time and completions allow."""
        del acked_bytes  # lockstep needs no other flow control
        step = self._now
        if step is None or now < step.start:
            return
        if self._summed < self.plan.ranks:
            self._sum_one(step)
        while self._advance_one(step, now):
            pass

    def _advance_one(self, step: StepRecord, now: float) -> bool:
        """One move: out of the compute phase, through a phase, or into the next step. False if nothing is left to do for now.

        After a step ends the caller's loop shall send first what this step still has to send.
        """
        if step.compute_end is None:
            if now < step.start + self.plan.compute_s:
                return False
            step.compute_end = now
            if self.plan.phases:
                self._send(step, 0)
        if self._phase < self.plan.phases:
            if not self._arrived:
                return False
            self._take_chunk(step)
            return True
        self._close(step, now)
        return False

    def _send(self, step: StepRecord, phase: int) -> None:
        """Sends what phase `phase` has to send: always the chunk that the phase before has completed here."""
        chunk = self._vector[self.plan.chunk(self.rank - phase)].copy()
        self._writes.append(
            Write(memoryview(chunk).cast("B"), self.plan.slot(step.step, phase), self.plan.imm(step.attempt, step.step, phase))
        )

    def _take_chunk(self, step: StepRecord) -> None:
        """Uses the chunk that arrived for the running phase, and sends on."""
        phase, imm = self._phase, self._arrived.popleft()
        if imm != self.plan.imm(step.attempt, step.step, phase):
            raise JobError(
                f"rank {self.rank}, attempt {step.attempt}, step {step.step}, phase {phase}: a completion with immediate {imm:#010x} came "
                "out of order or from another attempt: the transport is at fault"
            )
        where, offset = self.plan.chunk(self.rank - phase - 1), self.plan.slot(step.step, phase)
        arrived = np.frombuffer(self._region, np.float32, where.stop - where.start, offset)
        if phase < self.plan.ranks - 1:
            self._vector[where] += arrived
        else:
            self._vector[where] = arrived
        self._phase += 1
        if self._phase < self.plan.phases:
            self._send(step, self._phase)

    def _close(self, step: StepRecord, now: float) -> None:
        """Checks the sum, records the step and opens the next one where this one ended."""
        while self._summed < self.plan.ranks:
            self._sum_one(step)
        step.end, step.ok = now, bool(np.array_equal(self._vector, self._expected))
        self._finished += 1
        self._wrong += not step.ok
        self._records.append(step)
        self._open(now, step.step + 1, step.attempt)

    def take_writes(self) -> list[Write]:
        """Writes to post since the last call, in order."""
        writes, self._writes = self._writes, []
        return writes

    def take_records(self) -> list[StepRecord]:
        """Steps that ended since the last call."""
        records, self._records = self._records, []
        return records

    def unfinished(self) -> StepRecord | None:
        """The running step."""
        return self._now

    def report(self) -> dict[str, Any]:
        """Steps finished and sums that were wrong."""
        return {"steps": self._finished, "wrong_sums": self._wrong}


class StreamJob:
    """Back-to-back messages to the next rank: no compute phase, no lockstep; for benchmarks.

    At most `outstanding` messages are unacknowledged; each goes to one of as many slots of the receiver's region, in turn.
    """

    def __init__(self, message_bytes: int, outstanding: int, sends: bool) -> None:
        if message_bytes < 1 or outstanding < 1:
            raise UsageError(f"a stream of {outstanding} outstanding messages of {message_bytes} bytes: both must be 1 or more")
        self._message_bytes, self._outstanding, self._sends = message_bytes, outstanding, sends
        self.region_bytes = message_bytes * outstanding
        self._payload = memoryview(bytes(index % 251 for index in range(message_bytes)))
        self._started: float | None = None
        self._last = 0.0
        self._posted = self._received = self._acked_bytes = 0
        self._writes: list[Write] = []

    def start(self, at: float, first_step: int, attempt: int) -> None:
        """The stream begins at `at`."""
        self._started = at

    def on_completion(self, imm: int) -> None:
        """Counts a message; JobError if one is missing or came twice."""
        if imm != self._received % 2**32:
            raise JobError(f"stream: message {imm} completed where {self._received} was due: the transport is at fault")
        self._received += 1

    def next_deadline(self) -> float | None:
        """The start, while it lies ahead."""
        return self._started if self._started is not None and self._sends and not self._posted else None

    def advance(self, now: float, acked_bytes: int) -> None:
        """Posts messages until `outstanding` are unacknowledged."""
        self._acked_bytes, self._last = acked_bytes, now
        if self._started is None or now < self._started or not self._sends:
            return
        while self._posted - acked_bytes // self._message_bytes < self._outstanding:
            slot = self._posted % self._outstanding * self._message_bytes
            self._writes.append(Write(self._payload, slot, self._posted % 2**32))
            self._posted += 1

    def take_writes(self) -> list[Write]:
        """Writes to post since the last call."""
        writes, self._writes = self._writes, []
        return writes

    def take_records(self) -> list[StepRecord]:
        """A stream has no steps."""
        return []

    def unfinished(self) -> StepRecord | None:
        """A stream has no steps."""
        return None

    def report(self) -> dict[str, Any]:
        """Bytes acknowledged and received, and the seconds since the start."""
        elapsed_s = max(0.0, self._last - self._started) if self._started is not None else 0.0
        return {"acked_bytes": self._acked_bytes, "received_bytes": self._received * self._message_bytes, "elapsed_s": round(elapsed_s, 6)}


def make_job(job: Mapping[str, Any], rank: int, seed: int, *, sends: bool) -> tuple[Job, memoryview]:
    """The job of an agent's `config` and the region that peers write to; UsageError names what is missing or unknown."""
    kind = job.get("kind", "ring")
    if kind == "ring":
        _refuse_unknown(job, {"kind", "ranks", "vector_bytes", "compute_s", "checkpoint_every"})
        plan = RingPlan(_whole(job, "ranks"), _whole(job, "vector_bytes"), _seconds(job, "compute_s"), seed)
        region = memoryview(bytearray(plan.region_bytes))
        return RingJob(plan, rank, region), region
    if kind == "stream":
        _refuse_unknown(job, {"kind", "message_bytes", "outstanding", "peer"})
        stream = StreamJob(_whole(job, "message_bytes"), _whole(job, "outstanding", 4), sends)
        return stream, memoryview(bytearray(stream.region_bytes))
    raise UsageError(f"job.kind is {kind!r}: give 'ring' or 'stream'")


def _refuse_unknown(job: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(set(job) - known):
        raise UsageError(f"job has unknown keys {', '.join(unknown)}: it knows {', '.join(sorted(known))}")


def _whole(job: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = job.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"job.{key} is {value!r}: give a whole number")
    return value


def _seconds(job: Mapping[str, Any], key: str) -> float:
    value = job.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"job.{key} is {value!r}: give seconds")
    return float(value)
