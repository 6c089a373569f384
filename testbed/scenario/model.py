"""A valid scenario, ready to run: frozen, with every default written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import topologies
from testbed.link_settings import LinkSettings
from testbed.scenario.deny import ignored_by
from testbed.scenario.derived_links import base_rtt_s, link_settings, queue_bytes
from testbed.scenario.schema import (
    Expectation,
    FatTree,
    Links,
    MultiPlane,
    Option,
    Part,
    Run,
)
from testbed.scenario.schema_deny import Deny
from testbed.scenario.schema_faults import Churn, ChurnFault, ExplicitFault
from testbed.scenario.schema_job import Job
from testbed.scenario.schema_sweep import Sweep
from testbed.scenario.traffic import Flow, flows, job_hosts, job_record
from topologies import Topology


@dataclass(frozen=True)
class Scenario:
    """One experiment. Sections are the models of schema.py; `faults` as written (drawn by churn.draw).

    `transport` maps "mrc", "rc" and "tcp" to parameters that differ from their defaults, `bgp` and `bgp_ovs` are what
    the from_mapping of BgpOptions and of BgpOvsOptions take;
    `source` is the file's text as given and `overrides` what --set changed in it.
    """

    name: str
    title: str
    hypothesis: str
    topology: FatTree | MultiPlane
    links: Links
    job: Job
    run: Run
    faults: tuple[ExplicitFault | ChurnFault, ...]
    transport: Mapping[str, Mapping[str, Option]]
    bgp: Mapping[str, Option]
    bgp_ovs: Mapping[str, Option]
    arms: tuple[str, ...]
    repeats: int
    seed: int
    expect: tuple[Expectation, ...]
    deny: Deny = field(default_factory=Deny)
    source: str = field(default="", repr=False, compare=False)
    overrides: tuple[str, ...] = ()
    sweep: Sweep | None = None
    points: tuple[Point, ...] = field(default=(), repr=False, compare=False)

    def single_runs(self) -> tuple[Scenario, ...]:
        """What is to be run: the scenario of each point of the sweep, or this one if it has none."""
        return tuple(point.scenario for point in self.points) or (self,)

    def build_topology(self) -> Topology:
        """The topology that all arms share."""
        return build_topology(self.topology)

    def job_hosts(self) -> tuple[str, ...]:
        """The hosts of the job, in the order of the file (`all`: h1, h2 ...); of streams those that have a flow."""
        return job_hosts(self.job, self.build_topology(), self.run.duration_s, self.seed)

    def flows(self) -> tuple[Flow, ...]:
        """The flows of a job of streams, the same in all arms and repeats; a lockstep job has none."""
        return flows(self.job, self.build_topology(), self.run.duration_s, self.seed)

    def job_record(self) -> dict[str, Any]:
        """What arm.json tells of the job, see traffic.job_record."""
        return job_record(self.job, self.build_topology(), self.run.duration_s, self.seed)

    @property
    def queue_bytes(self) -> int:
        """The queue of a link, see derived_links."""
        return queue_bytes(self.links)

    def link_settings(self, arm: str, repeat: int = 1) -> LinkSettings:
        """Every link direction of an arm's fabric; chance differs from repeat to repeat, and is the same in all arms."""
        return link_settings(self.links, arm, self.seed + repeat - 1, bool(self.transport.get("rc", {}).get("dcqcn")))

    def resolved(self) -> dict[str, Any]:
        """The scenario as JSON-able data: all defaults written out, SI units in the key's names."""
        return {
            "name": self.name, "title": self.title, "hypothesis": self.hypothesis,
            "topology": _plain(self.topology),
            "links": {**_plain(self.links), "queue_bytes": self.queue_bytes, "base_rtt_s": base_rtt_s(self.links)},
            "job": {**_plain(self.job), "hosts": list(self.job_hosts()), **self.job_record()},
            "run": _plain(self.run),
            "faults": [self._resolved_fault(fault) for fault in self.faults],
            "deny": {**_plain(self.deny), **({"ignored_by": ignored_by(self.arms)} if self.deny else {})},
            "transport": {name: dict(given) for name, given in self.transport.items()},
            "bgp": dict(self.bgp), "bgp_ovs": dict(self.bgp_ovs),
            "arms": list(self.arms), "repeats": self.repeats, "seed": self.seed,
            "expect": [_plain(expectation) for expectation in self.expect],
            "overrides": list(self.overrides),
            **({"sweep": _plain(self.sweep)} if self.sweep else {}),
        }  # fmt: skip

    def _resolved_fault(self, fault: ExplicitFault | ChurnFault) -> dict[str, Any]:
        if not isinstance(fault, ChurnFault):
            return _plain(fault)
        from_s, to_s = churn_window_s(fault.churn, self.run)
        return {"churn": {**_plain(fault.churn), "from_s": from_s, "to_s": to_s}}


@dataclass(frozen=True)
class Point:
    """One value of a sweep: as written, as text, the name of its run's folder, and the scenario with the value set."""

    value: Any
    text: str
    folder: str
    scenario: Scenario


def build_topology(spec: FatTree | MultiPlane) -> Topology:
    """The topology of a section; raises topologies.BadTopology with a sentence."""
    return topologies.build(spec.kind, **spec.model_dump(exclude={"kind"}))


def churn_window_s(churn: Churn, run: Run) -> tuple[float, float]:
    """First and last moment at which cuts may begin: as asked, else from the warm-up's end to the settling time."""
    from_s = run.warmup_s if churn.from_s is None else churn.from_s
    to_s = run.duration_s - run.settle_s if churn.to_s is None else churn.to_s
    return from_s, to_s


def _plain(part: Part) -> dict[str, Any]:
    return part.model_dump(mode="json")


def arm_duration_s(scenario: Scenario, bring_up_s: Sequence[float] = (12.0, 8.0)) -> float:
    """Rough time one arm and repeat takes: the run, and bringing the fabric up and down."""
    return scenario.run.duration_s + sum(bring_up_s)


def total_duration_s(scenario: Scenario) -> float:
    """Rough time the whole scenario takes: all points, arms and repeats."""
    return sum(arm_duration_s(single) * len(single.arms) * single.repeats for single in scenario.single_runs())
