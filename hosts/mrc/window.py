"""Round-trip times, and the window that reacts to delay.

`Window` is the seam for NSCC: whatever decides `cwnd_packets` sees each SACK once, with the RTT sample and the ECN echo, and each NACK of a
trimmed packet.
"""

from __future__ import annotations

from typing import Protocol

from hosts.mrc.params import MrcParams

GAIN_PACKETS = 4.0  # increase a RTT with an empty queue; alpha of htsim's NSCC (4 MSS)
FAIR_PACKETS = 0.15  # increase a RTT whatever the delay below target; eta of htsim's NSCC
DECREASE = 0.8  # share of the excess delay that a decrease answers; gamma of htsim's NSCC
DECREASE_FLOOR = 0.5  # a decrease never cuts more than this (UEC)
STANDING_SHARE = 4  # the lower quartile of a round's delays counts as the standing queue
BITS_PER_BYTE = 8
PENALTY_UNIT = 128  # of a receiver's penalty: so many are the whole window


class RttEstimator:
    """Smoothed RTT and variation (RFC 6298) and the base RTT, a windowed minimum. Seconds."""

    __slots__ = ("_older", "_turn", "_window", "_younger", "last_s", "sampled", "srtt_s", "var_s")

    def __init__(self, params: MrcParams) -> None:
        self.srtt_s, self.var_s = params.initial_rtt_s, params.initial_rtt_s / 2
        self.last_s = params.initial_rtt_s
        self.sampled = False
        self._window, self._turn = params.base_rtt_window_s / 2, float("-inf")
        self._younger = self._older = float("inf")

    @property
    def base_s(self) -> float:
        """Smallest sample of the window; the smoothed RTT before any."""
        least = min(self._younger, self._older)
        return least if least < float("inf") else self.srtt_s

    def sample(self, now: float, rtt_s: float) -> None:
        """Takes one RTT sample."""
        self.last_s = rtt_s
        if self.sampled:
            excess = abs(self.srtt_s - rtt_s) - self.var_s
            self.var_s += excess / 4 if excess > 0 else excess / 32  # many samples a RTT: quick up, slow down, or it forgets at once
            self.srtt_s += (rtt_s - self.srtt_s) / 8
        else:
            self.srtt_s, self.var_s, self.sampled = rtt_s, rtt_s / 2, True
        if now >= self._turn:  # two halves of the window take turns, so that the minimum is forgotten in time
            self._older, self._younger, self._turn = self._younger, rtt_s, now + self._window
        elif rtt_s < self._younger:
            self._younger = rtt_s


class Window(Protocol):
    """How many packets may be in flight."""

    cwnd_packets: float

    def on_sack(self, now: float, acked_packets: int, rtt_s: float | None, limited: bool, marked: bool) -> None:
        """`acked_packets` arrived; `rtt_s` is a sample or None; `limited` says that the window, not the job, held the sender back.

        `marked` says that the SACK echoes an ECN mark.
        """

    def on_trimmed(self, now: float) -> None:
        """A packet arrived trimmed; it has left the flight already."""

    def on_penalty(self, penalty: int) -> None:
        """The receiver takes `penalty`/128 of the window away, until it says another number."""

    def on_mass_loss(self, now: float) -> None:
        """Most paths lost packets within one RTT: that is congestion or a dead host, not one dead path."""


class DelayWindow:
    """Aims at a queueing delay, deciding once a RTT; bounded by params' minimum and maximum, so that it cannot collapse."""

    __slots__ = (
        "_decrease_at", "_delays_s", "_limited", "_own_packets", "_params", "_penalty", "_round_end", "_rtt", "_target_floor_s",
        "cwnd_packets",
    )  # fmt: skip

    def __init__(self, params: MrcParams, rtt: RttEstimator) -> None:
        self._params, self._rtt = params, rtt
        self.cwnd_packets = self._own_packets = float(params.cwnd_initial_packets)
        self._penalty = 0
        self._decrease_at = self._round_end = float("-inf")
        self._delays_s: list[float] = []  # queueing delays of this round's samples
        self._limited = False
        packet_s = params.payload_bytes * BITS_PER_BYTE / params.link_rate_bps if params.link_rate_bps > 0 else 0.0
        self._target_floor_s = max(params.target_delay_min_s, params.target_delay_packets * packet_s)

    @property
    def target_s(self) -> float:
        """Queueing delay aimed at."""
        return max(self._params.target_delay_share * self._rtt.base_s, self._target_floor_s)

    def on_sack(self, now: float, acked_packets: int, rtt_s: float | None, limited: bool, marked: bool) -> None:
        """Collects the round's samples; at its end, proportional increase below the target, one decrease above it."""
        self._limited |= limited
        if rtt_s is not None:
            self._delays_s.append(rtt_s - self._rtt.base_s)
        if now >= self._round_end and self._delays_s:
            self._decide(now, self._standing_delay_s())
            self._delays_s.clear()
            self._limited, self._round_end = False, now + self._rtt.srtt_s

    def _standing_delay_s(self) -> float:
        """The delay that most of the round's packets met: a hiccup of one path or of a CPU is not a queue."""
        return sorted(self._delays_s)[len(self._delays_s) // STANDING_SHARE]

    def _decide(self, now: float, delay_s: float) -> None:
        target = self.target_s
        if delay_s > target:
            self._decrease(now, max(DECREASE_FLOOR, 1.0 - DECREASE * (delay_s - target) / delay_s))
        elif self._limited:
            self._set(self._own_packets + GAIN_PACKETS * (1.0 - max(0.0, delay_s) / target) + FAIR_PACKETS)

    def on_trimmed(self, now: float) -> None:
        """A queue was full: one decrease, at most once a RTT."""
        self._decrease(now, DECREASE)

    def on_penalty(self, penalty: int) -> None:
        """Leaves the receiver's share aside, but at least one packet."""
        self._penalty = penalty
        self._set(self._own_packets)

    def on_mass_loss(self, now: float) -> None:
        """Halves the window, at most once a RTT."""
        self._decrease(now, DECREASE_FLOOR)

    def _decrease(self, now: float, factor: float) -> None:
        if now >= self._decrease_at:
            self._decrease_at = now + self._rtt.srtt_s
            self._set(self._own_packets * factor)

    def _set(self, packets: float) -> None:
        self._own_packets = min(max(packets, float(self._params.cwnd_min_packets)), float(self._params.cwnd_max_packets))
        self.cwnd_packets = max(1.0, self._own_packets * (1.0 - self._penalty / PENALTY_UNIT))
