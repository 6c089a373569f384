"""The metrics of an arm: what scenarios' expectations may refer to, with unit and meaning. Pure data."""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    """One number an arm and repeat; `better` says which end is good: "low" or "high"."""

    name: str
    unit: str
    meaning: str
    better: str = "low"


METRICS: tuple[Metric, ...] = (
    Metric("step_p50_s", "s", "Half of the job's steps took no longer (nearest rank)."),
    Metric("step_p99_s", "s", "99 % of the job's steps took no longer (nearest rank)."),
    Metric("step_p100_s", "s", "The slowest step of the job, also one that a crash or the run's end cut short."),
    Metric("step_over_median_p100", "x", "The slowest step, as a multiple of the healthy median."),
    Metric("healthy_median_s", "s", "Median time of the steps that no fault touched, in the same arm and repeat."),
    Metric("stall_p50_s", "s", "Half of the steps lost no more than this against the healthy median."),
    Metric("stall_p99_s", "s", "99 % of the steps lost no more than this against the healthy median."),
    Metric("stall_p100_s", "s", "The longest stall: the slowest step minus the healthy median."),
    Metric("stalled_steps", "steps", "Steps that took more than 1.5 times the healthy median."),
    Metric("lost_job_time_s", "s", "Job time minus what its useful steps need at the healthy median; never below 0."),
    Metric("lost_stall_s", "s", "The part of the lost job time that steps lost by being slow."),
    Metric("lost_crash_s", "s", "The part of the lost job time that crashes cost: giving up, thrown-away work, restart."),
    Metric("lost_job_time_share", "share", "Lost job time as a share of the job's time, 0 to 1."),
    Metric("steps_completed", "steps", "Useful steps completed: a step that was redone after a crash counts once.", "high"),
    Metric("crashes", "crashes", "How often a failed transfer crashed the job."),
    Metric("lost_steps", "steps", "Completed steps that had to be redone after a crash."),
    Metric("wrong_sums", "steps", "Steps whose all-reduce gave a wrong sum on at least one rank; anything but 0 is a bug."),
    Metric("tables_unchanged", "0 or 1", "1 if the switches' tables were the same at the end as at the start.", "high"),
    Metric("false_retirements", "EVs", "EVs set to ASSUMED_BAD while no link or switch of their path had a fault."),
    Metric("detection_median_s", "s", "Median time from a fault's effect to the last data packet that an EV still sent into it."),
    Metric("detection_max_s", "s", "Longest time from a fault's effect to the last data packet that an EV still sent into it."),
    Metric("detection_median_rtt", "base RTTs", "detection_median_s in base RTTs of the pair (median of idle probes before the job)."),
    Metric("detection_max_rtt", "base RTTs", "detection_max_s in base RTTs of the pair."),
    Metric("after_first_loss_median_s", "s", "As detection_median_s, from the first packet that the fault took: without idle time."),
    Metric("after_first_loss_max_s", "s", "As detection_max_s, from the first packet that the fault took: without idle time."),
    Metric("after_first_loss_median_rtt", "base RTTs", "after_first_loss_median_s in base RTTs of the pair."),
    Metric("after_first_loss_max_rtt", "base RTTs", "after_first_loss_max_s in base RTTs of the pair."),
    Metric("packets_lost", "packets", "Packets that faulted links dropped, as the links' counters saw it."),
)

METRIC_NAMES: tuple[str, ...] = tuple(metric.name for metric in METRICS)


def metric(name: str) -> Metric:
    """The metric called `name`; KeyError if there is none."""
    return {entry.name: entry for entry in METRICS}[name]
