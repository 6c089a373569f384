"""An administrator's denylist in a whole run: the scenario's, and what `testbed ev` does to the run that is going on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from run_lab import PATIENCE_S, SMALL, environment, eventually, found, named, start, table

from testbed.control import NAME

pytestmark = pytest.mark.fabric
LINK, OTHER_PLANE = "h1-t0_1_1", "h1-t0_2_1"
PLANES = {
    **SMALL,
    "name": "planes",
    "topology": {"kind": "multi-plane", "planes": 2, "t0s": 2, "t1s": 1, "hosts_per_t0": 1},
    "run": {"duration": "10min", "warmup": "500ms", "settle": "500ms"},
    "faults": [],
    "deny": {"evs": [{"host": "h2", "peer": "h1", "evs": [0]}]},
}


def ev(tmp_path: Path, *arguments: str) -> tuple[int, Mapping[str, Any]]:
    """`testbed ev ... --json` in the folder where the run was started: its exit code and answer."""
    argv = [sys.executable, "-m", "testbed", "ev", *arguments, "--json"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    answer: Mapping[str, Any] = json.loads(done.stdout)
    return done.returncode, answer


def denied(tmp_path: Path) -> set[tuple[str, int]]:
    """The EVs (host, number) that are DENIED now."""
    status, answer = ev(tmp_path, "list")
    assert status == 0, answer
    assert {len(row["path"]) for row in answer["evs"]} == {4}
    return {(row["host"], row["ev"]) for row in answer["evs"] if row["state"] == "DENIED"}


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each command said and did, and the folder of the arm that was interrupted in the end."""
    tmp_path = tmp_path_factory.mktemp("denylist")
    told: dict[str, Any] = {}
    process = start(tmp_path, PLANES)
    try:
        eventually(lambda: ev(tmp_path, "list")[0] == 0, process)
        told["live"] = list((tmp_path / "results").glob(f"planes/*/{NAME}"))
        told["at first"] = denied(tmp_path)
        told["refused"], told["after refusal"] = ev(tmp_path, "deny", "--link", OTHER_PLANE), denied(tmp_path)
        told["unknown"] = ev(tmp_path, "deny", "--link", "h1-t0_9_9")
        told["deny"], told["while denied"] = ev(tmp_path, "deny", "--link", LINK, "--run", "planes"), denied(tmp_path)
        told["allow"], told["after"] = ev(tmp_path, "allow", "--link", LINK), denied(tmp_path)
        folder = found(tmp_path, "planes/*/mrc/1/agents/h1.paths.csv")
        assert folder is not None
        told["arm"] = folder.parents[1]
    finally:
        process.send_signal(signal.SIGINT)
        told["status"] = process.wait(PATIENCE_S)
    told["left"], told["ended"] = list((tmp_path / "results").glob(f"planes/*/{NAME}")), ev(tmp_path, "list")
    return told


def test_the_scenarios_denylist_is_in_force_from_the_first_packet(story: dict[str, Any]) -> None:
    assert story["at first"] == {("h2", 0)}
    (event,) = [event for event in named(story["arm"], "deny") if event["source"] == "run"]
    assert event["evs"] == {"h2": {"h1": [0]}}
    (allowed,) = named(story["arm"], "allow")
    rows = [row for row in table(story["arm"] / "paths.csv") if (row["host"], row["ev"]) == ("h2", "0")]
    assert {row["tx_packets"] for row in rows if float(row["t_s"]) < allowed["t_s"]} == {"0"}


def test_what_leaves_a_sender_without_a_path_is_refused_and_taken_back_by_the_others(story: dict[str, Any]) -> None:
    status, answer = story["refused"]
    assert status == 2
    assert "nothing has changed: h2" in answer["error"]
    assert story["after refusal"] == {("h2", 0)}


def test_an_unknown_link_is_wrong_usage(story: dict[str, Any]) -> None:
    status, answer = story["unknown"]
    assert (status, "h1-t0_9_9" in answer["error"]) == (2, True)


def test_denying_a_link_takes_its_evs_out_and_allowing_it_brings_them_back(story: dict[str, Any]) -> None:
    assert story["deny"][0] == story["allow"][0] == 0
    assert story["deny"][1]["evs"] == story["allow"][1]["evs"] == {"h1": {"h2": [0]}, "h2": {"h1": [0]}}
    assert story["while denied"] == {("h1", 0), ("h2", 0)}
    assert story["after"] == set()


def test_each_command_is_in_the_history_with_what_it_did(story: dict[str, Any]) -> None:
    of_admin = [event for event in named(story["arm"], "deny", "allow") if event["source"] == "admin"]
    assert [(event["event"], event["asked"]["links"], event["refused"] is None) for event in of_admin] == [
        ("deny", [OTHER_PLANE], False),
        ("deny", [LINK], True),
        ("allow", [LINK], True),
    ]
    changes = [event for event in named(story["arm"], "ev_state") if event["source"] == "h1" and event["ev"] == 0]
    assert [event["reason"] for event in changes if event["reason"] in ("denied", "allowed")] == ["denied", "allowed"]


def test_nothing_is_sent_on_a_denied_ev(story: dict[str, Any]) -> None:
    begin, end = (event["t_s"] for event in named(story["arm"], "deny", "allow") if event.get("asked", {}).get("links") == [LINK])
    rows = [row for row in table(story["arm"] / "paths.csv") if (row["host"], row["ev"]) == ("h1", "0") and begin < float(row["t_s"]) < end]
    meanwhile = [row for row in rows if row["state"] == "DENIED"]
    assert meanwhile
    assert len({row["tx_packets"] for row in meanwhile}) == 1
    assert len(rows) - len(meanwhile) <= 2  # between the command and the agent's next sample


def test_the_sums_are_right_all_the_while(story: dict[str, Any]) -> None:
    finished = [row["ok"] for row in table(story["arm"] / "steps.csv") if row["end_s"]]
    assert set(finished) == {"1"}


def test_the_socket_is_there_for_the_run_and_gone_after_it(story: dict[str, Any]) -> None:
    assert len(story["live"]) == 1
    assert (story["left"], story["ended"][0]) == ([], 3)
    assert "no run is going on" in story["ended"][1]["error"]
