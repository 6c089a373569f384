"""A run's folder that was damaged, cut short or made by somebody who means no good: the report says so, and never fails or waits."""

import json
import os

import pytest
from synthetic_run import make_run

from testbed.report import summarise

HUGE = "1e300"


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path, repeats=1)


def arm_of(run):
    return sorted(run.glob("*/1"))[0]


def problems_of(run):
    summary = summarise(run)
    json.dumps(summary, allow_nan=False)
    return " ".join(summary["problems"])


@pytest.mark.parametrize("content", ["[" * 100_000, "[1]", '{"a": ', "\0", '{"seed": NaN, "arms": 3, "scenario": 7, "repeats": []}'])
@pytest.mark.parametrize("name", ["manifest.json", "faults.json", "scenario.yaml"])
def test_a_damaged_file_of_the_run(run, name, content):
    (run / name).write_text(content)
    summarise(run)


@pytest.mark.parametrize(
    "content",
    ["[" * 100_000, "[1]", "x", '{"fidelity": {"verdict": NaN, "reasons": 3}, "duration_s": "x", "ring": 7}', '{"duration_s": 1e300}'],
)
@pytest.mark.parametrize("name", ["arm.json", "agents.json"])
def test_a_damaged_file_of_an_arm(run, name, content):
    (arm_of(run) / name).write_text(content)
    summarise(run)


@pytest.mark.parametrize(
    "line",
    [
        '{"t_s": 1, "event": "ev_state", "source": "h1", "ev": 1, "path": 3, "to": "ASSUMED_BAD"}',
        '{"t_s": 1, "event": "ev_state", "source": "h1", "ev": 1, "path": [3], "to": "ASSUMED_BAD"}',
        '{"t_s": 1, "event": "ev_state", "source": "h1", "ev": {}, "to": "ASSUMED_BAD"}',
        '{"t_s": 1, "event": "ev_state", "source": "h1", "to": "ASSUMED_BAD"}',
        '{"t_s": 1, "event": "probe", "ev": 1}',
        '{"t_s": 1, "event": "fault_begin", "fault": [], "effective_s": "x"}',
        '{"t_s": 1, "event": "job_crash", "attempt": "x"}',
        '{"t_s": NaN, "event": "job_crash"}',
        f'{{"t_s": {HUGE}, "event": "job_stop"}}',
        '{"t_s": 1, "event": []}',
        '{"t_s": 1}',
        "[" * 100_000,
        "\0\1\2",
    ],
)
def test_an_event_that_makes_no_sense_is_left_out_and_counted(run, line):
    with (arm_of(run) / "events.jsonl").open("a") as file:
        file.write(line + "\n")
    assert "events.jsonl: 1 damaged lines left out" in problems_of(run)


@pytest.mark.parametrize(
    "row",
    [
        "1,1,0,h1,nan,1,1,1", f"1,1,0,h1,{HUGE},1,1,1", f"1,{'9' * 20},0,h1,1,1,1,1", "1,1,0,h\0,1,1,1,?",
        "1", '"1,1', "9" * 200_000,
    ],
)  # fmt: skip
def test_a_step_that_makes_no_sense_is_left_out_and_counted(run, row):
    with (arm_of(run) / "steps.csv").open("a") as file:
        file.write(row + "\n")
    assert "steps.csv: 1 damaged lines left out" in problems_of(run)


@pytest.mark.parametrize("name", ["events.jsonl", "steps.csv", "arm.json", "agents.json", "links.csv"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "loop"])
def test_what_is_no_file_is_told_and_not_waited_for(run, name, kind):
    path = arm_of(run) / name
    path.unlink()
    {"pipe": os.mkfifo, "folder": os.mkdir, "loop": lambda path: os.symlink(path.name, path)}[kind](path)
    assert f"{name} is {'missing' if kind == 'loop' else 'no file'}" in problems_of(run)
