"""A run with every kind of fault that is more than a cut, in both arms: what its history and its counters tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_lab import RAN, SMALL, named, run, table

pytestmark = pytest.mark.fabric
# Names of a multi-plane fabric: t0_<plane>_<number>, one T1 a plane, so that either plane can be spared.
FAULTS = [
    {"kind": "remote", "link": "t0_1_1-t1_1_1", "seen_by": "t1_1_1", "at": "1s", "for": "500ms"},
    {"kind": "one-way", "link": "h1-t0_1_1", "from": "t0_1_1", "at": "2s", "for": "500ms"},
    {"kind": "loss", "link": "h1-t0_2_1", "share": "100%", "from": "h1", "evs": [1, 3], "at": "3s", "for": "900ms"},
    {"kind": "loss", "link": "h1-t0_1_1", "share": "20%", "at": "3s", "for": "500ms"},
    {"kind": "rate", "link": "h2-t0_1_2", "share": "10%", "at": "4s", "for": "500ms"},
    {"kind": "port", "port": "h1-eth1", "at": "5s", "for": "500ms"},
    {"kind": "switch-hang", "switch": "t1_2_1", "at": "6s", "for": "500ms"},
    {"kind": "bundle", "links": ["h1-t0_1_1", "h2-t0_1_2"], "of": "silent", "at": "7s", "for": "500ms"},
    {"kind": "flap", "link": "t0_2_1-t1_2_1", "down": "100ms", "up": "150ms", "at": "8s", "for": "600ms"},
    {"kind": "host-slow", "host": "h2", "share": "30%", "at": "9s", "for": "500ms"},
]
KINDS = {
    **SMALL,
    "name": "kinds",
    "topology": {"kind": "multi-plane", "planes": 2, "t0s": 2, "t1s": 1, "hosts_per_t0": 1},
    "run": {"duration": "11s", "warmup": "500ms", "settle": "1s"},
    "faults": FAULTS,
    "transport": {"mrc": {"evs": 8}},
    "arms": ["mrc", "rc-bgp"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    status, answer, folder = run(tmp_path_factory.mktemp("kinds"), KINDS)
    assert status in RAN, answer["problems"]
    return folder


@pytest.fixture(params=["mrc", "rc-bgp"])
def arm(request: pytest.FixtureRequest, folder: Path) -> Path:
    return folder / str(request.param) / "1"


def last(arm: Path, link: str, sender: str) -> dict[str, int]:
    """The counters of a link direction at the end."""
    row = [row for row in table(arm / "links.csv") if (row["link"], row["from_node"]) == (link, sender)][-1]
    return {name: int(value) for name, value in row.items() if name.endswith("packets")}


def test_every_kind_is_carried_out_and_healed(arm: Path) -> None:
    told = [(event["fault"], event["event"]) for event in named(arm, "fault_begin", "fault_end")]
    assert sorted(told) == sorted((f"f{number + 1}", event) for number in range(len(FAULTS)) for event in ("fault_begin", "fault_end"))


def test_the_list_has_parameters_and_links(folder: Path) -> None:
    listed = {fault["kind"]: fault for fault in json.loads((folder / "faults.json").read_text())["faults"]}
    assert listed["flap"]["params"] == {"down_s": 0.1, "up_s": 0.15, "of": "carrier"}
    assert (listed["bundle"]["target"], listed["bundle"]["links"]) == ("h1-t0_1_1+1", ["h1-t0_1_1", "h2-t0_1_2"])
    assert listed["host-slow"]["links"] == []


def test_a_flap_tells_each_change(arm: Path) -> None:
    assert [event["up"] for event in named(arm, "flap")] == [True, False, True, False]
    assert {event["fault"] for event in named(arm, "flap")} == {"f9"}


def test_the_kernel_of_one_end_tells_of_a_remote_fault(arm: Path) -> None:
    begin, end = (event["effective_s"] for event in named(arm, "fault_begin", "fault_end") if event["fault"] == "f1")
    told = [(event["node"], event["up"]) for event in named(arm, "link") if begin - 0.2 < event["t_s"] < end + 0.2]
    assert told == [("t1_1_1", False), ("t1_1_1", True)]


def test_packets_of_the_named_evs_are_lost_in_one_direction(folder: Path) -> None:
    there, back = (last(folder / "mrc" / "1", "h1-t0_2_1", sender) for sender in ("h1", "t0_2_1"))
    assert there["ev_dropped_packets"] > 0
    assert back["ev_dropped_packets"] == 0


def test_the_named_evs_are_given_up_and_no_others_of_their_link(folder: Path) -> None:
    arm = folder / "mrc" / "1"
    (fault,) = [fault for fault in json.loads((folder / "faults.json").read_text())["faults"] if fault["params"].get("evs")]
    begin, end = (event["effective_s"] for event in named(arm, "fault_begin", "fault_end") if event["fault"] == fault["id"])
    given_up = [event for event in named(arm, "ev_state") if event["to"] == "ASSUMED_BAD" and begin < event["t_s"] < end]
    of_link = {event["ev"] for event in given_up if event["source"] == "h1" and fault["target"] in event["path"]}
    assert of_link
    assert of_link <= {1, 3}


def test_chance_takes_packets_of_both_directions(folder: Path) -> None:
    assert all(last(folder / "mrc" / "1", "h1-t0_1_1", sender)["lost_packets"] > 0 for sender in ("h1", "t0_1_1"))


def test_sums_are_right_and_tables_as_they_were(arm: Path) -> None:
    assert {row["ok"] for row in table(arm / "steps.csv") if row["end_s"]} == {"1"}
    assert json.loads((arm / "arm.json").read_text())["tables_unchanged"] in (True, None)


def test_mrcs_job_goes_on_after_the_last_fault(folder: Path) -> None:
    arm = folder / "mrc" / "1"
    healed_s = max(event["effective_s"] for event in named(arm, "fault_end"))
    assert any(row["end_s"] and float(row["end_s"]) > healed_s for row in table(arm / "steps.csv"))
