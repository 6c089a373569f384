"""Merging the agents' files into the run's files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from testbed.collect.history import FLOWS_COLUMNS, PATHS_COLUMNS, STEPS_COLUMNS, merge

START = 1000.0
STEPS = ",".join(STEPS_COLUMNS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agents").mkdir()
    return tmp_path


def agent(folder: Path, name: str, text: str) -> None:
    (folder / "agents" / name).write_text(text)


def events(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def table(folder: Path, name: str) -> list[dict]:
    with (folder / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_events_are_sorted_on_the_jobs_clock(folder):
    agent(folder, "h1.events.jsonl", '{"t": 1002.5, "event": "probe"}\n')
    agent(folder, "h2.events.jsonl", '{"t": 999.0, "event": "probe"}\n')
    merge(folder, START, [])
    assert [(event["t_s"], event["source"]) for event in events(folder)] == [(-1.0, "h2"), (2.5, "h1")]


def test_points_in_time_move_with_the_event_and_durations_do_not(folder):
    agent(folder, "h1.events.jsonl", '{"t": 1002.0, "event": "ev_state", "last_tx_s": 1001.5, "first_lost_tx_s": null, "rto_s": 0.25}\n')
    merge(folder, START, [])
    assert {k: events(folder)[0][k] for k in ("last_tx_s", "first_lost_tx_s", "rto_s")} == {
        "last_tx_s": 1.5, "first_lost_tx_s": None, "rto_s": 0.25,
    }  # fmt: skip


def test_extra_events_may_be_raw_or_relative_already(folder):
    merge(folder, START, [{"t": 1003.0, "source": "run", "event": "job_stop"}, {"t_s": 1.0, "source": "faults", "event": "fault_begin"}])
    assert [(event["t_s"], event["source"]) for event in events(folder)] == [(1.0, "faults"), (3.0, "run")]


def test_the_relative_times_of_a_fault_stay(folder):
    merge(folder, START, [{"t": 1003.0, "source": "faults", "event": "fault_begin", "issued_s": 2.9, "effective_s": 3.0}])
    assert (events(folder)[0]["issued_s"], events(folder)[0]["effective_s"]) == (2.9, 3.0)


def test_a_truncated_last_event_is_left_out_and_told(folder):
    agent(folder, "h1.events.jsonl", '{"t": 1001.0, "event": "probe"}\n{"t": 1002.0, "ev')
    merge(folder, START, [])
    assert [event["event"] for event in events(folder)] == ["probe", "damaged_lines"]
    assert (events(folder)[1]["file"], events(folder)[1]["lines"]) == ("h1.events.jsonl", 1)


def test_a_last_row_cut_within_a_number_is_not_taken_for_a_smaller_number(folder):
    agent(folder, "h1.steps.csv", f"{STEPS}\n1,0,0,h1,1000.0,1000.3,1000.5,1\n1,1,0,h1,1000.5,1000.8,100")
    merge(folder, START, [])
    assert [row["step"] for row in table(folder, "steps.csv")] == ["0"]


def test_lines_that_make_no_sense_are_counted(folder):
    agent(folder, "h1.events.jsonl", 'nonsense\n[1]\n{"event": "no time"}\n{"t": 1001, "event": "probe"}\n')
    merge(folder, START, [])
    assert events(folder)[-1]["lines"] == 3


def test_steps_have_the_contracts_columns_and_relative_times(folder):
    agent(folder, "h1.steps.csv", f"{STEPS}\n1,0,0,h1,1000.25,1000.5,1001.0,1\n")
    merge(folder, START, [])
    assert (folder / "steps.csv").read_text() == f"{STEPS}\n1,0,0,h1,0.250000,0.500000,1.000000,1\n"


def test_an_unfinished_step_stays_unfinished(folder):
    agent(folder, "h1.steps.csv", f"{STEPS}\n1,0,0,h1,1000.25,,,\n")
    merge(folder, START, [])
    assert table(folder, "steps.csv")[0]["end_s"] == ""


def test_a_header_that_an_agent_repeated_is_no_damage(folder):
    row = "1,0,0,h1,1000.0,1000.3,1000.5,1\n"
    agent(folder, "h1.steps.csv", f"{STEPS}\n{row}{STEPS}\n{row}")
    merge(folder, START, [])
    assert (len(table(folder, "steps.csv")), events(folder)) == (2, [])


def test_flows_may_call_their_time_t_and_leave_the_host_out(folder):
    header = ",".join(("t", *FLOWS_COLUMNS[2:]))
    agent(folder, "h7.flows.csv", f"{header}\n1000.5,h2,3,0,12288,16,0.002,1,2\n")
    merge(folder, START, [])
    assert (folder / "flows.csv").read_text().splitlines() == [",".join(FLOWS_COLUMNS), "0.500000,h7,h2,3,0,12288,16,0.002,1,2"]


def test_paths_of_several_hosts_are_sorted_by_time(folder):
    header = ",".join(PATHS_COLUMNS)
    agent(folder, "h1.paths.csv", f"{header}\n1002.0,h1,h2,0,GOOD,9,0,0,0,0\n")
    agent(folder, "h2.paths.csv", f"{header}\n1001.0,h2,h1,0,GOOD,9,0,0,0,0\n")
    merge(folder, START, [])
    assert [row["host"] for row in table(folder, "paths.csv")] == ["h2", "h1"]


def test_a_killed_agent_that_wrote_nothing_still_leaves_whole_files(folder):
    agent(folder, "h1.steps.csv", "")
    merge(folder, START, [])
    assert (folder / "steps.csv").read_text() == STEPS + "\n"


def test_no_agents_folder_is_an_empty_history(tmp_path):
    merge(tmp_path, START, [])
    assert (tmp_path / "events.jsonl").read_text() == ""


def test_nan_never_reaches_the_history(folder):
    agent(folder, "h1.events.jsonl", '{"t": 1001.0, "event": "x", "srtt": NaN}\n')
    merge(folder, START, [])
    assert events(folder)[0]["srtt"] is None
