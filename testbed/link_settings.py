"""What a link is asked to be."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.errors import UsageError

MIN_RATE_BPS = 100_000
MAX_RATE_BPS = 34_000_000_000  # HTB's 32-bit rate field counts bytes a second
MIN_MTU_BYTES = 1280  # RFC 8200, section 5
MAX_MTU_BYTES = 9216
DEFAULT_MTU_BYTES = 4352  # 4096 bytes of MRC payload with all its headers
ETHERNET_HEADER_BYTES = 14
_BURST_S = 0.001


@dataclass(frozen=True)
class LinkSettings:
    """Rate, MTU (IPv6 packet size) and data queue of every link direction; `queue_bytes` counts Ethernet frames."""

    rate_bps: int
    mtu_bytes: int = DEFAULT_MTU_BYTES
    queue_bytes: int = 64 * DEFAULT_MTU_BYTES

    def __post_init__(self) -> None:
        if not MIN_RATE_BPS <= self.rate_bps <= MAX_RATE_BPS:
            raise UsageError(f"link rate {self.rate_bps} bit/s: choose between {MIN_RATE_BPS} and {MAX_RATE_BPS}")
        if not MIN_MTU_BYTES <= self.mtu_bytes <= MAX_MTU_BYTES:
            raise UsageError(f"link MTU {self.mtu_bytes} bytes: choose between {MIN_MTU_BYTES} and {MAX_MTU_BYTES}")
        if self.queue_bytes < self.frame_bytes:
            raise UsageError(f"link queue of {self.queue_bytes} bytes: it must hold at least one frame of {self.frame_bytes} bytes")

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
        return max(2 * self.frame_bytes, int(self.rate_bytes_per_s * _BURST_S))
