"""`testbed converge` as a user calls it: one cut on real FRR, measured on probes and FIBs, and what it leaves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from fabric.run_lab import PATIENCE_S, RAN, environment, eventually

pytestmark = pytest.mark.fabric

# Its links are between the T0s and T1s of a small fabric, so that FRR is up in seconds.
SCENARIO = {
    "name": "cut",
    "topology": {"kind": "multi-plane", "planes": 1, "t0s": 2, "t1s": 2, "hosts_per_t0": 2},
    "run": {"duration": "20s", "warmup": "500ms", "settle": "500ms"},
    "faults": [
        {"kind": "carrier", "link": "t0_1_1-t1_1_1", "at": "1s", "for": "2s"},
        {"kind": "switch-hang", "switch": "t1_1_2", "at": "5s", "for": "1s"},
    ],
    "arms": ["rc-bgp"],
}
LONG = {"kind": "silent", "link": "t0_1_1-t1_1_1", "at": "5s", "for": "12s"}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict, Path]:
    """Exit code, answer, folder: one repeat with one profile of FRR."""
    folder = tmp_path_factory.mktemp("converge")
    (folder / "cut.yaml").write_text(yaml.safe_dump(SCENARIO))
    argv = [sys.executable, "-m", "testbed", "converge", str(folder / "cut.yaml"), "--profile", "datacenter", "--repeats", "1", "--json"]
    done = subprocess.run(
        [*argv, "--results", str(folder / "results")], cwd=folder, env=environment(folder), capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    answer = json.loads(done.stdout)
    assert "run" in answer, done.stderr
    return done.returncode, answer, Path(answer["run"])


def phase(answer: dict, kind: str, name: str) -> dict:
    return next(sample["phases"][name] for sample in answer["samples"] if sample["kind"] == kind)


def test_a_cut_is_repaired_for_both_classes_and_the_fibs_changed_meanwhile(measured: tuple[int, dict, Path]) -> None:
    status, answer, _ = measured
    begin = phase(answer, "carrier", "begin")
    assert status in RAN, answer["problems"]
    assert {name: one["streams"] for name, one in begin["classes"].items()} == {"local": 16, "remote": 16}
    assert all(one["crossed"] > 0 for one in begin["classes"].values()), "no probe was on the link that was cut"
    assert {one["state"] for one in begin["classes"].values()} <= {"nothing lost", "repaired"}
    assert begin["classes"]["remote"]["lost"] > 0, "who sends down over the dead link is not told before some packets are lost"
    assert begin["fib_changes"] > 0
    assert 0 <= begin["fib_last_at_ends_s"] <= begin["fib_last_s"] < begin["lasted_s"]
    assert phase(answer, "carrier", "end")["fib_changes"] > 0


def test_a_hang_is_never_found(measured: tuple[int, dict, Path]) -> None:
    begin = phase(measured[1], "switch-hang", "begin")
    assert {one["state"] for one in begin["classes"].values()} == {"not repaired"}
    assert begin["fib_changes"] == 0


def test_page_pictures_history_and_manifest_are_left(measured: tuple[int, dict, Path]) -> None:
    _, answer, folder = measured
    assert answer["complete"]
    assert "not detected while it lasted" in (folder / "report.html").read_text()
    assert (folder / "plots" / "converge-begin.png").stat().st_size > 10_000
    events = [json.loads(line) for line in (folder / "datacenter" / "1" / "events.jsonl").read_text().splitlines()]
    assert [event["fault"] for event in events if event["event"] in ("fault_begin", "fault_end")] == ["f1", "f1", "f2", "f2"]
    assert answer["fabrics"][0]["fabric"]["routing"]["options"]["hold_s"] == 9
    assert json.loads((folder / "manifest.json").read_text())["kind"] == "converge"
    assert (folder.parent.parent / "latest").resolve() == folder.resolve()


def test_an_interrupt_keeps_what_was_measured_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "cut.yaml").write_text(yaml.safe_dump({**SCENARIO, "faults": [*SCENARIO["faults"][:1], LONG]}))
    argv = [sys.executable, "-m", "testbed", "converge", str(tmp_path / "cut.yaml"), "--profile", "static", "--repeats", "1"]
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(
            [*argv, "--results", str(tmp_path / "results"), "--json"], cwd=tmp_path, env=environment(tmp_path), stdout=out, stderr=err
        )
    eventually(lambda: "silent on t0_1_1-t1_1_1 (f2) is on" in (tmp_path / "err").read_text(), process)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130
    answer = json.loads((tmp_path / "out").read_text())
    assert (answer["interrupted"], answer["complete"]) == (True, False)
    assert [sample["kind"] for sample in answer["samples"]] == ["carrier"]
    assert "Not a whole measurement" in (Path(answer["run"]) / "report.html").read_text()
