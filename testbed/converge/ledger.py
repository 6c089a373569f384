"""What was sent and what arrived of one stream of numbered probes, and the packet's layout. Pure."""

from __future__ import annotations

import struct
from array import array

UDP_PORT = 4791
"""RoCEv2's: the link program then counts probes apart from all other packets, and ECMP hashes what it would hash of RoCE."""
PACKET = struct.Struct("!B11xIII")
OPCODE = 0x64  # UD SEND Only (IB volume 1, chapter 9): no Write, so no link trims it
PADDING = bytes(32 - PACKET.size)


def packed(magic: int, flow: int, sequence: int) -> bytes:
    """A probe's UDP payload."""
    return PACKET.pack(OPCODE, magic, flow, sequence) + PADDING


def unpacked(payload: bytes, magic: int) -> tuple[int, int] | None:
    """(flow, sequence number); None for what is no probe of ours."""
    if len(payload) < PACKET.size:
        return None
    opcode, found, flow, sequence = PACKET.unpack_from(payload)
    return (flow, sequence) if (opcode, found) == (OPCODE, magic) else None


class Ledger:
    """One stream. A probe that never arrived is lost at the moment when it was sent."""

    def __init__(self) -> None:
        self._sent = array("d")
        self._seen = bytearray()
        self.arrived = 0

    def send(self, now: float) -> int:
        """Notes a probe that is sent now (CLOCK_MONOTONIC seconds); returns its sequence number."""
        self._sent.append(now)
        self._seen.append(0)
        return len(self._sent) - 1

    def arrive(self, sequence: int) -> None:
        """Notes an arrival; copies, and numbers that were never sent, do not count."""
        if sequence < len(self._seen) and not self._seen[sequence]:
            self._seen[sequence] = 1
            self.arrived += 1

    @property
    def sent(self) -> int:
        """How many were sent."""
        return len(self._sent)

    def lost(self) -> list[float]:
        """When those that have not arrived were sent, in order."""
        return [moment for moment, seen in zip(self._sent, self._seen, strict=True) if not seen]
