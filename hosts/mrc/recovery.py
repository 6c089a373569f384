"""How long it takes from the sending of what failed to the sending of what repairs it, by what told the sender."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from hosts.mrc.loss import Packet

TRIMMED, TIMEOUT, REFUSED = "trimmed", "timeout", "refused"  # causes beside the verdicts of `hosts.mrc.loss`
STEP = 1.02  # a bucket's upper bound by its lower one: quantiles are right to 1 %
LEAST = 1e-6  # smaller values count as this
DIGITS = 6


class Spread:
    """Counts of positive values in buckets of equal ratio: their quantiles, in memory that does not grow with their number."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()

    def add(self, value: float) -> None:
        """Takes one value."""
        self._buckets[math.floor(math.log(max(value, LEAST), STEP))] += 1

    def quantile(self, share: float) -> float:
        """The middle of the bucket of the smallest value that is not below `share` of all; values must have been added."""
        wanted, passed = share * self._buckets.total(), 0
        for bucket in sorted(self._buckets):
            passed += self._buckets[bucket]
            if passed >= wanted:
                return round(math.pow(STEP, bucket + 0.5), DIGITS)
        raise ValueError("no quantile of nothing")


class Recoveries:
    """Recovery times of a host's send QPs, by cause: seconds, and smoothed RTTs of the moment."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._seconds: dict[str, Spread] = {}
        self._rtts: dict[str, Spread] = {}

    def repaired(self, packet: Packet, now: float, srtt_s: float) -> None:
        """`packet`, of which a transmission had failed, is sent again now."""
        if packet.failed is not None:
            cause, tx = packet.failed
            packet.failed = None
            self.add(cause, now - tx.sent_s, srtt_s)

    def add(self, cause: str, took_s: float, srtt_s: float) -> None:
        """A retransmission was sent `took_s` after the transmission that failed."""
        self._counts[cause] += 1
        self._seconds.setdefault(cause, Spread()).add(took_s)
        self._rtts.setdefault(cause, Spread()).add(took_s / max(srtt_s, LEAST))

    def report(self) -> dict[str, dict[str, Any]]:
        """Count, median and 99th percentile a cause."""
        return {
            cause: {
                "count": count, "median_s": self._seconds[cause].quantile(0.5), "p99_s": self._seconds[cause].quantile(0.99),
                "median_srtt": self._rtts[cause].quantile(0.5), "p99_srtt": self._rtts[cause].quantile(0.99),
            }
            for cause, count in sorted(self._counts.items())
        }  # fmt: skip
