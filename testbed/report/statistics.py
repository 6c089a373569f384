"""What a run's steps say: step times, the healthy median, stalls, lost job time. Pure functions on plain data.

Every rule is stated where it is applied; docs/results.md tells the same in prose.
"""

from __future__ import annotations

import math
import statistics as stdlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from testbed.percentile import percentile
from testbed.report.model import ArmRun, FaultInterval, JobStep, StepRow

SETTLE_S = 1.0  # how long after its end a fault may still be felt; ours, a parameter of every function that uses it
STALLED_RATIO = 1.5  # a step slower than this many healthy medians counts as stalled; the target of the flagship scenario
# No ratio is made of a stall or loss below this share of the healthy median, and no fault is blamed for it. Ours, the same for every arm.
# It is no bound of the emulation's noise: in one construction-site run 10 of 76 MRC steps without a fault were above it, of RC none.
NEGLIGIBLE_SHARE = 0.05
MIN_HEALTHY_STEPS = 5  # below this the healthy median is reported as weak

Key = TypeVar("Key")


# --- job steps -----------------------------------------------------------------------------------------------------------------------


def job_steps(run: ArmRun) -> list[JobStep]:
    """The steps of the job in order of time, of all attempts; at most one cut step an attempt."""
    ranks = len({row.rank for row in run.steps})
    attempts = sorted({row.attempt for row in run.steps})
    starts = {attempt: _attempt_start(run, attempt) for attempt in attempts}
    first = {attempt: min(row.step for row in run.steps if row.attempt == attempt) for attempt in attempts}
    found: list[JobStep] = []
    for attempt in attempts:
        redone_from = min((first[later] for later in attempts if later > attempt), default=None)
        over_s, cut = _attempt_end(run, attempt, [starts[later] for later in attempts if later > attempt])
        rows = [row for row in run.steps if row.attempt == attempt]
        found.extend(_steps_of_attempt(rows, ranks, starts[attempt], over_s, cut, redone_from))
    return found


def _steps_of_attempt(
    rows: Sequence[StepRow], ranks: int, start_s: float, over_s: float, cut: str, redone_from: int | None
) -> Iterable[JobStep]:
    previous_s = start_s
    for step, same in sorted(_grouped((row.step, row) for row in rows).items()):
        ends = [row.end_s for row in same if row.end_s is not None]
        useful = redone_from is None or step < redone_from
        if len(ends) < ranks:
            yield JobStep(rows[0].attempt, step, previous_s, max(over_s, previous_s, *ends), cut, useful=False)
            return
        yield JobStep(rows[0].attempt, step, previous_s, max(ends), useful=useful)
        previous_s = max(ends)


def _attempt_start(run: ArmRun, attempt: int) -> float:
    """When the attempt began: as its event says, else as its first row does; the first attempt begins with the job, at 0."""
    told = [float(event["t_s"]) for event in run.named("job_start", "job_restart") if event.get("attempt") == attempt]
    rows = [row.start_s for row in run.steps if row.attempt == attempt]
    return told[-1] if told else 0.0 if attempt == min(row.attempt for row in run.steps) else min(rows)


def _attempt_end(run: ArmRun, attempt: int, later_starts: Sequence[float]) -> tuple[float, str]:
    """When and why the attempt was over: its crash (as told, else the next attempt's start), or the run's end."""
    crashes = [float(event["t_s"]) for event in run.named("job_crash") if event.get("attempt") == attempt]
    if crashes:
        return crashes[0], "crash"
    return (min(later_starts), "crash") if later_starts else (run.duration_s, "run end")


def _grouped(pairs: Iterable[tuple[Key, StepRow]]) -> dict[Key, list[StepRow]]:
    groups: dict[Key, list[StepRow]] = {}
    for key, row in pairs:
        groups.setdefault(key, []).append(row)
    return groups


# --- healthy median ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Healthy:
    """The healthy median in seconds, from how many steps, and whether those were really clear of faults (`clear`).

    `slowest_s` is the slowest of the clear steps: how far an arm strays without any fault; None if no step was clear.
    """

    median_s: float | None
    steps: int
    clear: bool
    slowest_s: float | None = None


def felt_intervals(
    faults: Sequence[FaultInterval], steps: Sequence[JobStep], duration_s: float, settle_s: float
) -> list[tuple[float, float]]:
    """When each fault may be felt: from its effect to its end + settle, and at least until one whole step after its end was completed."""
    intervals = []
    for fault in faults:
        if fault.happened:
            end_s = fault.until_s(duration_s)
            recovered_s = min((step.end_s for step in steps if step.complete and step.start_s >= end_s), default=duration_s)
            intervals.append((fault.begin_s, max(end_s + settle_s, recovered_s)))
    return intervals


def overlaps(step: JobStep, interval: tuple[float, float]) -> bool:
    """Whether a step and an interval have any time in common; touching is not enough."""
    return step.start_s < interval[1] and step.end_s > interval[0]


def healthy_median(run: ArmRun, steps: Sequence[JobStep], settle_s: float = SETTLE_S) -> Healthy:
    """Median time of the complete steps that no fault touched. If there is none, the median of all complete steps, marked not clear:
    it is then too high, and every stall and loss too low."""
    felt = felt_intervals(run.faults, steps, run.duration_s, settle_s)
    complete = [step for step in steps if step.complete]
    clear = [step.time_s for step in complete if not any(overlaps(step, interval) for interval in felt)]
    used = clear or [step.time_s for step in complete]
    return Healthy(stdlib.median(used) if used else None, len(clear), bool(clear), max(clear, default=None))


# --- stalls and lost time ------------------------------------------------------------------------------------------------------------


def judged_steps(steps: Sequence[JobStep], median_s: float | None) -> list[JobStep]:
    """The steps whose time means something: all complete ones, and a cut one if it already took longer than the healthy median.

    Leaving a cut step out would hide the longest stall of all; counting a short one would make the job look faster than it was.
    """
    return [step for step in steps if step.complete or (median_s is not None and step.time_s > median_s)]


def stall_s(step: JobStep, median_s: float) -> float:
    """What the step lost against the healthy median, in seconds; never below 0."""
    return max(0.0, step.time_s - median_s)


@dataclass(frozen=True)
class LostTime:
    """Lost job time in seconds; ``total_s == stall_s + crash_s``."""

    total_s: float
    stall_s: float
    crash_s: float


def lost_time(steps: Sequence[JobStep], duration_s: float, median_s: float) -> LostTime:
    """duration - useful steps x healthy median. A last step that was still running is credited with up to one median of its time, so that
    the run's end costs nothing by itself. Steps faster than the median make up for slower ones; a total below 0 is given as 0.

    The part due to crashes runs, for each crash, from the end of the last step that still counts to the start of the next attempt (or to
    the run's end): waiting for the transport to give up, the work that was thrown away, and the restart. The rest is stall.
    """
    useful = [step for step in steps if step.complete and step.useful]
    running = [step for step in steps if step.cut == "run end"]
    credit_s = sum(min(step.time_s, median_s) for step in running)
    total_s = max(0.0, duration_s - len(useful) * median_s - credit_s)
    in_steps_s = sum(step.time_s for step in (*useful, *running))
    crashed = any(step.cut == "crash" or (step.complete and not step.useful) for step in steps)
    crash_s = min(total_s, max(0.0, duration_s - in_steps_s)) if crashed else 0.0
    return LostTime(total_s, total_s - crash_s, crash_s)


def wrong_sums(rows: Iterable[StepRow]) -> int:
    """Number of steps (an attempt's step counts once) whose sum was wrong on any rank."""
    return len({(row.attempt, row.step) for row in rows if row.ok is False})


STEP_COUNTS = (
    "healthy_median_s", "steps_completed", "lost_steps", "crashes", "wrong_sums", "step_p50_s", "step_p99_s", "step_p100_s",
)  # fmt: skip


def step_metrics(run: ArmRun, settle_s: float = SETTLE_S) -> dict[str, float | None]:
    """All metrics that come from the steps; all None if there is no step at all, which is a job that was not measured, not one without
    crashes."""
    steps = job_steps(run)
    healthy = healthy_median(run, steps, settle_s)
    if not run.steps:
        return dict.fromkeys(STEP_COUNTS) | _against_median(steps, run.duration_s, None)
    values: dict[str, float | None] = {
        "healthy_median_s": healthy.median_s,
        "steps_completed": float(sum(step.complete and step.useful for step in steps)),
        "lost_steps": float(sum(step.complete and not step.useful for step in steps)),
        "crashes": float(crash_count(run, steps)),
        "wrong_sums": float(wrong_sums(run.steps)),
    }
    times = [step.time_s for step in judged_steps(steps, healthy.median_s)]
    values |= {f"step_p{label}_s": percentile(times, share) for label, share in (("50", 0.5), ("99", 0.99), ("100", 1.0))}
    return values | _against_median(steps, run.duration_s, healthy.median_s)


def _against_median(steps: Sequence[JobStep], duration_s: float, median_s: float | None) -> dict[str, float | None]:
    names = (
        "step_over_median_p100", "stall_p50_s", "stall_p99_s", "stall_p100_s", "stalled_steps",
        "lost_job_time_s", "lost_job_time_share", "lost_stall_s", "lost_crash_s",
    )  # fmt: skip
    if not median_s:
        return dict.fromkeys(names)
    judged = judged_steps(steps, median_s)
    stalls = [stall_s(step, median_s) for step in judged]
    lost = lost_time(steps, duration_s, median_s)
    slowest = max(step.time_s for step in judged)
    stalled = sum(step.time_s > STALLED_RATIO * median_s for step in judged)
    shares = [percentile(stalls, share) for share in (0.5, 0.99, 1.0)]
    share = lost.total_s / duration_s if duration_s > 0 else None
    values = (slowest / median_s, *shares, float(stalled), lost.total_s, share, lost.stall_s, lost.crash_s)
    return dict(zip(names, values, strict=True))


def crash_count(run: ArmRun, steps: Sequence[JobStep]) -> int:
    """Crashes as the history tells them; if it lost them, the attempts that ended before the last one."""
    told = len(run.named("job_crash"))
    return max(told, len({step.attempt for step in steps}) - 1 if steps else 0)


def spread(values: Sequence[float | None]) -> dict[str, object]:
    """A metric across repeats: median and range of the known values, and all values in order of the repeats."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return {"median": None, "min": None, "max": None, "values": list(values)}
    return {"median": stdlib.median(known), "min": min(known), "max": max(known), "values": list(values)}


def by_name(rows: Sequence[Mapping[str, float | None]], name: str) -> list[float | None]:
    """One metric's values, in order of the repeats."""
    return [row.get(name) for row in rows]
