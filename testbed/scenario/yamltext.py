"""YAML text to plain data with the line of every place. Refuses duplicate keys, odd keys and bombs, always with ScenarioInvalid.

Plain scalars follow the YAML 1.2 core schema: `on`, `no`, dates and 1:30 stay text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import yaml

from testbed.scenario.problems import Place, Problem, ScenarioInvalid

# A scenario is a page of text. The node limit counts each use of an anchor anew, so an anchor bomb meets it.
MAX_TEXT_BYTES = 256 * 1024
MAX_NODES = 20_000
MAX_DEPTH = 24

# What PyYAML resolves plain scalars to; a tag that was written out beyond these is refused.
_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value")}
_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_SPECIAL = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}

# What would do something to a terminal, or cannot be written as UTF-8: control characters, changes of direction, half characters.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Located:
    """Plain data, and the line (from 1) of each place in it."""

    def __init__(self, data: Any, lines: Mapping[Place, int]) -> None:
        self.data, self.lines = data, dict(lines)

    def line(self, place: Place) -> int | None:
        """The line of the place, or of the nearest place around it that has one."""
        for length in range(len(place), -1, -1):
            if place[:length] in self.lines:
                return self.lines[place[:length]] or None
        return None


def read_yaml(text: str, source: str) -> Located:
    """Reads one YAML document. Raises ScenarioInvalid with everything that is wrong with the text."""
    if len(text.encode("utf-8", "replace")) > MAX_TEXT_BYTES:
        raise ScenarioInvalid(source, [Problem((), f"is larger than {MAX_TEXT_BYTES // 1024} KiB", "a scenario is a page of text")])
    try:
        _check_depth(text, source)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ScenarioInvalid(source, [_syntax_problem(error)]) from error
    if node is None:
        raise ScenarioInvalid(source, [Problem((), "is empty", "see docs/scenarios.md for what a scenario holds")])
    plain = _Plain(source)
    data = plain.value(node, ())
    if plain.problems:
        raise ScenarioInvalid(source, plain.problems)
    return Located(data, plain.lines)


def _check_depth(text: str, source: str) -> None:
    """Looks at the parser's events first: composing recurses once a level."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            line = event.start_mark.line + 1 if event.start_mark else None
            raise ScenarioInvalid(source, [Problem((), f"is nested deeper than {MAX_DEPTH} levels", line=line)])


def _syntax_problem(error: yaml.YAMLError) -> Problem:
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).splitlines()[0]
    return Problem((), f"is not YAML: {what}", "check indentation, quotes and colons near this line", mark.line + 1 if mark else None)


class _Plain:
    """Turns composed nodes into plain data and keeps the lines and the problems."""

    def __init__(self, source: str) -> None:
        self.source, self.lines, self.problems = source, dict[Place, int](), list[Problem]()
        self._budget = MAX_NODES

    def value(self, node: yaml.Node, place: Place) -> Any:
        self._budget -= 1
        if self._budget < 0 or len(place) > MAX_DEPTH:
            raise ScenarioInvalid(self.source, [Problem((), f"has more than {MAX_NODES} values", "write less, or use fewer anchors")])
        self.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*place, index)) for index, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node, place)

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(Problem(place, "a key must be a word", line=line))
                continue
            key = key_node.value
            if not self._is_printable(key_node, place, "has a key with"):
                continue
            inside = (*place, key)
            if key in data:
                message = f"is there twice (first on line {self.lines[inside]})"
                self.problems.append(Problem(inside, message, "remove one of them", line))
                continue
            self.lines[inside] = line
            data[key] = self.value(value_node, inside)
        return data

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        if node.tag not in _TAGS:
            self.problems.append(Problem(place, f"has the tag {node.tag!r}", "write the plain value", node.start_mark.line + 1))
            return None
        if not self._is_printable(node, place, "has"):
            return None
        return plain_scalar(node.value) if node.style is None else node.value

    def _is_printable(self, node: yaml.ScalarNode, place: Place, what: str) -> bool:
        """Whether the text can be shown as it is; a problem if not."""
        found = _UNPRINTABLE.search(node.value)
        if found is not None:
            message = f"{what} the character U+{ord(found[0]):04X}, which cannot be shown"
            self.problems.append(Problem(place, message, "remove it", node.start_mark.line + 1))
        return found is None


def plain_scalar(text: str) -> Any:
    """The value of an unquoted scalar in the YAML 1.2 core schema (without octal and hexadecimal numbers)."""
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INT.fullmatch(text) and len(text) <= 20:
        return int(text)
    if text.lower() in _SPECIAL:
        return _SPECIAL[text.lower()]
    return float(text) if _FLOAT.fullmatch(text) and len(text) <= 40 else text
