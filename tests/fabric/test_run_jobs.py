"""Runs of the jobs that are no ring: all-to-all, and streams with a flow that is on for a while, and with a crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_lab import RAN, named, run, table

pytestmark = pytest.mark.fabric

SMALL: dict[str, Any] = {
    "name": "jobs",
    "topology": {"kind": "multi-plane", "planes": 1, "t0s": 2, "t1s": 1, "hosts_per_t0": 2},
    "run": {"duration": "5s", "warmup": "500ms", "settle": "500ms"},
}
FLOWS = [{"from": "h1", "to": "h3"}, {"from": "h3", "to": "h1"}, {"from": "h2", "to": "h3", "at": "2s", "for": "1s"}]


def acked(arm: Path, host: str, peer: str) -> list[tuple[float, int]]:
    """(time, bytes acknowledged) of a flow."""
    rows = [row for row in table(arm / "flows.csv") if (row["host"], row["peer"]) == (host, peer)]
    return [(float(row["t_s"]), int(row["acked_bytes"])) for row in rows]


@pytest.mark.parametrize("arm", ["mrc", "rc-bgp"])
def test_all_to_all_finishes_steps_and_every_slice_is_right(tmp_path: Path, arm: str) -> None:
    job = {"kind": "all-to-all", "vector": "64KiB", "compute": "50ms", "checkpoint_every": 5}
    status, _, folder = run(tmp_path, {**SMALL, "job": job, "arms": [arm]})
    assert status in RAN
    finished = [row["ok"] for row in table(folder / arm / "1" / "steps.csv") if row["end_s"]]
    assert len(finished) > 8
    assert set(finished) == {"1"}


@pytest.mark.parametrize("arm", ["mrc", "rc-bgp"])
def test_streams_are_on_when_they_should_be_and_idle_hosts_run_no_agent(tmp_path: Path, arm: str) -> None:
    status, _, folder = run(tmp_path, {**SMALL, "job": {"kind": "streams", "message": "16KiB", "flows": FLOWS}, "arms": [arm]})
    assert status in RAN
    files = folder / arm / "1"
    info = json.loads((files / "arm.json").read_text())
    assert info["job"]["flows"][2] == {"from": "h2", "to": "h3", "at_s": 2.0, "for_s": 1.0, "role": "flow"}
    assert info["ring"] == ["h1", "h2", "h3"]
    assert sorted(path.name for path in (files / "agents").glob("*.log")) == ["h1.log", "h2.log", "h3.log"]
    assert table(files / "steps.csv") == []
    late = acked(files, "h2", "h3")
    assert {bytes_ for at, bytes_ in late if at < 2.0} == {0}
    assert late[-1][1] > 0
    assert {name for name, report in json.loads((files / "agents.json").read_text()).items() if report["job"]["wrong_messages"]} == set()


def test_streams_whose_path_is_cut_crash_and_begin_again(tmp_path: Path) -> None:
    scenario = {
        **SMALL,
        "job": {"kind": "streams", "message": "16KiB", "restart": "500ms", "flows": FLOWS},
        "faults": [{"kind": "silent", "link": "h3-t0_1_2", "at": "1s", "for": "1s"}],
        "transport": {"rc": {"timeout_exponent": 13, "retries": 2}},
        "arms": ["rc-bgp"],
        "run": {"duration": "7s", "warmup": "500ms", "settle": "500ms"},
    }
    status, answer, folder = run(tmp_path, scenario)
    assert status in RAN, answer
    files = folder / "rc-bgp" / "1"
    assert [event["event"] for event in named(files, "job_start", "job_crash", "job_restart")][:3] == [
        "job_start",
        "job_crash",
        "job_restart",
    ]
    restarted_s = named(files, "job_restart")[-1]["t_s"]
    assert max(bytes_ for at, bytes_ in acked(files, "h1", "h3") if at > restarted_s) > 0
    assert named(files, "wrong_sum") == []
