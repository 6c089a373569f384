"""The lockstep ring over a perfect in-memory channel whose order between pairs of ranks the test draws."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockstep_lab import Lockstep, idle

from hosts.commands import Start
from hosts.jobs import JobError, Write
from hosts.jobs.common import immediate
from hosts.jobs.ring import Contributions, RingJob, RingPlan
from testbed.errors import UsageError


class Ring(Lockstep):
    """`ranks` ring jobs."""

    def __init__(self, ranks: int, vector_bytes: int = 4000, compute_s: float = 0.0, first_step: int = 0, attempt: int = 1) -> None:
        self.plan = RingPlan(ranks, vector_bytes, compute_s, seed=5)
        regions = [memoryview(bytearray(self.plan.region_bytes)) for _ in range(ranks)]
        jobs = [RingJob(self.plan, rank, region, f"r{(rank + 1) % ranks}") for rank, region in enumerate(regions)]
        super().__init__(jobs, regions, [(rank, (rank + 1) % ranks) for rank in range(ranks)], first_step, attempt)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 16])
def test_every_rank_has_the_right_sum_in_every_step(ranks: int):
    ring = Ring(ranks)
    ring.run(6, random.Random(ranks))
    assert all(ring.ok)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(0, 400), st.integers(0, 2**32))
def test_any_size_and_any_order_between_pairs(ranks: int, extra_elements: int, seed: int):
    ring = Ring(ranks, vector_bytes=4 * (ranks + extra_elements))
    ring.run(4, random.Random(seed))
    assert all(ring.ok)


@pytest.mark.parametrize("slow", range(4))
def test_slow_rank_makes_neighbours_wait_not_err(slow: int):
    ring = Ring(4)
    ring.run(8, random.Random(slow), slow)
    assert all(ring.ok)


def test_no_rank_is_ever_more_than_one_step_ahead():
    ring = Ring(5)
    for seed in range(4):
        ring.run(10 * (seed + 1), random.Random(seed), slow=seed)
    assert ring.ahead == 1


@pytest.mark.parametrize("ranks", [2, 3])
def test_flipped_bit_is_a_wrong_sum(ranks: int):
    ring = Ring(ranks)
    for rank in range(ranks):
        ring.advance(rank)
        ring.advance(rank)
    ring.damage(0, 1, 2, 0x01)
    ring.run(1, random.Random(1))
    assert [records[0].ok for records in ring.records] == [False] * ranks


def test_wrong_sum_is_counted_in_the_report():
    ring = Ring(2)
    ring.advance(0)
    queue = ring.queues[0, 1]
    queue[0] = queue[0]._replace(data=memoryview(bytes(len(queue[0].data))))
    ring.run(2, random.Random(1))
    assert ring.jobs[1].report()["wrong_sums"] == 1


def test_expected_sum_is_the_sum_of_all_inputs():
    plan = RingPlan(3, 400, 0.0, seed=5)
    inputs = Contributions(plan)
    ring = Ring(3, 400)
    ring.run(1, random.Random(0))
    job = ring.jobs[0]
    total = np.zeros(100)
    for rank in range(3):
        total += inputs.of(rank, job.unfinished().step)
    for _ in range(3):
        job._sum_one(job.unfinished()) if job._summed < 3 else None
    assert np.array_equal(job._expected, total)


def test_inputs_differ_by_rank_step_and_seed():
    def inputs(seed: int, rank: int, step: int) -> bytes:
        return Contributions(RingPlan(2, 400, 0.0, seed)).of(rank, step).tobytes()

    assert len({inputs(1, 0, 0), inputs(1, 1, 0), inputs(1, 0, 1), inputs(2, 0, 0)}) == 4


def test_inputs_are_whole_numbers_whose_sums_are_exact():
    values = Contributions(RingPlan(2, 40_000, 0.0, 1)).of(0, 0)
    assert np.array_equal(values, np.floor(values))
    assert values.max() < 256


def test_nothing_is_sent_before_the_compute_phase_ends():
    ring = Ring(2, compute_s=0.5)
    assert ring.advance(0, now=0.499) == []


def test_compute_phase_ends_at_an_absolute_time():
    ring = Ring(2, compute_s=0.5)
    for now in (0.1, 0.2):
        ring.advance(0, now)
    assert ring.jobs[0].next_deadline() == 0.5


def test_step_before_its_start_does_nothing():
    job = RingJob(RingPlan(1, 400, 0.0, 1), 0, memoryview(b""), "")
    job.start(Start(10.0, 0, 1, 10.0))
    job.advance(9.9, idle)
    assert (job.take_records(), job.next_deadline()) == ([], 10.0)


def test_step_record_has_the_times_of_its_phases():
    job = RingJob(RingPlan(1, 400, 0.25, 1), 0, memoryview(b""), "")
    job.start(Start(10.0, 7, 3, 10.0))
    job.advance(10.0, idle)
    job.advance(10.26, idle)
    (record,) = job.take_records()
    assert (record.attempt, record.step, record.start, record.compute_end, record.end, record.ok) == (3, 7, 10.0, 10.26, 10.26, True)


def test_next_step_starts_where_the_last_one_ended():
    job = RingJob(RingPlan(1, 400, 0.25, 1), 0, memoryview(b""), "")
    job.start(Start(10.0, 7, 3, 10.0))
    job.advance(10.3, idle)
    assert (job.unfinished().step, job.unfinished().start) == (8, 10.3)


def test_restart_begins_at_the_given_step_and_attempt():
    ring = Ring(3, first_step=15, attempt=2)
    ring.run(2, random.Random(2))
    assert [record.step for record in ring.records[0][:2]] == [15, 16]


def test_completions_before_the_start_are_kept():
    ring = Ring(2)
    late = RingJob(ring.plan, 1, ring.regions[1], "r0")
    ring.jobs[1] = late
    ring.advance(0)
    ring.deliver(0, 1)
    late.start(Start(0.0, 0, 1, 0.0))
    ring.run(2, random.Random(3))
    assert all(ring.ok)


@pytest.mark.parametrize(("attempt", "step", "phase"), [(2, 0, 0), (1, 1, 0), (1, 0, 1)])
def test_completion_that_is_not_due_is_the_transports_fault(attempt: int, step: int, phase: int):
    ring = Ring(3)
    ring.jobs[0].on_completion("r2", immediate(attempt, step, phase))
    with pytest.raises(JobError, match="rank 0, attempt 1, step 0, phase 0"):
        ring.advance(0)


def test_immediate_has_32_bits_at_the_extremes():
    assert immediate(2**40, 2**40, 4095) < 2**32


def test_sent_data_never_changes_afterwards():
    ring, sent = Ring(4), list[tuple[Write, bytes]]()
    draw = random.Random(9)
    for _ in range(3000):
        sent += [(write, bytes(write.data)) for write in ring.turn(draw.randrange(4), draw)]
    assert len(sent) > 100
    assert all(bytes(write.data) == copy for write, copy in sent)


def test_slots_of_a_region_do_not_overlap():
    plan = RingPlan(5, 4 * 103, 0.0, 1)
    offsets = sorted(plan.slot(step, phase) for step in (4, 5) for phase in range(plan.phases))
    assert all(after - before >= plan.slot_bytes for before, after in itertools.pairwise(offsets))
    assert offsets[-1] + plan.slot_bytes == plan.region_bytes


@pytest.mark.parametrize(
    ("ranks", "vector_bytes", "compute_s"), [(0, 400, 0.0), (2, 401, 0.0), (4, 12, 0.0), (2, 400, -1.0), (2, 400, float("nan"))]
)
def test_senseless_plan_is_refused(ranks: int, vector_bytes: int, compute_s: float):
    with pytest.raises(UsageError, match=r"job\."):
        RingPlan(ranks, vector_bytes, compute_s, 1)


def test_rank_outside_of_the_ring_is_refused():
    with pytest.raises(UsageError, match="rank is 2"):
        RingJob(RingPlan(2, 400, 0.0, 1), 2, memoryview(bytearray(4000)), "r0")
