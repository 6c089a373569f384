"""What is kept of an arm whose fabric broke: everything that can still be written, and the first thing that went wrong."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.errors import HostError
from testbed.routing.mrt import MrtError
from testbed.run.arm import ArmOutcome, ArmRun, Live
from testbed.run.fidelity import Observations
from testbed.scenario import load_text

SCENARIO = """\
name: broken
topology: {kind: fat-tree, k: 4}
job: {hosts: [h1, h5]}
run: {duration: 60s}
arms: [rc-bgp]
"""
CALM: dict[str, Any] = {
    "cpu_busy": [], "steal": [], "lateness_s": [], "rate_shares": [], "qdisc_drops": 0, "socket_drops": 0, "netlink_overruns": 0,
}  # fmt: skip


class Fabric:
    """Answers every question, or raises what `wrong` has for it."""

    def __init__(self, **wrong: BaseException) -> None:
        self.wrong = wrong

    def _told(self, name: str, value: Any) -> Any:
        if name in self.wrong:
            raise self.wrong[name]
        return value

    def verify_ports(self) -> None:
        self._told("ports", None)

    def routing_events(self) -> Any:
        yield {"t": 0.0, "source": "routing", "event": "session"}
        self._told("routing", None)

    def tables_unchanged(self) -> bool | None:
        return bool(self._told("tables", True))

    def qdisc_drops(self) -> dict[str, int]:
        return dict(self._told("drops", {}))


class Arm(ArmRun):
    """Its job is over at once, or ends by `job`; what it would write is in `written`."""

    job: BaseException | None = None
    closing: BaseException | None = None

    def _probe_rates(self, fabric: Any) -> dict[str, float]:
        return {}

    def _live(self, fabric: Any) -> Live:
        def close() -> None:
            if self.closing is not None:
                raise self.closing

        state, captures = SimpleNamespace(wrong_sums=0), SimpleNamespace(explain=lambda reporter: None)
        observed = lambda *_: Observations(**CALM)  # noqa: E731
        fake = {"start": 0.0, "ended": 1.0, "captures": captures, "observations": observed, "close": close}
        return SimpleNamespace(**fake, supervisor=SimpleNamespace(state=state))  # type: ignore[return-value]

    def _run_job(self, fabric: Any, live: Live) -> None:
        if (later := fabric.wrong.pop("drops_later", None)) is not None:
            fabric.wrong["drops"] = later
        if self.job is not None:
            raise self.job

    def _write_files(self, fabric: Any, live: Live, outcome: ArmOutcome, more: Any) -> None:
        self.written = {**more, "interrupted": outcome.interrupted, "tables_unchanged": outcome.tables_unchanged}


def arm_of(tmp_path: Path) -> Arm:
    scenario = load_text(SCENARIO)
    around: Any = SimpleNamespace(reporter=None)
    return Arm(scenario, scenario.build_topology(), (), "rc-bgp", 1, tmp_path, around)


DEAD = HostError("the switch is dead")
LATER = HostError("ovs-ofctl failed")


@pytest.mark.parametrize(
    "wrong", [{"tables": LATER}, {"drops_later": LATER}, {"routing": LATER}, {"tables": LATER, "drops_later": OSError("gone")}]
)
def test_what_ended_the_job_is_told_and_written_whatever_else_breaks_then(tmp_path: Path, wrong: dict[str, BaseException]) -> None:
    arm = arm_of(tmp_path)
    arm.job = DEAD
    with pytest.raises(HostError, match="the switch is dead"):
        arm._measure(Fabric(**wrong), 1.0)  # type: ignore[arg-type]
    assert arm.written["error"] == "HostError: the switch is dead"


def test_an_interrupt_stays_one_when_the_fabric_answers_no_more(tmp_path: Path) -> None:
    arm = arm_of(tmp_path)
    arm.job, arm.closing = KeyboardInterrupt(), OSError("no space left on device")
    with pytest.raises(KeyboardInterrupt):
        arm._measure(Fabric(tables=LATER), 1.0)  # type: ignore[arg-type]
    assert (arm.written["interrupted"], arm.written["error"]) == (True, None)


@pytest.mark.parametrize("name", ["tables", "drops_later", "routing", "ports"])
def test_trouble_after_a_good_job_goes_on_once_everything_is_written(tmp_path: Path, name: str) -> None:
    arm = arm_of(tmp_path)
    with pytest.raises(HostError, match="ovs-ofctl failed"):
        arm._measure(Fabric(**{name: LATER}), 1.0)  # type: ignore[arg-type]
    assert arm.written["error"] == "HostError: ovs-ofctl failed"


def test_nonsense_of_routers_loses_nothing_of_what_they_said_before(tmp_path: Path) -> None:
    arm = arm_of(tmp_path)
    with pytest.raises(MrtError, match="record at byte 0"):
        arm._measure(Fabric(routing=MrtError("record at byte 0: type 9")), 1.0)  # type: ignore[arg-type]
    assert [event["event"] for event in arm.log.events()] == ["session"]


def test_a_fabric_without_trouble_ends_well(tmp_path: Path) -> None:
    arm = arm_of(tmp_path)
    assert arm._measure(Fabric(), 1.0).tables_unchanged is True  # type: ignore[arg-type]
    assert (arm.written["error"], arm.written["interrupted"]) == (None, False)
