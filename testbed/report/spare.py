"""How far the news of a failed link must travel: to the nearest switch before it that has another next hop. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import topologies
from testbed.errors import TestbedError
from testbed.report.model import ArmRun, FaultInterval
from testbed.units import counted
from topologies import Path, Topology


@dataclass(frozen=True)
class Spare:
    """The job's ways that cross what failed, both directions of each pair.

    `local`: those whose last switch before it has another next hop, and needs to tell nobody.
    `hops`: how many hops the news must travel for the others, at most. `cut_off`: ways whose pair has none around it.
    """

    ways: int
    local: int
    hops: int
    cut_off: int

    @property
    def words(self) -> str:
        """For the end of a sentence; empty if the job has no way there."""
        if not self.ways:
            return ""
        told = f"of the job's {self.ways} shortest ways over it {self.local} have another next hop at the very switch before it"
        far = (
            f", for the other {self.ways - self.local - self.cut_off} the news must travel up to {counted(self.hops, 'hop')}"
            if self.hops
            else ""
        )
        return told + far + (f", {self.cut_off} have no way around it" if self.cut_off else "")


def spare_of(topology: Topology, pairs: Iterable[tuple[str, str]], failed: Collection[str]) -> Spare:
    """What the topology has to spare when these links fail, for the given pairs (source, destination)."""
    links = set(failed)
    found = [distance for pair in pairs for distance in _distances(topology.paths(*pair), links)]
    known = [distance for distance in found if distance is not None]
    return Spare(len(found), known.count(0), max(known, default=0), len(found) - len(known))


def _distances(paths: Collection[Path], failed: set[str]) -> Iterator[int | None]:
    """For each way that crosses a failed link: how many hops before it the nearest switch with another next hop is; None if none has."""
    sound = [path for path in paths if failed.isdisjoint(path.links)]
    for path in paths:
        crossed = next((number for number, link in enumerate(path.links) if link in failed), None)
        if crossed is not None:
            branches = (at for at in range(crossed, 0, -1) if any(other.nodes[: at + 1] == path.nodes[: at + 1] for other in sound))
            at = next(branches, None)
            yield None if at is None else crossed - at


# --- of a run ------------------------------------------------------------------------------------------------------------------------


def topology_of(scenario: Mapping[str, Any]) -> Topology | None:
    """The topology that a run's scenario names; None where it cannot be told any more."""
    told = scenario.get("topology")
    if not isinstance(told, Mapping) or not isinstance(told.get("kind"), str):
        return None
    try:
        return topologies.build(told["kind"], **{str(name): value for name, value in told.items() if name != "kind"})
    except (TestbedError, TypeError, ValueError):
        return None


def job_pairs(run: ArmRun) -> list[tuple[str, str]]:
    """Who sends to whom, both directions, as acknowledgements go back; empty where arm.json does not tell."""
    ring = [host for host in run.info.get("ring") or () if isinstance(host, str)]
    if run.job.get("kind") == "all-to-all":
        return list(permutations(ring, 2))
    ways = [(flow.source, flow.target) for flow in run.flows] or list(zip(ring, [*ring[1:], *ring[:1]], strict=True))
    return list(dict.fromkeys(pair for way in ways if way[0] != way[1] for pair in (way, way[::-1])))


def spare_under(topology: Topology, run: ArmRun, fault: FaultInterval) -> Spare | None:
    """What the job's pairs have to spare under one fault; None where its links or the pairs are not known."""
    links = [link for link in (fault.links or (fault.target,)) if link in topology.links]
    pairs = [pair for pair in job_pairs(run) if set(pair) <= set(topology.hosts)]
    return spare_of(topology, pairs, links) if links and pairs else None
