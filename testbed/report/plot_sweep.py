"""The picture of a sweep: the metric over the swept values, one line an arm with the range of its repeats."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, NullLocator, StrMethodFormatter

from testbed.report import style
from testbed.report.context import fidelity_line, label
from testbed.report.metrics import metric
from testbed.report.sweep_data import relative, series
from testbed.report.sweep_words import RATE_UNIT, finding, metric_words
from testbed.units import UnitError, parse_duration, parse_rate, parse_share, parse_size

LOG_X_RATIO = 10.0  # values that span less are set side by side at equal distances
LOG_Y_RATIO = 50.0
DODGE = 0.06  # sideways distance between arms, so that their range bars do not cover each other, in points of an even axis
LABEL_CHARACTERS = 90  # of all tick labels together; longer ones are turned
CAPTION = (
    "The metric over the swept values: medians of the repeats, with their range as a bar. A cross on the lower edge: the arm ran there and "
    "the metric could not be measured."
)


@dataclass(frozen=True)
class Scale:
    """Where the points lie on the x axis."""

    positions: tuple[float, ...]
    log: bool

    def moved(self, share: float) -> list[float]:
        """The positions moved sideways by a share of the distance between two points."""
        if not self.log:
            return [position + share for position in self.positions]
        step = (self.positions[-1] / self.positions[0]) ** (share / max(1, len(self.positions) - 1))
        return [position * step for position in self.positions]


def x_scale(values: Sequence[Any]) -> Scale:
    """Logarithmic for positive quantities in rising or falling order that span a decade; else side by side in the order of the scenario."""
    found = magnitudes(values)
    ordered = found is not None and list(found) in (sorted(found), sorted(found, reverse=True))
    if found and ordered and min(found) > 0 and max(found) / min(found) >= LOG_X_RATIO:
        return Scale(found, log=True)
    return Scale(tuple(map(float, range(len(values)))), log=False)


def magnitudes(values: Sequence[Any]) -> tuple[float, ...] | None:
    """The values as numbers, if all are of one kind: plain numbers, shares, rates, sizes or times."""
    parsers: tuple[Callable[[Any], float], ...] = (_plain_number, parse_share, parse_rate, parse_size, parse_duration)
    for parse in parsers:
        try:
            return tuple(float(parse(value)) for value in values)
        except UnitError:
            continue
    return None


def _plain_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnitError(f"{value!r} is not a plain number", "write a number")
    return float(value)


def draw(data: Mapping[str, Any]) -> Figure:
    """The picture; use inside style.styled()."""
    name = data["metric"]
    heights_in = [3.4, 2.6] if data["relative"] else [3.8]
    figure = style.frame(finding(data), footer(data), sum(heights_in) + 1.2)
    panels = style.panels(figure, heights_in, legend(data["arms"]))
    scale = x_scale([point["value"] for point in data["points"]])
    unit, factor = y_unit(metric(name).unit, _known(data, series))
    _panel(panels[0], data, scale, series, factor)
    panels[0].set_ylabel(f"{metric_words(name)} [{unit}]")
    if data["relative"]:
        _panel(panels[1], data, scale, relative, 100.0)
        panels[1].set_ylabel(f"share of that\nat {data['points'][0]['text']} [%]")
    _x_axis(panels[-1], data, scale)
    return figure


Reader = Callable[..., list[float | None]]


def _known(data: Mapping[str, Any], read: Reader) -> list[float]:
    """Every end of every range."""
    ends = [value for arm in data["arms"] for part in ("min", "max") for value in read(data, arm, data["metric"], part)]
    return [value for value in ends if value is not None]


def _panel(axes: Axes, data: Mapping[str, Any], scale: Scale, read: Reader, factor: float) -> None:
    known = [value * factor for value in _known(data, read)]
    if not known:
        axes.text(0.5, 0.5, "no value to show", ha="center", va="center", transform=axes.transAxes, color="#555555")
    for number, arm in enumerate(data["arms"]):
        _line(axes, data, arm, scale.moved(DODGE * (number - (len(data["arms"]) - 1) / 2)), read, factor)
    if known and min(known) > 0 and max(known) / min(known) > LOG_Y_RATIO:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(min([0.0, *known]), max(known, default=0.0) * 1.08 or 1.0)


def _line(axes: Axes, data: Mapping[str, Any], arm: str, positions: Sequence[float], read: Reader, factor: float) -> None:
    look = style.arm_style(arm)
    middle, low, high = (_scaled(read(data, arm, data["metric"], part), factor) for part in ("median", "min", "max"))
    down, up = ([abs(end - mid) for end, mid in zip(ends, middle, strict=True)] for ends in (low, high))
    drawn: dict[str, Any] = {"color": look.colour, "linestyle": look.line, "marker": look.marker, "ms": 7, "lw": 1.8, "capsize": 4}
    axes.errorbar(positions, middle, yerr=[down, up], clip_on=False, zorder=3, **drawn)
    absent = [x for x, value, point in zip(positions, middle, data["points"], strict=True) if math.isnan(value) and arm in point["arms"]]
    cross: dict[str, Any] = {"color": look.colour, "ms": 9, "mew": 2, "clip_on": False, "zorder": 4}
    for position in absent:
        axes.plot([position], [0.0], "x", transform=axes.get_xaxis_transform(), **cross)


def _scaled(values: Sequence[float | None], factor: float) -> list[float]:
    return [math.nan if value is None else value * factor for value in values]


def y_unit(unit: str, values: Sequence[float]) -> tuple[str, float]:
    """The unit of the axis, and the factor that brings values to it."""
    largest = max(map(abs, values), default=0.0)
    if unit == RATE_UNIT:
        return next((told for told in (("Gbps", 1e-9), ("Mbps", 1e-6), ("kbps", 1e-3)) if largest * told[1] >= 1), ("bps", 1.0))
    if unit == "share":
        return "%", 100.0
    return ("ms", 1e3) if unit == "s" and 0 < largest < 1 else (unit, 1.0)


def _x_axis(axes: Axes, data: Mapping[str, Any], scale: Scale) -> None:
    texts = [point["text"] for point in data["points"]]
    if scale.log:
        axes.set_xscale("log")
        low, high = min(scale.positions), max(scale.positions)
        edge = (high / low) ** (0.5 / max(1, len(texts) - 1))  # half a point's distance, for points without a value too
        axes.set_xlim(low / edge, high * edge)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    turned = sum(map(len, texts)) > LABEL_CHARACTERS or len(texts) > 20
    axes.set_xticks(scale.positions, texts, rotation=90 if turned else 0)
    axes.set_xlabel(data["label"] + (" (log axis)" if scale.log else ""))
    if not scale.log:
        axes.set_xlim(-0.5, len(texts) - 0.5)


def legend(arms: Sequence[str]) -> list[Line2D]:
    """One entry an arm."""
    looks = {arm: style.arm_style(arm) for arm in arms}
    return [Line2D([], [], color=look.colour, linestyle=look.line, marker=look.marker, label=label(arm)) for arm, look in looks.items()]


def footer(data: Mapping[str, Any]) -> list[str]:
    """What a reader must know to judge the picture."""
    measured = sum(bool(point["arms"]) for point in data["points"])
    counts = f"{measured} of {len(data['points'])} points were measured, repeats: {data['repeats']}"
    what = f"Scenario {data['scenario']}, seed {data['seed']}; {counts}. Medians, and the range of the repeats"
    meaning = f"{data['metric']}: {metric(data['metric']).meaning}"
    return [what, meaning, f"Machine: {data['machine']}", fidelity_line(data)]
