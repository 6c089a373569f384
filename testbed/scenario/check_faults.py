"""Whether the faults of a scenario make sense: targets that exist, times within the run, no two on one target that make none together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from testbed.scenario.faults import Fault, from_spec, idle_host, overlaps
from testbed.scenario.fit import tier_problems
from testbed.scenario.kinds import slowed_bps
from testbed.scenario.model import churn_window_s
from testbed.scenario.problems import Place, Problem, did_you_mean
from testbed.scenario.schema import Links, Run
from testbed.scenario.schema_faults import (
    MIN_FLAP_S,
    Churn,
    ChurnFault,
    ExplicitFault,
    FlapFault,
    HostSlowFault,
    RateFault,
    UniformDown,
    UnknownDown,
)
from testbed.scenario.targets import UnknownTarget, aim
from testbed.units import format_duration
from topologies import Topology

# More is a mistake in the rate, and would take minutes to draw.
MAX_EXPECTED_CUTS = 2_000


def fault_problems(
    faults: Sequence[tuple[int, Any]], run: Run | None, links: Links | None, topology: Topology | None, job_hosts: Collection[str] | None
) -> list[Problem]:
    """What makes no sense in `faults` (index in the file, spec). Other sections are None where they have problems themselves."""
    problems = []
    for index, spec in faults:
        place = ("faults", index)
        if isinstance(spec, ChurnFault):
            problems += _churn_problems(spec.churn, (*place, "churn"), run, topology)
        else:
            problems += _aim_problems(spec, place, topology) if topology else []
            problems += _idle_problems(spec, place, topology, job_hosts) if topology and job_hosts is not None else []
            problems += _flap_problems(spec, place) if isinstance(spec, FlapFault) else []
            problems += _rate_problems(spec, place, links) if isinstance(spec, RateFault) and links else []
            problems += _time_problems(spec, place, run) if run else []
    problems += list(_number_problems(faults, run)) if run else []
    return problems + (_overlap_problems(faults, topology) if topology else [])


def _number_problems(faults: Sequence[tuple[int, Any]], run: Run) -> Iterator[Problem]:
    """All generators together; told at the one that is too much."""
    cuts = 0.0
    for index, spec in faults:
        if isinstance(spec, ChurnFault):
            from_s, to_s = churn_window_s(spec.churn, run)
            cuts += sum(rate.cuts_per_minute for rate in spec.churn.tiers.values()) * max(0.0, to_s - from_s) / 60
            if cuts > MAX_EXPECTED_CUTS:
                message = f"about {cuts:.0f} cuts would be drawn, more than {MAX_EXPECTED_CUTS}"
                yield Problem(("faults", index, "churn", "tiers"), message, "lower cuts_per_minute")
                return


def _aim_problems(spec: ExplicitFault, place: Place, topology: Topology) -> list[Problem]:
    key, _ = aim(spec)
    try:
        from_spec(spec, 0, topology)
    except UnknownTarget as error:
        return [Problem((*place, *(error.inside or (key,))), error.message, error.hint)]
    return list(_end_problems(spec, place, topology))


def _end_problems(spec: ExplicitFault, place: Place, topology: Topology) -> Iterator[Problem]:
    for key, name in (("from", getattr(spec, "from_node", None)), ("seen_by", getattr(spec, "seen_by", None))):
        if name is not None:
            link = topology.link(str(aim(spec)[1]))
            ends = (link.a.node, link.b.node)
            if name not in ends:
                yield Problem((*place, key), f"{name!r} is no end of link {link.name}", did_you_mean(name, ends, "its ends"))


def _flap_problems(spec: FlapFault, place: Place) -> Iterator[Problem]:
    for key, value_s in (("down", spec.down_s), ("up", spec.up_s)):
        if value_s < MIN_FLAP_S:
            yield Problem(
                (*place, key), f"{format_duration(value_s)} is too short to be carried out", f"use {format_duration(MIN_FLAP_S)} or more"
            )


def _idle_problems(spec: ExplicitFault, place: Place, topology: Topology, job_hosts: Collection[str]) -> Iterator[Problem]:
    if isinstance(spec, HostSlowFault) and spec.host in topology.hosts and spec.host not in job_hosts:
        yield Problem((*place, "host"), idle_host(spec.host), did_you_mean(spec.host, job_hosts, "hosts of the job"))


def _rate_problems(spec: RateFault, place: Place, links: Links) -> Iterator[Problem]:
    try:
        slowed_bps(spec.rate_bps, spec.share, links.rate_bps)
    except ValueError as error:
        yield Problem((*place, "share" if spec.rate_bps is None else "rate"), str(error))


def _time_problems(spec: ExplicitFault, place: Place, run: Run) -> Iterator[Problem]:
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


def _overlap_problems(faults: Sequence[tuple[int, Any]], topology: Topology) -> list[Problem]:
    known = list(_known_faults(faults, topology))
    problems = []
    for at, other, where in overlaps([fault for _, fault in known]):
        first, second = known[min(at, other)][0], known[max(at, other)][0]
        message = f"overlaps with $.faults[{first}] on {where}"
        problems.append(Problem(("faults", second), message, "one fault at a time on a target: move one of them"))
    return problems


def _known_faults(faults: Sequence[tuple[int, Any]], topology: Topology) -> Iterator[tuple[int, Fault]]:
    for index, spec in faults:
        if not isinstance(spec, ChurnFault):
            try:
                yield index, from_spec(spec, index, topology)
            except UnknownTarget:  # told elsewhere
                continue


def _churn_problems(churn: Churn, place: Place, run: Run | None, topology: Topology | None) -> list[Problem]:
    problems = list(_down_problems(churn.down, (*place, "down")))
    if not sum(churn.kinds.values()) > 0:
        problems.append(Problem((*place, "kinds"), "no kind has a weight above 0", "write kinds: {carrier: 0.5, silent: 0.5}"))
    problems += tier_problems(churn.tiers, (*place, "tiers"), topology) if topology else []
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
