"""A whole run of `tcp-bgp`: a cut that routing heals, an outage that outlasts the user timeout, the restart from a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_lab import RAN, SMALL, named, run, table

pytestmark = pytest.mark.fabric

SPINE = ("t0_1_1-t1_1_1", "t0_1_1-t1_1_2")
TCP = {
    **SMALL,
    "name": "tcp",
    "topology": {"kind": "multi-plane", "planes": 1, "t0s": 2, "t1s": 2, "hosts_per_t0": 1},
    "job": {"vector": "64KiB", "compute": "50ms", "checkpoint_every": 4, "restart": "500ms"},
    "run": {"duration": "12s", "warmup": "500ms", "settle": "2s"},
    "transport": {"tcp": {"connections": 2, "user_timeout_s": 1.0}},
    "faults": [
        {"kind": "carrier", "link": SPINE[0], "at": "1s", "for": "2s"},
        *({"kind": "silent", "link": link, "at": "6s", "for": "2500ms"} for link in SPINE),
    ],
    "arms": ["tcp-bgp"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    status, answer, results = run(tmp_path_factory.mktemp("tcp"), TCP)
    assert status in RAN, answer["problems"]
    return results / "tcp-bgp" / "1"


def test_every_finished_step_has_the_right_sum(folder: Path) -> None:
    finished = [row for row in table(folder / "steps.csv") if row["end_s"]]
    assert len(finished) > 20
    assert {row["ok"] for row in finished} == {"1"}
    assert not named(folder, "wrong_sum")


def test_the_cut_does_not_end_the_job_and_the_outage_does_with_the_kernels_reason(folder: Path) -> None:
    crashes = named(folder, "job_crash")
    assert crashes
    assert all(crash["t_s"] > 6.0 for crash in crashes)
    assert "ETIMEDOUT" in crashes[0]["reason"]


def test_the_job_restarts_from_a_checkpoint_and_goes_on(folder: Path) -> None:
    crash, restarted = named(folder, "job_crash")[0], named(folder, "job_restart")[-1]
    assert restarted["step"] == crash["step"] // 4 * 4
    assert any(row["attempt"] == str(restarted["attempt"]) and row["end_s"] for row in table(folder / "steps.csv"))


def test_the_kernels_counters_and_settings_are_kept(folder: Path) -> None:
    agents, arm = (json.loads((folder / name).read_text()) for name in ("agents.json", "arm.json"))
    assert all(agent["options"]["congestion_control"] == "cubic" for agent in agents.values())
    assert all(agent["options"]["user_timeout_ms"] == 1000 for agent in agents.values())
    assert any(agent["data_packets_retransmitted"] > 0 for agent in agents.values())
    assert arm["transport"]["connections"] == 2
    assert arm["fabric"]["host_sysctls"]["net/ipv4/tcp_retries2"] == "15"
    assert {row["ev"] for row in table(folder / "paths.csv")} == {"0", "1"}
    assert max(int(row["tx_packets"]) for row in table(folder / "flows.csv")) > 50
