"""Draws the fault list of a scenario: explicit faults as written, and cuts from churn generators. Pure and seeded.

Cuts of a tier arrive as a Poisson process, on a link drawn uniformly (and at one of its ends, where the kind wants an end). A drawn link
that is already down, or whose cut would leave two hosts of the job without a live shortest path, is redrawn; if no link is left, the cut
is dropped. All of this is counted.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from testbed.scenario.faults import Drawn, Fault, from_spec, numbered, place_source
from testbed.scenario.kinds import KINDS, takes_path
from testbed.scenario.model import Scenario, churn_window_s
from testbed.scenario.schema import TIERS
from testbed.scenario.schema_faults import Churn, ChurnFault, ExponentialDown, FixedDown, LognormalDown, UniformDown
from topologies import Topology

# Healing takes a moment of its own: the next cut of a link waits at least so long after the end of the last.
HEAL_GUARD_S = 0.5
# A cut that the run's end would make shorter than this is dropped.
MIN_CUT_S = 0.25
MAX_REDRAWS = 1000

DownTime = FixedDown | UniformDown | ExponentialDown | LognormalDown


@dataclass(frozen=True)
class Arrival:
    """A cut that wants a link: when, how long, of which kind; `rng` goes on to draw the link."""

    at_s: float
    for_s: float
    kind: str
    tier: str
    generator: int
    rng: random.Random


@dataclass(frozen=True)
class _Cut:
    """A fault and the links that it takes away: none when it only makes them lossy or slow."""

    fault: Fault
    links: frozenset[str]

    def active(self, from_s: float, to_s: float) -> bool:
        """Whether it is on (or still healing) at some moment of the interval."""
        return self.fault.at_s < to_s + HEAL_GUARD_S and from_s < self.fault.end_s + HEAL_GUARD_S


def draw(scenario: Scenario, topology: Topology | None = None) -> Drawn:
    """The drawn list: the same for the same scenario and seed. `counts`: asked, drawn, redrawn, shortened, and dropped by reason."""
    topology = topology or scenario.build_topology()
    cuts = [_explicit(from_spec(spec, index, topology)) for index, spec in enumerate(scenario.faults) if not isinstance(spec, ChurnFault)]
    generators = {index: spec.churn for index, spec in enumerate(scenario.faults) if isinstance(spec, ChurnFault)}
    if not generators:
        return Drawn(scenario.seed, numbered(cut.fault for cut in cuts))
    drawing = _Drawing(scenario, topology, generators, cuts)
    arrivals = [arrival for index, churn in generators.items() for arrival in arrivals_of(scenario, index, churn)]
    for arrival in sorted(arrivals, key=lambda arrival: (arrival.at_s, arrival.generator, arrival.tier)):
        drawing.place(arrival)
    return Drawn(scenario.seed, numbered(cut.fault for cut in drawing.cuts), dict(sorted(drawing.counts.items())))


def arrivals_of(scenario: Scenario, index: int, churn: Churn) -> Iterator[Arrival]:
    """The Poisson arrivals of one generator; each tier has a random stream of its own, so that one tier's rate leaves the others alone."""
    from_s, to_s = churn_window_s(churn, scenario.run)
    for tier, rate in sorted(churn.tiers.items()):
        rng = random.Random(f"churn/{scenario.seed}/{index}/{tier}")
        at_s = from_s
        while rate.cuts_per_minute > 0:
            at_s += rng.expovariate(rate.cuts_per_minute / 60)
            if at_s >= to_s:
                break
            kind = rng.choices(list(churn.kinds), weights=list(churn.kinds.values()))[0]
            # A link draw must not shift the times of later cuts, whatever was redrawn: it gets a stream of its own.
            yield Arrival(at_s, down_time_s(churn.down, rng), kind, tier, index, random.Random(rng.getrandbits(64)))


def down_time_s(down: DownTime | object, rng: random.Random) -> float:
    """One down time in seconds; outside of its bounds it is drawn again (a truncated distribution)."""
    if isinstance(down, FixedDown):
        return down.value_s
    if isinstance(down, UniformDown):
        return rng.uniform(down.min_s, down.max_s)
    assert isinstance(down, (ExponentialDown, LognormalDown))
    high = down.max_s if down.max_s is not None else float("inf")
    for _ in range(MAX_REDRAWS):
        drawn_s = _untruncated_s(down, rng)
        if down.min_s <= drawn_s <= high:
            return drawn_s
    return min(max(down.mean_s, down.min_s), high)


def _untruncated_s(down: ExponentialDown | LognormalDown, rng: random.Random) -> float:
    if isinstance(down, ExponentialDown):
        return rng.expovariate(1 / down.mean_s)
    # A lognormal's mean is the median times exp(sigma^2 / 2).
    return down.mean_s * rng.lognormvariate(-(down.sigma**2) / 2, down.sigma)


def _explicit(fault: Fault) -> _Cut:
    return _Cut(fault, frozenset(fault.links) if takes_path(fault.kind, fault.params) else frozenset())


class _Drawing:
    """The list as it grows, in order of time."""

    def __init__(self, scenario: Scenario, topology: Topology, generators: dict[int, Churn], explicit: Sequence[_Cut]) -> None:
        self.cuts, self.counts = list(explicit), Counter[str]()
        self._explicit = tuple(explicit)
        self._generators = generators
        self._topology = topology
        self._healed_s = scenario.run.duration_s - scenario.run.settle_s
        self._links = {tier: [link.name for link in topology.links.values() if link.tier == tier] for tier in TIERS}
        keep = any(churn.keep_connected for churn in generators.values())
        self._pairs = job_paths(topology, scenario.job_hosts()) if keep else ()

    def place(self, arrival: Arrival) -> None:
        """Finds a link for one arrival, or drops it."""
        self.counts["asked"] += 1
        at_s, for_s = round(arrival.at_s, 3), self._fitting_s(arrival)
        if for_s < MIN_CUT_S:
            self.counts["dropped_at_end"] += 1
            return
        active = [cut for cut in self.cuts if cut.active(at_s, at_s + for_s)]
        drawn = sum(cut.fault.id == str(arrival.generator) for cut in active if cut not in self._explicit)
        if drawn >= self._generators[arrival.generator].max_concurrent:
            self.counts["dropped_max_concurrent"] += 1
            return
        link = self._choose(arrival, at_s, for_s, active)
        if link is not None:
            self._add(arrival, link, at_s, for_s)

    def _fitting_s(self, arrival: Arrival) -> float:
        """The down time, cut short where the run must be healed."""
        left_s = self._healed_s - round(arrival.at_s, 3)
        if arrival.for_s > left_s >= MIN_CUT_S:
            self.counts["shortened"] += 1
        # Down to whole milliseconds, so that the end never passes the limit; the small sum keeps 4.0 from becoming 3.999.
        return math.floor(min(arrival.for_s, left_s) * 1000 + 1e-6) / 1000

    def _add(self, arrival: Arrival, link: str, at_s: float, for_s: float) -> None:
        self.counts["drawn"] += 1
        source = f"{place_source(arrival.generator)}.churn"
        # Each parameter of the kinds that churn may draw is one end of the link.
        ends = [end.node for end in (self._topology.links[link].a, self._topology.links[link].b)]
        params = {name: arrival.rng.choice(ends) for name in KINDS[arrival.kind].params}
        fault = Fault(str(arrival.generator), arrival.kind, link, "link", arrival.tier, at_s, for_s, source, params, (link,))
        self.cuts.append(_Cut(fault, frozenset({link})))

    def _choose(self, arrival: Arrival, at_s: float, for_s: float, active: Sequence[_Cut]) -> str | None:
        """A link drawn uniformly; drawn again without those that will not do."""
        busy = {link for cut in active for link in cut.links}
        order = list(self._links[arrival.tier])
        arrival.rng.shuffle(order)
        reason = "dropped_all_busy"
        for link in order:
            if link not in busy:
                if not self._generators[arrival.generator].keep_connected or self._stays_connected(link, at_s, at_s + for_s, active):
                    return link
                reason = "dropped_disconnects"
            self.counts["redrawn"] += 1
        self.counts[reason] += 1
        return None

    def _stays_connected(self, link: str, from_s: float, to_s: float, active: Sequence[_Cut]) -> bool:
        """Looks at the moments when the set of dead links grows: the cut's own start, and explicit faults that begin during it."""
        moments = [from_s, *(cut.fault.at_s for cut in active if from_s < cut.fault.at_s < to_s + HEAL_GUARD_S)]
        return all(self._connected({link}, moment, active) for moment in moments)

    def _connected(self, down: set[str], moment: float, active: Sequence[_Cut]) -> bool:
        dead = down.union(*(cut.links for cut in active if cut.active(moment, moment)))
        return all(any(path.isdisjoint(dead) for path in paths) for paths in self._pairs)


def job_paths(topology: Topology, hosts: Sequence[str]) -> tuple[tuple[frozenset[str], ...], ...]:
    """For each pair of hosts, the links of each shortest path."""
    return tuple(tuple(frozenset(path.links) for path in topology.paths(a, b)) for a, b in combinations(hosts, 2))
