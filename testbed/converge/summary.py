"""Medians and ranges over the repeats: a row for each fault, phase, class of flows and profile. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from testbed.converge.analysis import NO_IMPACT, NOT_REPAIRED, NOTHING_LOST, PHASES, STATES
from testbed.converge.classes import CLASSES

CONTROL = ("fib_last_s", "fib_last_at_ends_s", "fib_changes", "updates", "announced", "withdrawn", "notifications", "sessions_lost")
TRAFFIC = ("first_lost_s", "last_lost_s", "lost", "lost_s")
Sample = Mapping[str, Any]


def outage_s(traffic: Mapping[str, Any]) -> float | None:
    """From the effect to the last lost packet: 0 when nothing was lost, infinite when it went on, None when the fault hit nothing."""
    special = {NO_IMPACT: None, NOTHING_LOST: 0.0, NOT_REPAIRED: math.inf}
    return special[traffic["state"]] if traffic["state"] in special else max(0.0, traffic["last_lost_s"])


def spread(values: Sequence[float | None]) -> dict[str, Any]:
    """Median, smallest, largest and number of those that are known. What is infinite counts in the median, and is told as null."""
    known = [value for value in values if value is not None]
    told = (statistics.median_low(known), min(known), max(known)) if known else (None, None, None)
    return {"n": len(known), **dict(zip(("median", "min", "max"), map(_finite, told), strict=True))}


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def rows(samples: Sequence[Sample], profiles: Sequence[str]) -> list[dict[str, Any]]:
    """Faults in the order of the samples, then phases, classes and profiles in theirs."""
    faults = list(dict.fromkeys(sample["fault"] for sample in samples))
    return [row for fault in faults for phase in PHASES for name in CLASSES for row in _rows_of(samples, profiles, fault, phase, name)]


def _rows_of(samples: Sequence[Sample], profiles: Sequence[str], fault: str, phase: str, name: str) -> Iterator[dict[str, Any]]:
    for profile in profiles:
        found = [sample for sample in samples if sample["fault"] == fault and sample["profile"] == profile]
        found = [sample for sample in found if name in sample["phases"][phase]["classes"]]
        if found:
            yield _row(found, phase, name)


def _row(found: Sequence[Sample], phase: str, name: str) -> dict[str, Any]:
    phases = [sample["phases"][phase] for sample in found]
    traffic = [told["classes"][name] for told in phases]
    outages = [outage_s(one) for one in traffic]
    first = found[0]
    hit = [one for one in traffic if one["state"] != NO_IMPACT]
    return {
        **{key: first[key] for key in ("fault", "kind", "target", "tier", "profile")},
        "phase": phase,
        "class": name,
        "repeats": len(found),
        "states": {state: count for state in STATES if (count := sum(one["state"] == state for one in traffic))},
        "state": state_of(traffic),
        "outage_s": spread(outages),
        "samples_s": [None if value is None or math.isinf(value) else value for value in outages],
        "lasted_s": spread([told["lasted_s"] for told in phases])["median"],
        **{key: spread([one[key] for one in hit]) for key in TRAFFIC},
        **{key: spread([told[key] for told in phases]) for key in CONTROL},
    }


def state_of(traffic: Sequence[Mapping[str, Any]]) -> str:
    """The state of the median repeat, of those that were hit."""
    known = [(outage, one["state"]) for one in traffic if (outage := outage_s(one)) is not None]
    return statistics.median_low(known)[1] if known else NO_IMPACT
