"""`mrc-bgp` as a whole: MRC's EVs hashed over real FRR routers, a link that fails silently while the job runs, and one that is cut."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from run_lab import RAN, named, run, table

pytestmark = pytest.mark.fabric

SILENT, CUT = "t0_1_1-t1_1_1", "t0_1_2-t1_1_2"
EVS = 32  # so many that no seed of the routers' hash leaves a path out
SCENARIO: dict[str, Any] = {
    "name": "hashed",
    "topology": {"kind": "fat-tree", "k": 4},
    "job": {"hosts": ["h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8"], "ring": "strided", "vector": "64KiB", "compute": "50ms"},
    "run": {"duration": "8s", "warmup": "3s", "settle": "500ms"},
    "faults": [
        {"kind": "silent", "link": SILENT, "at": "3500ms", "for": "1500ms"},
        {"kind": "carrier", "link": CUT, "at": "5500ms", "for": "1s"},
    ],
    "transport": {"mrc": {"evs": EVS}},
    "arms": ["mrc-bgp"],
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any], Path]:
    """Exit code, summary and the arm's folder of one run."""
    status, _, folder = run(tmp_path_factory.mktemp("hashed"), SCENARIO)
    return status, json.loads((folder / "summary.json").read_text()), folder / "mrc-bgp" / "1"


def test_the_job_goes_on_with_right_sums_and_no_qp_fails(ran: tuple[int, dict[str, Any], Path]) -> None:
    status, summary, folder = ran
    told = summary["arms"]["mrc-bgp"]
    assert status in RAN
    assert told["wrong_sums"]["values"] == told["crashes"]["values"] == [0]
    assert told["steps_completed"]["values"][0] > 10
    assert named(folder, "qp_error") == []
    assert len(named(folder, "qp_closed")) == 8


def test_the_evs_of_a_pair_spread_over_all_paths_before_anything_fails(ran: tuple[int, dict[str, Any], Path]) -> None:
    """Each T0 whose hosts send to another one uses both uplinks, and each T1 both of its own, in the last sample before the first fault."""
    rows = [row for row in table(ran[2] / "links.csv") if 2.0 < float(row["t_s"]) < 3.4]
    sent: dict[str, dict[str, int]] = defaultdict(dict)
    for row in rows:
        lower, upper = row["link"].split("-")
        if row["from_node"] == lower and lower.startswith(("t0_1", "t0_2", "t1_1", "t1_2")):
            sent[lower][upper] = max(sent[lower].get(upper, 0), int(row["tx_packets"]))
    assert len(sent) == 8
    for switch, uplinks in sent.items():
        assert len(uplinks) == 2
        assert min(uplinks.values()) > 0.1 * sum(uplinks.values()), (switch, uplinks)


def test_every_ev_of_a_pair_carries_data(ran: tuple[int, dict[str, Any], Path]) -> None:
    last: dict[tuple[str, str, str], int] = {}
    for row in table(ran[2] / "paths.csv"):
        last[row["host"], row["peer"], row["ev"]] = int(row["tx_packets"])
    assert min(last.values()) > 0
    assert set(Counter((host, peer) for host, peer, _ in last).values()) == {EVS}


def test_evs_left_the_dead_link_and_came_back(ran: tuple[int, dict[str, Any], Path]) -> None:
    """Those that left before the last fault's end; one that a trifle takes out at the very end need not be back."""
    changes, (*_, over) = named(ran[2], "ev_state"), named(ran[2], "fault_end")
    early = [event for event in changes if event["t_s"] < over["t_s"]]
    left = {(event["source"], event["peer"], event["ev"]) for event in early if event["to"] == "ASSUMED_BAD"}
    back = {(event["source"], event["peer"], event["ev"]) for event in changes if event["to"] == "GOOD"}
    assert left
    assert left <= back
    assert {tuple(event["path"]) for event in changes} == {()}


def test_the_routers_moved_evs_off_the_link_that_was_cut(ran: tuple[int, dict[str, Any], Path]) -> None:
    """What is seen of it: forwarding tables changed while it was out."""
    (begin, end) = (
        next(event for event in named(ran[2], kind) if event["kind"] == "carrier")["effective_s"] for kind in ("fault_begin", "fault_end")
    )
    assert [event for event in named(ran[2], "fib") if begin - 0.1 <= event["t_s"] <= end]


def test_the_report_blames_no_fault_and_calls_no_retirement_false(ran: tuple[int, dict[str, Any], Path]) -> None:
    told = ran[1]["arms"]["mrc-bgp"]
    assert told["retirements"]["values"][0] > 0
    assert told["false_retirements"]["values"] == [None]
    assert all(fault["detections"] == 0 for entry in told["repeats"] for fault in entry["faults"])
