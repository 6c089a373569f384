"""The one rule for percentiles, of verdicts and reports alike."""

from __future__ import annotations

import math
from collections.abc import Iterable


def percentile(values: Iterable[float], share: float) -> float | None:
    """Nearest-rank percentile: the smallest value that `share` of all values do not exceed, so always one that was seen. None for none."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(0, math.ceil(round(share * len(ordered), 9)) - 1)]
