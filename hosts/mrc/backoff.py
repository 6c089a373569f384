"""The backstop of a send QP: how long to wait for any acknowledgement, how often, and when to give up."""

from __future__ import annotations

from hosts.mrc.loss import Tx
from hosts.mrc.params import MrcParams
from hosts.mrc.window import RttEstimator

MOST_DOUBLINGS = 30
MOST_RTT_WAIT = 2.0  # ACK timeouts, whatever the RTT: an old packet that comes back later measures one without bound


class Backoff:
    """The probe timeout after RFC 8985's, doubled each time it passes, up to the ACK timeout; from there on each counts as a retry.

    The retries wait an ACK timeout each (linear), then twice the wait before (exponential). When the wait after the last one passes too,
    the QP fails.
    """

    __slots__ = ("_ack_timeout_s", "_backstop_s", "_base_s", "_params", "_refused_s", "_retries", "_rtt", "_timeouts")

    def __init__(self, params: MrcParams, rtt: RttEstimator) -> None:
        self._params, self._rtt = params, rtt
        self._ack_timeout_s, self._backstop_s = params.ack_timeout_s, params.backstop_s  # once: each NACK asks
        self._timeouts = self._retries = 0
        self._base_s = float("-inf")  # when the last timeout passed, or the peer was last heard
        self._refused_s: float | None = None  # since when the peer is heard, but acknowledges nothing

    @property
    def interval_s(self) -> float:
        """How long the oldest packet may go unanswered."""
        params, rtt = self._params, self._rtt
        base = max(2.0 * rtt.srtt_s + 4.0 * rtt.var_s + params.ack_delay_s, params.pto_min_s)
        quick = base * float(1 << min(self._timeouts, MOST_DOUBLINGS))
        if quick < self._ack_timeout_s:
            return quick
        return max(min(base, MOST_RTT_WAIT * self._ack_timeout_s), params.wait_s(self._retries))

    @property
    def first(self) -> bool:
        """Whether the timeout that has just passed is the first of its row."""
        return self._timeouts == 1

    def due(self, oldest: Tx | None) -> float | None:
        """When it passes, with `oldest` the oldest open transmission; None without any."""
        if oldest is None:
            return None
        return (max(oldest.sent_s, self._base_s) if oldest.copied else oldest.sent_s) + self.interval_s

    def passed(self, now: float) -> str | None:
        """It passed: the next one is longer. Returns why the QP fails if it was one too many, else None."""
        interval_s, params = self.interval_s, self._params
        if interval_s >= self._ack_timeout_s:
            if self._retries >= params.most_retries:
                retries = f"{params.linear_retries} linear and {params.exponential_retries} exponential retries"
                return f"no acknowledgement after {retries}, the last wait {interval_s:.3g} s long"
            self._retries += 1
        self._timeouts += 1
        self._base_s = now
        return None

    def carries(self) -> None:
        """A path answers again: the waiting starts anew, but no retry is given back."""
        self._timeouts = 0

    def heard(self, now: float) -> str | None:
        """The peer got something, if only a header: as `carries`, and the wait counts from now.

        Returns why the QP fails if the peer has refused everything for as long as all retries take together, else None.
        """
        self._timeouts, self._base_s = 0, now
        if self._refused_s is None:
            self._refused_s = now
        refused_s = now - self._refused_s
        return f"no data acknowledged for {refused_s:.3g} s, though the peer answers" if refused_s > self._backstop_s else None

    def progress(self, now: float) -> None:
        """Data was acknowledged."""
        self._timeouts = self._retries = 0
        self._base_s, self._refused_s = now, None
