"""A whole measurement of convergence: every profile and repeat in turn, the results folder, the verdict on fidelity, the exit code."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.capture.plan import NO_CAPTURE
from testbed.collect.history import relative_event
from testbed.collect.netlink import NetlinkWatch
from testbed.collect.sampler import Sampler
from testbed.converge.bench import Bench, Injection
from testbed.converge.fidelity import ProbeHealth, judged
from testbed.converge.plan import SETTLE_TIMEOUT_S, Plan, Trial
from testbed.converge.summary import rows
from testbed.errors import INTERRUPTED, FidelityError, HostError, TestbedError
from testbed.fabric import Fabric
from testbed.files import write_json, write_lines
from testbed.report import write_converge
from testbed.reporting import Reporter
from testbed.run.flaps import fabric_flaps
from testbed.run.plan import fabric_options
from testbed.run.record import EventLog
from testbed.run.session import RunOutcome, manifest, now, point_latest, results_folder, write_scenario
from testbed.scenario.faults import Drawn, write_faults
from testbed.units import format_duration

KIND = "converge"


def measure(plan: Plan, drawn: Drawn, results: Path, *, reporter: Reporter) -> RunOutcome:
    """Measures all of the plan in a new folder of `results`. Must be called inside the sandbox. An interrupt keeps what was measured."""
    with results_folder(results, f"{plan.scenario.name}-{KIND}", reporter) as folder:
        session = Session(plan, drawn, folder, reporter)
        session.run()
        point_latest(results, folder, reporter)
        return session.finish()


@dataclass(frozen=True)
class Place:
    """Which profile and repeat a fabric is for, and the folder of its files."""

    profile: str
    repeat: int
    folder: Path


class Session:
    """One measurement while it goes on. converge.json is written after every fabric, so that nothing is lost whatever ends it."""

    def __init__(self, plan: Plan, drawn: Drawn, folder: Path, reporter: Reporter) -> None:
        self.plan, self.folder, self.reporter = plan, folder, reporter
        self.outcome = RunOutcome(folder)
        self.samples: list[dict[str, Any]] = []
        self.fabrics: list[dict[str, Any]] = []
        self._whole = 0
        self._skipped = [{"fault": fault.id, "kind": fault.kind, "target": fault.target, "why": why} for fault, why in plan.skipped]
        self._manifest = manifest(plan.scenario, NO_CAPTURE) | {"kind": KIND, "plan": plan.as_dict()}
        write_scenario(folder, plan.scenario)
        write_faults(folder / "faults.json", drawn)
        self._write()

    def run(self) -> None:
        """Repeats are the outer loop, so that slow changes of the machine hit all profiles alike."""
        began, total = time.monotonic(), self.plan.repeats * len(self.plan.trials)
        try:
            for number in range(total):
                repeat, trial = number // len(self.plan.trials) + 1, self.plan.trials[number % len(self.plan.trials)]
                left = self._left_s(number, total, time.monotonic() - began)
                where = f"profile {trial.profile.name}, repeat {repeat} of {self.plan.repeats}"
                self.reporter.note(f"{where}: about {format_duration(round(left))} left in all")
                self._run_one(trial, repeat)
        except KeyboardInterrupt:
            self.outcome.interrupted = True
            self.reporter.warn("interrupted: what was measured so far is kept, and marked")

    def _left_s(self, done: int, total: int, spent_s: float) -> float:
        """From the plan at first, then from what was needed so far."""
        each = spent_s / done if done >= len(self.plan.trials) else self.plan.expected_s() / total
        return each * (total - done)

    def _run_one(self, trial: Trial, repeat: int) -> None:
        """One fabric. An error ends it alone: another profile, or the next repeat, may do better."""
        try:
            self._measure(trial, repeat)
            self._whole += 1
        except (TestbedError, OSError) as error:
            self.outcome.exit_code = error.exit_code if isinstance(error, TestbedError) else HostError.exit_code
            self.outcome.problems.append(f"{trial.profile.name}, repeat {repeat}, stopped, and what it measured before is kept: {error}")
            self.reporter.warn(self.outcome.problems[-1])
        finally:
            self._write()

    def _measure(self, trial: Trial, repeat: int) -> None:
        place = Place(trial.profile.name, repeat, self.folder / trial.profile.name / str(repeat))
        place.folder.mkdir(parents=True)
        self.reporter.phase(f"{place.profile} {repeat}: bringing the fabric up")
        options = {**fabric_options(trial.scenario, trial.profile.arm, repeat), "converge_timeout_s": SETTLE_TIMEOUT_S}
        settings = trial.scenario.link_settings(trial.profile.arm, repeat)
        private = Path("/run/testbed") / f"{place.profile}-{repeat}"
        fabric = Fabric(trial.scenario.build_topology(), settings, trial.profile.switching, private, options)
        with fabric.deployed():
            bench = Bench(fabric, EventLog(), self.plan.gap_s, self.plan.flows, trial.scenario.seed + repeat - 1)
            self._on_fabric(bench, place, options)

    def _on_fabric(self, bench: Bench, place: Place, options: Mapping[str, Any]) -> None:
        """All faults. Whatever ends it, what was measured until then is told."""
        fabric, drops = bench.fabric, sum(bench.fabric.qdisc_drops().values())
        sampling = Sampler(fabric.topology, fabric.link_counters, place.folder, bench.origin)
        with _watched(bench.watch()) as watch, _sampled(sampling) as sampler:
            try:
                self._all_faults(bench, place)
            finally:
                events = [*bench.log.events(), *fabric.routing_events()]
                health = ProbeHealth.of([one.probes for one in bench.done], self._take(bench, events, place), self.plan.gap_s)
                span = {"start": bench.origin, "ended": time.monotonic()}
                flaps = fabric_flaps(options, events, self.plan.faults, fabric.topology, **span)
                dropped = sum(fabric.qdisc_drops().values()) - drops
                self._tell(bench, place, judged(sampler.cpu_rows, dropped, watch.overruns, health, flaps))
                _write_events(place.folder, events, bench.origin)

    def _all_faults(self, bench: Bench, place: Place) -> None:
        bench.settle()
        for fault in self.plan.faults:
            told = f"{place.profile} {place.repeat}: {fault.kind} on {fault.target} ({fault.id})"
            bench.inject(fault, lambda text, told=told: self.reporter.phase(f"{told} {text}"))  # type: ignore[misc]
            bench.fabric.require_alive()  # dead daemons change no table, which would look like routing that repairs nothing

    def _take(self, bench: Bench, events: list[dict[str, Any]], place: Place) -> int:
        """The samples of a fabric; returns how many probes were lost without a fault."""
        lost_before = 0
        for injection in bench.done:
            phases, before = bench.phases(injection, events)
            lost_before += before
            self.samples.append(_sample(injection, phases, place, before))
        return lost_before

    def _tell(self, bench: Bench, place: Place, fidelity: Mapping[str, Any]) -> None:
        if fidelity["verdict"] == "invalid":
            self.outcome.exit_code = self.outcome.exit_code or FidelityError.exit_code
            self.outcome.problems.append(f"{place.profile}, repeat {place.repeat}, is not valid: {'; '.join(fidelity['reasons'])}")
        told = {"fidelity": dict(fidelity), "fabric": bench.fabric.manifest()}
        self.fabrics.append({"profile": place.profile, "repeat": place.repeat, **told})

    def finish(self) -> RunOutcome:
        """The report; the exit code: an interrupt counts most, then errors, then what cannot be believed."""
        self.reporter.phase("summary, plots and report")
        self._manifest |= {"ended": now(), "interrupted": self.outcome.interrupted, "complete": self._complete}
        self._write()
        if self.outcome.interrupted:
            self.outcome.exit_code = INTERRUPTED
        if self.samples:
            write_converge(self.folder)
            self.reporter.note(f"report: {self.folder / 'report.html'}")
        self.outcome.summary = self._content()
        return self.outcome

    @property
    def _complete(self) -> bool:
        """Whether every fault was measured on every fabric; what cannot be believed is measured all the same."""
        return self._whole == self.plan.repeats * len(self.plan.trials)

    def _write(self) -> None:
        write_json(self.folder / "manifest.json", self._manifest)
        write_json(self.folder / "converge.json", self._content())

    def _content(self) -> dict[str, Any]:
        """converge.json (docs/converge.md)."""
        scenario, plan = self.plan.scenario, self.plan.as_dict()
        return {
            "scenario": scenario.name, "title": scenario.title, "hypothesis": scenario.hypothesis, "seed": scenario.seed,
            **{key: plan[key] for key in ("profiles", "faults", "repeats", "flows", "probe_rate_per_s", "resolution_s")},
            "skipped": self._skipped, "machine": self._manifest["machine"], "complete": self._complete,
            "interrupted": self.outcome.interrupted, "problems": self.outcome.problems,
            "rows": rows(self.samples, plan["profiles"]), "samples": self.samples, "fabrics": self.fabrics,
        }  # fmt: skip


def _sample(injection: Injection, phases: Mapping[str, Any], place: Place, lost_before: int) -> dict[str, Any]:
    fault = injection.fault
    told = {"fault": fault.id, "kind": fault.kind, "target": fault.target, "tier": fault.tier, "for_s": fault.for_s}
    more = {"lost_before": lost_before, "probes": dict(injection.probes), "phases": dict(phases)}
    return {"profile": place.profile, "repeat": place.repeat, **told, **more}


def _write_events(folder: Path, events: Iterable[Mapping[str, Any]], origin: float) -> None:
    """events.jsonl, as in every run; its times count from when the fabric was up."""
    found = sorted((relative_event(event, origin) for event in events), key=_when)
    write_lines(folder / "events.jsonl", (json.dumps(event, allow_nan=False) + "\n" for event in found))


def _when(event: Mapping[str, Any]) -> float:
    return float(event["t_s"])


@contextmanager
def _watched(watch: NetlinkWatch) -> Iterator[NetlinkWatch]:
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()


@contextmanager
def _sampled(sampler: Sampler) -> Iterator[Sampler]:
    sampler.start()
    try:
        yield sampler
    finally:
        sampler.stop()
