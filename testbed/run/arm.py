"""One arm, one repeat: fabric up, agents up, job and faults side by side, everything measured, everything healed and taken down."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.collect.history import merge
from testbed.collect.netlink import NetlinkWatch
from testbed.collect.sampler import Sampler
from testbed.errors import TestbedError
from testbed.fabric import Fabric, LinkSettings
from testbed.faults.injector import Injector
from testbed.reporting import Reporter
from testbed.routing.options import BgpOptions
from testbed.run.agents import AgentPool
from testbed.run.fidelity import Fidelity, Observations, judge
from testbed.run.plan import SWITCHING_OF_ARM, TRANSPORT_OF_ARM, JobPlan, agent_config, ring_order
from testbed.run.record import EventLog
from testbed.run.supervisor import JobSupervisor
from testbed.scenario import Scenario
from testbed.scenario.faults import Fault
from topologies import Topology

PROBE_S = 0.4  # how long each sampled link is saturated to see its rate
CONVERGENCE_TIMEOUT_S = 120.0


@dataclass
class ArmOutcome:
    """What an arm ended with; the figures are in its files."""

    arm: str
    repeat: int
    fidelity: Fidelity | None = None
    interrupted: bool = False
    tables_unchanged: bool | None = None
    wrong_sums: int = 0


@dataclass
class ArmRun:
    """Everything that one arm and repeat needs to know."""

    scenario: Scenario
    topology: Topology
    faults: tuple[Fault, ...]
    arm: str
    repeat: int
    folder: Path
    reporter: Reporter
    log: EventLog = field(default_factory=EventLog)

    def execute(self) -> ArmOutcome:
        """Runs it. On an interrupt, what was measured so far is kept and marked; then KeyboardInterrupt goes on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with self._deployed() as fabric:
            bring_up_s = time.monotonic() - began
            return self._measure(fabric, bring_up_s)

    @contextmanager
    def _deployed(self) -> Iterator[Fabric]:
        links = self.scenario.links
        settings = LinkSettings(rate_bps=round(links.rate_bps), mtu_bytes=links.mtu_bytes, queue_bytes=self.scenario.queue_bytes)
        bgp: dict[str, Any] = dict(self.scenario.bgp)
        options = {"bgp": BgpOptions(**bgp)} if SWITCHING_OF_ARM[self.arm] == "frr" else {}
        fabric = Fabric(self.topology, settings, switching=SWITCHING_OF_ARM[self.arm], run_dir=self._private_dir(), options=options)
        self.reporter.phase(f"{self.arm} {self.repeat}: bringing the fabric up")
        try:
            fabric.deploy()
            fabric.verify()
            yield fabric
        finally:
            fabric.remove()

    def _private_dir(self) -> Path:
        return Path("/run/testbed") / f"{self.arm}-{self.repeat}"

    def _measure(self, fabric: Fabric, bring_up_s: float) -> ArmOutcome:
        outcome = ArmOutcome(self.arm, self.repeat)
        rates = self._probe_rates(fabric)
        drops_before = sum(fabric.qdisc_drops().values())
        watch = NetlinkWatch({node: fabric.pid(node) for node in self.topology.nodes}, self.log.record)
        pool = AgentPool(self._ring(), fabric.popen, self.folder / "agents")
        watch.start()
        sampler: Sampler | None = None
        reports: Mapping[str, Any] = {}
        start = time.monotonic()
        supervisor = self._supervisor(pool)
        try:
            self.reporter.phase(f"{self.arm} {self.repeat}: starting {len(self._ring())} agents")
            pool.start()
            supervisor.connect()
            start = supervisor.start()
            sampler = Sampler(self.topology, fabric.link_counters, self.folder, start)
            sampler.start()
            reports = self._run_job(fabric, supervisor, start)
        except KeyboardInterrupt:
            outcome.interrupted = True
        finally:
            ended = time.monotonic()
            pool.close()
            if sampler is not None:
                sampler.stop()
            watch.stop()
        outcome.wrong_sums = supervisor.state.wrong_sums
        outcome.tables_unchanged = fabric.tables_unchanged()
        outcome.fidelity = judge(
            Observations(
                cpu_busy=[row[1] for row in sampler.cpu_rows] if sampler else [],
                steal=[row[2] for row in sampler.cpu_rows] if sampler else [],
                lateness_s=[row[4] for row in sampler.cpu_rows] if sampler else [],
                rate_shares=list(rates.values()),
                qdisc_drops=sum(fabric.qdisc_drops().values()) - drops_before,
                socket_drops=sum(report.get("drops", {}).get("socket", 0) for report in reports.values()),
                netlink_overruns=watch.overruns,
            )
        )
        merge(self.folder, start, self.log.events())
        self._write("agents.json", dict(reports))
        self._write("arm.json", self._description(fabric, outcome, bring_up_s, ended - start, rates))
        if outcome.interrupted:
            raise KeyboardInterrupt
        return outcome

    def _run_job(self, fabric: Fabric, supervisor: JobSupervisor, start: float) -> Mapping[str, Any]:
        injector = Injector(fabric, self.faults, start, self.log.record)
        injector.start()
        try:
            self.reporter.phase(f"{self.arm} {self.repeat}: the job runs", self.scenario.run.duration_s)
            supervisor.supervise(start + self.scenario.run.duration_s, injector.check)
            return supervisor.stop()
        finally:
            injector.finish()

    def _supervisor(self, pool: AgentPool) -> JobSupervisor:
        job = self.scenario.job
        return JobSupervisor(
            pool,
            self._configs(),
            checkpoint_every=job.checkpoint_every,
            restart_s=job.restart_s,
            record=self.log.record,
            reporter=self.reporter,
        )

    def _ring(self) -> tuple[str, ...]:
        job = self.scenario.job
        hosts = self.topology.hosts if job.hosts == "all" else job.hosts
        group = max(1, self._hosts_a_group())
        return ring_order(hosts, job.ring, group)

    def _hosts_a_group(self) -> int:
        """Hosts under one pod, or under one T0 where there are no pods."""
        nodes = [self.topology.nodes[host] for host in self.topology.hosts]
        first = nodes[0]
        if first.pod:
            return sum(node.pod == first.pod for node in nodes)
        t0 = self.topology.links_of(first.name)[0].b.node
        return sum(link.tier == "NIC-T0" for link in self.topology.links_of(t0))

    def _configs(self) -> dict[str, dict[str, Any]]:
        job, ring = self.scenario.job, self._ring()
        plan = JobPlan(job.vector_bytes, job.compute_s, job.checkpoint_every, job.restart_s)
        params = dict(self.scenario.transport.get(TRANSPORT_OF_ARM[self.arm], {}))
        folder = self.folder / "agents"
        return {
            host: agent_config(
                self.topology, ring, rank, arm=self.arm, params=params, job=plan, seed=self.scenario.seed + self.repeat - 1, folder=folder
            )
            for rank, host in enumerate(ring)
        }

    def _probe_rates(self, fabric: Fabric) -> dict[str, float]:
        """Achieved / asked rate of a sample: both ends of the first link of each tier."""
        self.reporter.phase(f"{self.arm} {self.repeat}: measuring link rates")
        first = {link.tier: link for link in reversed(self.topology.links.values())}
        ends = [end for link in first.values() for end in (link.a, link.b)]
        return {end.ifname: self._probe(fabric, end.node, end.ifname) for end in ends}

    def _probe(self, fabric: Fabric, node: str, ifname: str) -> float:
        argv = [sys.executable, "-m", "testbed.collect.rate_probe", ifname, str(self.scenario.links.mtu_bytes), str(PROBE_S)]
        process = fabric.popen(node, argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        output, errors = process.communicate(timeout=60)
        if process.returncode:
            raise TestbedError(f"measuring the rate of {ifname} failed: {errors.decode(errors='replace').strip()}")
        return round(float(output) / self.scenario.links.rate_bps, 4)

    def _description(
        self, fabric: Fabric, outcome: ArmOutcome, bring_up_s: float, duration_s: float, rates: Mapping[str, float]
    ) -> dict[str, Any]:
        return {
            "arm": self.arm,
            "repeat": self.repeat,
            "duration_s": round(duration_s, 3),
            "bring_up_s": round(bring_up_s, 3),
            "ring": list(self._ring()),
            "fabric": fabric.manifest(),
            "transport": dict(self.scenario.transport.get(TRANSPORT_OF_ARM[self.arm], {})),
            "tables_unchanged": outcome.tables_unchanged,
            "rate_shares": dict(rates),
            "fidelity": outcome.fidelity.as_dict() if outcome.fidelity else None,
            "interrupted": outcome.interrupted,
        }

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        (self.folder / name).write_text(json.dumps(content, indent=1, default=str) + "\n")
