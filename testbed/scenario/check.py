"""What a scenario's shape cannot say: whether its parts make sense together. Works with the sections that are there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from testbed.scenario.check_faults import fault_problems
from testbed.scenario.check_job import job_problems
from testbed.scenario.deny import Evs, deny_problems, given_evs
from testbed.scenario.derived_links import ECMP_ARMS
from testbed.scenario.faults import CONTROLLER_HINT, missing_evs, no_controller
from testbed.scenario.fit import link_problems, packet_problems, rate_problems, tier_problems
from testbed.scenario.model import build_topology
from testbed.scenario.options import bgp_ovs_problems, bgp_problems, transport_problems
from testbed.scenario.problems import Place, Problem, did_you_mean
from testbed.scenario.schema import (
    Expectation,
    Run,
)
from testbed.scenario.schema_faults import ControllerFault
from testbed.scenario.schema_job import Incast, Streams
from testbed.scenario.traffic import job_hosts, pairs
from testbed.units import format_duration
from topologies import BadTopology, Topology, ecmp


@dataclass
class Draft:
    """The sections whose shape is right, by name, and the faults with their indices in the file."""

    sections: dict[str, Any] = field(default_factory=dict)
    faults: list[tuple[int, Any]] = field(default_factory=list)


def check(draft: Draft) -> list[Problem]:
    """Everything that makes no sense in the sections that are there; places without lines."""
    sections, problems = draft.sections, list[Problem]()
    topology = _topology(sections, problems)
    problems += _arm_problems(sections.get("arms", ()))
    problems += _port_problems(sections.get("arms", ()), topology) if topology else []
    problems += _run_problems(sections["run"]) if "run" in sections else []
    of_job = job_problems(sections["job"], topology, sections.get("run")) if "job" in sections else []
    hosts = None if of_job else _job_hosts(sections, topology)
    problems += of_job + fault_problems(draft.faults, sections.get("run"), sections.get("links"), topology, hosts)
    for index, item in enumerate(sections.get("expect", ())):
        problems += _expect_problems(item, ("expect", index), sections.get("job"))
    of_transport = transport_problems(sections["transport"]) if "transport" in sections else []
    # MRC's defaults where its parameters make no sense
    given = given_evs(sections["transport"].mrc) if "transport" in sections and not of_transport else Evs()
    problems += of_transport
    problems += _ev_problems(draft.faults, given, topology, sections.get("arms", ())) if topology else []
    problems += _controller_problems(draft.faults, sections.get("arms"))
    problems += _deny_problems(sections, given, topology, hosts is not None) if topology else []
    problems += bgp_problems(sections["bgp"]) if "bgp" in sections else []
    problems += bgp_ovs_problems(sections["bgp_ovs"]) if "bgp_ovs" in sections else []
    problems += tier_problems(sections["links"].loss, ("links", "loss"), topology) if topology and "links" in sections else []
    return problems + _fit_problems(sections)


def _ev_problems(faults: list[tuple[int, Any]], given: Evs, topology: Topology, arms: tuple[str, ...]) -> Iterator[Problem]:
    for index, spec in faults:
        if message := missing_evs(getattr(spec, "evs", ()), topology, given, arms):
            hint = "see `testbed topo show --paths`, set transport.mrc.evs, or leave an arm out"
            yield Problem(("faults", index, "evs"), message, hint)


def _controller_problems(faults: list[tuple[int, Any]], arms: tuple[str, ...] | None) -> Iterator[Problem]:
    for index, spec in faults:
        if isinstance(spec, ControllerFault) and arms and (message := no_controller(arms)):
            yield Problem(("faults", index, "kind"), message, CONTROLLER_HINT)


def _deny_problems(sections: dict[str, Any], given: Evs, topology: Topology, job_is_good: bool) -> list[Problem]:
    """`pairs` needs a job that makes sense."""
    deny = sections.get("deny")
    if not deny:
        return []
    of_job = pairs(sections["job"], topology, sections["run"].duration_s, sections["seed"]) if job_is_good else None
    return deny_problems(deny, topology, of_job, given)


def _fit_problems(sections: dict[str, Any]) -> list[Problem]:
    problems = []
    if {"links", "arms"} <= sections.keys():
        dcqcn = "transport" in sections and sections["transport"].rc.get("dcqcn") is True
        problems += link_problems(sections["links"], sections["arms"], dcqcn)
    if {"links", "transport", "arms"} <= sections.keys():
        problems += packet_problems(sections["links"], sections["transport"], sections["arms"])
        problems += rate_problems(sections["transport"])
    return problems


def _topology(sections: dict[str, Any], problems: list[Problem]) -> Topology | None:
    if "topology" not in sections:
        return None
    try:
        return build_topology(sections["topology"])
    except BadTopology as error:
        problems.append(Problem(("topology",), str(error)))
        return None


def _job_hosts(sections: dict[str, Any], topology: Topology | None) -> tuple[str, ...] | None:
    """The hosts of a job that makes sense; None without what it takes to know them."""
    if topology is None or not {"job", "run", "seed"} <= sections.keys():
        return None
    return job_hosts(sections["job"], topology, sections["run"].duration_s, sections["seed"])


def _arm_problems(arms: tuple[str, ...]) -> list[Problem]:
    return [Problem(("arms", index), f"arm {arm!r} is there twice") for index, arm in enumerate(arms) if arm in arms[:index]]


def _port_problems(arms: tuple[str, ...], topology: Topology) -> list[Problem]:
    found = [(index, ecmp.beyond_ports(topology)) for index, arm in enumerate(arms) if arm in ECMP_ARMS]
    hint = "take fewer hosts a T0 (or T1s), or leave the arm out"
    return [Problem(("arms", index), f"{arms[index]}: {message}", hint) for index, message in found if message]


def _run_problems(run: Run) -> list[Problem]:
    if run.warmup_s + run.settle_s < run.duration_s:
        return []
    needs = f"warm-up ({format_duration(run.warmup_s)}) and settling ({format_duration(run.settle_s)}) leave no time in a run of"
    return [Problem(("run", "duration"), f"{needs} {format_duration(run.duration_s)}", "make the run longer, or warmup and settle shorter")]


def _expect_problems(expectation: Expectation, place: Place, job: Any) -> Iterator[Problem]:
    from testbed.report.metrics import METRIC_NAMES, measured_of, needs

    if expectation.metric not in METRIC_NAMES:
        hint = did_you_mean(expectation.metric, METRIC_NAMES, "metrics")
        yield Problem((*place, "metric"), f"there is no metric {expectation.metric!r}", hint)
    elif job is not None and (wanted := needs(expectation.metric)) not in _job_words(job):
        text = f"{expectation.metric} is measured of {wanted} only, so it could never be met"
        yield Problem((*place, "metric"), text, "remove it, or change job.kind or job.pattern (docs/results.md)")
    words, arms = measured_of(expectation.metric)
    if words and expectation.arm not in arms:
        text = f"{expectation.metric} is measured of {words} only, so it could never be met"
        yield Problem((*place, "arm"), text, f"take one of {', '.join(sorted(arms))}")
    if expectation.at_most is None and expectation.at_least is None and expectation.equals is None:
        yield Problem(place, "has no bound", "add at_most, at_least or equals")


def _job_words(job: Any) -> tuple[str, ...]:
    """What `metrics.needs` may ask for and this job is."""
    if not isinstance(job, Streams):
        return ("", "a job of steps")
    return ("", "streams", "an incast") if isinstance(job, Incast) else ("", "streams")
