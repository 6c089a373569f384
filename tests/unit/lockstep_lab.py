"""Lockstep jobs of all ranks over a perfect in-memory channel whose order between pairs of ranks the test draws."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Sequence

from hosts.commands import Start
from hosts.jobs.all_to_all import AllToAllJob
from hosts.jobs.common import StepRecord, Write
from hosts.jobs.ring import RingJob

Pair = tuple[int, int]  # ranks: source, target


def idle(peer: str) -> int:
    """Nothing is outstanding: lockstep does not look at it."""
    raise AssertionError(f"asked for {peer}")


class Lockstep:
    """Jobs of the ranks r0, r1 and so on. Writes lie in a queue for each of `pairs`; `deliver` places one and completes it."""

    def __init__(
        self, jobs: Sequence[RingJob | AllToAllJob], regions: Sequence[memoryview], pairs: Iterable[Pair], first_step: int, attempt: int
    ) -> None:
        self.jobs, self.regions = list(jobs), regions
        self.names = [f"r{rank}" for rank in range(len(self.jobs))]
        self.queues: dict[Pair, deque[Write]] = {pair: deque() for pair in pairs}
        self.records: list[list[StepRecord]] = [[] for _ in self.jobs]
        self.wrong: list[tuple[int, int, str | None]] = []
        self.ahead = 0
        for job in self.jobs:
            job.start(Start(0.0, first_step, attempt, 0.0))

    @property
    def ok(self) -> list[bool | None]:
        """What all ranks found of their finished steps."""
        return [record.ok for records in self.records for record in records]

    def advance(self, rank: int, now: float = 1.0) -> list[Write]:
        """A rank does what it can; returns what it posts."""
        job = self.jobs[rank]
        job.advance(now, idle)
        writes = job.take_writes()
        for write in writes:
            self.queues[rank, self.names.index(write.peer)].append(write)
        self.records[rank] += job.take_records()
        self.wrong += [(rank, *found) for found in job.take_wrong()]
        running = [each.unfinished().step for each in self.jobs if each.unfinished()]
        self.ahead = max(self.ahead, max(running) - min(running))
        return writes

    def deliver(self, source: int, target: int) -> None:
        """The next write from `source` to `target` arrives and completes."""
        write = self.queues[source, target].popleft()
        self.regions[target][write.remote_offset : write.remote_offset + len(write.data)] = write.data
        self.jobs[target].on_completion(self.names[source], write.imm)

    def damage(self, source: int, target: int, at: int, bits: int) -> None:
        """Inverts bits of a byte of the next write from `source` to `target`."""
        queue = self.queues[source, target]
        data = bytearray(queue[0].data)
        data[at] ^= bits
        queue[0] = queue[0]._replace(data=memoryview(data))

    def turn(self, rank: int, draw: random.Random) -> list[Write]:
        """Delivers a write of a rank, or lets it advance; returns what it posts."""
        waiting = [pair for pair, queue in self.queues.items() if queue and pair[0] == rank]
        if waiting and draw.random() < 0.7:
            self.deliver(*draw.choice(waiting))
            return []
        return self.advance(rank)

    def run(self, steps: int, draw: random.Random, slow: int | None = None) -> None:
        """Random ranks act, the `slow` one seldom, until every rank has finished `steps`."""
        for _ in range(2_000_000):
            if min(len(records) for records in self.records) >= steps:
                return
            rank = draw.randrange(len(self.jobs))
            if rank != slow or draw.random() >= 0.97:
                self.turn(rank, draw)
        raise AssertionError(f"no end: {[len(records) for records in self.records]} steps")
