"""The backstop of a send QP: how long to wait for any acknowledgement, how often, and when to give up."""

from __future__ import annotations

from hosts.mrc.loss import Tx
from hosts.mrc.params import MrcParams
from hosts.mrc.window import RttEstimator

MOST_DOUBLINGS = 30


class Backoff:
    """The probe timeout after RFC 8985's, doubled each time it passes; those of `rto_min_s` or more count as retries."""

    __slots__ = ("_base_s", "_params", "_retries", "_rtt", "_timeouts")

    def __init__(self, params: MrcParams, rtt: RttEstimator) -> None:
        self._params, self._rtt = params, rtt
        self._timeouts = self._retries = 0
        self._base_s = float("-inf")  # when the last timeout passed, or the peer was last heard

    @property
    def interval_s(self) -> float:
        """How long the oldest packet may go unanswered."""
        params, rtt = self._params, self._rtt
        base = max(2.0 * rtt.srtt_s + 4.0 * rtt.var_s + params.ack_delay_s, params.pto_min_s)
        return min(base * float(1 << min(self._timeouts, MOST_DOUBLINGS)), params.rto_max_s)

    def due(self, oldest: Tx | None) -> float | None:
        """When it passes, with `oldest` the oldest open transmission; None without any."""
        if oldest is None:
            return None
        return (max(oldest.sent_s, self._base_s) if oldest.copied else oldest.sent_s) + self.interval_s

    def passed(self, now: float) -> str | None:
        """It passed: the next one is longer. Returns why the QP fails if it was one too many, else None."""
        interval_s, params = self.interval_s, self._params
        if interval_s >= params.rto_min_s:
            self._retries += 1
        if self._retries > params.rto_retries:
            return f"no acknowledgement after {params.rto_retries} retries, the last {interval_s:.3g} s long"
        self._timeouts += 1
        self._base_s = now
        return None

    def carries(self) -> None:
        """A path answers again: the waiting starts anew, but no retry is given back."""
        self._timeouts = 0

    def heard(self, now: float) -> None:
        """The peer got something, if only a header: as `carries`, and the wait counts from now."""
        self._timeouts, self._base_s = 0, now

    def progress(self, now: float) -> None:
        """Data was acknowledged."""
        self._timeouts = self._retries = 0
        self._base_s = now
