"""What the report says of an arm whose EVs routers hash: how often they left, and nothing that only links could tell."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.report import effects, findings, plot_paths
from testbed.report.goodput import payload_share
from testbed.report.model import ArmRun, FaultInterval
from testbed.report.summary import repeat_summary

FAULT = FaultInterval("f1", "silent", "t0_1_1-t1_1_1", "link", "T0-T1", 5.0, 9.0, 5.0, 5.0, 9.0, ("t0_1_1-t1_1_1",))


def change(t_s: float, before: str, after: str, reason: str) -> dict[str, Any]:
    return {
        "t_s": t_s, "source": "h1", "event": "ev_state", "peer": "h2", "qp": 7, "ev": 49152, "plane": 1, "path": [],
        "from": before, "to": after, "reason": reason, "last_tx_s": t_s,
    }  # fmt: skip


LEFT = change(6.0, "GOOD", "ASSUMED_BAD", "loss_rack")
BACK = [change(7.0, "ASSUMED_BAD", "GOOD", "probe"), change(7.0, "ASSUMED_BAD", "GOOD", "spurious")]


def metrics(arm: str, *events: dict[str, Any]) -> dict[str, Any]:
    begin = {"t_s": 0.0, "source": "run", "event": "job_start"}
    found: dict[str, Any] = repeat_summary(ArmRun(arm, 1, 20.0, faults=(FAULT,), events=[begin, *events]))[0]["metrics"]
    return found


@pytest.mark.parametrize(("back", "taken_back"), [(BACK[0], 0), (BACK[1], 1)], ids=["probed", "taken back"])
def test_retirements_are_counted_and_none_is_called_false(back: dict[str, Any], taken_back: int) -> None:
    told = metrics("mrc-bgp", LEFT, back)
    assert (told["retirements"], told["taken_back"], told["false_retirements"]) == (1, taken_back, None)


def test_without_any_retirement_there_is_still_nothing_to_say_of_false_ones() -> None:
    assert (metrics("mrc-bgp")["retirements"], metrics("mrc-bgp")["false_retirements"]) == (0, None)
    assert (metrics("mrc")["retirements"], metrics("mrc")["false_retirements"]) == (0, 0)


def test_arms_without_evs_have_no_retirements() -> None:
    assert [metrics("rc-bgp")[name] for name in ("retirements", "taken_back", "false_retirements")] == [None] * 3


def test_no_fault_is_blamed_for_an_ev_whose_links_are_not_known() -> None:
    run = ArmRun("mrc-bgp", 1, 20.0, faults=(FAULT,), events=[LEFT])
    assert (effects.blamed(run, LEFT), effects.detections(run)) == (None, [])


def summary(**arms: dict[str, list[float]]) -> dict[str, Any]:
    told = {arm.replace("_", "-"): {name: {"values": values} for name, values in named.items()} for arm, named in arms.items()}
    return {"arms": told}


def test_the_findings_say_how_often_and_that_the_faults_are_not_known() -> None:
    told = findings.detection_sentence(summary(mrc_bgp={"retirements": [3.0, 4.0], "taken_back": [0.0, 1.0]}))
    assert told == (
        "No path that is known was retired for a fault. MRC over BGP retired an EV 7 times, of which it took back 1: the packet had "
        "arrived; for which faults is not known, because routers chose the paths."
    )


def test_arms_whose_paths_are_known_are_told_as_ever() -> None:
    told = findings.detection_sentence(summary(mrc={"retirements": [0.0], "false_retirements": [0.0]}))
    assert told == "No path was retired for a fault. MRC retired no EV without a fault or random loss on its path."


def test_packets_without_an_outer_header_leave_more_of_a_link_to_payload() -> None:
    tunnelled, bare = (payload_share(ArmRun(arm, 1, 20.0, info={"transport": {"payload_bytes": 4096}})) for arm in ("mrc", "mrc-bgp"))
    assert tunnelled is not None
    assert bare is not None
    assert 4096 / tunnelled - 4096 / bare == pytest.approx(40)


@pytest.mark.parametrize(
    ("arm", "evs", "words"),
    [
        ("mrc-bgp", 2, " (the routers chose their paths; which faults lay on them is not known)"),
        ("rc-bgp", 1, " (the routers chose its path; which faults lay on it is not known)"),
        ("mrc", 2, ""),  # none was retired, so that no event has told its path
    ],
)
def test_a_picture_of_evs_says_that_their_paths_are_not_known(arm: str, evs: int, words: str) -> None:
    run = ArmRun(arm, 1, 20.0, faults=(FAULT,))
    assert plot_paths._unknown_paths(run, [plot_paths.EvRow(ev) for ev in range(evs)]) == words
