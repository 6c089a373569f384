"""TEST FIXTURE: sweeps that never happened. Arms whose files are those of synthetic_run, and the data of a sweep with made-up numbers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import make_run

import testbed.run.session
from testbed.report import write_summary
from testbed.report.metrics import METRICS
from testbed.run.arm import ArmOutcome
from testbed.run.fidelity import Observations, judge

SCENARIO = """\
name: swept
title: A sweep of nothing
topology: {kind: multi-plane, planes: 1, t0s: 2, t1s: 1, hosts_per_t0: 1}
job: {vector: 32KiB, compute: 100ms}
run: {duration: 6s, warmup: 1s, settle: 1s}
arms: [mrc, rc-bgp]
expect:
  - {arm: mrc, metric: wrong_sums, equals: 0}
  - {arm: mrc, metric: crashes, at_least: 1, at: 5Mbps}
sweep: {key: links.rate, values: [10Mbps, 5Mbps, 2Mbps], label: rate of each link, metric: step_p50_s, relative: true}
"""
GOOD = judge(Observations([0.5], [0.0], [0.001], [1.0], 0, 0, 0))

Event = tuple[float, str, int]


@dataclass
class FakeArms:
    """Stands for testbed.run.session.ArmRun: copies files instead of running, and remembers what was run."""

    files: Path
    ran: list[Event] = field(default_factory=list)
    on_run: Callable[[Event], None] = lambda event: None

    def __call__(self, scenario: Any, topology: Any, faults: Any, arm: str, repeat: int, folder: Path, around: Any) -> FakeArm:
        return FakeArm(self, (scenario.links.rate_bps / 1e6, arm, repeat), folder)


@dataclass
class FakeArm:
    """One arm and repeat of FakeArms."""

    arms: FakeArms
    event: Event
    folder: Path

    def execute(self) -> ArmOutcome:
        """Copies the files of the synthetic run; what `on_run` raises comes after that, as in an arm that was cut short."""
        _, arm, repeat = self.event
        shutil.copytree(self.arms.files / arm / str(repeat), self.folder)
        self.arms.ran.append(self.event)
        self.arms.on_run(self.event)
        return ArmOutcome(arm, repeat, GOOD, tables_unchanged=True if arm == "mrc" else None)


def _write_summary_alone(folder: Path) -> dict[str, Any]:
    (folder / "report.html").write_text("a report")
    return write_summary(folder)


def install_fake_arms(monkeypatch: pytest.MonkeyPatch, root: Path, repeats: int = 1) -> FakeArms:
    """Arms with the files of a synthetic run below `root`; the points' own pictures, which take seconds, are left out."""
    fake = FakeArms(make_run(root, repeats=repeats))
    monkeypatch.setattr(testbed.run.session, "ArmRun", fake)
    monkeypatch.setattr(testbed.run.session, "write_results", _write_summary_alone)
    return fake


def sweep_data(
    values: list[Any], medians: Mapping[str, list[float | None]], *, metric: str = "step_p50_s", relative: bool = False
) -> dict[str, Any]:
    """What read_sweep() would give: each arm's medians along the values, with a range of 10 % around them."""
    points = []
    for index, value in enumerate(values):
        arms = {arm: {metric: _spread(told[index])} for arm, told in medians.items()}
        points.append({"value": value, "text": str(value), "folder": f"{index + 1}-x", "state": "complete", "arms": arms, "problems": [],
                       "expectations": [], "exit_code": 0, "fidelity": {"verdict": "good", "reasons": []}})  # fmt: skip
    return {
        "scenario": "swept", "title": "", "hypothesis": "", "seed": 1, "repeats": 3, "key": "links.x", "label": "x of each link",
        "metric": metric, "relative": relative, "arms": list(medians), "points": points, "machine": "Imaginary CPU, 2 cores",
        "fidelity": {"verdict": "good", "reasons": []}, "interrupted": False, "complete": True, "problems": [],
        "metrics": {entry.name: {"unit": entry.unit, "meaning": entry.meaning} for entry in METRICS},
    }  # fmt: skip


def _spread(value: float | None) -> dict[str, float | None]:
    return {"median": value, "min": None if value is None else 0.9 * value, "max": None if value is None else 1.1 * value}


def read(path: Path) -> Any:
    """A JSON file."""
    return json.loads(path.read_text())
