"""The lockstep ring all-reduce: compute (a wait), reduce-scatter and all-gather round the ring, check of the sum, next step."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hosts.jobs.common import (
    CONTRIBUTION_OFFSETS,
    PHASE_BITS,
    JobError,
    Lockstep,
    LockstepPlan,
    Outstanding,
    StepRecord,
    Write,
    Wrong,
    immediate,
)
from testbed.errors import UsageError

Vector = npt.NDArray[np.float32]
FLOAT_BYTES = 4
MAX_RANKS = 2 ** (PHASE_BITS - 1)

# Elements lie in 0..255, so a float32 sum over MAX_RANKS ranks stays below 2^24 and is exact in any order of addition.
ELEMENT_LIMIT = 256


@dataclass(frozen=True)
class RingPlan(LockstepPlan):
    """The vector is cut into a chunk a rank, and every chunk goes round the ring."""

    def __post_init__(self) -> None:
        """Refuses what the ring or the immediate cannot carry."""
        if not 1 <= self.ranks <= MAX_RANKS:
            raise UsageError(f"job.ranks is {self.ranks}: give 1 to {MAX_RANKS}")
        if self.vector_bytes % FLOAT_BYTES or self.vector_bytes < FLOAT_BYTES * self.ranks:
            raise UsageError(
                f"job.vector_bytes is {self.vector_bytes}: give a multiple of 4, at least 4 a rank ({FLOAT_BYTES * self.ranks})"
            )
        super().__post_init__()

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


class Contributions:
    """Each rank's input of each step: a view, placed by (seed, rank, step), on one random table of small whole numbers."""

    def __init__(self, plan: RingPlan) -> None:
        self._plan = plan
        draw = np.random.default_rng(plan.seed % 2**32)
        self._table: Vector = draw.integers(0, ELEMENT_LIMIT, plan.elements + CONTRIBUTION_OFFSETS).astype(np.float32)

    def of(self, rank: int, step: int) -> Vector:
        """The vector that `rank` brings to `step`: a view, not to be changed."""
        offset = self._plan.contribution_offset(rank, step)
        window: Vector = self._table[offset : offset + self._plan.elements]
        return window


class RingJob(Lockstep):
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

    def __init__(self, plan: RingPlan, rank: int, region: memoryview, next_peer: str) -> None:
        super().__init__()
        if not 0 <= rank < plan.ranks:
            raise UsageError(f"rank is {rank}: give 0 to {plan.ranks - 1}")
        if len(region) < plan.region_bytes:
            raise UsageError(f"the region has {len(region)} bytes: the ring needs {plan.region_bytes}")
        self.plan, self.rank, self._region, self._next_peer = plan, rank, region, next_peer
        self._data = Contributions(plan)
        self._arrived: deque[int] = deque()  # immediates of completions that are not used yet
        self._phase = self._summed = 0  # phases done, and ranks that are in `_expected`
        self._vector: Vector = np.empty(0, np.float32)
        self._expected: Vector = self._vector

    def _open(self, at: float, step: int, attempt: int) -> None:
        super()._open(at, step, attempt)
        self._phase = self._summed = 0
        self._vector = self._data.of(self.rank, step).copy()
        self._expected = np.zeros(self.plan.elements, np.float32)

    def _sum_one(self, step: StepRecord) -> None:
        """Adds one rank's input to the expected sum: one at a time, so that the loop answers the network in between."""
        self._expected += self._data.of(self._summed, step.step)
        self._summed += 1

    def on_completion(self, peer: str, imm: int) -> None:
        """Remembers a completion; the previous rank may be ahead, even by a step, or start before this one does."""
        self._arrived.append(imm)

    def next_deadline(self) -> float | None:
        """The end of the compute phase, absolute, so that lateness does not add up; its beginning while the expected sum is not ready."""
        step = self._now
        if step is None or step.compute_end is not None:
            return None
        return step.start + (self.plan.compute_s if self._summed == self.plan.ranks else 0.0)

    def advance(self, now: float, outstanding: Outstanding) -> None:
        """Goes on as far as time and completions allow."""
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
        self._check(step, now)
        return False

    def _send(self, step: StepRecord, phase: int) -> None:
        """Sends what phase `phase` has to send: always the chunk that the phase before has completed here."""
        chunk = self._vector[self.plan.chunk(self.rank - phase)].copy()
        self._writes.append(
            Write(
                self._next_peer,
                memoryview(chunk).cast("B"),
                self.plan.slot(step.step, phase),
                immediate(step.attempt, step.step, phase),
            )
        )

    def _take_chunk(self, step: StepRecord) -> None:
        """Uses the chunk that arrived for the running phase, and sends on."""
        phase, imm = self._phase, self._arrived.popleft()
        if imm != immediate(step.attempt, step.step, phase):
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

    def _check(self, step: StepRecord, now: float) -> None:
        """Compares the sum and ends the step. Whose data was wrong cannot be told from a sum."""
        while self._summed < self.plan.ranks:
            self._sum_one(step)
        right = np.array_equal(self._vector, self._expected)
        self._close(step, now, [] if right else [Wrong(step.step, None)])
