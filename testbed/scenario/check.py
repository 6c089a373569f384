"""What a scenario's shape cannot say: whether its parts make sense together. Works with the sections that are there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from testbed.scenario.faults import tier_of
from testbed.scenario.fit import link_problems, packet_problems
from testbed.scenario.model import build_topology, churn_window_s
from testbed.scenario.options import bgp_problems, transport_problems
from testbed.scenario.problems import Place, Problem, did_you_mean
from testbed.scenario.schema import (
    Churn,
    ChurnFault,
    Expectation,
    Job,
    LinkFault,
    Run,
    SwitchFault,
    UniformDown,
    UnknownDown,
)
from testbed.units import format_duration
from topologies import BadTopology, Topology, UnknownLink

# More is a mistake in the rate, and would take minutes to draw.
MAX_EXPECTED_CUTS = 2_000
FLOAT32_BYTES = 4


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
    problems += _run_problems(sections["run"]) if "run" in sections else []
    problems += _job_problems(sections["job"], topology) if "job" in sections else []
    problems += _fault_problems(draft, topology)
    problems += [problem for index, item in enumerate(sections.get("expect", ())) for problem in _expect_problems(item, ("expect", index))]
    problems += transport_problems(sections["transport"]) if "transport" in sections else []
    problems += bgp_problems(sections["bgp"]) if "bgp" in sections else []
    return problems + _fit_problems(sections)


def _fit_problems(sections: dict[str, Any]) -> list[Problem]:
    problems = []
    if {"links", "topology", "arms"} <= sections.keys():
        problems += link_problems(sections["links"], sections["topology"], sections["arms"])
    if {"links", "transport", "arms"} <= sections.keys():
        problems += packet_problems(sections["links"], sections["transport"], sections["arms"])
    return problems


def _topology(sections: dict[str, Any], problems: list[Problem]) -> Topology | None:
    if "topology" not in sections:
        return None
    try:
        return build_topology(sections["topology"])
    except BadTopology as error:
        problems.append(Problem(("topology",), str(error)))
        return None


def _arm_problems(arms: tuple[str, ...]) -> list[Problem]:
    return [Problem(("arms", index), f"arm {arm!r} is there twice") for index, arm in enumerate(arms) if arm in arms[:index]]


def _run_problems(run: Run) -> list[Problem]:
    if run.warmup_s + run.settle_s < run.duration_s:
        return []
    needs = f"warm-up ({format_duration(run.warmup_s)}) and settling ({format_duration(run.settle_s)}) leave no time in a run of"
    return [Problem(("run", "duration"), f"{needs} {format_duration(run.duration_s)}", "make the run longer, or warmup and settle shorter")]


def _job_problems(job: Job, topology: Topology | None) -> list[Problem]:
    problems = []
    if job.vector_bytes % FLOAT32_BYTES:
        problems.append(Problem(("job", "vector"), f"{job.vector_bytes} B is not a whole number of float32", "use a multiple of 4 B"))
    if topology is None:
        return problems
    hosts = topology.hosts if job.hosts == "all" else job.hosts
    problems += [problem for index, host in enumerate(hosts) for problem in _host_problems(host, index, hosts, topology)]
    if len(hosts) < 2:
        problems.append(Problem(("job", "hosts"), f"a ring needs two hosts, this one has {len(hosts)}", "list more hosts, or use `all`"))
    elif job.vector_bytes < FLOAT32_BYTES * len(hosts):
        least = FLOAT32_BYTES * len(hosts)
        problems.append(Problem(("job", "vector"), f"is less than one float32 for each of {len(hosts)} hosts", f"use at least {least}B"))
    return problems


def _host_problems(host: str, index: int, hosts: tuple[str, ...], topology: Topology) -> Iterator[Problem]:
    place = ("job", "hosts", index)
    if host not in topology.nodes or topology.nodes[host].kind != "host":
        yield Problem(place, f"there is no host {host!r} in this topology", did_you_mean(host, topology.hosts, "hosts"))
    elif host in hosts[:index]:
        yield Problem(place, f"host {host!r} is there twice", "a host has one rank")


def _fault_problems(draft: Draft, topology: Topology | None) -> list[Problem]:
    problems = []
    for index, spec in draft.faults:
        place = ("faults", index)
        if isinstance(spec, ChurnFault):
            problems += _churn_problems(spec.churn, (*place, "churn"), draft.sections.get("run"), topology)
        else:
            problems += _target_problems(spec, place, topology) if topology else []
            problems += _time_problems(spec, place, draft.sections["run"]) if "run" in draft.sections else []
    return problems + (_overlap_problems(draft.faults, topology) if topology else [])


def _target_problems(spec: LinkFault | SwitchFault, place: Place, topology: Topology) -> list[Problem]:
    if isinstance(spec, LinkFault):
        try:
            topology.link(spec.link)
        except UnknownLink as error:
            message, _, more = str(error).partition(": ")
            hint = more if "is linked to" in more else did_you_mean(spec.link, topology.links, "links")
            return [Problem((*place, "link"), message, hint)]
        return []
    if spec.switch in topology.switches:
        return []
    message = f"there is no switch {spec.switch!r} in this {topology.kind}"
    return [Problem((*place, "switch"), message, did_you_mean(spec.switch, topology.switches, "switches"))]


def _time_problems(spec: LinkFault | SwitchFault, place: Place, run: Run) -> Iterator[Problem]:
    if spec.at_s < run.warmup_s:
        message = f"begins at {format_duration(spec.at_s)}, within the warm-up of {format_duration(run.warmup_s)}"
        yield Problem((*place, "at"), message, "begin later, or make run.warmup shorter")
    if spec.at_s >= run.duration_s:
        message = f"begins at {format_duration(spec.at_s)}, after the run's end ({format_duration(run.duration_s)})"
        yield Problem((*place, "at"), message, "begin earlier, or make run.duration longer")
    elif spec.at_s + spec.for_s > run.duration_s - run.settle_s:
        limit_s = run.duration_s - run.settle_s
        limit = f"all must be healed by {format_duration(limit_s)} (duration - settle)"
        message = f"lasts until {format_duration(spec.at_s + spec.for_s)}; {limit}"
        yield Problem((*place, "for"), message, "end it earlier, or make run.duration longer")


def touched(spec: LinkFault | SwitchFault, topology: Topology) -> frozenset[str]:
    """The links that a fault takes down: two faults that share one overlap. Empty for targets that do not exist."""
    if isinstance(spec, SwitchFault):
        return frozenset(link.name for link in topology.links_of(spec.switch)) if spec.switch in topology.nodes else frozenset()
    try:
        return frozenset({topology.link(spec.link).name})
    except UnknownLink:
        return frozenset()


def _overlap_problems(faults: list[tuple[int, Any]], topology: Topology) -> list[Problem]:
    explicit = [(index, spec, touched(spec, topology)) for index, spec in faults if isinstance(spec, (LinkFault, SwitchFault))]
    problems = []
    for (first, one, one_links), (second, other, other_links) in combinations(explicit, 2):
        in_time = one.at_s < other.at_s + other.for_s and other.at_s < one.at_s + one.for_s
        if in_time and one_links & other_links:
            target = min(one_links & other_links) if isinstance(one, LinkFault) or isinstance(other, LinkFault) else _target(other)
            message = f"overlaps with $.faults[{first}] on {target}"
            problems.append(Problem(("faults", second), message, "one fault at a time on a target: move one of them"))
    return problems


def _target(spec: LinkFault | SwitchFault) -> str:
    return spec.link if isinstance(spec, LinkFault) else spec.switch


def _churn_problems(churn: Churn, place: Place, run: Run | None, topology: Topology | None) -> list[Problem]:
    problems = list(_down_problems(churn.down, (*place, "down")))
    if not sum(churn.kinds.values()) > 0:
        problems.append(Problem((*place, "kinds"), "no kind has a weight above 0", "write kinds: {carrier: 0.5, silent: 0.5}"))
    if topology is not None:
        tiers = {tier_of(topology, "link", name) for name in topology.links}
        hint = f"it has: {', '.join(sorted(tiers))}"
        missing = [tier for tier in churn.tiers if tier not in tiers]
        problems += [Problem((*place, "tiers", tier), f"this {topology.kind} has no {tier} links", hint) for tier in missing]
    return problems + (list(_window_problems(churn, place, run)) if run else [])


def _down_problems(down: Any, place: Place) -> Iterator[Problem]:
    low, high = getattr(down, "min_s", None), getattr(down, "max_s", None)
    if isinstance(down, UnknownDown) or low is None or high is None:
        return
    if low > high or (low == high and not isinstance(down, UniformDown)):
        yield Problem((*place, "max"), f"max ({format_duration(high)}) must be above min ({format_duration(low)})")


def _window_problems(churn: Churn, place: Place, run: Run) -> Iterator[Problem]:
    from_s, to_s = churn_window_s(churn, run)
    limit_s = run.duration_s - run.settle_s
    if from_s < run.warmup_s:
        message = f"begins at {format_duration(from_s)}, within the warm-up of {format_duration(run.warmup_s)}"
        yield Problem((*place, "from"), message, "begin later, or make run.warmup shorter")
    if to_s > limit_s:
        message = f"goes on until {format_duration(to_s)}; all must be healed by {format_duration(limit_s)} (duration - settle)"
        yield Problem((*place, "to"), message, "leave `to` out to use all of the run")
    if from_s >= to_s and run.warmup_s < limit_s:
        yield Problem((*place, "from"), f"begins at {format_duration(from_s)}, not before its end at {format_duration(to_s)}")
    cuts = sum(rate.cuts_per_minute for rate in churn.tiers.values()) * max(0.0, to_s - from_s) / 60
    if cuts > MAX_EXPECTED_CUTS:
        yield Problem((*place, "tiers"), f"would draw about {cuts:.0f} cuts, more than {MAX_EXPECTED_CUTS}", "lower cuts_per_minute")


def _expect_problems(expectation: Expectation, place: Place) -> Iterator[Problem]:
    from testbed.report.metrics import METRIC_NAMES

    if expectation.metric not in METRIC_NAMES:
        hint = did_you_mean(expectation.metric, METRIC_NAMES, "metrics")
        yield Problem((*place, "metric"), f"there is no metric {expectation.metric!r}", hint)
    if expectation.at_most is None and expectation.at_least is None and expectation.equals is None:
        yield Problem(place, "has no bound", "add at_most, at_least or equals")
