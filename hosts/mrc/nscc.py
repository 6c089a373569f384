"""NSCC, the congestion window of Ultra Ethernet (UEC) and MRC, for queues of a few packets.

The window answers two signals of each SACK: an ECN mark, and the queueing delay against a target. NACKs of trimmed packets and, once a
period, what was really delivered (quick adapt) take it down at once. htsim's gains are written as shares of the bandwidth-delay product
(BDP) a round trip, which is what its scaling means. docs/decisions/0011-nscc.md says what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from hosts.mrc.frames import DATA, PSN_OFFSET
from hosts.mrc.params import MrcParams
from hosts.mrc.window import PENALTY_UNIT, RttEstimator
from hosts.wire import ICRC_BYTES, OUTER_BYTES

MSS_SHARE = 4096 / 150_000  # htsim's MSS as a share of the BDP that its gains are for
PROPORTIONAL = 4 * MSS_SHARE  # htsim's alpha: increase a RTT without any delay, of BDP x target/base RTT
STEADY = 0.15 * MSS_SHARE  # htsim's eta: increase a RTT whatever the delay
DECREASE = 0.8  # htsim's gamma: share of the excess delay that a decrease answers
LEAST_KEPT = 0.5  # of the window, in one decrease (UEC)
MOST_BDP = 1.5  # largest window (UEC)
TARGET_TRIMMING, TARGET_DROPPING = 0.75, 1.0  # target delay as a share of the base RTT (UEC)
HEARD_TARGETS = 2.0  # a longer delay counts as so many targets in the smoothed delay: one slow path does not speak for all
UNKNOWN_MOST_PACKETS = 64  # largest window when the link's rate is not known
LEAST_RTT_S = 1e-6  # a peer in the same turn of the clock answers in no time at all
BITS_PER_BYTE = 8


class Scale(NamedTuple):
    """What the network holds: RTT without queues, the base RTT that times and gains follow, the BDP and the largest window."""

    idle_s: float
    base_s: float
    bdp_packets: float
    most_packets: float


class Surveyor:
    """Works out the scale from the base RTT and the rate of the links.

    The links of the testbed are token buckets: after a pause a packet of 4 KiB passes as fast as a probe, so the base RTT of probes is
    that of data. A BDP of fewer than `bdp_min_packets` a port counts as so many, as in the thresholds of the links' queues.
    """

    __slots__ = ("_frame_s", "_params", "_ports", "_rtt")

    def __init__(self, params: MrcParams, rtt: RttEstimator, ports: Callable[[], int]) -> None:
        self._params, self._rtt, self._ports = params, rtt, ports
        frame_bytes = PSN_OFFSET + DATA.size + params.payload_bytes + ICRC_BYTES + OUTER_BYTES
        self._frame_s = frame_bytes * BITS_PER_BYTE / params.link_rate_bps if params.link_rate_bps else 0.0

    def scale(self) -> Scale:
        """The scale, as far as it is known."""
        params, idle_s = self._params, max(self._rtt.base_s, LEAST_RTT_S)
        if not self._frame_s:
            most = float(params.cwnd_max_packets or UNKNOWN_MOST_PACKETS)
            return Scale(idle_s, idle_s, most / MOST_BDP, most)
        base_s = max(idle_s, params.bdp_min_packets * self._frame_s)
        bdp = self._ports() * base_s / self._frame_s
        return Scale(idle_s, base_s, bdp, float(params.cwnd_max_packets) or max(MOST_BDP * bdp, params.cwnd_min_packets))


class NsccWindow:
    """The window to one peer, in packets; `hosts.mrc.window.Window` says what the calls mean."""

    __slots__ = (
        "_decrease_at", "_delay_s", "_delivered", "_effective", "_far_s", "_ignored", "_limited", "_own", "_params", "_penalty",
        "_period_end", "_scale", "_surveyor", "_target_s", "_trouble", "_undisturbed",
    )  # fmt: skip

    def __init__(self, params: MrcParams, rtt: RttEstimator, ports: Callable[[], int]) -> None:
        self._params, self._surveyor = params, Surveyor(params, rtt, ports)
        self._own = self._effective = 0.0  # 0: nothing was heard yet
        self._penalty = 0
        self._delay_s = 0.0  # smoothed
        self._decrease_at = self._period_end = float("-inf")
        self._delivered = self._undisturbed = self._ignored = 0.0  # packets: of this period; since the queue is empty; not to be answered
        self._trouble = self._limited = False  # in this period
        self._scale, self._target_s, self._far_s = self._surveyor.scale(), 0.0, 0.0

    @property
    def cwnd_packets(self) -> float:
        """Packets that may be in flight: the window without the receiver's share, at least one."""
        if not self._own:
            return self._share(self._initial())
        return self._effective

    @property
    def target_s(self) -> float:
        """Queueing delay aimed at."""
        params = self._params
        share = params.target_delay_share or (TARGET_TRIMMING if params.trimming else TARGET_DROPPING)
        return max(share * self._scale.base_s, params.target_delay_min_s)

    def on_sack(self, now: float, acked_packets: int, rtt_s: float | None, limited: bool, marked: bool) -> None:
        """The quadrants: proportional increase, fair increase, decrease, or nothing; and quick adapt at the end of a period.

        Beyond UEC: far above the target the window shrinks without a mark too, because a host's own link and the last hop do not mark.
        The smaller the window, the farther that is (1/sqrt, as in Swift), which brings the windows of many senders together.
        """
        if not self._own:
            self._begin(now)
        delay_s = self._delay_s if rtt_s is None else self._heard(acked_packets, rtt_s)
        self._delivered += acked_packets
        self._limited |= limited
        self._ignored -= acked_packets
        if now >= self._period_end:
            self._end_period(now)
        if self._ignored > 0:
            return
        limit_s = self._far_s
        if marked:
            limit_s, self._undisturbed = self._target_s, 0.0
        elif limited:
            self._increase(acked_packets, delay_s)
        if delay_s > limit_s:
            self._decrease(now, limit_s)

    def _heard(self, acked_packets: int, rtt_s: float) -> float:
        """The queueing delay of a sample; it moves the smoothed one."""
        delay_s, most_s = rtt_s - self._scale.idle_s, HEARD_TARGETS * self._target_s
        heard_s = 0.0 if delay_s < 0.0 else delay_s if delay_s < most_s else most_s
        weight = self._params.delay_gain * (acked_packets or 1) / self._own
        self._delay_s += (heard_s - self._delay_s) * (weight if weight < 1.0 else 1.0)
        return delay_s

    def _increase(self, acked_packets: int, delay_s: float) -> None:
        params, scale, target = self._params, self._scale, self._target_s
        self._undisturbed = self._undisturbed + acked_packets if delay_s < params.empty_delay_share * target else 0.0
        if self._undisturbed > self._own:
            self._set(self._own + params.fast_increase * acked_packets)
            return
        below_s = target - (delay_s if delay_s > 0.0 else 0.0)
        gain = STEADY + (PROPORTIONAL * below_s / scale.base_s if below_s > 0.0 else params.fair_increase)
        self._set(self._own + gain * scale.bdp_packets * acked_packets / self._own)

    def _decrease(self, now: float, limit_s: float) -> None:
        """By the smoothed delay, because a single packet says little; at most once a base RTT."""
        excess = 1.0 - limit_s / self._delay_s if self._delay_s > limit_s else 0.0
        if excess and now >= self._decrease_at:
            self._decrease_at = now + self._scale.base_s
            self._set(self._own * max(LEAST_KEPT, 1.0 - DECREASE * excess))

    def on_trimmed(self, now: float) -> None:
        """The window gives up the packet's place, and the period ends with quick adapt."""
        self._begin(now)
        self._ignored -= 1
        if self._ignored <= 0:
            self._trouble, self._undisturbed = True, 0.0
            self._set(self._own - 1)

    def on_mass_loss(self, now: float) -> None:
        """Halves the window, at most once a base RTT. Not where switches trim: there a full queue loses nothing."""
        if self._params.trimming:
            return
        self._begin(now)
        if now >= self._decrease_at:
            self._decrease_at, self._trouble, self._undisturbed = now + self._scale.base_s, True, 0.0
            self._set(self._own * LEAST_KEPT)

    def on_penalty(self, penalty: int) -> None:
        """Remembers the share that the receiver takes away."""
        self._penalty = penalty
        self._effective = self._share(self._own)

    def _end_period(self, now: float) -> None:
        """Quick adapt: after trims or mass loss, when much less than the window arrived in the period, it becomes what arrived."""
        length_s = self._scale.base_s + self._target_s
        late = now - self._period_end > length_s  # nothing was heard for long: what arrived says nothing
        if self._trouble and self._limited and not late and self._delivered < self._own * self._params.adapt_below:
            self._ignored = self._own
            self._set(max(self._delivered, self._own * self._params.adapt_kept))
        self._delivered, self._trouble, self._limited = 0.0, False, False
        self._measure()
        self._period_end = now + length_s

    def _measure(self) -> None:
        self._scale = self._surveyor.scale()
        self._target_s = self.target_s

    def _initial(self) -> float:
        return float(self._params.cwnd_initial_packets) or self._surveyor.scale().most_packets

    def _begin(self, now: float) -> None:
        """Takes the scale as it is when data first comes back: until then, probes have improved it."""
        if not self._own:
            self._measure()
            self._set(self._initial())
            self._period_end = now + self._scale.base_s + self._target_s

    def _set(self, packets: float) -> None:
        most, least = self._scale.most_packets, self._params.cwnd_min_packets
        own = self._own = most if packets > most else packets if packets > least else float(least)
        self._far_s = self._target_s * (1.0 + self._params.far_scale / math.sqrt(own))
        self._effective = self._share(own) if self._penalty else own

    def _share(self, packets: float) -> float:
        return max(1.0, packets * (1.0 - self._penalty / PENALTY_UNIT))
