"""The agent's history files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hosts.core import Event
from hosts.jobs import StepRecord
from hosts.recorder import HEADERS, Recorder
from testbed.errors import HostError


def files(folder: Path, *kinds: str) -> dict[str, Path]:
    return {kind: folder / f"h1.{kind}" for kind in kinds}


def test_event_is_a_json_line_with_raw_time_and_source(tmp_path: Path):
    recorder = Recorder(files(tmp_path, "events"), "h1", 0, 0.0)
    recorder.events([Event(12.5, "rc_nak", {"peer": "h2", "psn": 7})])
    recorder.close()
    assert json.loads((tmp_path / "h1.events").read_text()) == {"t": 12.5, "source": "h1", "event": "rc_nak", "peer": "h2", "psn": 7}


def test_finished_and_unfinished_steps(tmp_path: Path):
    recorder = Recorder(files(tmp_path, "steps"), "h1", 3, 0.0)
    recorder.step(StepRecord(1, 4, 1.0, 1.5, 1.75, True))
    recorder.step(StepRecord(1, 5, 1.75))
    recorder.close()
    assert (tmp_path / "h1.steps").read_text() == HEADERS["steps"] + "1,4,3,h1,1.000000,1.500000,1.750000,1\n1,5,3,h1,1.750000,,,\n"


def test_second_attempt_appends_without_a_second_header(tmp_path: Path):
    for attempt in (1, 2):
        recorder = Recorder(files(tmp_path, "steps"), "h1", 0, 0.0)
        recorder.step(StepRecord(attempt, 0, 1.0))
        recorder.close()
    assert [line.split(",")[0] for line in (tmp_path / "h1.steps").read_text().splitlines()] == ["attempt", "1", "2"]


def test_lines_are_written_at_the_latest_after_half_a_second(tmp_path: Path):
    recorder = Recorder(files(tmp_path, "events"), "h1", 0, 100.0)
    recorder.events([Event(100.1, "x")])
    recorder.on_timer(100.49)
    assert (tmp_path / "h1.events").read_text() == ""
    recorder.on_timer(100.5)
    assert (tmp_path / "h1.events").read_text() != ""
    recorder.close()


def test_samples_are_due_every_tenth_of_a_second_and_missed_ones_are_not_made_up(tmp_path: Path):
    recorder = Recorder(files(tmp_path, "flows"), "h1", 0, 0.0)
    due = [now for now in (0.05, 0.11, 0.15, 0.21, 0.95, 0.96, 1.01) if recorder.sample_due(now)]
    recorder.close()
    assert due == [0.11, 0.21, 0.95, 1.01]


def test_sample_rows(tmp_path: Path):
    recorder = Recorder(files(tmp_path, "flows", "paths"), "h1", 0, 0.0)
    recorder.sample(1.0, [("h2", 5, 1, 4096, 16, 0.25, 3, 2)], [("h2", 0, "GOOD", 5, 1, 0, 3, 2)])
    recorder.close()
    assert (tmp_path / "h1.flows").read_text().splitlines()[1] == "1.000000,h1,h2,5,1,4096,16,0.250000,3,2"
    assert (tmp_path / "h1.paths").read_text().splitlines()[1] == "1.000000,h1,h2,0,GOOD,5,1,0,3,2"


def test_without_flows_and_paths_there_is_no_sample_to_wake_up_for():
    recorder = Recorder({}, "h1", 0, 0.0)
    assert (recorder.sample_due(9.0), recorder.due) == (False, 0.5)


def test_missing_folder_is_a_host_error_that_names_the_file(tmp_path: Path):
    with pytest.raises(HostError, match=r"none/h1\.steps.*must exist"):
        Recorder(files(tmp_path / "none", "steps"), "h1", 0, 0.0)
