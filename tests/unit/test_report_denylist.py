"""What the report says of denied EVs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.report import denylist
from testbed.report.model import ArmRun
from testbed.report.reading import RunData

DENY = {"links": ["h1-t0_1_1"], "evs": [{"host": "h1", "peer": "h3", "evs": [2]}], "ignored_by": ["rc-bgp"]}


def command(event: str, t_s: float, **more: Any) -> dict[str, Any]:
    asked = {"links": ["h1-t0_1_1"], "host": None, "peer": None, "evs": []}
    evs = {"h1": {"h3": [0, 1]}, "h3": {"h1": [0]}}
    return {"t_s": t_s, "source": "admin", "event": event, "asked": asked, "evs": evs, "refused": None, **more}


def told(*events: dict[str, Any], scenario: Any = None, arms: tuple[str, ...] = ("mrc",)) -> list[str]:
    runs = {arm: (ArmRun(arm, 1, 20.0, events=events if arm == "mrc" else ()),) for arm in arms}
    return denylist.sentences(RunData(Path(), {}, {} if scenario is None else {"deny": scenario}, 1, runs, ()))


def test_without_a_denylist_nothing_is_said() -> None:
    assert told() == told(scenario={"links": [], "evs": []}) == []


def test_the_scenarios_denylist_is_told_and_who_ignored_it() -> None:
    assert told(scenario=DENY, arms=("mrc", "rc-bgp")) == [
        "On the denylist from the first packet: link h1-t0_1_1, EV 2 from h1 to h3. RC over BGP has no EVs with known paths and ignored it."
    ]


def test_an_arm_that_did_not_run_ignored_nothing() -> None:
    assert told(scenario=DENY) == ["On the denylist from the first packet: link h1-t0_1_1, EV 2 from h1 to h3."]


def test_an_administrators_commands_are_told_with_their_times() -> None:
    of_pair = {"links": [], "host": "h1", "peer": "h3", "evs": [1, 2]}
    events = [
        {"t_s": 0.0, "source": "run", "event": "deny", "evs": {"h1": {"h3": [0]}}},
        command("deny", 3.21),
        command("deny", 4.0, asked=of_pair, evs={}, refused="h1: the last EV"),
        command("allow", 9.0, evs={"h1": {"h3": [0]}}),
    ]
    assert told(*events) == [
        "MRC, repeat 1: an administrator denied link h1-t0_1_1 at 3.2 s (3 EVs); denied EV 1, 2 from h1 to h3 at 4.0 s, which was refused; "
        "allowed link h1-t0_1_1 at 9.0 s (1 EV)."
    ]


def test_hundreds_of_commands_do_not_fill_the_page() -> None:
    (sentence,) = told(*(command("deny", float(t)) for t in range(300)))
    assert sentence.endswith("; and 280 more.")


@pytest.mark.parametrize("bad", [None, 7, "x", [], [7], {"h1": 7}, {"h1": {"h3": 7}}, {"links": 7, "evs": "x", "host": 7}])
def test_damaged_fields_are_told_as_far_as_they_go(bad: Any) -> None:
    assert told(command("deny", 1.0, asked=bad, evs=bad))[0].startswith("MRC, repeat 1: an administrator denied ")
    told(scenario=bad)
    told(scenario={"links": bad, "evs": bad, "ignored_by": bad})
