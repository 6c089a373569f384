"""What a kind of topology may be asked for, as a table, and the check of what was asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from topologies.model import BadTopology, did_you_mean


@dataclass(frozen=True)
class Parameter:
    """An integer parameter: its name, meaning, smallest value, and default (None: must be given)."""

    name: str
    meaning: str
    minimum: int = 1
    default: int | None = None
    complaint: Callable[[int], str | None] = lambda value: None


def resolve(kind: str, table: Sequence[Parameter], given: Mapping[str, object]) -> dict[str, int]:
    """The parameters with defaults filled in; BadTopology with every mistake at once."""
    known = {parameter.name: parameter for parameter in table}
    wrong = [f"there is no parameter {name!r}{did_you_mean(name, known)}" for name in given if name not in known]
    wrong += [text for parameter in table if (text := _complaint(parameter, given)) is not None]
    if wrong:
        raise BadTopology(f"{kind}: {'; '.join(wrong)} (parameters of {kind}: {', '.join(known)})")
    return {name: _value(parameter, given) for name, parameter in known.items()}


def _value(parameter: Parameter, given: Mapping[str, object]) -> int:
    value = given.get(parameter.name, parameter.default)
    assert isinstance(value, int)
    return value


def _complaint(parameter: Parameter, given: Mapping[str, object]) -> str | None:
    """A sentence on what is wrong with one parameter, or None."""
    value = given.get(parameter.name, parameter.default)
    if value is None:
        return f"{parameter.name} ({parameter.meaning}) must be given"
    if not isinstance(value, int) or isinstance(value, bool):
        return f"{parameter.name} must be an integer, not {value!r}"
    if value < parameter.minimum:
        return f"{parameter.name} must be at least {parameter.minimum}, not {value}"
    return parameter.complaint(value)
