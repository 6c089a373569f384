"""DCQCN's reaction point: the rate of one QP, from the CNPs that its peer sends. No I/O, no clock.

Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, section 3.1; what is scaled and why: docs/rc.md.
"""

from __future__ import annotations

from hosts.rc.params import RcParams

CATCH_UP_S = 0.002  # what a late timer may cost is sent at once; timers on a busy machine are late by about that
RELEASED_SHARE = 0.999  # of line rate: recovery comes closer by halves and never arrives
EARLY_SHARE = 0.5  # of the interval of CNPs; two may come closer to each other than they were sent


class Rate:
    """The limiter of one QP. It is off, the QP at line rate, until the first CNP, and again once recovery has come back to line rate."""

    def __init__(self, params: RcParams) -> None:
        line, second = params.link_rate_bps / 8, params.dcqcn_time_scale * 1e-6
        self._params, self._line = params, line
        self._least, self._additive, self._hyper = (
            line * share for share in (params.dcqcn_min_rate_share, params.dcqcn_additive_share, params.dcqcn_hyper_share)
        )
        self._interval_s = params.dcqcn_cnp_interval_us * second
        self._alpha_s, self._step_s = params.dcqcn_alpha_timer_us * second, params.dcqcn_increase_timer_us * second
        self._step_bytes = line * params.dcqcn_byte_counter_us * second
        self.current = self.target = line  # bytes a second
        self.alpha = 1.0
        self.limited = False
        self.cnps = 0
        self._cnp_at = float("-inf")
        self._alpha_at = float("-inf")
        self._sent_at, self._sent_bytes = float("-inf"), 0
        self._timer_at, self._bytes_left = float("inf"), 0.0
        self._timer_steps = self._byte_steps = 0

    def on_cnp(self, now: float) -> str | None:
        """Cuts the rate; returns the reason why the CNP was ignored, if it was: nobody who floods us with them may stop the QP."""
        if now < self._cnp_at + EARLY_SHARE * self._interval_s:
            return "cnp_too_early"
        self.advance(now)
        self._decay(now)
        self._cnp_at, self.cnps, self.limited = now, self.cnps + 1, True
        self.target = self.current
        self.current = max(self._least, self.current * (1 - self.alpha / 2))
        self.alpha += (1 - self.alpha) * self._params.dcqcn_g
        self._timer_at, self._bytes_left = now + self._step_s, self._step_bytes
        self._timer_steps = self._byte_steps = 0
        return None

    def _decay(self, now: float) -> None:
        """Alpha as it is after all the timers that ran out without a CNP; alpha starts at 1, with the first one."""
        if self.cnps:
            self.alpha *= (1 - self._params.dcqcn_g) ** int((now - self._alpha_at) / self._alpha_s)
        self._alpha_at = now

    def advance(self, now: float) -> None:
        """Runs the steps of increase whose timer is due."""
        while self.limited and now >= self._timer_at:
            self._timer_at += self._step_s
            self._timer_steps += 1
            self._increase()

    def due(self) -> float:
        """When the next packet may go, as far as is known now; an increase may bring that forward, so it is asked for again then."""
        return min(self._next_at(), self._timer_at) if self.limited else float("-inf")

    def _next_at(self) -> float:
        return self._sent_at + self._sent_bytes / self.current

    def lets(self, now: float) -> bool:
        """Whether a packet may go now."""
        self.advance(now)
        return not self.limited or now >= self._next_at()

    def on_sent(self, now: float, size_bytes: int) -> None:
        """A packet of so many bytes on the wire was sent."""
        self._sent_at = max(self._next_at(), now - CATCH_UP_S) if self.limited else now
        self._sent_bytes = size_bytes
        if not self.limited:
            return
        self._bytes_left -= size_bytes
        if self._bytes_left <= 0:
            self._bytes_left += self._step_bytes
            self._byte_steps += 1
            self._increase()

    def _increase(self) -> None:
        """Fast recovery, additive or hyper increase, by how many steps of both kinds there were since the last CNP."""
        stages, low = self._params.dcqcn_stages, min(self._timer_steps, self._byte_steps)
        if low > stages:
            self.target += (low - stages) * self._hyper
        elif max(self._timer_steps, self._byte_steps) >= stages:
            self.target += self._additive
        self.target = min(self._line, self.target)
        self.current = (self.target + self.current) / 2
        if self.current >= RELEASED_SHARE * self._line:
            self.current, self.limited, self._timer_at = self._line, False, float("inf")
