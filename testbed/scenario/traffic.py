"""Which host sends to which, when: the flows of a job of streams, drawn by the scenario's seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Literal

from testbed.scenario.schema_job import AllReduce, AllToAll, Flows, Incast, Job, Lockstep, Permutation
from topologies import Topology

Role = Literal["flow", "incast", "victim"]


@dataclass(frozen=True)
class Flow:
    """A flow that is on from `at_s` for `for_s` seconds after the job's start."""

    source: str
    target: str
    at_s: float
    for_s: float
    role: Role = "flow"

    def record(self) -> dict[str, Any]:
        """As in arm.json."""
        return {"from": self.source, "to": self.target, "at_s": self.at_s, "for_s": self.for_s, "role": self.role}


def group_of(topology: Topology, host: str) -> tuple[int, str]:
    """What a host shares with its neighbours: its pod, or its T0 (of the first plane) where there are no pods."""
    pod = topology.nodes[host].pod
    return (pod, "") if pod else (0, topology.links_of(host)[0].b.node)


def hosts_a_group(topology: Topology) -> int:
    """Hosts under one pod, or under one T0 where there are no pods."""
    first = group_of(topology, topology.hosts[0])
    return sum(group_of(topology, host) == first for host in topology.hosts)


def ring_order(hosts: Sequence[str], placement: str, hosts_a_group: int) -> tuple[str, ...]:
    """The ring's ranks. `adjacent` keeps neighbours close, as a scheduler places a job; `strided` sends every hop to another group.

    A group is what hangs under one pod (fat-tree) or one T0 (multi-plane): `hosts_a_group` hosts in a row.
    """
    if placement == "adjacent":
        return tuple(hosts)
    return tuple(sorted(hosts, key=lambda host: (hosts.index(host) % hosts_a_group, hosts.index(host) // hosts_a_group)))


def pairs(job: Job, topology: Topology, duration_s: float, seed: int) -> list[tuple[str, str]]:
    """Which host sends to which. The job must have passed check_job.py."""
    if isinstance(job, AllReduce):
        ring = ring_order(hosts_of(job.hosts, topology), job.ring, hosts_a_group(topology))
        return list(zip(ring, (*ring[1:], ring[0]), strict=True))
    if isinstance(job, AllToAll):
        return list(permutations(hosts_of(job.hosts, topology), 2))
    return [(flow.source, flow.target) for flow in flows(job, topology, duration_s, seed)]


def flows(job: Job, topology: Topology, duration_s: float, seed: int) -> tuple[Flow, ...]:
    """All flows of a job in a run of `duration_s`; a lockstep job has none. The job must have passed check_job.py."""
    if isinstance(job, Flows):
        return tuple(Flow(flow.source, flow.target, flow.at_s, _span(flow.at_s, flow.for_s, duration_s)) for flow in job.flows)
    if isinstance(job, Permutation):
        return tuple(Flow(source, target, 0.0, duration_s) for source, target in permutation(hosts_of(job.hosts, topology), topology, seed))
    return _incast(job, topology, duration_s) if isinstance(job, Incast) else ()


def _span(at_s: float, for_s: float | None, duration_s: float) -> float:
    return duration_s - at_s if for_s is None else for_s


def hosts_of(named: str | tuple[str, ...], topology: Topology) -> tuple[str, ...]:
    """The hosts of a list, or all."""
    return topology.hosts if isinstance(named, str) else named


def permutation(hosts: Sequence[str], topology: Topology, seed: int) -> list[tuple[str, str]]:
    """A random permutation without fixed points; as few flows as possible stay inside a group.

    A flow that stays inside its group swaps targets with one that neither begins nor ends there. If there is none, every host outside of
    the group sends into it already, so no permutation does better; a host that sends to itself swaps with any other.
    """
    rng = random.Random(f"permutation {seed}")
    targets = rng.sample(hosts, len(hosts))
    group = {host: group_of(topology, host) for host in hosts}

    def cost(source: str, target: str) -> int:
        return 3 if source == target else int(group[source] == group[target])

    def improved(at: int) -> bool:
        for other in rng.sample(range(len(hosts)), len(hosts)):
            before = cost(hosts[at], targets[at]) + cost(hosts[other], targets[other])
            if cost(hosts[at], targets[other]) + cost(hosts[other], targets[at]) < before:
                targets[at], targets[other] = targets[other], targets[at]
                return True
        return False

    while any(cost(source, targets[at]) and improved(at) for at, source in enumerate(hosts)):
        pass
    return list(zip(hosts, targets, strict=True))


def _incast(job: Incast, topology: Topology, duration_s: float) -> tuple[Flow, ...]:
    for_s = _span(job.at_s, job.for_s, duration_s)
    found = [Flow(source, job.target, job.at_s, for_s, "incast") for source in incast_sources(job, topology)]
    if job.victim is not None:
        found.append(Flow(job.victim.source, job.victim.target, 0.0, duration_s, "victim"))
    return tuple(found)


def incast_sources(job: Incast, topology: Topology) -> tuple[str, ...]:
    """The senders: as listed, else from other groups first, in the topology's order; the victim's hosts last, its sender never."""
    return job.sources if job.sources is not None else incast_candidates(job, topology)[: job.senders or 0]


def incast_candidates(job: Incast, topology: Topology) -> tuple[str, ...]:
    """Hosts that can be senders, in the order in which they are taken."""
    victim = job.victim
    home = group_of(topology, job.target)
    able = [host for host in topology.hosts if host != job.target and (victim is None or host != victim.source)]
    return tuple(sorted(able, key=lambda host: (victim is not None and host == victim.target, group_of(topology, host) == home)))


def job_hosts(job: Job, topology: Topology, duration_s: float, seed: int) -> tuple[str, ...]:
    """The hosts that take part: of a lockstep job as in the file, of streams those with a flow, in the topology's order."""
    if isinstance(job, Lockstep):
        return hosts_of(job.hosts, topology)
    used = {host for flow in flows(job, topology, duration_s, seed) for host in (flow.source, flow.target)}
    return tuple(host for host in topology.hosts if host in used)


def job_record(job: Job, topology: Topology, duration_s: float, seed: int) -> dict[str, Any]:
    """What arm.json tells of the job: its kind and flows, and what a message or a rank's vector holds."""
    record = {"kind": job.kind, "flows": [flow.record() for flow in flows(job, topology, duration_s, seed)]}
    if isinstance(job, Lockstep):
        return {**record, "vector_bytes": job.vector_bytes, "ranks": len(hosts_of(job.hosts, topology))}
    return {**record, "message_bytes": job.message_bytes, "outstanding": job.outstanding}
