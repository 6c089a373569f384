"""A sweep in words: its finding, and values with their units. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.report import findings
from testbed.report.context import label
from testbed.report.metrics import metric
from testbed.report.sweep_data import relative, series
from testbed.units import format_rate

UNIT_SUFFIXES = ("_bps", "_srtt", "_rtt", "_share", "_s")


def metric_words(name: str) -> str:
    """A metric's name for people, without its unit: job_goodput_bps -> "job goodput"."""
    suffix = next((suffix for suffix in UNIT_SUFFIXES if name.endswith(suffix)), "")
    return name.removesuffix(suffix).replace("_", " ")


def value_words(value: float | None, unit: str) -> str:
    """A value with its unit, three digits; a dash if nothing was measured."""
    if value is None:
        return "–"
    if unit == "bps":
        return format_rate(value)
    if unit == "s":
        return findings.seconds(value)
    return share_words(value) if unit == "share" else f"{findings.number(value)} {unit}"


def share_words(value: float | None) -> str:
    """A share in percent."""
    return "–" if value is None else f"{100 * value:.3g} %"


def spread_words(told: Mapping[str, Any], unit: str) -> str:
    """Median of the repeats, and their range in brackets where they differ."""
    low, high = (value_words(told.get(end), unit) for end in ("min", "max"))
    median = value_words(told.get("median"), unit)
    return median if low == high else f"{median} ({low} to {high})"


def finding(data: Mapping[str, Any]) -> str:
    """What the sweep found, each arm from the first point to the last that was measured."""
    points = data["points"]
    told = "; ".join(_arm_words(data, arm) for arm in data["arms"])
    return f"{data['label']} from {points[0]['text']} to {points[-1]['text']}: {told or 'nothing was measured'}"


def _arm_words(data: Mapping[str, Any], arm: str) -> str:
    name, what = data["metric"], metric_words(data["metric"])
    values = series(data, arm, name)
    known = [index for index, value in enumerate(values) if value is not None]
    if not known:
        return f"{label(arm)}: {what} was not measured"
    first, last = known[0], known[-1]
    at = "" if last == len(values) - 1 else f" at {data['points'][last]['text']}, and was not measured beyond"
    if data["relative"] and (share := relative(data, arm, name)[last]) is not None:
        return f"{label(arm)} has {share_words(share)} of its {what}{at}"
    unit = metric(name).unit
    if first == last:
        return f"{label(arm)}: {what} {value_words(values[last], unit)} at {data['points'][last]['text']} only"
    return f"{label(arm)}: {what} {value_words(values[first], unit)} to {value_words(values[last], unit)}{at}"
