"""What will be measured, and how long it takes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.converge.analysis import tail_s
from testbed.converge.classes import crossings, why_not
from testbed.converge.profiles import BRING_UP_S, Profile
from testbed.errors import UsageError
from testbed.scenario import Drawn, Fault, Scenario
from testbed.units import format_duration
from topologies import Topology

DEFAULT_REPEATS = 5
DEFAULT_RATE_PER_S = 50
"""Probes a second of one stream: with 32 streams 1600 packets/s in all, about half of what a userspace datapath carries on 2 cores over the
longest paths (docs/converge.md)."""
DEFAULT_FLOWS = 32
MAX_FLOWS, MAX_RATE_PER_S = 256, 1000
WATCH_S = 0.5  # how long probes are counted on the links that will break
QUIET_S = 1.0  # tables are as expected twice so far apart, and no change came between: settled
SETTLE_TIMEOUT_S = 300.0  # twice traditional's longest connect retry, and more
PROBES_S = 1.5  # starting the probes, and the wait for the last ones
SETTLED_S: Mapping[str, float] = {"carrier": 1.5, "silent": 6.0, "remote": 6.0, "switch-hang": 1.0}
OTHER_SETTLED_S = 4.0
NO_WAY_AROUND = "no pair of hosts that it hits has a way around it"


@dataclass(frozen=True)
class Trial:
    """One profile to measure: the scenario as it is with that profile."""

    profile: Profile
    scenario: Scenario


@dataclass(frozen=True)
class Plan:
    """All of it. `faults` are those that can be measured, `skipped` the others with the reason."""

    trials: tuple[Trial, ...]
    faults: tuple[Fault, ...]
    skipped: tuple[tuple[Fault, str], ...]
    repeats: int
    rate_per_s: int
    flows: int

    @property
    def scenario(self) -> Scenario:
        """What all trials share but for routing."""
        return self.trials[0].scenario

    @property
    def gap_s(self) -> float:
        """Between two probes of one stream: the resolution of every time measured on it."""
        return 1 / self.rate_per_s

    def expected_s(self) -> float:
        """Rough time of the whole."""
        each = sum(fault.for_s + WATCH_S + PROBES_S + QUIET_S + SETTLED_S.get(fault.kind, OTHER_SETTLED_S) for fault in self.faults)
        return self.repeats * sum(BRING_UP_S[trial.profile.switching] + each for trial in self.trials)

    def as_dict(self) -> dict[str, Any]:
        """For converge.json and `--dry-run`."""
        return {
            "profiles": [trial.profile.name for trial in self.trials],
            "faults": [{"fault": fault.id, "kind": fault.kind, "target": fault.target, "for_s": fault.for_s} for fault in self.faults],
            "skipped": [{"fault": fault.id, "kind": fault.kind, "target": fault.target, "why": why} for fault, why in self.skipped],
            "repeats": self.repeats,
            "flows": self.flows,
            "probe_rate_per_s": self.rate_per_s,
            "resolution_s": self.gap_s,
            "expected_s": round(self.expected_s()),
        }


def make(trials: Sequence[Trial], drawn: Drawn, *, repeats: int, rate_per_s: int, flows: int) -> Plan:
    """The plan for the drawn faults. UsageError if there is no fault to measure."""
    topology = trials[0].scenario.build_topology()
    reasons = [(fault, _why_not(fault, topology, 1 / rate_per_s)) for fault in drawn.faults]
    faults = tuple(fault for fault, why in reasons if not why)
    skipped = tuple((fault, why) for fault, why in reasons if why)
    if not faults:
        told = "; ".join(f"{fault.id}: {why}" for fault, why in skipped) or "it has no faults"
        hint = "give it a carrier, silent or switch fault between switches"
        raise UsageError(f"scenario {trials[0].scenario.name}: nothing to converge on ({told}); {hint}")
    return Plan(tuple(trials), faults, skipped, repeats, rate_per_s, flows)


def _why_not(fault: Fault, topology: Topology, gap_s: float) -> str:
    """Why a fault is left out; empty if it is measured. In a short one a repair and none at all would look alike."""
    least_s = 2 * tail_s(gap_s)
    if fault.for_s < least_s:
        lasts, least = format_duration(fault.for_s), format_duration(least_s)
        return f"it lasts {lasts}, and with such probes only {least} or more can be told from no repair"
    return why_not(fault) or ("" if crossings(topology, fault) else NO_WAY_AROUND)
