"""Faults that take more than a link: dead and rebooted switches, a NIC port, a QP that gives up and the job's restart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_lab import RAN, SMALL, named, run, table

pytestmark = pytest.mark.fabric
PLANES = {
    **SMALL,
    "name": "planes",
    "topology": {"kind": "multi-plane", "planes": 2, "t0s": 2, "t1s": 2, "hosts_per_t0": 1},
    "run": {"duration": "10s", "warmup": "500ms", "settle": "2s"},
    "faults": [
        {"kind": "carrier", "link": "h1-t0_1_1", "at": "1s", "for": "1s"},
        {"kind": "switch-kill", "switch": "t1_1_1", "at": "3s", "for": "500ms"},
        {"kind": "switch-reboot", "switch": "t1_2_2", "at": "5s", "for": "500ms"},
        {"kind": "switch-kill", "switch": "t1_1_1", "at": "6s", "for": "500ms"},
        # The end of one fault is the beginning of the next: the switch must be up again in between.
        {"kind": "switch-kill", "switch": "t1_1_1", "at": "6500ms", "for": "500ms"},
    ],
    "arms": ["mrc", "rc-bgp"],
}
CRASH = {
    **SMALL,
    "name": "crash",
    "job": {"vector": "32KiB", "compute": "50ms", "checkpoint_every": 4, "restart": "500ms"},
    "run": {"duration": "9s", "warmup": "1s", "settle": "1s"},
    # 0.134 s a timeout, 2 retries: the QP gives up well within two seconds.
    "transport": {"rc": {"timeout_exponent": 15, "retries": 2, "qps": 4}},
    "faults": [{"kind": "silent", "link": "t0_1_1-t1_1_1", "at": "3s", "for": "2s"}],
    "arms": ["rc-bgp"],
}


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    status, answer, folder = run(tmp_path_factory.mktemp("planes"), PLANES)
    assert status in RAN, answer["problems"]
    return folder


@pytest.fixture(scope="module")
def crash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    status, answer, folder = run(tmp_path_factory.mktemp("crash"), CRASH)
    assert status in RAN, answer["problems"]
    return folder / "rc-bgp" / "1"


@pytest.fixture(params=["mrc", "rc-bgp"])
def arm(request: pytest.FixtureRequest, planes: Path) -> Path:
    return planes / str(request.param) / "1"


def test_every_fault_is_carried_out_and_healed(arm: Path) -> None:
    told = [(event["fault"], event["event"]) for event in named(arm, "fault_begin", "fault_end")]
    assert sorted(told) == [(f"f{number}", event) for number in range(1, 6) for event in ("fault_begin", "fault_end")]


def test_a_switch_is_up_before_it_is_killed_again(arm: Path) -> None:
    of_switch = [event["event"] for event in named(arm, "fault_begin", "fault_end") if event["target"] == "t1_1_1"]
    assert of_switch == ["fault_begin", "fault_end"] * 3


def test_rebooted_switches_have_the_tables_of_their_boot_files(planes: Path) -> None:
    assert json.loads((planes / "mrc" / "1" / "arm.json").read_text())["tables_unchanged"] is True


def test_the_job_goes_on_after_the_last_fault(arm: Path) -> None:
    healed_s = max(event["effective_s"] for event in named(arm, "fault_end"))
    assert any(row["end_s"] and float(row["end_s"]) > healed_s for row in table(arm / "steps.csv"))


def test_sums_are_right_with_switches_going_away(arm: Path) -> None:
    assert {row["ok"] for row in table(arm / "steps.csv") if row["end_s"]} == {"1"}


def test_mrc_uses_the_other_plane_while_a_nic_port_is_cut(planes: Path) -> None:
    arm = planes / "mrc" / "1"
    assert named(arm, "qp_error", "job_crash") == []
    begin, end = (event["effective_s"] for event in named(arm, "fault_begin", "fault_end") if event["fault"] == "f1")
    assert any(row["end_s"] and begin < float(row["start_s"]) and float(row["end_s"]) < end for row in table(arm / "steps.csv"))


def test_a_qp_that_gives_up_crashes_the_job_and_restarts_it(crash: Path) -> None:
    told = [event["event"] for event in named(crash, "job_start", "job_crash", "job_restart", "job_stop")]
    assert told[:3] == ["job_start", "job_crash", "job_restart"]
    assert told[-1] == "job_stop"
    assert told.count("job_crash") == told.count("job_restart")


def test_it_restarts_from_the_last_checkpoint_of_all_ranks(crash: Path) -> None:
    crashed = named(crash, "job_crash")[0]
    restarted = named(crash, "job_restart")[0]
    assert restarted["attempt"] == crashed["attempt"] + 1
    assert restarted["step"] == crashed["step"] // 4 * 4
    first = [int(row["step"]) for row in table(crash / "steps.csv") if int(row["attempt"]) == restarted["attempt"]]
    assert min(first) == restarted["step"]


def test_lost_steps_are_counted(crash: Path) -> None:
    metrics = json.loads((crash.parent.parent / "summary.json").read_text())["arms"]["rc-bgp"]["repeats"][0]["metrics"]
    assert metrics["crashes"] == len(named(crash, "job_crash"))
    crashes_and_restarts = zip(named(crash, "job_crash"), named(crash, "job_restart"), strict=True)
    assert metrics["lost_steps"] == sum(crashed["step"] - restarted["step"] for crashed, restarted in crashes_and_restarts)


def test_crash_costs_the_time_to_restart_and_that_is_counted(crash: Path) -> None:
    metrics = json.loads((crash.parent.parent / "summary.json").read_text())["arms"]["rc-bgp"]["repeats"][0]["metrics"]
    pauses = [
        restarted["t_s"] - crashed["t_s"] for crashed, restarted in zip(named(crash, "job_crash"), named(crash, "job_restart"), strict=True)
    ]
    assert min(pauses) >= 0.5
    assert metrics["lost_crash_s"] >= sum(pauses)


def test_sums_are_right_after_a_restart(crash: Path) -> None:
    rows = [row for row in table(crash / "steps.csv") if int(row["attempt"]) > 1 and row["end_s"]]
    assert rows
    assert {row["ok"] for row in rows} == {"1"}
