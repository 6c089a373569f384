"""The statistics against values worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.report import statistics as stats
from testbed.report.model import ArmRun, FaultInterval, JobStep, StepRow


def rows(ends: list[float | None], *, attempt: int = 1, first: int = 0, ranks: int = 2, start: float = 0.0) -> list[StepRow]:
    """Steps of `ranks` ranks; rank r ends 0.01 s earlier than the step's end for each r."""
    found = []
    for offset, end in enumerate(ends):
        for rank in range(ranks):
            done = None if end is None else end - 0.01 * rank
            found.append(StepRow(attempt, first + offset, rank, start, done, None if end is None else True))
        start = start if end is None else end
    return found


def fault(begin: float, end: float | None, *, name: str = "f1", kind: str = "carrier", target: str = "a-b") -> FaultInterval:
    return FaultInterval(name, kind, target, "link", "T0-T1", begin, end or begin, begin, begin, end)


def arm(steps: list[StepRow], duration: float, **more: object) -> ArmRun:
    return ArmRun("mrc", 1, duration, steps=steps, **more)  # type: ignore[arg-type]


CRASHED = {
    "steps": rows([1.0, 2.0, 3.0, None]) + rows([11.0, 12.0], attempt=2, first=2, start=10.0),
    "duration": 12.0,
    "events": [
        {"t_s": 0.0, "event": "job_start", "attempt": 1},
        {"t_s": 6.0, "event": "job_crash", "attempt": 1},
        {"t_s": 10.0, "event": "job_restart", "attempt": 2},
    ],
}


def test_a_job_step_is_over_when_its_slowest_rank_is_done():
    assert [step.end_s for step in stats.job_steps(arm(rows([1.0, 2.5]), 3.0))] == [1.0, 2.5]


def test_step_time_runs_from_the_end_of_the_step_before():
    assert [step.time_s for step in stats.job_steps(arm(rows([1.0, 2.5]), 3.0))] == [1.0, 1.5]


def test_a_step_that_one_rank_did_not_finish_is_cut_at_the_runs_end():
    steps = [*rows([1.0]), StepRow(1, 1, 0, 1.0, 1.9, True), StepRow(1, 1, 1, 1.0, None, None)]
    last = stats.job_steps(arm(steps, 5.0))[-1]
    assert (last.cut, last.time_s, last.useful) == ("run end", 4.0, False)


def test_a_crash_cuts_the_step_and_marks_the_redone_ones():
    steps = stats.job_steps(arm(**CRASHED))
    assert [(s.attempt, s.step, s.cut, s.useful) for s in steps] == [
        (1, 0, "", True), (1, 1, "", True), (1, 2, "", False), (1, 3, "crash", False), (2, 2, "", True), (2, 3, "", True),
    ]  # fmt: skip


def test_a_crashed_step_counts_until_its_crash():
    assert stats.job_steps(arm(**CRASHED))[3].time_s == 3.0


def test_the_first_step_after_a_restart_counts_from_the_restart():
    assert stats.job_steps(arm(**CRASHED))[4].time_s == 1.0


def test_a_crash_that_the_history_lost_is_told_by_the_second_attempt():
    run = arm(CRASHED["steps"], 12.0)
    assert stats.crash_count(run, stats.job_steps(run)) == 1


def test_steps_under_a_fault_and_its_settling_are_not_healthy():
    # 10 steps of 1 s; the one from 3 to 6 is slow. Fault 3.5 to 5, settling 1 s: felt until the first whole step after 5, which ends at 7.
    run = arm(rows([1, 2, 3, 6, 7, 8, 9, 10]), 10.0, faults=[fault(3.5, 5.0)])
    assert stats.felt_intervals(run.faults, stats.job_steps(run), 10.0, 1.0) == [(3.5, 7)]


def test_settling_counts_where_it_is_longer_than_the_next_step():
    run = arm(rows([1, 2, 3, 4, 5, 6]), 6.0, faults=[fault(1.5, 2.0)])
    assert stats.felt_intervals(run.faults, stats.job_steps(run), 6.0, 3.0) == [(1.5, 5.0)]


def test_a_fault_without_an_end_is_felt_until_the_run_ends():
    run = arm(rows([1, 2]), 2.0, faults=[fault(1.5, None)])
    assert stats.felt_intervals(run.faults, stats.job_steps(run), 2.0, 1.0) == [(1.5, 3.0)]


def test_a_fault_that_never_came_disturbs_nothing():
    never = FaultInterval("f1", "carrier", "a-b", "link", "T0-T1", 1.0, 2.0, None, None, None)
    assert stats.felt_intervals([never], [], 10.0, 1.0) == []


def test_healthy_median_ignores_the_slow_steps_under_faults():
    run = arm(rows([1, 2.1, 3.3, 8, 9, 10.1, 11.3]), 11.3, faults=[fault(3.5, 5.0)])
    healthy = stats.healthy_median(run, stats.job_steps(run), 0.5)
    # 8 to 9 is the first whole step after the fault: left out as well
    assert (healthy.median_s, healthy.steps, healthy.clear) == (pytest.approx(1.1), 5, True)


def test_without_a_clear_step_the_median_of_all_stands_in_and_says_so():
    run = arm(rows([1, 3]), 3.0, faults=[fault(0.0, 3.0)])
    assert stats.healthy_median(run, stats.job_steps(run)) == stats.Healthy(1.5, 0, False)


def test_no_steps_no_median():
    assert stats.healthy_median(arm([], 3.0), []) == stats.Healthy(None, 0, False)


def test_a_stall_is_never_negative():
    assert stats.stall_s(JobStep(1, 0, 0.0, 0.5), 1.0) == 0.0


def test_a_cut_step_counts_only_once_it_is_longer_than_the_median():
    short, long = JobStep(1, 0, 0.0, 0.5, "run end"), JobStep(1, 0, 0.0, 2.0, "run end")
    assert stats.judged_steps([short, long], 1.0) == [long]


def test_lost_time_without_faults_is_nothing():
    run = arm(rows([1, 2, 3]), 3.5)
    steps = [*stats.job_steps(run), JobStep(1, 3, 3.0, 3.5, "run end", useful=False)]
    assert stats.lost_time(steps, 3.5, 1.0) == stats.LostTime(0.0, 0.0, 0.0)


def test_lost_time_of_a_stall_is_the_stall():
    assert stats.lost_time(stats.job_steps(arm(rows([1, 6, 7]), 7.0)), 7.0, 1.0) == stats.LostTime(4.0, 4.0, 0.0)


def test_lost_time_of_a_job_stuck_at_the_end_counts():
    steps = stats.job_steps(arm(rows([1.0, None]), 10.0))
    assert stats.lost_time(steps, 10.0, 1.0) == stats.LostTime(8.0, 8.0, 0.0)


def test_lost_time_of_a_crash_runs_from_the_last_kept_step_to_the_restart():
    # useful: 2 + 2 steps of 1 s in 12 s; kept until 2.0, going on at 10.0
    assert stats.lost_time(stats.job_steps(arm(**CRASHED)), 12.0, 1.0) == stats.LostTime(8.0, 0.0, 8.0)


def test_faster_steps_than_the_median_never_make_lost_time_negative():
    assert stats.lost_time(stats.job_steps(arm(rows([0.5, 1.0]), 1.0)), 1.0, 1.0).total_s == 0.0


@given(st.lists(st.floats(0.01, 50), min_size=1, max_size=30), st.floats(0.01, 5))
def test_lost_time_is_the_sum_of_its_parts(times, median):
    ends = [math.fsum(times[: index + 1]) for index in range(len(times))]
    lost = stats.lost_time(stats.job_steps(arm(rows(ends, ranks=1), ends[-1])), ends[-1], median)
    assert lost.stall_s + lost.crash_s == pytest.approx(lost.total_s)
    assert lost.total_s >= 0


def test_a_step_with_a_wrong_sum_counts_once_however_many_ranks_saw_it():
    wrong = [StepRow(1, 4, rank, 0.0, 1.0, False) for rank in range(3)]
    assert stats.wrong_sums([*wrong, StepRow(1, 5, 0, 1.0, 2.0, True), StepRow(1, 6, 0, 2.0, None, None)]) == 1


def test_metrics_of_a_crashed_run():
    values = stats.step_metrics(arm(**CRASHED))
    named = {name: values[name] for name in ("steps_completed", "lost_steps", "crashes", "step_p100_s", "stall_p100_s", "lost_job_time_s")}
    assert named == {
        "steps_completed": 4.0, "lost_steps": 1.0, "crashes": 1.0, "step_p100_s": 3.0, "stall_p100_s": 2.0, "lost_job_time_s": 8.0,
    }  # fmt: skip


def test_stalled_steps_are_those_above_one_and_a_half_medians():
    assert stats.step_metrics(arm(rows([1, 2, 3, 4.4, 6.0]), 6.0))["stalled_steps"] == 1.0


def test_an_empty_run_has_unknown_metrics_and_does_not_fail():
    assert set(stats.step_metrics(arm([], 60.0)).values()) == {None}


def test_a_job_that_never_finished_a_step_lost_no_steps_but_was_measured():
    values = stats.step_metrics(arm(rows([None]), 60.0))
    assert (values["steps_completed"], values["crashes"], values["lost_job_time_s"]) == (0.0, 0.0, None)


def test_measured_and_unmeasured_jobs_have_the_same_metrics():
    assert set(stats.step_metrics(arm([], 60.0))) == set(stats.step_metrics(arm(**CRASHED)))


def test_spread_ignores_what_is_unknown_but_lists_it():
    assert stats.spread([3.0, None, 1.0, 2.0]) == {"median": 2.0, "min": 1.0, "max": 3.0, "values": [3.0, None, 1.0, 2.0]}


def test_spread_of_nothing_known():
    assert stats.spread([None, float("nan")])["median"] is None
