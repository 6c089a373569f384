"""Round-trip times, and what a congestion window is told.

`Window` is the seam: whatever decides `cwnd_packets` sees each SACK once, with the RTT sample and the ECN echo, and each NACK of a trimmed
packet. `hosts.mrc.nscc` is the window that is used.
"""

from __future__ import annotations

from typing import Protocol

from hosts.mrc.params import MrcParams

QUICK, SLOW = 1 / 4, 1 / 8  # weight of a sample in the variation: upwards, and the most downwards
MEMORY_RTTS = 10.0  # the variation forgets in so many RTTs, however many samples a RTT has
PENALTY_UNIT = 128  # of a receiver's penalty: so many are the whole window


class Least:
    """The least of the samples of the last `window_s` seconds; two halves of that time take turns, so that it is forgotten in time."""

    __slots__ = ("_half_s", "_older", "_turn", "_younger", "value")

    def __init__(self, window_s: float) -> None:
        self._half_s, self._turn = window_s / 2, float("-inf")
        self.value = self._younger = self._older = float("inf")  # infinite without a sample

    def sample(self, now: float, value: float) -> None:
        """Takes one sample."""
        if now >= self._turn:
            self._older, self._younger, self._turn = self._younger, value, now + self._half_s
        elif value < self._younger:
            self._younger = value
        else:
            return
        self.value = min(self._older, self._younger)


class RttEstimator:
    """Smoothed RTT and variation (RFC 6298) and the base RTT, a windowed minimum. Seconds."""

    __slots__ = ("_at_s", "_least", "sampled", "srtt_s", "var_s")

    def __init__(self, params: MrcParams) -> None:
        self.srtt_s, self.var_s = params.initial_rtt_s, params.initial_rtt_s / 2
        self.sampled, self._at_s = False, 0.0
        self._least = Least(params.base_rtt_window_s)

    @property
    def base_s(self) -> float:
        """Smallest sample of the window; the smoothed RTT before any."""
        return self._least.value if self.sampled else self.srtt_s

    def sample(self, now: float, rtt_s: float) -> None:
        """Takes one RTT sample, of a probe or data."""
        if self.sampled:
            excess = abs(self.srtt_s - rtt_s) - self.var_s
            self.var_s += excess * (QUICK if excess > 0 else self._forgotten(now))
            self.srtt_s += (rtt_s - self.srtt_s) / 8
        else:
            self.srtt_s, self.var_s, self.sampled = rtt_s, rtt_s / 2, True
        self._at_s = now
        self._least.sample(now, rtt_s)

    def _forgotten(self, now: float) -> float:
        """Share of the variation that the time since the last sample takes away."""
        elapsed_s, memory_s = now - self._at_s, MEMORY_RTTS * self.srtt_s
        return SLOW if elapsed_s >= SLOW * memory_s else elapsed_s / memory_s


class Window(Protocol):
    """How many packets may be in flight."""

    @property
    def cwnd_packets(self) -> float:
        """The window now."""

    def on_sack(self, now: float, acked_packets: int, rtt_s: float | None, limited: bool, marked: bool) -> None:
        """`acked_packets` arrived; `rtt_s` is a sample, of a held SACK the least that it can have been, or None.

        `limited` says that the window, not the job, held the sender back; `marked` that the SACK echoes an ECN mark.
        """

    def on_trimmed(self, now: float) -> None:
        """A packet arrived trimmed; it has left the flight already."""

    def on_penalty(self, penalty: int) -> None:
        """The receiver takes `penalty`/128 of the window away, until it says another number."""

    def on_mass_loss(self, now: float) -> None:
        """A packet was lost while most EVs are out of use: more than one dead path."""
