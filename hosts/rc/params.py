"""What a user may set about RoCE RC; each default says where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from testbed.errors import UsageError

# InfiniBand Architecture Specification volume 1, 9.7.6.1.3: the Local ACK Timeout is 4.096 us x 2^exponent, exponent 5 bits, 0 = never.
ACK_TIMEOUT_UNIT_S = 4.096e-6


@dataclass(frozen=True)
class RcParams:
    """Parameters of every RC QP of a host; UsageError names the one that makes no sense."""

    payload_bytes: int = 4096
    """Path MTU: payload of a full packet, in bytes. 4096 is InfiniBand's largest."""
    window_packets: int = 16
    """Packets that may be outstanding. RC has no congestion window of its own; NICs bound what is in flight in hardware."""
    ack_every: int = 4
    """The receiver acknowledges every so many packets, and whenever a packet asks for it (AckReq, last packet of a message)."""
    timeout_exponent: int = 18
    """ACK timeout = 4.096 us x 2^this: 1.07 s. NCCL's NCCL_IB_TIMEOUT has been 18 (today 20)."""
    retries: int = 7
    """Retries without progress before the QP fails: NCCL_IB_RETRY_CNT, the most that the 3-bit field holds."""

    def __post_init__(self) -> None:
        """Refuses values outside of what the header fields and the protocol allow."""
        _between("payload_bytes", self.payload_bytes, 4, 4096, multiple=4)
        _between("window_packets", self.window_packets, 1, 4096)
        _between("ack_every", self.ack_every, 1, max(1, self.window_packets // 2))
        _between("timeout_exponent", self.timeout_exponent, 1, 31)
        _between("retries", self.retries, 0, 7)

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> RcParams:
        """Parameters from the agent protocol's mapping; UsageError for a name that RC does not know."""
        known = [each.name for each in fields(cls)]
        for name in raw:
            if name not in known:
                near = get_close_matches(name, known, 1)
                raise UsageError(
                    f"RC parameter {name!r} is unknown: " + (f"did you mean {near[0]!r}?" if near else f"use {', '.join(known)}")
                )
        return cls(**raw)

    @property
    def ack_timeout_s(self) -> float:
        """The Local ACK Timeout in seconds."""
        return float(ACK_TIMEOUT_UNIT_S * 2**self.timeout_exponent)


def _between(name: str, value: object, low: int, high: int, *, multiple: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high or value % multiple:
        steps = f" in steps of {multiple}" if multiple > 1 else ""
        raise UsageError(f"RC parameter {name} is {value!r}: give a whole number from {low} to {high}{steps}")
