"""What the links towards a host carry, sampled every millisecond. Import `fabric_lab` first: it finds the tree."""

from __future__ import annotations

import bisect
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from testbed.fabric.bpf import row_of

TICK_S = 0.001


class LinkWatch:
    """Bytes that the receiver's links have carried towards it, by plane, over time."""

    def __init__(self, fabric: Any, receiver: str) -> None:
        self._counters = fabric.link_counters()
        links = [link for link in fabric.topology.links.values() if link.a.node == receiver]
        self._planes = [link.plane for link in links]
        self._rows = [row_of(link, from_a=False) for link in links]
        self._times: list[float] = []
        self._carried: list[Any] = []

    def until(self, end: float) -> None:
        """Samples until then."""
        while (now := time.monotonic()) < end:
            self._times.append(now)
            self._sample()
            time.sleep(TICK_S)

    def _sample(self) -> None:
        self._carried.append(self._counters["tx_bytes"][self._rows].copy())

    def rate(self, begin: float, end: float, without: int | None = None) -> float:
        """Bytes a second between two times, perhaps without one plane."""
        kept = [at for at, plane in enumerate(self._planes) if plane != without]
        samples = slice(max(0, bisect.bisect_left(self._times, begin) - 1), bisect.bisect_right(self._times, end) + 1)
        carried = np.array(self._carried[samples])[:, kept].sum(axis=1)
        low, high = np.interp([begin, end], self._times[samples], carried)
        return float(high - low) / (end - begin)


def spread(rows: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Median, least and most of each figure; {} without any row."""
    values = {key: [row[key] for row in rows] for key in (rows[0] if rows else ())}
    return {
        key: {"median": round(statistics.median(each), 3), "min": round(min(each), 3), "max": round(max(each), 3)}
        for key, each in values.items()
    }
