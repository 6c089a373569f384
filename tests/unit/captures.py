"""Capture files as bytes: written by our own pcapng writer, and classic pcap in each of its four forms."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from testbed.capture import pcapng

WALL_NS = 1_764_526_180_000_000_000


def pcapng_file(
    frames: Iterable[bytes],
    names: Mapping[str, str] | None = None,
    snaplen: int = 1 << 16,
    zero_ns: int = 0,
    dropped: int = 0,
    interfaces: tuple[str, ...] = ("h1-eth0",),
) -> bytes:
    """Packets a millisecond apart, by turns in and out."""
    parts = [pcapng.head(interfaces, snaplen, names or {})]
    parts[0] = parts[0].replace(pcapng.zero_text(0).encode(), pcapng.zero_text(zero_ns).encode())
    count = 0
    for count, frame in enumerate(frames, start=1):
        before, behind = pcapng.packet(0, WALL_NS + count * 1_000_000, count % 2 == 0, frame[:snaplen], len(frame))
        parts += [before, frame[:snaplen], behind]
    return b"".join([*parts, pcapng.statistics(WALL_NS, count, dropped)])


def pcap_file(frames: Iterable[bytes], order: str = "<", nanoseconds: bool = False, link_type: int = 1) -> bytes:
    """The same packets as classic pcap."""
    parts = [struct.pack(order + "IHHiIII", 0xA1B23C4D if nanoseconds else 0xA1B2C3D4, 2, 4, 0, 0, 1 << 16, link_type)]
    for count, frame in enumerate(frames, start=1):
        parts.append(struct.pack(order + "IIII", WALL_NS // 10**9, count * (1_000_000 if nanoseconds else 1000), len(frame), len(frame)))
        parts.append(frame)
    return b"".join(parts)
