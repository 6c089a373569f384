"""The lockstep all-to-all over a perfect in-memory channel whose order between pairs of ranks the test draws."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockstep_lab import Lockstep, idle

from hosts.jobs import JobError
from hosts.jobs.all_to_all import AllToAllJob, AllToAllPlan, Contributions
from hosts.jobs.common import immediate
from testbed.errors import UsageError


class Exchange(Lockstep):
    """`ranks` jobs, each of which sends to all others."""

    def __init__(self, ranks: int, vector_bytes: int = 1000, compute_s: float = 0.0, first_step: int = 0, attempt: int = 1) -> None:
        self.plan = AllToAllPlan(ranks, vector_bytes, compute_s, seed=5)
        names = [f"r{rank}" for rank in range(ranks)]
        regions = [memoryview(bytearray(self.plan.region_bytes)) for _ in range(ranks)]
        jobs = [AllToAllJob(self.plan, rank, region, names) for rank, region in enumerate(regions)]
        super().__init__(jobs, regions, itertools.permutations(range(ranks), 2), first_step, attempt)


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
    exchange.damage(2, 0, where, 0x80)
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
    assert [record.step for record in exchange.records[0][:2]] == [15, 16]


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
