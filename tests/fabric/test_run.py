"""A small scenario in both arms, from the command line to the report: exit code, files, history, faults, sums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_lab import RAN, SMALL, arm_folders, columns, events, named, run, table

pytestmark = pytest.mark.fabric
ARMS = ("mrc", "rc-bgp")
TINY = {
    "name": "tiny",
    "topology": {"kind": "fat-tree", "k": 4},
    "job": {"hosts": ["h1", "h2", "h5", "h6"], "vector": "64KiB", "compute": "100ms", "checkpoint_every": 5},
    "run": {"duration": "8s", "warmup": "1s", "settle": "2s"},
    "faults": [
        {"kind": "carrier", "link": "t0_1_1-t1_1_1", "at": "2s", "for": "1s"},
        {"kind": "silent", "link": "t1_2_1-t2_1", "at": "4s", "for": "1s"},
    ],
    "arms": list(ARMS),
}
# docs/architecture.md, "Files of a run".
TABLES = {
    "steps.csv": "attempt,step,rank,host,start_s,compute_end_s,end_s,ok",
    "flows.csv": "t_s,host,peer,tx_packets,rtx_packets,acked_bytes,cwnd_packets,srtt_s,trimmed_packets,marked_packets",
    "paths.csv": "t_s,host,peer,ev,state,tx_packets,lost_packets,probes_sent,trimmed_packets,marked_packets",
    "links.csv": "t_s,link,from_node,tx_packets,tx_bytes,dropped_packets,lost_packets,ev_dropped_packets,queue_dropped_packets,"
    "marked_packets,trimmed_packets,trimmed_bytes",
    "cpu.csv": "t_s,busy,steal,run_queue,lateness_s",
}
ARM_KEYS = {
    "arm",
    "repeat",
    "duration_s",
    "bring_up_s",
    "ring",
    "job",
    "fabric",
    "transport",
    "tables_unchanged",
    "fidelity",
    "interrupted",
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any], Path]:
    return run(tmp_path_factory.mktemp("tiny run"), TINY)


@pytest.fixture(params=ARMS)
def arm(request: pytest.FixtureRequest, tiny: tuple[int, dict[str, Any], Path]) -> Path:
    return tiny[2] / str(request.param) / "1"


def test_it_ends_with_a_verdict(tiny: tuple[int, dict[str, Any], Path]) -> None:
    status, answer, _ = tiny
    assert status in RAN
    assert answer["exit_code"] == status
    assert set(answer["summary"]["arms"]) == set(ARMS)


def test_latest_points_at_it(tiny: tuple[int, dict[str, Any], Path]) -> None:
    folder = tiny[2]
    assert (folder.parent.parent / "latest").resolve() == folder


def test_every_file_of_the_run_is_there(tiny: tuple[int, dict[str, Any], Path]) -> None:
    folder = tiny[2]
    assert all((folder / name).is_file() for name in ("manifest.json", "scenario.yaml", "faults.json", "summary.json", "report.html"))
    assert list((folder / "plots").glob("*.png"))
    assert list((folder / "plots").glob("*.svg"))
    assert not list(folder.rglob("*.part"))


def test_the_manifest_says_that_it_is_complete(tiny: tuple[int, dict[str, Any], Path]) -> None:
    manifest = json.loads((tiny[2] / "manifest.json").read_text())
    assert (manifest["complete"], manifest["interrupted"]) == (True, False)


@pytest.mark.parametrize("name", TABLES)
def test_tables_have_their_columns_and_rows(arm: Path, name: str) -> None:
    assert ",".join(columns(arm / name)) == TABLES[name]
    assert table(arm / name)


def test_arm_json_has_its_keys(arm: Path) -> None:
    assert set(json.loads((arm / "arm.json").read_text())) >= ARM_KEYS


def test_every_rank_reports(arm: Path) -> None:
    assert set(json.loads((arm / "agents.json").read_text())) == set(TINY["job"]["hosts"])  # type: ignore[index]


def test_the_history_is_sorted(arm: Path) -> None:
    times = [event["t_s"] for event in events(arm)]
    assert times == sorted(times)
    assert all("source" in event for event in events(arm))


def test_every_fault_has_its_three_times_in_order(arm: Path) -> None:
    faults = named(arm, "fault_begin", "fault_end")
    assert sorted((event["fault"], event["event"]) for event in faults) == [
        (name, event) for name in ("f1", "f2") for event in ("fault_begin", "fault_end")
    ]
    assert all(event["planned_s"] <= event["issued_s"] <= event["effective_s"] for event in faults)


def test_faults_are_the_drawn_ones(tiny: tuple[int, dict[str, Any], Path], arm: Path) -> None:
    drawn = json.loads((tiny[2] / "faults.json").read_text())["faults"]
    begun = [(event["fault"], event["kind"], event["target"], event["planned_s"]) for event in named(arm, "fault_begin")]
    assert begun == [(fault["id"], fault["kind"], fault["target"], fault["at_s"]) for fault in drawn]


def test_every_sum_is_right(arm: Path) -> None:
    finished = [row["ok"] for row in table(arm / "steps.csv") if row["end_s"]]
    assert finished
    assert set(finished) == {"1"}


def test_both_faults_hit_packets_or_carriers(arm: Path) -> None:
    assert {event["node"] for event in named(arm, "link")} >= {"t0_1_1", "t1_1_1"}
    dropped = [int(row["dropped_packets"]) for row in table(arm / "links.csv") if row["link"] == "t1_2_1-t2_1"]
    assert arm.parent.name != "mrc" or max(dropped) > 0  # BGP may have hashed all flows elsewhere


def test_static_tables_are_unchanged(tiny: tuple[int, dict[str, Any], Path]) -> None:
    assert [json.loads((tiny[2] / name / "1" / "arm.json").read_text())["tables_unchanged"] for name in ARMS] == [True, None]


def test_plots_and_report_can_be_made_again(tiny: tuple[int, dict[str, Any], Path]) -> None:
    import os
    import subprocess
    import sys

    from netns.fabric_lab import REPO_ROOT

    (tiny[2] / "report.html").unlink()
    argv = [sys.executable, "-m", "testbed", "report", str(tiny[2]), "--json"]
    done = subprocess.run(argv, cwd=REPO_ROOT, env=os.environ, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout) == {"run": str(tiny[2]), "report": str(tiny[2] / "report.html")}


def test_every_repeat_has_the_same_faults(tmp_path: Path) -> None:
    status, _, folder = run(tmp_path, SMALL, "--repeat", "2", "--set", "run.duration=3s")
    assert status in RAN
    begun = [[(event["fault"], event["target"], event["planned_s"]) for event in named(arm, "fault_begin")] for arm in arm_folders(folder)]
    assert len(begun) == 2
    assert begun[0] == begun[1] != []
