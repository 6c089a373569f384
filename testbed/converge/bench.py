"""One fabric of one profile without a job: each fault by itself, watched by probes, netlink and routing's own events."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.collect.netlink import NetlinkWatch
from testbed.converge import analysis
from testbed.converge.analysis import Moments, Seen, Stream
from testbed.converge.classes import ProbeFlow, Row, ends, probe_flows
from testbed.converge.plan import QUIET_S, SETTLE_TIMEOUT_S, WATCH_S
from testbed.converge.prober import Probing
from testbed.errors import HostError
from testbed.fabric import Fabric
from testbed.faults.actions import ACTIONS
from testbed.run.record import EventLog
from testbed.scenario.faults import Fault

NAMED_IN_ERRORS = 4


@dataclass(frozen=True)
class Injection:
    """One fault as it was carried out. `probes` is what the probing process said of itself."""

    fault: Fault
    moments: Moments
    streams: Sequence[Stream]
    crossed: Mapping[Row, int]
    probes: Mapping[str, Any]


@dataclass
class Bench:
    """Carries faults out on a fabric that is up. `log` takes what happens; a watch feeds it with FIB and link changes.

    `origin`: from when its history counts, CLOCK_MONOTONIC seconds.
    """

    fabric: Fabric
    log: EventLog
    gap_s: float
    flows: int
    seed: int
    origin: float = field(default_factory=time.monotonic)
    done: list[Injection] = field(default_factory=list)

    def watch(self) -> NetlinkWatch:
        """A watch over all switches, not started yet."""
        return NetlinkWatch({node: self.fabric.pid(node) for node in self.fabric.topology.switches}, self.log.record)

    def inject(self, fault: Fault, progress: Callable[[str], None]) -> Injection:
        """One fault from a settled fabric to a settled fabric; the plan holds only faults that some pair of hosts has a way around."""
        flows = probe_flows(self.fabric.topology, fault, self.flows, self.seed)
        with Probing(self.fabric.topology, self.fabric.pid, flows, self.gap_s) as probing:
            moments, crossed = self._carry_out(fault, flows, progress)
            report = probing.stop()
        health = {key: report[key] for key in ("late_p99_s", "refused", "rate_share")}
        injection = Injection(fault, moments, report["streams"], crossed, health)
        self.done.append(injection)
        return injection

    def _carry_out(self, fault: Fault, flows: Sequence[ProbeFlow], progress: Callable[[str], None]) -> tuple[Moments, dict[Row, int]]:
        """The fault, while probes run: when what came, and how many probes were on what broke."""
        before = self._counted(flows)
        time.sleep(WATCH_S)
        called_begin = time.monotonic()
        issued, begin = ACTIONS[fault.kind].begin(self.fabric, fault)
        self._record("fault_begin", fault, called_begin, issued, begin)
        called_end, end = self._hold(fault, begin, progress)
        crossed = {row: count - before[row] for row, count in self._counted(flows).items()}
        progress("waits until routing has settled")
        return Moments(called_begin, begin, called_end, end, self.settle(fault)), crossed

    def _hold(self, fault: Fault, begin: float, progress: Callable[[str], None]) -> tuple[float, float]:
        """The fault lasts; then it ends, also when it is interrupted. When the end was asked for, and when it took effect."""
        try:
            progress("is on")
            time.sleep(max(0.0, begin + fault.for_s - time.monotonic()))
        finally:
            called = time.monotonic()
            issued, end = ACTIONS[fault.kind].end(self.fabric, fault)
            self._record("fault_end", fault, called, issued, end)
        return called, end

    def settle(self, fault: Fault | None = None) -> float:
        """Waits until every table is as the whole topology demands, twice in a row with no change for QUIET_S; returns when that was seen.

        Tables of Open vSwitch are read by a program a switch, so they are not looked at more often.
        """
        deadline, right, known = time.monotonic() + SETTLE_TIMEOUT_S, False, -1
        while True:
            changes, wrong = self._changes(), self.fabric.unsettled()
            if not wrong and right and changes == known:
                return time.monotonic()
            if time.monotonic() > deadline:
                what = f" after {fault.kind} on {fault.target}" if fault else ""
                told = "; ".join(wrong[:NAMED_IN_ERRORS]) or "tables are right, but change all the time"
                raise HostError(f"routing has not settled within {SETTLE_TIMEOUT_S:g} s{what}: {told}")
            right, known = not wrong, changes
            time.sleep(QUIET_S)

    def _changes(self) -> int:
        return sum(event["event"] == "fib" for event in self.log.events())

    def _counted(self, flows: Sequence[ProbeFlow]) -> dict[Row, int]:
        """Probes that each direction has seen so far: sent on, or taken by a fault there. Other packets of the link are counted apart."""
        rows = {row for flow in flows for row in flow.rows}
        return {row: self._probes_on(*row) for row in rows}

    def _probes_on(self, link: str, sender: str) -> int:
        found = self.fabric.topology.link(link)
        row = self.fabric.link_counters()[2 * found.index + (found.a.node != sender)]
        return int(row["tx_packets"]) - int(row["other_packets"])

    def _record(self, event: str, fault: Fault, called: float, issued: float, effective: float) -> None:
        """As the injector of a run does; planned is when the command was given."""
        told = {"fault": fault.id, "kind": fault.kind, "target": fault.target, "tier": fault.tier}
        times = {"planned_s": called, "issued_s": issued, "effective_s": effective}
        relative = {name: round(moment - self.origin, 6) for name, moment in times.items()}
        self.log.record({"t": effective, "source": "faults", "event": event, **told, **relative})

    def phases(self, injection: Injection, events: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], int]:
        """The figures of one injection, and how many probes were lost before it."""
        fault = injection.fault
        around = ends(self.fabric.topology, fault)
        seen = Seen(fault.kind, fault.target, around, injection.moments, injection.streams, injection.crossed, self.gap_s, events)
        return analysis.figures(seen), analysis.lost_before(seen)
