"""Cumulative counters over time, which grow evenly between two samples: what they grew by, in spans and in bins. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from testbed.report.model import Series

Column = NDArray[np.float64]
Samples = Column | Sequence[float]


def bin_edges(duration_s: float, bin_s: float) -> Column:
    """The edges in s of the bins that a run is cut into, which are one at least."""
    return np.asarray(np.arange(max(1, round(duration_s / bin_s)) + 1) * bin_s, dtype=np.float64)


def middles(edges: Column) -> Column:
    """The middle of each bin."""
    return (edges[:-1] + edges[1:]) / 2


def growth(t_s: Samples, counts: Samples, times: Samples) -> Column:
    """What a counter with these samples grew by from each of `times` to the next one."""
    return np.asarray(np.diff(np.interp(times, t_s, counts)), dtype=np.float64)


def since_start(series: Series) -> tuple[Sequence[float], Sequence[float]]:
    """(times, counts) of a link's counter, which is 0 at the job's start."""
    t_s, counts = zip((0.0, 0.0), *series, strict=True)
    return t_s, counts
