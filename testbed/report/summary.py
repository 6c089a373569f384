"""summary.json: every metric of every arm, repeat and fault of one run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.files import write_text
from testbed.report import congestion, effects, fault_goodput, goodput, link_use, reading, routing, step_goodput
from testbed.report import statistics as stats
from testbed.report.context import TRANSPORT_OF_ARM
from testbed.report.metrics import METRIC_NAMES, METRICS
from testbed.report.model import ArmRun
from testbed.report.reading import RunData
from testbed.scenario.derived_links import HASHED_ARMS

VERDICTS = ("good", "suspect", "invalid")
FIDELITY_FIGURES = ("cpu_busy_median", "cpu_busy_max", "steal_max", "achieved_rate_share", "lateness_p99_s", "qdisc_drops")


def summarise(run_dir: Path, settle_s: float = stats.SETTLE_S) -> dict[str, Any]:
    """The summary of the run in `run_dir` (docs/results.md tells the keys). UsageError if the folder is no run."""
    return summarise_data(reading.read_run(run_dir), settle_s)


def write_summary(run_dir: Path) -> dict[str, Any]:
    """Writes summary.json into the run's folder and returns its content."""
    return write_summary_of(reading.read_run(run_dir))


def write_summary_of(data: RunData) -> dict[str, Any]:
    """As `write_summary`, from a run that was read already."""
    summary = summarise_data(data)
    write_text(data.folder / "summary.json", json.dumps(summary, indent=1, allow_nan=False) + "\n")
    return summary


def summarise_data(data: RunData, settle_s: float = stats.SETTLE_S) -> dict[str, Any]:
    """As `summarise`, from a run that was read already."""
    arms = {arm: _arm_summary(runs, settle_s) for arm, runs in data.arms.items()}
    return {
        "scenario": str(data.scenario.get("name") or data.folder.parent.name),
        "seed": data.seed,
        "settle_s": settle_s,
        "job": _job_kind(data),
        "arms": {arm: no_nan(summary) for arm, summary in arms.items()},
        "fidelity": no_nan(_fidelity([run for runs in data.arms.values() for run in runs])),
        "metrics": {metric.name: {"unit": metric.unit, "meaning": metric.meaning} for metric in METRICS},
        "problems": data.all_problems,
    }


def _job_kind(data: RunData) -> str:
    """all-reduce, all-to-all or streams; an old run, which does not tell, is an all-reduce."""
    jobs = [*(run.job for runs in data.arms.values() for run in runs), data.scenario.get("job")]
    kinds = (job.get("kind") for job in jobs if isinstance(job, Mapping))
    return str(next((kind for kind in kinds if kind), "all-reduce"))


def repeat_summary(run: ArmRun, settle_s: float = stats.SETTLE_S) -> tuple[dict[str, Any], list[effects.FaultEffect]]:
    """One arm and repeat: its metrics by name, its faults' effects, its detections; and the effects once more, for grouping."""
    steps = stats.job_steps(run)
    healthy = stats.healthy_median(run, steps, settle_s)
    found = effects.detections(run)
    of_faults = effects.fault_effects(run, steps, healthy.median_s, settle_s)
    of_links = link_use.use_summary(run)
    under_faults = fault_goodput.fault_goodputs(run)
    entry = {
        "repeat": run.repeat,
        "duration_s": run.duration_s,
        "interrupted": bool(run.info.get("interrupted", True)),
        "healthy_steps": healthy.steps,
        "healthy_is_clear": healthy.clear,
        "healthy_slowest_s": healthy.slowest_s,
        "metrics": stats.step_metrics(run, settle_s)
        | effects.detection_metrics(found)
        | _other_metrics(run)
        | {"job_goodput_bps": step_goodput.job_goodput_bps(run, steps)}
        | goodput.stream_metrics(run)
        | fault_goodput.fault_metrics(under_faults)
        | congestion.congestion_metrics(run)
        | link_use.use_metrics(of_links)
        | routing.routing_metrics(run),
        "faults": _fault_rows(run, of_faults, under_faults),
        "detections": effects.as_rows(found),
        "flows": goodput.flow_rows(goodput.flow_goodputs(run)),
        "links": of_links,
        "recoveries": congestion.recoveries(run),
        "fidelity": run.info.get("fidelity", {}),
    }
    return entry, of_faults


def _fault_rows(
    run: ArmRun, of_steps: Sequence[effects.FaultEffect], of_flows: Sequence[fault_goodput.FaultGoodput]
) -> list[dict[str, Any]]:
    """One entry a fault: what it did to steps, and to flows, and what routing did while it was on."""
    shares = {entry.fault: {"goodput_share": entry.goodput_share, "worst_flow_share": entry.worst_flow_share} for entry in of_flows}
    unknown = {"goodput_share": None, "worst_flow_share": None}
    routed = routing.routing_rows(run)
    return [row | shares.get(row["fault"], unknown) | routed[row["fault"]] for row in effects.as_rows(of_steps)]


def _other_metrics(run: ArmRun) -> dict[str, float | None]:
    unchanged = run.info.get("tables_unchanged")
    return {
        "tables_unchanged": float(unchanged) if isinstance(unchanged, bool) else None,
        **_retirement_counts(run),
        "packets_lost": sum(link.dropped[-1][1] for link in run.links if link.dropped) if run.links else None,
        **(_stream_counts(run) if run.streams and run.events else {}),
    }


def _retirement_counts(run: ArmRun) -> dict[str, float | None]:
    """How often EVs were retired. Where routers choose the paths nobody can say which of it was false."""
    changes = run.named("ev_state")
    if not changes and not (TRANSPORT_OF_ARM.get(run.arm) == "mrc" and run.events):
        return {"false_retirements": None, "retirements": None, "taken_back": None}
    return {
        "false_retirements": float(effects.false_retirements(run)) if run.arm not in HASHED_ARMS else None,
        "retirements": float(len(effects.retirements(run))),
        "taken_back": float(sum(event.get("reason") == "spurious" and event.get("from") == "ASSUMED_BAD" for event in changes)),
    }


def _stream_counts(run: ArmRun) -> dict[str, float]:
    """What the history alone tells of a job without steps."""
    wrong = {(event.get("source"), event.get("peer"), event.get("step")) for event in run.named("wrong_sum")}
    return {"wrong_sums": float(len(wrong)), "crashes": float(len(run.named("job_crash")))}


def _arm_summary(runs: Sequence[ArmRun], settle_s: float) -> dict[str, Any]:
    told = [repeat_summary(run, settle_s) for run in runs]
    repeats = [entry for entry, _ in told]
    all_effects = [effect for _, of_faults in told for effect in of_faults]
    names = [*METRIC_NAMES, *sorted({name for entry in repeats for name in entry["metrics"]} - set(METRIC_NAMES))]
    metrics = [entry["metrics"] for entry in repeats]
    return {
        **{name: stats.spread(stats.by_name(metrics, name)) for name in names},
        "by_kind": effects.group_effects(all_effects, lambda effect: effect.kind),
        "by_tier": effects.group_effects(all_effects, lambda effect: effect.tier),
        "fidelity": _fidelity(runs),
        "repeats": repeats,
    }


def _fidelity(runs: Sequence[ArmRun]) -> dict[str, Any]:
    """The worst verdict of all, with every reason; "unknown" if nobody judged."""
    told = [run.info.get("fidelity", {}) for run in runs]
    verdict = worst_verdict([(f"{run.arm} {run.repeat}", entry) for run, entry in zip(runs, told, strict=True)])
    return verdict | {name: worst_figure(told, name) for name in FIDELITY_FIGURES}


def worst_verdict(told: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """The worst verdict of several fidelity entries, given with the name of what they are about, and every reason with that name."""
    verdicts = [entry["verdict"] for _, entry in told if entry.get("verdict") in VERDICTS]
    reasons = [f"{name}: {reason}" for name, entry in told for reason in entry.get("reasons") or ()]
    return {"verdict": max(verdicts, key=VERDICTS.index, default="unknown"), "reasons": reasons}


def worst_figure(told: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """The worst of one figure of several fidelity entries; None if none of them has it."""
    known = [float(entry[name]) for entry in told if isinstance(entry.get(name), int | float)]
    return (min if name == "achieved_rate_share" else max)(known, default=None)


def no_nan(value: Any) -> Any:
    """JSON knows no NaN and no infinity: they become null."""
    if isinstance(value, Mapping):
        return {str(key): no_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [no_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
