"""One arm, one repeat: fabric up, agents up, job and faults side by side, everything measured, everything healed and taken down."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from testbed.capture.plan import CapturePlan
from testbed.capture.session import Captures
from testbed.collect.history import merge
from testbed.collect.netlink import NetlinkWatch
from testbed.collect.sampler import Sampler
from testbed.errors import TestbedError
from testbed.fabric import Fabric
from testbed.faults.injector import Injector
from testbed.files import write_json
from testbed.reporting import Reporter
from testbed.run.agents import AgentPool
from testbed.run.control import Control, Desk
from testbed.run.denials import Denials
from testbed.run.fidelity import Fidelity, Observations, judge
from testbed.run.flaps import fabric_flaps
from testbed.run.plan import agent_configs, fabric_options, given_parameters, rank_order, transport_parameters
from testbed.run.record import EventLog
from testbed.run.supervisor import JobSupervisor
from testbed.scenario import Scenario
from testbed.scenario.derived_links import SWITCHING_OF_ARM, USID_ARMS
from testbed.scenario.faults import Fault
from topologies import Topology

T = TypeVar("T")

PROBE_S = 0.4  # how long each sampled link is saturated to see its rate
MIN_SEND_BUFFER_BYTES = 4096  # the least that an agent takes


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
class Live:
    """What works and watches while the job runs. `start` and `ended` are the job's, CLOCK_MONOTONIC seconds."""

    watch: NetlinkWatch
    pool: AgentPool
    supervisor: JobSupervisor
    desk: Desk
    captures: Captures
    sampler: Sampler | None = None
    start: float = field(default_factory=time.monotonic)
    ended: float = field(default_factory=time.monotonic)
    reports: Mapping[str, Any] = field(default_factory=dict)

    def close(self) -> None:
        """Ends the agents and the watching, each whatever happens to the others; OSError if the sampler's files are not complete."""
        with ExitStack() as ends:
            ends.callback(self.captures.stop)
            if self.sampler is not None:
                ends.callback(self.sampler.stop)
            ends.callback(self.watch.stop)
            ends.callback(self.pool.close)
            if self.desk.denials is not None:
                ends.callback(self.desk.denials.close)

    def observations(self, rate_shares: Iterable[float], qdisc_drops: int, flaps: Sequence[str] = ()) -> Observations:
        """What the verdict on fidelity rests on."""
        rows = self.sampler.cpu_rows if self.sampler is not None else []
        return Observations(
            cpu_busy=[row[1] for row in rows],
            steal=[row[2] for row in rows],
            lateness_s=[row[4] for row in rows],
            rate_shares=list(rate_shares),
            qdisc_drops=qdisc_drops,
            socket_drops=sum(report.get("socket_drops", 0) for report in self.reports.values()),
            netlink_overruns=self.watch.overruns,
            session_flaps=flaps,
        )


def _text(ended_by: BaseException | None) -> str | None:
    return None if ended_by is None or isinstance(ended_by, KeyboardInterrupt) else f"{type(ended_by).__name__}: {ended_by}"


def answer(question: Callable[[], T], troubles: list[BaseException]) -> T | None:
    """What a fabric that may be broken says in the end. Trouble is noted, so that all else is written before it goes on; then None."""
    try:
        return question()
    except (TestbedError, OSError) as error:
        troubles.append(error)
        return None


def record_routing(fabric: Fabric, log: EventLog) -> None:
    """Takes what routing wrote down."""
    for event in fabric.routing_events():
        log.record(event)


@dataclass(frozen=True)
class Surroundings:
    """What all arms of a run or a sweep share: who is told how it goes, whose packets are recorded, and where requests come in."""

    reporter: Reporter
    capture: CapturePlan
    control: Control | None  # None: where the file system holds no sockets


@dataclass
class ArmRun:
    """Everything that one arm and repeat needs to know."""

    scenario: Scenario
    topology: Topology
    faults: tuple[Fault, ...]
    arm: str
    repeat: int
    folder: Path
    around: Surroundings
    log: EventLog = field(default_factory=EventLog)

    def execute(self) -> ArmOutcome:
        """Runs it. On an interrupt, what was measured so far is kept and marked; then KeyboardInterrupt goes on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        self._say("bringing the fabric up")
        with self._fabric().deployed() as fabric:
            bring_up_s = time.monotonic() - began
            return self._measure(fabric, bring_up_s)

    def _fabric(self) -> Fabric:
        settings = self.scenario.link_settings(self.arm, self.repeat)
        options = fabric_options(self.scenario, self.arm, self.repeat)
        return Fabric(self.topology, settings, switching=SWITCHING_OF_ARM[self.arm], run_dir=self._private_dir(), options=options)

    def _private_dir(self) -> Path:
        return Path("/run/testbed") / f"{self.arm}-{self.repeat}"

    def _measure(self, fabric: Fabric, bring_up_s: float) -> ArmOutcome:
        """Whatever ends the job, what was measured until then is written; only then does an interrupt or an error go on."""
        rates = self._probe_rates(fabric)
        drops_before = sum(fabric.qdisc_drops().values())
        live = self._live(fabric)
        troubles: list[BaseException] = []  # the first of them goes on
        try:
            self._run_job(fabric, live)
            fabric.verify_ports()
        except (KeyboardInterrupt, Exception) as reason:  # noqa: BLE001 - it goes on below
            troubles.append(reason)
        finally:
            answer(live.close, troubles)
        answer(lambda: record_routing(fabric, self.log), troubles)
        outcome = ArmOutcome(self.arm, self.repeat, interrupted=bool(troubles) and isinstance(troubles[0], KeyboardInterrupt))
        outcome.wrong_sums = live.supervisor.state.wrong_sums
        outcome.tables_unchanged = answer(fabric.tables_unchanged, troubles)
        drops = answer(lambda: sum(fabric.qdisc_drops().values()) - drops_before, troubles) or 0
        outcome.fidelity = judge(live.observations(rates.values(), drops, self._flaps(live)))
        error = _text(next(iter(troubles), None))
        self._write_files(fabric, live, outcome, {"bring_up_s": round(bring_up_s, 3), "rate_shares": rates, "error": error})
        broken = live.captures.explain(self.around.reporter)
        if (cause := next(iter(troubles), broken)) is not None:
            raise cause
        return outcome

    def _flaps(self, live: Live) -> tuple[str, ...]:
        """Sessions of BGP and BFD that fell for no fault."""
        options = fabric_options(self.scenario, self.arm, self.repeat)
        return fabric_flaps(options, self.log.events(), self.faults, self.topology, start=live.start, ended=live.ended)

    def _live(self, fabric: Fabric) -> Live:
        watch = NetlinkWatch({node: fabric.pid(node) for node in self.topology.nodes}, self.log.record)
        pool = AgentPool(self._ring, fabric.popen, self.folder / "agents")
        watch.start()
        configs = self._configs()
        denials = Denials(self.topology, configs, pool.send, pool.wake, self.log.record) if self.arm in USID_ARMS else None
        captures = Captures(self.around.capture, self.topology, fabric.pid, self.folder / "captures")
        return Live(watch, pool, self._supervisor(pool, configs, denials), Desk(self.arm, self.repeat, denials), captures)

    def _run_job(self, fabric: Fabric, live: Live) -> None:
        self._say(f"starting {len(self._ring)} agents")
        live.captures.start()
        live.pool.start()
        live.supervisor.connect()
        live.start = live.supervisor.start()
        live.captures.zero(live.start)
        live.sampler = sampler = Sampler(self.topology, fabric.link_counters, self.folder, live.start)
        sampler.start()
        injector = Injector(fabric, self.faults, live.start, self.log.record)
        injector.start()

        def check() -> None:
            injector.check()
            sampler.check()
            live.captures.check()

        try:
            self._say("the job runs", self.scenario.run.duration_s)
            try:
                with control.serving(live.desk) if (control := self.around.control) else nullcontext():
                    live.supervisor.supervise(live.start + self.scenario.run.duration_s, check)
            finally:
                live.ended = time.monotonic()
            live.reports = live.supervisor.stop()
        finally:
            injector.finish()

    def _say(self, text: str, eta_s: float | None = None) -> None:
        self.around.reporter.phase(f"{self.arm} {self.repeat}: {text}", eta_s)

    def _supervisor(self, pool: AgentPool, configs: Mapping[str, dict[str, Any]], denials: Denials | None) -> JobSupervisor:
        job = self.scenario.job
        return JobSupervisor(
            pool,
            configs,
            checkpoint_every=job.checkpoint_every,
            restart_s=job.restart_s,
            record=self.log.record,
            reporter=self.around.reporter,
            denials=denials,
        )

    @cached_property
    def _ring(self) -> tuple[str, ...]:
        return rank_order(self.scenario, self.topology)

    def _configs(self) -> dict[str, dict[str, Any]]:
        return agent_configs(
            self.scenario,
            self.topology,
            self.arm,
            params=given_parameters(self.scenario, self.arm),
            seed=self.scenario.seed + self.repeat - 1,
            folder=self.folder / "agents",
            send_buffer_bytes=max(MIN_SEND_BUFFER_BYTES, self.scenario.queue_bytes * 7 // 8),
        )

    def _probe_rates(self, fabric: Fabric) -> dict[str, float]:
        """Achieved / asked rate of a sample: both ends of the first link of each tier."""
        self._say("measuring link rates")
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

    def _write_files(self, fabric: Fabric, live: Live, outcome: ArmOutcome, more: Mapping[str, Any]) -> None:
        merge(self.folder, live.start, self.log.events())
        write_json(self.folder / "agents.json", dict(live.reports))
        write_json(
            self.folder / "arm.json",
            {
                "arm": self.arm,
                "repeat": self.repeat,
                "duration_s": round(live.ended - live.start, 3),
                "ring": list(self._ring),
                "job": self.scenario.job_record(),
                "fabric": fabric.manifest(),
                "transport": transport_parameters(self.scenario, self.arm),
                "tables_unchanged": outcome.tables_unchanged,
                "fidelity": outcome.fidelity.as_dict() if outcome.fidelity else None,
                "interrupted": outcome.interrupted,
                "captures": live.captures.records(),
                **more,
            },
        )
