"""What a `sweep` section means: its points, their names, and what about it makes no sense. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from testbed.scenario.model import Point, Scenario
from testbed.scenario.overrides import parse_place
from testbed.scenario.problems import Place, Problem, did_you_mean, place_text
from testbed.scenario.schema import Expectation
from testbed.scenario.schema_sweep import Sweep
from testbed.scenario.yamltext import plain_scalar

# The same at every point, or the points could not stand in one picture.
FIXED = ("name", "title", "hypothesis", "arms", "repeats", "expect", "sweep")
MAX_SLUG_CHARACTERS = 40
_PLAIN_TEXT = re.compile(r"[A-Za-z0-9.+%-]+", re.ASCII)


def value_text(value: Any) -> str:
    """A value of a sweep for people, and its identity: two values with one text are the same point."""
    if value is None:
        return "default"
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)


def yaml_text(value: Any) -> str:
    """A value as it can stand in a YAML list."""
    if isinstance(value, str) and _PLAIN_TEXT.fullmatch(value) and plain_scalar(value) == value:
        return value
    return json.dumps(value)


def chosen(sweep: Sweep) -> list[tuple[int, Any]]:
    """The values to run, each with its index in `values`."""
    only = None if sweep.only is None else {value_text(value) for value in sweep.only}
    return [(index, value) for index, value in enumerate(sweep.values) if only is None or value_text(value) in only]


def folder_name(sweep: Sweep, index: int) -> str:
    """The folder of a point: its number from 1, so that folders sort as values do, and its value in letters that every path can hold."""
    text = value_text(sweep.values[index]).replace("%", "pct")
    slug = re.sub(r"[^A-Za-z0-9.+-]+", "-", text).strip("-.")[:MAX_SLUG_CHARACTERS]
    return f"{index + 1:0{len(str(len(sweep.values)))}d}-{slug or 'value'}"


def point(sweep: Sweep, index: int, scenario: Scenario) -> Point:
    """A point of the sweep; `scenario` has its value set. Expectations that name another value are left out."""
    value = sweep.values[index]
    text = value_text(value)
    single = replace(
        scenario,
        title=f"{scenario.title or scenario.name} ({sweep.label or sweep.key}: {text})",
        expect=tuple(entry for entry in scenario.expect if entry.at is None or value_text(entry.at) == text),
        overrides=(*scenario.overrides, f"sweep.only=[{yaml_text(value)}]"),
    )
    return Point(value, text, folder_name(sweep, index), single)


def sweep_problems(sweep: Sweep, expect: Sequence[Expectation], overrides: Sequence[str]) -> list[Problem]:
    """What is wrong with the section by itself, with the expectations' `at`, and with overrides of the swept key."""
    from testbed.report.metrics import METRIC_NAMES

    problems = [*_key_problems(sweep), *_value_problems(sweep), *_at_problems(sweep, expect), *_override_problems(sweep, overrides)]
    if sweep.metric is not None and sweep.metric not in METRIC_NAMES:
        hint = did_you_mean(sweep.metric, METRIC_NAMES, "metrics")
        problems.append(Problem(("sweep", "metric"), f"there is no metric {sweep.metric!r}", hint))
    return problems


def without_sweep_problems(expect: Sequence[Expectation]) -> Iterator[Problem]:
    """An expectation at a point of a sweep that the scenario does not have."""
    for index, entry in enumerate(expect):
        if entry.at is not None:
            yield Problem(("expect", index, "at"), "names a point, but there is no `sweep`", "remove it, or add a sweep (docs/sweeps.md)")


def _key_problems(sweep: Sweep) -> Iterator[Problem]:
    place = parse_place(sweep.key)
    if place is None:
        yield Problem(("sweep", "key"), f"{sweep.key!r} is not a place", "write it as links.rate or faults[0].for")
    elif place[0] in FIXED:
        yield Problem(("sweep", "key"), f"`{place[0]}` is the same at every point", "sweep another key")


def _value_problems(sweep: Sweep) -> Iterator[Problem]:
    texts = [value_text(value) for value in sweep.values]
    yield from _twice(texts, ("sweep", "values"))
    only = [value_text(value) for value in sweep.only or ()]
    yield from _twice(only, ("sweep", "only"))
    for index, text in enumerate(only):
        if text not in texts:
            yield Problem(("sweep", "only", index), f"the sweep has no value {text}", did_you_mean(text, texts, "values"))


def _twice(texts: Sequence[str], place: Place) -> Iterator[Problem]:
    for index, text in enumerate(texts):
        if text in texts[:index]:
            yield Problem((*place, index), f"{text} is there twice", "each value is one point")


def _at_problems(sweep: Sweep, expect: Sequence[Expectation]) -> Iterator[Problem]:
    texts = [value_text(value) for value in sweep.values]
    for index, entry in enumerate(expect):
        if entry.at is not None and value_text(entry.at) not in texts:
            hint = did_you_mean(value_text(entry.at), texts, "values")
            yield Problem(("expect", index, "at"), f"the sweep has no value {value_text(entry.at)}", hint)


def _override_problems(sweep: Sweep, overrides: Sequence[str]) -> Iterator[Problem]:
    """A value of the swept key from the command line would not be used, unless it is that of the only point."""
    place, running = parse_place(sweep.key), [value_text(value) for _, value in chosen(sweep)]
    for override in overrides:
        left, _, right = override.partition("=")
        if place is not None and parse_place(left) == place and running != [value_text(plain_scalar(right.strip()))]:
            hint = f"use --set sweep.only=[{running[0]}] for a point, or --set sweep=null to run without the sweep" if running else ""
            yield Problem(place, f"--set {override!r}: the sweep sets {sweep.key} itself", hint)


def point_problems(sweep: Sweep, found: Sequence[tuple[int, Sequence[Problem]]]) -> list[Problem]:
    """What is wrong at the points, given as (index, problems): at the value, or at the key where all values have it in common."""
    common = set.intersection(*(_told(problems) for _, problems in found)) if len(found) > 1 else set[tuple[str, str]]()
    problems = [
        Problem(("sweep", "values", index), f"with {sweep.key}={value_text(sweep.values[index])}: {message}", hint)
        for index, own in found for message, hint in sorted(_told(own) - common)
    ]  # fmt: skip
    return problems + [Problem(("sweep", "key"), f"with any value: {message}", hint) for message, hint in sorted(common)]


def _told(problems: Collection[Problem]) -> set[tuple[str, str]]:
    return {(f"{place_text(problem.place)}: {problem.message}", problem.hint) for problem in problems}
