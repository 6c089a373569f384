"""The picture of routing's timers, from a sweep's points that never happened."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sweep_lab import sweep_data
from synthetic_arms import FRR, make_arms_run

from testbed.report import plot_timers, style, sweep_detection, sweep_html
from testbed.report.reading import read_run
from testbed.report.summary import summarise_data

PROFILES = {"datacenter-bfd-50x3": 0.15, "datacenter-bfd-300x3": 0.9, "datacenter": 9.0, "traditional": 180.0}
RC = {"datacenter-bfd-50x3": [2.1, 2.2], "datacenter-bfd-300x3": [2.1, 4.3], "datacenter": [9.5, 10.7], "traditional": [15.0, 16.1]}


def point(detects_s: float | None, stalls_s: list[float], detected: int) -> dict[str, Any]:
    return {"detection_s": detects_s, "faults": 2, "stalls_s": stalls_s, "lasted_s": 14.0, "crashes": 0, "detected": detected}


def timers() -> dict[str, Any]:
    """Four points: RC stalls with the timer, and 180 s are longer than the failure; MRC stalls a little everywhere."""
    data = sweep_data(list(PROFILES), {"mrc": [0.05] * 4, "rc-bgp": [2.1, 3.2, 10.1, 15.5]}, metric="stall_p100_s")
    for told, (name, detects_s) in zip(data["points"], PROFILES.items(), strict=True):
        found = 0 if name == "traditional" else 2
        told["detection"] = {"mrc": point(None, [0.02, 0.08], 0), "rc-bgp": point(detects_s, RC[name], found)}
    return data | {"transports": "RC: ACK timeout 2.15 s, 7 retries"}


def texts(data: dict[str, Any]) -> str:
    with style.styled():
        figure = plot_timers.draw(data)
    assert figure is not None
    axes = [text.get_text() for panel in figure.axes for text in panel.texts]
    return " ".join([*(text.get_text() for text in figure.texts), *axes]).replace("\N{NO-BREAK SPACE}", " ").replace("\n", " ")


def test_the_title_tells_every_point_and_which_was_not_detected():
    told = sweep_detection.title(timers())
    assert told.startswith("Stall under a silent failure of 14 s: RC over BGP 2.15 s with detection after 150 ms, ")
    assert "9.0" not in told
    assert "10.1 s with detection after 9 s, 15.6 s with detection after 180 s, not detected; MRC 50 ms whatever the timers" in told


def test_the_picture_says_what_was_not_detected_and_what_was_allowed():
    told = texts(timers())
    assert "traditional not detected: over before" in told
    assert "datacenter not detected" not in told
    assert "MRC: 50 ms (20 ms to 80 ms), without routing" in told
    assert "the failure lasted 14 s" in told
    assert "RC: ACK timeout 2.15 s, 7 retries" in told


def test_points_are_in_order_of_their_timers_whatever_the_sweep_has():
    data = timers()
    data["points"].reverse()
    assert [entry["detection_s"] for entry in sweep_detection.series(data, "rc-bgp")] == sorted(PROFILES.values())


def test_a_point_detected_in_some_repeats_only_says_so():
    data = timers()
    data["points"][2]["detection"]["rc-bgp"]["detected"] = 1
    assert "10.1 s with detection after 9 s, detected in 1 of 2" in sweep_detection.title(data)


def test_a_point_whose_stall_ended_in_a_crash_says_so():
    """Else a transport that gave up before routing acted would look like routing."""
    data = timers()
    data["points"][2]["detection"]["rc-bgp"]["crashes"] = 2
    assert "10.1 s with detection after 9 s, 2 crashes, 15.6 s" in sweep_detection.title(data)
    assert "datacenter 2 crashes" in texts(data)


@pytest.mark.parametrize("change", ["no detection", "one time", "no stall"])
def test_other_sweeps_have_no_such_picture(change):
    data = timers()
    for told in data["points"]:
        if change == "no detection":
            del told["detection"]
        elif change == "one time":
            told["detection"]["rc-bgp"]["detection_s"] = 9.0
        else:
            told["detection"]["rc-bgp"]["stalls_s"] = []
    assert plot_timers.draw(data) is None


def test_a_stall_of_nothing_can_be_drawn():
    data = timers()
    for told in data["points"]:
        told["detection"]["mrc"]["stalls_s"] = [0.0, 0.0]
    assert "MRC: 0 s (0 s to 0 s)" in texts(data)


def test_points_come_from_the_runs_files(tmp_path):
    """Silent faults alone count; a session that fell over another link is no detection."""
    run = make_arms_run(tmp_path, repeats=1)
    data = read_run(run)
    told = sweep_detection.of_point(data, summarise_data(data))
    assert (told["rc-bgp"]["detection_s"], told["mrc"]["detection_s"], told["rc-static"]["detection_s"]) == (9.0, None, None)
    assert (told["rc-bgp"]["faults"], len(told["rc-bgp"]["stalls_s"]), told["rc-bgp"]["detected"]) == (2, 2, 0)
    assert told["rc-bgp"]["lasted_s"] == pytest.approx(6.0, abs=0.1)
    assert told["rc-bgp"]["stalls_s"][0] == pytest.approx(6.5, rel=0.12)


def more_drops(path: Path, link: str) -> None:
    """The made-up counters of a silent link hold few packets, as many as BFD may send."""
    rows = [line.split(",") for line in path.read_text().splitlines()]
    rows = [[*row[:-1], str(10 * int(row[-1]))] if row[1] == link else row for row in rows]
    path.write_text("\n".join(map(",".join, rows)) + "\n")


def test_bfd_counts_before_the_hold_time_and_a_lost_session_is_a_detection(tmp_path):
    run = make_arms_run(tmp_path, repeats=1)
    folder = run / "rc-bgp" / "1"
    info = json.loads((folder / "arm.json").read_text())
    info["fabric"]["routing"]["options"] = {**FRR, "bfd_interval_ms": 50}
    (folder / "arm.json").write_text(json.dumps(info))
    more_drops(folder / "links.csv", "t1_1_2-t2_3")
    lost = {"t_s": 18.2, "source": "routing", "event": "session", "node": "t2_3", "peer": "t1_1_2", "up": False, "reason": "bfd"}
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps(lost) + "\n")
    data = read_run(run)
    told = sweep_detection.of_point(data, summarise_data(data))["rc-bgp"]
    assert (told["detection_s"], told["detected"]) == (pytest.approx(0.15), 1)


def test_without_messages_the_timer_against_the_fault_decides(tmp_path):
    run = make_arms_run(tmp_path, repeats=1, events=False)
    data = read_run(run)
    assert sweep_detection.of_point(data, summarise_data(data))["rc-bgp"]["detected"] == 0  # 9 s, and they last 5 and 7
    arm = data.arms["rc-bgp"][0]
    short = {**FRR, "hold_s": 6}
    arms = {"rc-bgp": (replace(arm, info={**arm.info, "fabric": {"options": short}}),)}
    faster = replace(data, arms=arms)
    assert sweep_detection.of_point(faster, summarise_data(faster))["rc-bgp"]["detected"] == 1


def test_both_pictures_are_written(tmp_path: Path):
    found = sweep_html.write_pictures(tmp_path, timers())
    assert {path.name for path in found} == {"timers.png", "timers.svg", "sweep.png", "sweep.svg"}
