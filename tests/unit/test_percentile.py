"""Nearest rank, the rule of every percentile that the testbed tells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.percentile import percentile


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 50), (0.99, 99), (1.0, 100)])
def test_it_is_the_nearest_rank(share: float, value: float) -> None:
    assert percentile(range(1, 101), share) == value


def test_of_two_values_the_median_is_the_lower_one() -> None:
    assert percentile([2.0, 1.0], 0.5) == 1.0


def test_of_nothing_it_is_unknown() -> None:
    assert percentile([], 0.5) is None


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_it_is_always_a_value_that_was_seen(values: list[float], share: float) -> None:
    assert percentile(values, share) in values
