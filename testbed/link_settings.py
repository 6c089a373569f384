"""What a link is asked to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.errors import UsageError

MIN_RATE_BPS = 100_000
MAX_RATE_BPS = 34_000_000_000  # HTB's 32-bit rate field counts bytes a second
MIN_MTU_BYTES = 1280  # RFC 8200, section 5
MAX_MTU_BYTES = 9216
DEFAULT_MTU_BYTES = 4352  # 4096 bytes of MRC payload with all its headers
ETHERNET_HEADER_BYTES = 14
BURST_S = 0.001
DSCP_ROUTING = 48  # CS6: BGP and BFD; the link program has it as a constant, as those of MRC's traffic classes (hosts/wire.py)
"""What may leave at once after a pause, as time at the rate: timers are about that exact."""
# UEC's suggestions for NSCC (docs/links.md): shares of the bandwidth-delay product (BDP).
ECN_MIN_BDP, ECN_MAX_BDP, TRIM_BDP, TRIM_LAST_HOP_BDP = 0.2, 0.8, 1.0, 1.5
MAX_BASE_RTT_S = 10.0
MIN_BDP_FRAMES = 10
"""An emulated BDP can be less than one packet. With 10 frames at least, the ramp starts at 2, what HTB may send at once."""


@dataclass(frozen=True)
class LinkSettings:
    """Rate, MTU (IPv6 packet size) and data queue of every link direction; `queue_bytes` counts Ethernet frames.

    `ecn` marks and `trimming` trims at thresholds that follow from the rate and `base_rtt_s`, the round trip of an idle fabric between its
    farthest hosts (0: not known, the smallest thresholds); `tail_drop` drops where `trimming` would trim. `loss` is the share of packets
    lost by chance, by tier of link, each way. `seed` is for chance. `last_hop_marks`: links to hosts mark, too (RC has nothing else there).
    """

    rate_bps: int
    mtu_bytes: int = DEFAULT_MTU_BYTES
    queue_bytes: int = 64 * DEFAULT_MTU_BYTES
    ecn: bool = False
    trimming: bool = False
    base_rtt_s: float = 0.0
    seed: int = 0
    tail_drop: bool = False
    loss: Mapping[str, float] = field(default_factory=dict)
    last_hop_marks: bool = False

    def __post_init__(self) -> None:
        if not MIN_RATE_BPS <= self.rate_bps <= MAX_RATE_BPS:
            raise UsageError(f"link rate {self.rate_bps} bit/s: choose between {MIN_RATE_BPS} and {MAX_RATE_BPS}")
        if not MIN_MTU_BYTES <= self.mtu_bytes <= MAX_MTU_BYTES:
            raise UsageError(f"link MTU {self.mtu_bytes} bytes: choose between {MIN_MTU_BYTES} and {MAX_MTU_BYTES}")
        if self.queue_bytes < self.frame_bytes:
            raise UsageError(f"link queue of {self.queue_bytes} bytes: it must hold at least one frame of {self.frame_bytes} bytes")
        if not 0 <= self.base_rtt_s <= MAX_BASE_RTT_S:
            raise UsageError(f"base RTT of {self.base_rtt_s} s: choose between 0 and {MAX_BASE_RTT_S:g} s")
        if self.trimming and self.tail_drop:
            raise UsageError("links that trim and drop at the same depth: choose trimming or tail_drop")
        if self.trimming and self.last_hop_marks:
            raise UsageError("links to hosts that trim do not mark: choose trimming or last_hop_marks")
        if self.queue_bytes < self.least_queue_bytes:
            raise UsageError(
                f"link queue of {self.queue_bytes} bytes: ECN or trimming at this rate and base RTT needs {self.least_queue_bytes} bytes: "
                "make the queue longer, or switch ecn and trimming off"
            )

    @property
    def frame_bytes(self) -> int:
        """The largest Ethernet frame, which is what HTB counts."""
        return self.mtu_bytes + ETHERNET_HEADER_BYTES

    @property
    def rate_bytes_per_s(self) -> int:
        """The rate as HTB keeps it."""
        return self.rate_bps // 8

    @property
    def burst_bytes(self) -> int:
        """What may leave at once after a pause: 2 frames, or 1 ms at the rate when that is more (timers are about that exact)."""
        return max(2 * self.frame_bytes, int(self.rate_bytes_per_s * BURST_S))

    @property
    def bdp_bytes(self) -> int:
        """Rate x base RTT, but at least MIN_BDP_FRAMES frames: what the thresholds are shares of."""
        return max(round(self.rate_bytes_per_s * self.base_rtt_s), MIN_BDP_FRAMES * self.frame_bytes)

    @property
    def ecn_bytes(self) -> tuple[int, int]:
        """Queue at which marking starts, and at which every packet is marked; (0, 0) without ECN."""
        return (round(ECN_MIN_BDP * self.bdp_bytes), round(ECN_MAX_BDP * self.bdp_bytes)) if self.ecn else (0, 0)

    def depth_bytes(self, last_hop: bool) -> int:
        """Queue above which packets are trimmed, or dropped when they must not be trimmed; 0 with neither `trimming` nor `tail_drop`."""
        share = TRIM_LAST_HOP_BDP if last_hop else TRIM_BDP
        return round(share * self.bdp_bytes) if self.trimming or self.tail_drop else 0

    @property
    def least_queue_bytes(self) -> int:
        """The real queue must hold what the virtual one lets in, and a burst more, because HTB may be late."""
        highest = max(self.depth_bytes(last_hop=True), self.ecn_bytes[1])
        return highest + self.burst_bytes if highest else 0
