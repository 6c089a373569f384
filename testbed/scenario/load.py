"""From a file to a Scenario: YAML, overrides, shape, sense. Everything wrong is told at once, with its place, line and hint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from testbed.scenario import schema, schema_faults, schema_job
from testbed.scenario.check import Draft, check
from testbed.scenario.model import Point, Scenario
from testbed.scenario.overrides import apply_override, parse_place, set_value
from testbed.scenario.problems import Place, Problem, ScenarioInvalid, did_you_mean
from testbed.scenario.schema_deny import Deny
from testbed.scenario.schema_sweep import Sweep
from testbed.scenario.sweep import chosen, point, point_problems, sweep_problems, without_sweep_problems
from testbed.scenario.yamltext import MAX_TEXT_BYTES, Located, read_yaml

# Section -> (type, default). A section without default is required.
_REQUIRED = object()
SECTIONS: Mapping[str, tuple[Any, Any]] = {
    "name": (schema.Name, _REQUIRED),
    "title": (schema.Text, ""),
    "hypothesis": (schema.Text, ""),
    "topology": (schema.TopologySpec, _REQUIRED),
    "links": (schema.Links, {}),
    "job": (schema_job.JobSpec, {}),
    "run": (schema.Run, _REQUIRED),
    "faults": (Annotated[list[Any], Field(max_length=1000)], []),
    "deny": (Deny, {}),
    "transport": (schema.Transport, {}),
    "bgp": (schema.Bgp, {}),
    "bgp_ovs": (schema.BgpOvs, {}),
    "arms": (schema.Arms, list(schema.DEFAULT_ARMS)),
    "repeats": (Annotated[int, Field(ge=1, le=100)], 1),
    "seed": (Annotated[int, Field(ge=0, lt=2**63)], 1),
    "expect": (Annotated[tuple[schema.Expectation, ...], BeforeValidator(schema.as_tuple), Field(max_length=200)], []),
    "sweep": (Sweep | None, None),
}
_ADAPTERS: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(kind) for name, (kind, _) in SECTIONS.items()}
_FAULT: TypeAdapter[Any] = TypeAdapter(schema_faults.FaultSpec)
_TAG = re.compile(r"<[A-Za-z-]+>|\[key\]")


def load(path: Path, overrides: Sequence[str] = ()) -> Scenario:
    """Reads a scenario file; `overrides` are "key.path=value" texts. Raises ScenarioInvalid with all problems."""
    return load_text(_read_text(path), overrides, source=str(path))


def load_text(text: str, overrides: Sequence[str] = (), source: str = "scenario") -> Scenario:
    """Reads a scenario from text; see load()."""
    located = read_yaml(text, source)
    problems = [problem for override in overrides if (problem := apply_override(located, override))]
    if not isinstance(located.data, dict):
        hint = "a scenario has keys: " + ", ".join(SECTIONS)
        raise ScenarioInvalid(source, [*problems, Problem((), f"must be a mapping, not {_kind_of(located.data)}", hint, located.line(()))])
    draft = _draft(located, problems)
    problems += [_with_line(problem, located) for problem in [*check(draft), *_sweep_problems(draft, located, overrides)]]
    if problems:
        raise ScenarioInvalid(source, problems)
    scenario = _scenario(draft, text, tuple(overrides))
    return replace(scenario, points=_points(scenario, located, source)) if scenario.sweep else _without_points(scenario)


def _sweep_problems(draft: Draft, located: Located, overrides: Sequence[str]) -> list[Problem]:
    sweep, expect = draft.sections.get("sweep"), draft.sections.get("expect", ())
    if sweep is not None:
        return sweep_problems(sweep, expect, overrides)
    return list(without_sweep_problems(expect)) if "sweep" not in located.data else []


def _points(scenario: Scenario, located: Located, source: str) -> tuple[Point, ...]:
    """The points to run, after all values have been checked. Raises ScenarioInvalid with the places of bad values."""
    assert scenario.sweep is not None
    sweep, singles, found = scenario.sweep, list[Scenario](), list[tuple[int, list[Problem]]]()
    for index, value in enumerate(sweep.values):
        problems: list[Problem] = []
        draft = _draft(_with_value(located, sweep.key, value, problems), problems)
        problems += check(draft)
        found.append((index, problems))
        if not problems:
            singles.append(_scenario(draft, scenario.source, scenario.overrides))
    if bad := point_problems(sweep, found):
        raise ScenarioInvalid(source, [_with_line(problem, located) for problem in bad])
    return tuple(point(sweep, index, singles[index]) for index, _ in chosen(sweep))


def _with_value(located: Located, key: str, value: Any, problems: list[Problem]) -> Located:
    """A copy without the sweep, and with one of its values."""
    place, copied = parse_place(key), Located(deepcopy(located.data), located.lines)
    assert place is not None
    problem = set_value(copied, place, value)
    problems += [problem] if problem else []
    del copied.data["sweep"]
    return copied


def _without_points(scenario: Scenario) -> Scenario:
    """The scenario on its own (`--set sweep=null`): nothing is expected of a point that is not run."""
    return replace(scenario, expect=tuple(entry for entry in scenario.expect if entry.at is None))


def _scenario(draft: Draft, text: str, overrides: tuple[str, ...]) -> Scenario:
    sections = dict(draft.sections)
    transport, bgp, bgp_ovs = (sections.pop(name) for name in ("transport", "bgp", "bgp_ovs"))
    return Scenario(
        **sections,
        faults=tuple(spec for _, spec in draft.faults),
        transport={"mrc": dict(transport.mrc), "rc": dict(transport.rc), "tcp": dict(transport.tcp)},
        bgp=bgp.given(),
        bgp_ovs=bgp_ovs.given(),
        source=text,
        overrides=overrides,
    )


def _read_text(path: Path) -> str:
    try:
        if not path.is_file():
            raise ScenarioInvalid(str(path), [Problem((), "is not a file" if path.exists() else "does not exist", "see `testbed list`")])
        with path.open("rb") as file:
            return file.read(MAX_TEXT_BYTES + 1).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ScenarioInvalid(str(path), [Problem((), "is not UTF-8 text", "save it as UTF-8")]) from error
    except (OSError, ValueError) as error:
        raise ScenarioInvalid(str(path), [Problem((), f"cannot be read: {error}")]) from error


def _draft(located: Located, problems: list[Problem]) -> Draft:
    """Checks the shape of each section by itself, so that a bad one does not hide what is wrong with the others."""
    data = located.data
    problems += [
        Problem((key,), f"unknown key `{key}`", did_you_mean(key, SECTIONS), located.line((key,))) for key in data if key not in SECTIONS
    ]
    draft = Draft()
    for name, (_, default) in SECTIONS.items():
        if name not in data and default is _REQUIRED:
            problems.append(Problem((), f"missing key `{name}`", "see docs/scenarios.md", located.line(())))
            continue
        value = _shaped(_ADAPTERS[name], data.get(name, default), (name,), located, problems)
        if name == "faults":
            draft.faults = _faults(value or [], located, problems)
        elif value is not None:
            draft.sections[name] = value
    return draft


def _faults(items: list[Any], located: Located, problems: list[Problem]) -> list[tuple[int, Any]]:
    shaped = [(index, _shaped(_FAULT, item, ("faults", index), located, problems)) for index, item in enumerate(items)]
    return [(index, spec) for index, spec in shaped if spec is not None]


def _shaped(adapter: TypeAdapter[Any], raw: Any, place: Place, located: Located, problems: list[Problem]) -> Any:
    keys: dict[int, tuple[str, ...]] = {}
    try:
        return adapter.validate_python(raw, strict=True, context=keys)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            inside = tuple(step for step in detail["loc"] if not (isinstance(step, str) and _TAG.fullmatch(step)))
            problems.append(_with_line(_problem(detail, raw, place, inside, keys), located))
        return None


def _with_line(problem: Problem, located: Located) -> Problem:
    return Problem(problem.place, problem.message, problem.hint, located.line(problem.place))


def _problem(detail: Any, raw: Any, place: Place, inside: Place, keys: Mapping[int, tuple[str, ...]]) -> Problem:
    """One of pydantic's findings, in our words."""
    kind, context = detail["type"], detail.get("ctx", {})
    here = (*place, *inside)
    if kind == "missing":
        return Problem(here[:-1], f"missing key `{here[-1]}`", "see docs/scenarios.md")
    if kind == "extra_forbidden":
        return Problem(here, f"unknown key `{here[-1]}`", did_you_mean(here[-1], keys.get(id(_parent(raw, inside)), ())))
    if kind == "literal_error":
        known = re.findall(r"'([^']*)'", context["expected"])
        return Problem(here, f"unknown value {_shown(detail['input'])}", did_you_mean(detail["input"], known))
    if kind == "value_error":
        error = context["error"]
        return Problem(here, getattr(error, "problem", str(error)), getattr(error, "hint", ""))
    return Problem(here, _plain_message(kind, context, detail))


_EXPECTED = {
    "int_type": "a whole number", "int_from_float": "a whole number", "float_type": "a number", "string_type": "text",
    "bool_type": "true or false", "tuple_type": "a list", "list_type": "a list", "dict_type": "a mapping", "model_type": "a mapping",
    "finite_number": "a finite number",
}  # fmt: skip
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


def _plain_message(kind: str, context: Mapping[str, Any], detail: Any) -> str:
    if kind in _EXPECTED:
        return f"must be {_EXPECTED[kind]}, not {_kind_of(detail['input'])}"
    if kind in _BOUNDS:
        word, key = _BOUNDS[kind]
        return f"must be {word} {context[key]}"
    if kind == "too_short":
        return "must not be empty"
    if kind == "too_long" and "max_length" in context:
        return f"must not have more than {context['max_length']} entries"
    if kind == "string_pattern_mismatch":
        return f"{_shown(detail['input'])} must be small letters, digits and dashes (at most 63)"
    return str(detail["msg"])


def _parent(raw: Any, inside: Place) -> Any:
    for step in inside[:-1]:
        try:
            raw = raw[step]
        except (KeyError, IndexError, TypeError):
            return None
    return raw


def _shown(value: Any) -> str:
    shown = repr(value) if isinstance(value, (str, int, float)) else _kind_of(value)
    return shown if len(shown) <= 40 else shown[:37] + "..."


def _kind_of(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    kinds = {bool: "true or false", int: "the number", float: "the number", str: "the text"}
    shown = repr(value) if len(repr(value)) <= 40 else repr(value)[:37] + "..."
    return f"{kinds.get(type(value), 'the value')} {shown}" if not isinstance(value, bool) else str(value).lower()
