"""Durations in the words of a report."""

from __future__ import annotations

import pytest

from testbed.report.findings import seconds


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"),
        (0.0105, "10.5 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (-0.9996, "-1 s"),
        (8.4, "8.4 s"),
        (99.94, "99.9 s"),
        (99.96, "100 s"),
    ],
)
def test_a_duration_has_three_digits_and_never_an_exponent(value: float, text: str) -> None:
    assert seconds(value) == text
