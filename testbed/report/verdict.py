"""Judges a scenario's expectations against a summary, each on its worst repeat. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# bound -> (sign, by how much a value misses it)
BOUNDS: dict[str, tuple[str, Callable[[float, float], float]]] = {
    "at_most": ("<=", lambda value, bound: value - bound),
    "at_least": (">=", lambda value, bound: bound - value),
    "equals": ("==", lambda value, bound: abs(value - bound)),
}


@dataclass(frozen=True)
class Verdict:
    """One expectation and what came of it. `value` is the worst repeat's; None = not measured there, which is not met."""

    arm: str
    metric: str
    bounds: str
    value: float | None
    repeat: int | None
    met: bool

    @property
    def seen(self) -> str:
        """What was measured, as the end of a sentence."""
        what = "was not measured" if self.value is None else f"was {self.value:.4g}"
        return what if self.repeat is None else f"{what} in repeat {self.repeat}, the worst"

    @property
    def sentence(self) -> str:
        """For the terminal."""
        return f"{self.arm}: {self.metric} {self.bounds}: {'met' if self.met else 'NOT met'}; it {self.seen}"


def expectations(scenario: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The scenario's expectations that are complete enough to be judged."""
    told = scenario.get("expect")
    entries = told if isinstance(told, list) else []
    complete = (entry for entry in entries if isinstance(entry, Mapping) and all(entry.get(name) for name in ("arm", "metric")))
    return [entry for entry in complete if isinstance(entry["arm"], str)]


def judge(expectations: Iterable[Any], summary: Mapping[str, Any]) -> list[Verdict]:
    """One verdict an expectation, in their order.

    An expectation has `arm`, `metric` and one or more of `at_most`, `at_least`, `equals`, as attributes (testbed.scenario) or keys (YAML).
    Every repeat must meet it; a repeat whose metric is unknown does not. An expectation about an arm that was not run is left out.
    """
    arms = summary.get("arms", {})
    return [_verdict(entry, arms[_field(entry, "arm")]) for entry in expectations if _field(entry, "arm") in arms]


def _field(expectation: Any, name: str) -> Any:
    return expectation.get(name) if isinstance(expectation, Mapping) else getattr(expectation, name, None)


def _verdict(expectation: Any, arm_summary: Mapping[str, Any]) -> Verdict:
    arm, metric = str(_field(expectation, "arm")), str(_field(expectation, "metric"))
    limits = {name: float(limit) for name in BOUNDS if isinstance(limit := _field(expectation, name), int | float)}
    values = _values(arm_summary, metric)
    misses = [_miss(value, limits) for value in values]
    worst = max(range(len(values)), key=lambda index: misses[index], default=None)
    value = None if worst is None else values[worst]
    repeat = None if worst is None else int(arm_summary["repeats"][worst]["repeat"])
    bounds = " and ".join(f"{BOUNDS[name][0]} {limit:g}" for name, limit in limits.items()) or "(no bound given)"
    return Verdict(arm, metric, bounds, value, repeat, worst is not None and bool(limits) and misses[worst] <= 0)


def _values(arm_summary: Mapping[str, Any], metric: str) -> Sequence[float | None]:
    repeats = arm_summary.get("repeats", ())
    told = arm_summary.get(metric)
    values = told.get("values", ()) if isinstance(told, Mapping) else ()
    return values if len(values) == len(repeats) else [None] * len(repeats)


def _miss(value: float | None, limits: Mapping[str, float]) -> float:
    """By how much a value misses the bound that it misses most; an unknown value misses by infinity."""
    if value is None or math.isnan(value):
        return math.inf
    return max((BOUNDS[name][1](value, limit) for name, limit in limits.items()), default=math.inf)
