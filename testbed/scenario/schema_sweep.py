"""The `sweep` section: one key of the scenario, and the values that it takes one after the other."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from testbed.scenario.schema import Part, Scalar, Text, as_tuple

MAX_POINTS = 50
Values = Annotated[tuple[Scalar, ...], BeforeValidator(as_tuple), Field(min_length=1, max_length=MAX_POINTS)]


class Sweep(Part):
    """Runs the scenario once a value of `values`, set at `key` (a place, as "links.rate" or "faults[0].for").

    `metric` is what the picture shows (None: see report/sweep_data.py), `label` names the x axis, `relative` also shows the metric as a
    share of that at the first value, and `only` picks some of the values.
    """

    key: str = Field(max_length=200)
    values: Values
    label: Text = ""
    metric: str | None = None
    relative: bool = False
    only: Values | None = None
