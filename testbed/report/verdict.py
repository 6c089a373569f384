"""Judges a scenario's expectations against a summary, each on its worst repeat. Pure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """One expectation and what came of it. `value` is the worst repeat's (None = never measured, which is not met)."""

    arm: str
    metric: str
    op: str
    expected: float
    value: float | None
    repeat: int | None
    met: bool
    sentence: str


def judge(expectations: Iterable[Any], summary: Mapping[str, Any]) -> list[Verdict]:
    """One verdict an expectation, in their order.

    An expectation has `arm`, `metric`, `op` (one of OPERATORS) and `value`, as attributes or as keys. Every repeat must meet it; a
    repeat whose metric is unknown does not. An expectation about an arm that was not run is left out.
    """
    arms = summary.get("arms", {})
    told = [tuple(_field(expectation, name) for name in ("arm", "metric", "op", "value")) for expectation in expectations]
    return [_verdict(str(arm), str(metric), str(op), float(value), arms[arm]) for arm, metric, op, value in told if arm in arms]


def _field(expectation: Any, name: str) -> Any:
    return expectation[name] if isinstance(expectation, Mapping) else getattr(expectation, name)


def _verdict(arm: str, metric: str, op: str, expected: float, summary: Mapping[str, Any]) -> Verdict:
    repeats = [entry["repeat"] for entry in summary["repeats"]]
    values = list(summary.get(metric, {}).get("values", [])) or [None] * len(repeats)
    index = _worst(values, op, expected)
    value = values[index] if values else None
    met = value is not None and OPERATORS[op](value, expected)
    repeat = repeats[index] if repeats else None
    return Verdict(arm, metric, op, expected, value, repeat, met, _sentence(arm, metric, op, expected, value, repeat, met))


def _worst(values: list[float | None], op: str, expected: float) -> int:
    """The repeat furthest on the wrong side; an unknown value is worse than all."""

    def badness(value: float | None) -> float:
        if value is None:
            return float("inf")
        if op in ("<", "<="):
            return value - expected
        if op in (">", ">="):
            return expected - value
        return abs(value - expected) if op == "==" else -abs(value - expected)

    return max(range(len(values)), key=lambda index: badness(values[index]), default=0)


def _sentence(arm: str, metric: str, op: str, expected: float, value: float | None, repeat: int | None, met: bool) -> str:
    seen = "was not measured" if value is None else f"was {value:.4g}"
    return f"{arm}: {metric} {op} {expected:g} {'met' if met else 'NOT met'}: it {seen} in the worst repeat ({repeat})"
