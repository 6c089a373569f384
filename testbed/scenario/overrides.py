"""`--set key.path=value`: one value of a scenario, replaced before it is checked."""

from __future__ import annotations

import re
from typing import Any

from testbed.scenario.problems import Place, Problem, ScenarioInvalid, place_text
from testbed.scenario.yamltext import Located, read_yaml

_STEP = re.compile(r"\.?(?P<key>[^.\[\]=\s]+)|\[(?P<index>\d{1,6})\]")
HINT = "write key.path=value, as job.vector=1MiB or faults[0].at=3s"


def parse_place(text: str) -> Place | None:
    """Reads "faults[0].at" (or "$.faults[0].at") as a place; None if it is not one."""
    text = text.strip().removeprefix("$").removeprefix(".")
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None or (position == 0 and text.startswith(".")):
            return None
        steps.append(int(match["index"]) if match["index"] is not None else match["key"])
        position = match.end()
    return tuple(steps) or None


def apply_override(located: Located, override: str) -> Problem | None:
    """Replaces one value in `located`; a section that is not there yet is made. Returns what is wrong with the override, if anything."""
    left, equals, right = override.partition("=")
    place = parse_place(left)
    if not equals or place is None:
        return Problem((), f"--set {override!r} is not an assignment", HINT)
    try:
        value = read_yaml(right, f"--set {override}").data if right.strip() else None
    except ScenarioInvalid as error:
        return Problem(place, f"--set {override!r}: {error.problems[0].message}", error.problems[0].hint or HINT)
    problem = set_value(located, place, value)
    return problem and Problem(problem.place, f"--set: {problem.message}", problem.hint)


def set_value(located: Located, place: Place, value: Any) -> Problem | None:
    """Replaces the value at `place`, as apply_override(); a Problem if there is no such place."""
    problem = _assign(located.data, place, value)
    if problem is None:
        _forget_lines(located, place)
    return problem


def _assign(data: Any, place: Place, value: Any) -> Problem | None:
    for depth, step in enumerate(place):
        here = place[: depth + 1]
        if not _can_hold(data, step):
            return Problem(here, f"there is no {place_text(here)}", HINT)
        if depth == len(place) - 1:
            data[step] = value
        elif isinstance(data, dict):
            data = data.setdefault(step, {})
        else:
            data = data[step]
    return None


def _can_hold(data: Any, step: str | int) -> bool:
    if isinstance(step, int):
        return isinstance(data, list) and step < len(data)
    return isinstance(data, dict)


def _forget_lines(located: Located, place: Place) -> None:
    """What was set has no line in the file (0 stands for that)."""
    for known in [known for known in located.lines if known[: len(place)] == place]:
        del located.lines[known]
    located.lines[place] = 0
