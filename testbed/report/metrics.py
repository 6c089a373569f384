"""The metrics of an arm: what scenarios' expectations may refer to, with unit and meaning. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from testbed.scenario.derived_links import SWITCHING_OF_ARM, TRANSPORT_OF_ARM, USID_ARMS


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
    Metric("wrong_sums", "steps", "Steps (of streams: messages) with wrong data on at least one rank; anything but 0 is a bug."),
    Metric("tables_unchanged", "0 or 1", "1 if the switches' tables were the same at the end as at the start.", "high"),
    Metric("false_retirements", "times", "How often an EV became ASSUMED_BAD though nothing on its path lost packets but full queues."),
    Metric("retirements", "times", "How often an EV became ASSUMED_BAD, for whatever reason; none of arms without EVs."),
    Metric("taken_back", "times", "Retirements for a loss that were taken back: what was taken for lost had arrived."),
    Metric("detection_median_s", "s", "Median time from a fault's effect to the last data packet that an EV still sent into it."),
    Metric("detection_max_s", "s", "Longest time from a fault's effect to the last data packet that an EV still sent into it."),
    Metric("detection_median_rtt", "base RTTs", "detection_median_s in base RTTs of the pair (median of idle probes before the job)."),
    Metric("detection_max_rtt", "base RTTs", "detection_max_s in base RTTs of the pair."),
    Metric("after_first_loss_median_s", "s", "As detection_median_s, from the first packet that the fault took: without idle time."),
    Metric("after_first_loss_max_s", "s", "As detection_max_s, from the first packet that the fault took: without idle time."),
    Metric("after_first_loss_median_rtt", "base RTTs", "after_first_loss_median_s in base RTTs of the pair."),
    Metric("after_first_loss_max_rtt", "base RTTs", "after_first_loss_max_s in base RTTs of the pair."),
    Metric(
        "packets_lost",
        "packets",
        "Packets that faults and random loss took, as the links' counters saw it; a cut that takes the carrier is not seen.",
    ),
    Metric(
        "job_goodput_bps",
        "bit/s",
        "Payload that a rank sends, by the time of its steps less their compute; not of streams.",
        "high",
    ),
    Metric("flow_goodput_min_share", "share", "Goodput of the worst flow, as a share of its fair rate; streams only.", "high"),
    Metric("flow_goodput_median_share", "share", "Goodput of the median flow, as a share of its fair rate.", "high"),
    Metric("jain", "index", "Jain's index over the shares of flows of the same role, the lowest of the roles; 1 = all alike.", "high"),
    Metric("bottleneck_share", "share", "Goodput into the incast's receiver while all flows are on, of what its link can carry.", "high"),
    Metric("victim_share", "share", "Goodput of the victim while the incast is on, of its own while it is off.", "high"),
    Metric("fault_goodput_share", "share", "Goodput of all flows while a fault is on, of theirs while none is; the worst fault.", "high"),
    Metric("fault_worst_flow_share", "share", "As fault_goodput_share, of the flow that lost most.", "high"),
    Metric("trimmed_packets", "packets", "Packets that links cut down to their headers."),
    Metric("marked_packets", "packets", "Packets that links marked (ECN)."),
    Metric("queue_dropped_packets", "packets", "Packets that links dropped because their queue was full."),
    Metric("retransmitted_share", "share", "Data packets that were sent again, of all that were sent."),
    Metric("recovery_median_srtt", "SRTTs", "From a lost packet's sending to its retransmission: median, in smoothed RTTs of that moment."),
    Metric("link_use_max", "share", "Use of the busiest link direction inside the fabric, of its rate."),
    Metric("link_use_mean", "share", "Mean use of all link directions inside the fabric, of their rate.", "high"),
    Metric("link_use_cv", "x", "Standard deviation / mean of the links' use, of the least even tier and direction; 0 = all alike."),
    Metric("bgp_updates", "messages", "BGP UPDATEs that routers received while the job ran; none where nothing routes."),
    Metric("bgp_withdrawals", "prefixes", "Prefixes that those UPDATEs withdrew."),
    Metric("bgp_notifications", "messages", "BGP NOTIFICATIONs that routers received while the job ran."),
    Metric("session_losses", "ends", "Ends of BGP sessions that went down while the job ran; a session has two."),
    Metric("fib_changes", "changes", "Changes of switches' forwarding tables by routing while the job ran."),
)

METRIC_NAMES: tuple[str, ...] = tuple(metric.name for metric in METRICS)

# Metrics that only one kind of job has: of jobs of steps by their names' beginnings, of streams by name.
STEP_PREFIXES = ("step_", "steps_", "stall_", "stalled_", "healthy_", "lost_", "job_goodput_")
INCAST_METRICS = frozenset({"bottleneck_share", "victim_share"})
STREAM_METRICS = INCAST_METRICS | {
    "flow_goodput_min_share", "flow_goodput_median_share", "jain", "fault_goodput_share", "fault_worst_flow_share",
}  # fmt: skip


def needs(name: str) -> str:
    """The job without which a metric cannot be measured: "a job of steps", "streams", "an incast"; empty if any job will do."""
    if name in STREAM_METRICS:
        return "an incast" if name in INCAST_METRICS else "streams"
    return "a job of steps" if name.startswith(STEP_PREFIXES) else ""


def measured_of(name: str) -> tuple[str, frozenset[str]]:
    """The arms of which a metric can be measured, in words and by name; no words if any arm will do."""
    return next(((words, arms) for words, arms, names in ARMS_OF if name.startswith(names)), ("", frozenset()))


def _arms(of: Mapping[str, str], *kinds: str) -> frozenset[str]:
    return frozenset(arm for arm, kind in of.items() if kind in kinds)


# (the arms in words, their names, how the names of their metrics begin)
ARMS_OF = (
    ("arms in which something routes", _arms(SWITCHING_OF_ARM, "frr", "ovs-bgp"), ("bgp_", "session_losses", "fib_changes")),
    ("arms whose tables never change", _arms(SWITCHING_OF_ARM, "ovs", "ovs-ecmp"), ("tables_unchanged",)),
    ("MRC's arms whose paths are known", frozenset(USID_ARMS), ("false_retirements", "detection_", "after_first_loss_")),
    ("MRC's arms", _arms(TRANSPORT_OF_ARM, "mrc"), ("retirements", "taken_back", "recovery_")),
)


def metric(name: str) -> Metric:
    """The metric called `name`; KeyError if there is none."""
    return {entry.name: entry for entry in METRICS}[name]
