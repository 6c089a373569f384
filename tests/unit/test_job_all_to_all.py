"""The lockstep all-to-all over a perfect in-memory channel whose order between pairs of ranks the test draws."""

from __future__ import annotations

import itertools
import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hosts.commands import Start
from hosts.jobs import JobError, Write
from hosts.jobs.all_to_all import AllToAllJob, AllToAllPlan, Contributions
from hosts.jobs.common import immediate
from testbed.errors import UsageError


def idle(peer: str) -> int:
    """Nothing is outstanding: lockstep does not look at it."""
    raise AssertionError(f"asked for {peer}")


class Exchange:
    """`ranks` jobs. Writes lie in a queue a pair; `deliver` places one and completes it."""

    def __init__(self, ranks: int, vector_bytes: int = 1000, compute_s: float = 0.0, first_step: int = 0, attempt: int = 1) -> None:
        self.plan = AllToAllPlan(ranks, vector_bytes, compute_s, seed=5)
        self.names = [f"r{rank}" for rank in range(ranks)]
        self.regions = [memoryview(bytearray(self.plan.region_bytes)) for _ in range(ranks)]
        self.jobs = [AllToAllJob(self.plan, rank, region, self.names) for rank, region in enumerate(self.regions)]
        self.queues: dict[tuple[int, int], deque[Write]] = {pair: deque() for pair in itertools.permutations(range(ranks), 2)}
        self.steps: list[list[int]] = [[] for _ in range(ranks)]
        self.ok: list[bool | None] = []
        self.wrong: list[tuple[int, int, str | None]] = []
        self.ahead = 0
        for job in self.jobs:
            job.start(Start(0.0, first_step, attempt, 0.0))

    def advance(self, rank: int, now: float = 1.0) -> list[Write]:
        job = self.jobs[rank]
        job.advance(now, idle)
        writes = job.take_writes()
        for write in writes:
            self.queues[rank, self.names.index(write.peer)].append(write)
        for record in job.take_records():
            self.steps[rank].append(record.step)
            self.ok.append(record.ok)
        self.wrong += [(rank, *found) for found in job.take_wrong()]
        running = [each.unfinished().step for each in self.jobs if each.unfinished()]
        self.ahead = max(self.ahead, max(running) - min(running))
        return writes

    def deliver(self, source: int, target: int) -> None:
        write = self.queues[source, target].popleft()
        self.regions[target][write.remote_offset : write.remote_offset + len(write.data)] = write.data
        self.jobs[target].on_completion(self.names[source], write.imm)

    def run(self, steps: int, draw: random.Random, slow: int | None = None) -> None:
        """Random ranks act, the `slow` one seldom, until every rank has finished `steps`."""
        for _ in range(1_000_000):
            if min(len(done) for done in self.steps) >= steps:
                return
            rank = draw.randrange(len(self.jobs))
            if rank == slow and draw.random() < 0.97:
                continue
            waiting = [pair for pair, queue in self.queues.items() if queue and pair[0] == rank]
            if waiting and draw.random() < 0.7:
                self.deliver(*draw.choice(waiting))
            else:
                self.advance(rank)
        raise AssertionError(f"no end: {self.steps}")


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_every_slice_is_right_in_every_step(ranks: int):
    exchange = Exchange(ranks)
    exchange.run(6, random.Random(ranks))
    assert all(exchange.ok)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 7), st.integers(0, 300), st.integers(0, 2**32))
def test_any_size_and_any_order_between_pairs(ranks: int, more_bytes: int, seed: int):
    exchange = Exchange(ranks, vector_bytes=ranks + more_bytes)
    exchange.run(4, random.Random(seed))
    assert all(exchange.ok)


@pytest.mark.parametrize("slow", range(4))
def test_slow_rank_makes_others_wait_not_err_and_nobody_is_two_steps_ahead(slow: int):
    exchange = Exchange(4)
    exchange.run(12, random.Random(slow), slow)
    assert all(exchange.ok)
    assert exchange.ahead == 1


@pytest.mark.parametrize("where", [0, -1])
def test_one_flipped_bit_is_found_and_says_whose_it_is(where: int):
    exchange = Exchange(3)
    exchange.advance(2)
    damaged = exchange.queues[2, 0].popleft()
    data = bytearray(damaged.data)
    data[where] ^= 0x80
    exchange.queues[2, 0].append(damaged._replace(data=memoryview(data)))
    exchange.run(3, random.Random(1))
    assert exchange.wrong == [(0, 0, "r2")]
    assert exchange.ok.count(False) == 1
    assert [job.report()["wrong_sums"] for job in exchange.jobs] == [1, 0, 0]


def test_slices_of_another_step_or_rank_are_other_bytes():
    data = Contributions(AllToAllPlan(4, 4000, 0.0, 1))
    pieces = [bytes(data.piece(rank, step, target)) for rank in range(4) for step in range(4) for target in range(4)]
    assert len(set(pieces)) == len(pieces)


def test_slices_cover_the_vector():
    plan = AllToAllPlan(7, 1003, 0.0, 1)
    assert [at for rank in range(7) for at in range(plan.piece(rank).start, plan.piece(rank).stop)] == list(range(1003))


def test_destinations_are_staggered():
    exchange = Exchange(4)
    assert [[write.peer for write in exchange.advance(rank)] for rank in range(4)] == [
        ["r1", "r2", "r3"], ["r2", "r3", "r0"], ["r3", "r0", "r1"], ["r0", "r1", "r2"],
    ]  # fmt: skip


def test_nothing_is_sent_before_the_compute_phase_ends():
    exchange = Exchange(2, compute_s=0.5)
    assert exchange.jobs[0].next_deadline() == 0.5
    assert exchange.advance(0, now=0.499) == []
    assert len(exchange.advance(0, now=0.5)) == 1


def test_step_record_has_the_times_of_its_phases():
    exchange = Exchange(2, compute_s=0.25)
    for rank in range(2):
        exchange.advance(rank, now=0.3)
    exchange.deliver(1, 0)
    exchange.jobs[0].advance(0.4, idle)
    (record,) = exchange.jobs[0].take_records()
    assert (record.step, record.start, record.compute_end, record.end, record.ok) == (0, 0.0, 0.3, 0.4, True)
    assert (exchange.jobs[0].unfinished().step, exchange.jobs[0].unfinished().start) == (1, 0.4)


def test_restart_begins_at_the_given_step_and_attempt():
    exchange = Exchange(3, first_step=15, attempt=2)
    exchange.run(2, random.Random(2))
    assert exchange.steps[0][:2] == [15, 16]


@pytest.mark.parametrize(("attempt", "step"), [(2, 0), (1, 1)])
def test_completion_that_is_not_due_is_the_transports_fault(attempt: int, step: int):
    exchange = Exchange(3)
    exchange.jobs[0].on_completion("r2", immediate(attempt, step, 0))
    with pytest.raises(JobError, match="rank 0, attempt 1, step 0: a completion from r2"):
        exchange.advance(0)


def test_slots_of_a_region_do_not_overlap():
    plan = AllToAllPlan(5, 1003, 0.0, 1)
    offsets = sorted(plan.slot(step, rank) for step in (4, 5) for rank in range(5))
    assert all(after - before >= plan.slot_bytes for before, after in itertools.pairwise(offsets))
    assert offsets[-1] + plan.slot_bytes == plan.region_bytes


@pytest.mark.parametrize(("ranks", "vector_bytes", "compute_s"), [(0, 400, 0.0), (4, 3, 0.0), (2, 400, -1.0), (2, 400, float("nan"))])
def test_senseless_plan_is_refused(ranks: int, vector_bytes: int, compute_s: float):
    with pytest.raises(UsageError, match=r"job\."):
        AllToAllPlan(ranks, vector_bytes, compute_s, 1)
