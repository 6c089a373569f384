"""The order of a measurement, and what becomes of it when a fabric fails or somebody interrupts; no fabric is made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_converge_analysis import sample

from testbed.cli.converge import planned
from testbed.converge.analysis import REPAIRED
from testbed.converge.bench import Bench
from testbed.converge.plan import Plan
from testbed.converge.prober import Probing
from testbed.converge.session import Place, Session
from testbed.errors import FidelityError, HostError, UsageError
from testbed.reporting import SilentReporter
from testbed.run.record import EventLog
from topologies import build

NAMES = ("datacenter", "static")


@pytest.fixture
def reported() -> list[Path]:
    """The folders whose pages were asked for; drawing them is tested elsewhere."""
    return []


@pytest.fixture
def session(tmp_path: Path, reported: list[Path], monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr("testbed.converge.session.write_converge", reported.append)
    plan, drawn = planned(
        "converge", ["faults=[{kind: carrier, link: t0_1_1-t1_1_1, at: 4s, for: 2s}]"], NAMES, repeats=2, rate_per_s=50, flows=8
    )
    return Session(plan, drawn, tmp_path, SilentReporter())


def working(session: Session, called: list[tuple[str, int]], failing: BaseException | None = None, verdict: str = "good") -> None:
    """Puts a `_measure` in place that makes a sample a fabric; it raises `failing` for the second one."""

    def measure(trial, repeat: int) -> None:
        called.append((trial.profile.name, repeat))
        if failing is not None and len(called) == 2:
            raise failing
        session.samples.append(sample(REPAIRED, 0.1, trial.profile.name, repeat))
        bench = type("Bench", (), {"fabric": type("Fabric", (), {"manifest": lambda self: {}})()})()
        session._tell(
            bench, Place(trial.profile.name, repeat, session.folder), {"verdict": verdict, "reasons": ["CPU"] if verdict != "good" else []}
        )

    session._measure = measure  # type: ignore[method-assign]


def test_repeats_are_the_outer_loop(session: Session) -> None:
    called: list[tuple[str, int]] = []
    working(session, called)
    session.run()
    outcome = session.finish()
    assert called == [("datacenter", 1), ("static", 1), ("datacenter", 2), ("static", 2)]
    assert outcome.exit_code == 0
    assert outcome.summary["complete"]


def test_a_fabric_that_fails_ends_alone_and_decides_the_exit_code(session: Session, reported: list[Path]) -> None:
    called: list[tuple[str, int]] = []
    working(session, called, HostError("zebra died"))
    session.run()
    outcome = session.finish()
    assert len(called) == 4
    assert outcome.exit_code == HostError.exit_code
    assert not outcome.summary["complete"]
    assert outcome.problems == ["static, repeat 1, stopped, and what it measured before is kept: zebra died"]
    assert reported == [session.folder]


def test_an_interrupt_ends_it_with_130_and_keeps_what_there_is(session: Session) -> None:
    called: list[tuple[str, int]] = []
    working(session, called, KeyboardInterrupt())
    session.run()
    outcome = session.finish()
    assert len(called) == 2
    assert outcome.exit_code == 130
    written = json.loads((session.folder / "converge.json").read_text())
    assert (written["interrupted"], len(written["samples"])) == (True, 1)


def test_figures_that_cannot_be_believed_are_exit_code_4(session: Session) -> None:
    working(session, [], verdict="invalid")
    session.run()
    outcome = session.finish()
    assert outcome.exit_code == FidelityError.exit_code
    assert outcome.summary["complete"]


def test_each_profile_is_the_scenario_with_that_profile(session: Session) -> None:
    plan: Plan = session.plan
    assert [trial.scenario.bgp.get("profile") for trial in plan.trials] == ["datacenter", "datacenter"]
    other, _ = planned("converge", [], ["traditional-bfd-50x3", "ovs-large-fabric"], repeats=1, rate_per_s=50, flows=8)
    assert other.trials[0].scenario.bgp["profile"] == "traditional-bfd-50x3"
    assert other.trials[1].scenario.bgp_ovs["preset"] == "large-fabric"
    assert other.expected_s() > 60


def test_a_fault_that_nobody_can_go_around_is_left_out_before_any_fabric_is_made() -> None:
    both = "faults=[{kind: carrier, link: h1-t0_1_1, at: 4s, for: 2s}, {kind: carrier, link: t0_1_1-t1_1_1, at: 8s, for: 2s}]"
    plan, _ = planned("converge", [both], NAMES, repeats=1, rate_per_s=50, flows=8)
    assert [fault.id for fault in plan.faults] == ["f2"]
    assert [(fault.id, why) for fault, why in plan.skipped] == [("f1", "no pair of hosts that it hits has a way around it")]
    with pytest.raises(UsageError, match=r"nothing to converge on \(f1: no pair of hosts"):
        planned("nic-port", [], NAMES, repeats=1, rate_per_s=50, flows=8)


def test_probes_too_rare_to_tell_a_repair_from_none_are_refused() -> None:
    """Of 2 probes a second three gaps are 1.5 s: whatever is lost in a fault of 2 s would count as lost until its end."""
    fault = "faults=[{kind: carrier, link: t0_1_1-t1_1_1, at: 4s, for: 2s}]"
    with pytest.raises(UsageError, match="it lasts 2 s, and with such probes only 3 s or more"):
        planned("converge", [fault], NAMES, repeats=1, rate_per_s=2, flows=8)
    assert planned("converge", [fault], NAMES, repeats=1, rate_per_s=3, flows=8)[0].skipped == ()


def test_each_repeat_draws_bgps_delays_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its range over the repeats would leave out what the model draws."""
    plan, drawn = planned("converge", [], ["ovs-frr"], repeats=2, rate_per_s=50, flows=8)
    seeds: list[int] = []

    def fabric(*_given, **_more):
        seeds.append(_given[4]["seed"])
        raise HostError("no fabric here")

    monkeypatch.setattr("testbed.converge.session.Fabric", fabric)
    Session(plan, drawn, tmp_path, SilentReporter()).run()
    assert seeds == [plan.scenario.seed, plan.scenario.seed + 1]


def test_probes_that_do_not_come_to_run_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\nexec sleep 600\n")
    mute.chmod(0o755)
    monkeypatch.setattr("testbed.converge.prober.sys.executable", str(mute))
    monkeypatch.setattr("testbed.converge.prober.RUNNING_S", 0.0)
    probing = Probing(build("fat-tree", k=4), lambda _node: 1, (), 0.02)
    with pytest.raises(HostError, match="did not come to 'opened' in time"), probing:
        pass
    assert probing._process is not None
    assert probing._process.returncode is not None


class Tables:
    """A fabric whose tables are wrong for some looks, then right."""

    def __init__(self, wrong: list[bool], log) -> None:
        self.wrong, self.log, self.looks = wrong, log, 0

    def unsettled(self) -> list[str]:
        self.looks += 1
        wrong = self.wrong.pop(0) if self.wrong else False
        if wrong:
            self.log.record({"t": 0.0, "event": "fib"})
        return ["t0_1_1: lacks something"] if wrong else []


def bench_over(wrong: list[bool], monkeypatch: pytest.MonkeyPatch, timeout_s: float = 60.0) -> tuple[Bench, Tables]:
    monkeypatch.setattr("testbed.converge.bench.QUIET_S", 0.0)
    monkeypatch.setattr("testbed.converge.bench.SETTLE_TIMEOUT_S", timeout_s)
    log = EventLog()
    tables = Tables(wrong, log)
    return Bench(tables, log, 0.02, 8, 1), tables  # type: ignore[arg-type]


@pytest.mark.parametrize(("wrong", "looks"), [([], 2), ([True, True], 4), ([False, True], 4)])
def test_settled_means_right_twice_in_a_row(wrong: list[bool], looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, tables = bench_over(wrong, monkeypatch)
    bench.settle()
    assert tables.looks == looks


def test_tables_that_never_become_right_are_an_error_that_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, _ = bench_over([True] * 10, monkeypatch, timeout_s=0.0)
    with pytest.raises(HostError, match="has not settled within 0 s: t0_1_1: lacks something"):
        bench.settle()
