"""The lockstep all-to-all: compute (a wait), send every other rank its slice, check what each of them sent, next step."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hosts.jobs.common import (
    CONTRIBUTION_OFFSETS,
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

MAX_RANKS = 1 << 12


@dataclass(frozen=True)
class AllToAllPlan(LockstepPlan):
    """A slice of what one rank holds goes to each rank."""

    def __post_init__(self) -> None:
        """Refuses what cannot be sliced."""
        if not 1 <= self.ranks <= MAX_RANKS:
            raise UsageError(f"job.hosts has {self.ranks} hosts: give 1 to {MAX_RANKS}")
        if self.vector_bytes < self.ranks:
            raise UsageError(f"job.vector_bytes is {self.vector_bytes}: give at least one byte for each of {self.ranks} ranks")
        super().__post_init__()

    @property
    def slot_bytes(self) -> int:
        """Room for the largest slice."""
        return -(-self.vector_bytes // self.ranks)

    @property
    def region_bytes(self) -> int:
        """Receive slots: two parities of the step, one slot a rank."""
        return 2 * self.ranks * self.slot_bytes

    def piece(self, rank: int) -> slice:
        """The bytes of a vector that go to `rank`; sizes differ by at most one."""
        return slice(self.vector_bytes * rank // self.ranks, self.vector_bytes * (rank + 1) // self.ranks)

    def slot(self, step: int, source: int) -> int:
        """Byte offset in every region of the receive slot of what rank `source` sends in `step`."""
        return (step % 2 * self.ranks + source) * self.slot_bytes


class Contributions:
    """Each rank's vector of each step: a window, placed by (seed, rank, step), on one table of random bytes."""

    def __init__(self, plan: AllToAllPlan) -> None:
        self._plan = plan
        self._table = np.random.default_rng(plan.seed % 2**32).bytes(plan.vector_bytes + CONTRIBUTION_OFFSETS)

    def piece(self, rank: int, step: int, target: int) -> memoryview:
        """What `rank` sends to `target` in `step`: a view of memory that never changes."""
        offset, where = self._plan.contribution_offset(rank, step), self._plan.piece(target)
        return memoryview(self._table)[offset + where.start : offset + where.stop]


class AllToAllJob(Lockstep):
    """One rank; `hosts` names all ranks in order. Destinations are staggered (rank + 1, rank + 2, ...): not all begin with the same one.

    Why two parities of receive slots suffice. Rank P writes its slot (parity of s) at rank Q in step s and again in step s + 2. It starts
    step s + 2 only after it finished step s + 1, for which it needed Q's slice of step s + 1, and Q sends that only after it finished
    step s, with every slot of step s compared. So nothing unread is overwritten. For the same reason no rank is ever more than one step
    ahead of another: to finish step s it needs a slice of step s from everyone, so everyone has at least begun step s.

    Data that was sent never changes: it is a view of the immutable table of contributions.
    """

    def __init__(self, plan: AllToAllPlan, rank: int, region: memoryview, hosts: Sequence[str]) -> None:
        super().__init__()
        if len(region) < plan.region_bytes:
            raise UsageError(f"the region has {len(region)} bytes: the all-to-all needs {plan.region_bytes}")
        self.plan, self.rank, self._region = plan, rank, region
        self._data = Contributions(plan)
        self._others = {hosts[(rank + ahead) % plan.ranks]: (rank + ahead) % plan.ranks for ahead in range(1, plan.ranks)}
        self._arrived: dict[str, deque[int]] = {peer: deque() for peer in self._others}  # immediates that are not used yet
        self._missing: list[str] = []
        self._bad: list[Wrong] = []

    def _open(self, at: float, step: int, attempt: int) -> None:
        super()._open(at, step, attempt)
        self._missing, self._bad = list(self._others), []

    def on_completion(self, peer: str, imm: int) -> None:
        """Remembers a completion; a peer may be ahead by a step, or start before this rank does."""
        self._arrived[peer].append(imm)

    def next_deadline(self) -> float | None:
        """The end of the compute phase, absolute, so that lateness does not add up."""
        step = self._now
        return None if step is None or step.compute_end is not None else step.start + self.plan.compute_s

    def advance(self, now: float, outstanding: Outstanding) -> None:
        """Goes on as far as time and completions allow, at most to the next step: what this one has to send shall be sent first."""
        step = self._now
        if step is None or now < step.start:
            return
        if step.compute_end is None:
            if now < step.start + self.plan.compute_s:
                return
            step.compute_end = now
            self._send(step)
        self._missing = [peer for peer in self._missing if not self._take_slice(step, peer)]
        if not self._missing:
            self._close(step, now, self._bad)

    def _send(self, step: StepRecord) -> None:
        offset, imm = self.plan.slot(step.step, self.rank), immediate(step.attempt, step.step, 0)
        for peer, target in self._others.items():
            self._writes.append(Write(peer, self._data.piece(self.rank, step.step, target), offset, imm))

    def _take_slice(self, step: StepRecord, peer: str) -> bool:
        """Compares the slice from `peer`, every byte; False if it has not arrived."""
        if not self._arrived[peer]:
            return False
        imm = self._arrived[peer].popleft()
        if imm != immediate(step.attempt, step.step, 0):
            raise JobError(
                f"rank {self.rank}, attempt {step.attempt}, step {step.step}: a completion from {peer} with immediate {imm:#010x} came "
                "out of order or from another attempt: the transport is at fault"
            )
        source = self._others[peer]
        expected, at = bytes(self._data.piece(source, step.step, self.rank)), self.plan.slot(step.step, source)
        if bytes(self._region[at : at + len(expected)]) != expected:
            self._bad.append(Wrong(step.step, peer))
        return True
