"""The knobs of the MRC transport: every constant with its unit, its default and where it comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from hosts.wire import MPR_UNIT, PSN_BITS, UDP_PORT, UDP_PORTS
from testbed.errors import UsageError

ENDLESS = 1e18  # no parameter has a meaning beyond
MOST_EVS = 256  # of a QP (MRC)
MOST_REVERSE_EVS = 64  # of a reverse-path set: more are not "small", and each costs a template of headers
ACK_TIMEOUT_UNIT_S = 1.024e-6  # MRC's API
FOR_EVER = 25  # of `exponential_retries`, as MRC's API has it
MOST_WAIT_DOUBLINGS = 6  # of the ACK timeout (ours): a QP that retries for ever still tries
MOST_QPS = 16
MOST_MPR_UNITS = 32  # of the receiver's window (MRC.md: 4,096 packets)
MOST_MPR_PACKETS = MOST_MPR_UNITS * MPR_UNIT


@dataclass(frozen=True)
class MrcParams:
    """Parameters of one host's MRC transport; times in seconds, windows in packets. docs/mrc.md says which values are published.

    Raises:
        UsageError: a value that makes no sense, all of them in one message.
    """

    payload_bytes: int = 4096
    udp_port: int = UDP_PORT
    initial_psn: int = -1  # first PSN of every send QP; -1 draws it from the seed
    qps: int = 1  # QPs to each peer, the same number at both ends; messages take them in turn
    write_bytes: int = 0  # a longer message goes out as plain Writes of so many bytes and a last Write with Immediate; 0 = as one Write
    # EVs
    evs: int = 0  # EVs a QP, rounded up to the same number on every plane and path; 0 = one a path, 256 at most (MRC: 128 to 256)
    ev_min_active: int = 1  # never spray over fewer; 0 = a quarter (MRC's example); more than 1 costs where the sender names paths
    probe_interval_s: float = 0.050
    probe_rtts: float = 8.0  # ... but at least so many smoothed RTTs
    probe_jitter: float = 0.2  # +- share of the interval
    probe_interval_max_s: float = 0.0  # above the interval: it doubles with each unanswered probe up to this; ours
    probe_rate_max: float = 400.0  # probes a second of one QP: with many EVs out of use the interval grows; ours
    probe_successes: int = 3  # answers in a row that make an EV GOOD again
    port_up_probes: int = 1  # ... of an EV whose port has come back; ours
    port_up_rtts: float = 2.0  # ... which is probed so often at first: a port is up before its host has addresses and routes again; ours
    # Ports and the way back: docs/mrc.md; none of these values is published
    ports_down_s: float = 0.0  # all NIC ports down for so long fail the QPs; 0 = at once, as published
    port_update_evs: int = 3  # over which a PORT_STATUS_UPDATE is sent: it is not retransmitted
    reverse_evs: int = 0  # of the reverse-path set, at least one a plane, at most 64; 0 = one a path
    reverse_probe_min_s: float = 0.050  # least time between two EV_PROBEs to a peer, where a round trip is shorter
    reverse_patience_rtts: float = 4.0  # round trips after which a probe counts as not answered
    reverse_successes: int = 2  # answers that bring a dead reverse path back
    # Acknowledgements
    ack_every: int = 4  # data packets a SACK
    ack_delay_s: float = 0.002  # longest wait of a SACK
    ack_gap_delay_s: float = 0.0005  # longest wait once a packet came out of order; spraying makes that normal, so not at once
    mpr_packets: int = 1024  # receiver's window; multiple of 128 (MRC's unit)
    receiver_penalty: int = 0  # share of the senders' windows that this receiver takes away, in 1/128
    # Loss
    initial_rtt_s: float = 0.020  # taken for the smoothed RTT until the first sample
    rack_srtt: float = 1.25  # presumed lost when older than rack_srtt x smoothed RTT + rack_rttvar x its variation
    rack_rttvar: float = 2.0  # measured (docs/performance.md): 4 doubles the time in which a dead path is left, and saves few false alarms
    rack_min_s: float = 0.001  # least allowance above the RTT
    rack_widen_max: float = 4.0  # cap of the allowance's widening after false alarms
    rack_decay_s: float = 5.0  # each such time halves the widening
    late_packets: float = 15.0  # deepest queue of a switch: a missing packet may lie in one, then its path is left, but not yet called bad
    pto_min_s: float = 0.004  # least probe timeout; it doubles up to the ACK timeout, from which on each one counts as a retry
    # MRC's API names the next three and their limits; the values are not published: ours, about 19 s without any acknowledgement
    ack_timeout_exponent: int = 18  # ACK timeout = 1.024 us x 2^exponent
    linear_retries: int = 7  # retries an ACK timeout apart, at most 7
    exponential_retries: int = 5  # further ones, each after twice the wait of the one before; 25 = for ever
    # Window
    cwnd_initial_packets: int = 2  # 0 = the largest window, as UEC has it; few, because senders that begin at once trim each other
    cwnd_min_packets: int = 1
    cwnd_max_packets: int = 0  # 0 = 1.5 BDP (UEC), or 64 when link_rate_bps is not given
    link_rate_bps: float = 0.0  # rate of the NIC's links; 0 = unknown
    trimming: bool = False  # whether the fabric's switches trim
    bdp_min_packets: float = 10.0  # a smaller bandwidth-delay product counts as so many, as in the links' thresholds (docs/links.md)
    target_delay_share: float = 0.0  # of the base RTT; 0 = 0.75 with trimming, 1 without (UEC's suggestions)
    target_delay_min_s: float = 0.001  # the noise of a software fabric must not look like a queue; more only delays the news of a dead path
    delay_gain: float = 0.45  # weight of a window's worth of packets in the smoothed delay (htsim: 0.0125 a packet of about 37)
    fair_increase: float = 0.025  # of the BDP a RTT
    fast_increase: float = 0.25  # packets for each acknowledged one, when the queue stayed empty for a window's worth
    empty_delay_share: float = 0.1  # of the target: a smaller delay is an empty queue
    far_scale: float = 0.7  # above target x (1 + far_scale / sqrt(window)) it shrinks without a mark: own link and last hop do not mark
    adapt_below: float = 0.5  # share of the window; quick adapt acts when less arrived
    adapt_kept: float = 0.25  # of the window, in one quick adapt
    base_rtt_window_s: float = 600.0  # long: the tables are static, and a standing queue must not pass for the base RTT
    idle_probes: int = 4  # sent on each EV when the QP is connected, one at a time, to see the RTT of the idle fabric

    @property
    def ack_timeout_s(self) -> float:
        """How long the peer may acknowledge nothing before it counts as a retry."""
        return ACK_TIMEOUT_UNIT_S * float(1 << self.ack_timeout_exponent)

    def wait_s(self, retries: int) -> float:
        """How long it may acknowledge nothing after so many retries."""
        doublings = max(0, retries - self.linear_retries)
        return self.ack_timeout_s * float(1 << min(doublings, MOST_WAIT_DOUBLINGS))

    @property
    def most_retries(self) -> float:
        """Retries before the QP fails; infinite if it never does."""
        return math.inf if self.exponential_retries == FOR_EVER else self.linear_retries + self.exponential_retries

    @property
    def backstop_s(self) -> float:
        """How long all retries take together."""
        most = self.most_retries
        return sum(map(self.wait_s, range(int(most) + 1))) if most < math.inf else most

    def __post_init__(self) -> None:
        wrong = [problem for bad, problem in self._checks() if bad]
        if wrong:
            raise UsageError("transport parameters (mrc): " + "; ".join(wrong))

    def _checks(self) -> list[tuple[bool, str]]:
        below_one = [name for name in _AT_LEAST_ONE if getattr(self, name) < 1]
        not_positive = [name for name in _POSITIVE if getattr(self, name) <= 0]
        negative = [name for name in _AT_LEAST_ZERO if getattr(self, name) < 0]
        return [
            (bool(negative), f"{', '.join(negative)} must be at least 0"),
            (bool(below_one), f"{', '.join(below_one)} must be at least 1"),
            (bool(not_positive), f"{', '.join(not_positive)} must be above 0"),
            (not 1 <= self.payload_bytes <= 61_440, "payload_bytes must be 1 to 61440"),
            (self.udp_port not in UDP_PORTS, f"udp_port must be one of {sorted(UDP_PORTS)}"),
            (
                self.mpr_packets % MPR_UNIT != 0 or not MPR_UNIT <= self.mpr_packets <= MOST_MPR_PACKETS,
                f"mpr_packets must be a multiple of {MPR_UNIT}, {MPR_UNIT} to {MOST_MPR_PACKETS}",
            ),
            (not 0 <= self.receiver_penalty <= 127, "receiver_penalty must be 0 to 127"),
            (not 0 <= self.evs <= MOST_EVS, f"evs must be 0 (one a path) to {MOST_EVS}"),
            (not 0 <= self.reverse_evs <= MOST_REVERSE_EVS, f"reverse_evs must be 0 (one a path) to {MOST_REVERSE_EVS}"),
            (not self._windows_in_order(), "cwnd must obey min <= initial <= max"),
            (
                not all(0 <= share <= 1 for share in (self.empty_delay_share, self.adapt_below, self.adapt_kept)),
                "empty_delay_share, adapt_below and adapt_kept must be 0 to 1",
            ),
            (not 1 <= self.qps <= MOST_QPS, f"qps must be 1 to {MOST_QPS}"),
            (not 0 <= self.ack_timeout_exponent <= 31, "ack_timeout_exponent must be 0 to 31"),
            (not 0 <= self.linear_retries <= 7, "linear_retries must be 0 to 7"),
            (not 0 <= self.exponential_retries <= FOR_EVER, f"exponential_retries must be 0 to {FOR_EVER} (for ever)"),
            (not -1 <= self.initial_psn < 1 << PSN_BITS, f"initial_psn must have {PSN_BITS} bits, or be -1"),
            (not 0 <= self.idle_probes <= 1000, "idle_probes must be 0 to 1000"),
            (not 0 <= self.probe_jitter < 1, "probe_jitter must be 0 to 1"),
        ]

    def _windows_in_order(self) -> bool:
        given = [packets for packets in (self.cwnd_min_packets, self.cwnd_initial_packets, self.cwnd_max_packets) if packets]
        return given == sorted(given) and given[0] > 0

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> MrcParams:
        """Parameters from a scenario's or the agent protocol's mapping.

        Raises:
            UsageError: an unknown name (with the nearest known one) or a wrong value.
        """
        known: dict[str, type] = {field.name: type(field.default) for field in fields(cls)}
        for name, value in raw.items():
            if name not in known:
                near = get_close_matches(name, known, 1)
                raise UsageError(f"transport parameters (mrc): unknown {name!r}" + (f", did you mean {near[0]!r}?" if near else ""))
            if known[name] is bool:
                if not isinstance(value, bool):
                    raise UsageError(f"transport parameters (mrc): {name} must be true or false, not {value!r}")
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < ENDLESS:
                raise UsageError(f"transport parameters (mrc): {name} must be a number, not {value!r:.80}")
            if known[name] is int and value != int(value):
                raise UsageError(f"transport parameters (mrc): {name} must be a whole number, not {value!r}")
        return cls(**{name: known[name](value) for name, value in raw.items()})


_AT_LEAST_ONE = (
    "probe_successes", "port_up_probes", "ack_every", "cwnd_min_packets", "rack_widen_max", "port_update_evs", "reverse_successes",
    "reverse_patience_rtts",
)  # fmt: skip
_AT_LEAST_ZERO = (
    "ev_min_active", "probe_interval_max_s", "link_rate_bps", "rack_rttvar", "late_packets", "probe_rtts", "port_up_rtts",
    "ack_gap_delay_s", "target_delay_share", "write_bytes", "ports_down_s",
)  # fmt: skip
_POSITIVE = (
    "probe_interval_s", "probe_rate_max", "ack_delay_s", "initial_rtt_s", "rack_srtt", "rack_min_s", "rack_decay_s", "pto_min_s",
    "target_delay_min_s", "base_rtt_window_s", "bdp_min_packets", "delay_gain", "fair_increase",
    "fast_increase", "far_scale", "reverse_probe_min_s",
)  # fmt: skip
