"""A sweep in words: its finding, and values with their units. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.report import findings
from testbed.report.context import label
from testbed.report.metrics import metric
from testbed.report.sweep_data import relative, series

RATE_UNIT = "bit/s"
SAID_UNITS = ("x", "base RTTs", "SRTTs")
UNIT_SUFFIXES = ("_bps", "_srtt", "_rtt", "_s")


def metric_words(name: str) -> str:
    """A metric's name for people, without its unit: job_goodput_bps -> "job goodput"; a share stays one, since % does not say of what."""
    suffix = next((suffix for suffix in UNIT_SUFFIXES if name.endswith(suffix)), "")
    return name.removesuffix(suffix).replace("_", " ")


def value_words(value: float | None, unit: str) -> str:
    """A value with its unit, three digits; a dash if nothing was measured. Counts, which the metric's name tells, go without."""
    if value is None:
        return "–"
    if unit == RATE_UNIT:
        return findings.rate(value)
    if unit == "s":
        return findings.seconds(value)
    if unit == "share":
        return share_words(value)
    return f"{findings.number(value)} {unit}" if unit in SAID_UNITS else findings.number(value)


def share_words(value: float | None) -> str:
    """A share in percent."""
    return "–" if value is None else f"{findings.number(100 * value)} %"


def spread_words(told: Mapping[str, Any], unit: str) -> str:
    """Median of the repeats, and their range in brackets where they differ."""
    low, high = (value_words(told.get(end), unit) for end in ("min", "max"))
    median = value_words(told.get("median"), unit)
    return median if low == high else f"{median} ({low} to {high})"


def finding(data: Mapping[str, Any]) -> str:
    """What the sweep found: each arm's metric at the first point and at the last that was measured."""
    points, what = data["points"], metric_words(data["metric"])
    told = "; ".join(_arm_words(data, arm) for arm in data["arms"])
    span = f"{points[0]['text']} to {points[-1]['text']}" if len(points) > 1 else points[0]["text"]
    return f"{what[0].upper()}{what[1:]} over {data['label']}, {span}: {told or 'nothing was measured'}"


def _arm_words(data: Mapping[str, Any], arm: str) -> str:
    name, texts = data["metric"], [point["text"] for point in data["points"]]
    values, unit = series(data, arm, name), metric(name).unit
    known = [index for index, value in enumerate(values) if value is not None]
    if not known:
        return f"{label(arm)} not measured"
    first, last = known[0], known[-1]
    share = relative(data, arm, name)[last] if data["relative"] else None
    words = f"{label(arm)} {value_words(values[first], unit)}" + ("" if first == 0 else f" at {texts[first]}")
    words += f" to {value_words(values[last], unit)}" if last > first else ""
    words += f" ({share_words(share)})" if share is not None and last > first else ""
    return words + ("" if last == len(texts) - 1 else f" at {texts[last]}, not measured beyond" if last else ", not measured beyond")
