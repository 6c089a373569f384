"""pcapng as far as we write it (draft-ietf-opsawg-pcapng): one section, its interfaces, the nodes' names, packets, statistics. Pure.

The section's comment says which moment of the wall clock is time 0 of the run. It has a fixed length, so that it can be filled in when that
moment is known.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv6Address

SECTION, INTERFACE, SIMPLE, NAMES, STATISTICS, ENHANCED, OBSOLETE = 0x0A0D0D0A, 1, 3, 4, 5, 6, 2
BYTE_ORDER = 0x1A2B3C4D
COMMENT, IF_NAME, IF_RESOLUTION, IF_OFFSET, FLAGS = 1, 2, 9, 14, 2  # option codes; FLAGS is ENHANCED's
APPLICATION, RECEIVED, DROPPED = 4, 4, 5  # of SECTION; of STATISTICS
NAME_IPV6 = 2  # record type of NAMES
NANOSECONDS = 9  # if_tsresol: 10^-9 s
DIRECTIONS: Mapping[int, str] = {1: "in", 2: "out"}  # the low two bits of FLAGS
ETHERNET_LINK = 1
ENHANCED_HEAD = struct.Struct("<IIIIIII")  # type, length, interface, time high and low, captured, original
FLAGS_OPTION = struct.Struct("<HHIHH")  # FLAGS, the end of options
OVERHEAD_BYTES = ENHANCED_HEAD.size + FLAGS_OPTION.size + 4  # of a packet's block around its data
TIME_ZERO = re.compile(r"time 0 is (\d{10})\.(\d{9}) s")


def zero_text(wall_ns: int) -> str:
    """The section's comment. 0 = not known."""
    return f"time 0 is {wall_ns // 10**9:010}.{wall_ns % 10**9:09} s"


def zero_of(comment: str) -> int | None:
    """The wall clock in nanoseconds at time 0, if a comment tells it."""
    found = TIME_ZERO.search(comment)
    return int(found[1]) * 10**9 + int(found[2]) or None if found else None


def section(wall_ns: int = 0) -> bytes:
    """The first block of a file."""
    head = struct.pack("<IHHq", BYTE_ORDER, 1, 0, -1)
    return _block(SECTION, head + _options([(COMMENT, zero_text(wall_ns).encode()), (APPLICATION, b"mrc-testbed")]))


def interface(name: str, snaplen: int) -> bytes:
    """An interface; the first one has number 0."""
    head = struct.pack("<HHI", ETHERNET_LINK, 0, snaplen)
    return _block(INTERFACE, head + _options([(IF_NAME, name.encode()), (IF_RESOLUTION, bytes([NANOSECONDS]))]))


def names(by_address: Mapping[str, str]) -> bytes:
    """Names of IPv6 addresses."""
    records = b"".join(_option(NAME_IPV6, IPv6Address(address).packed + name.encode() + b"\0") for address, name in by_address.items())
    return _block(NAMES, records + bytes(4))


def head(interfaces: Sequence[str], snaplen: int, by_address: Mapping[str, str]) -> bytes:
    """All that stands before the first packet."""
    return section() + b"".join(interface(name, snaplen) for name in interfaces) + names(by_address)


def packet(interface_number: int, wall_ns: int, outgoing: bool, data: bytes | memoryview, original_bytes: int) -> tuple[bytes, bytes]:
    """What stands before and behind the data of a packet: its block is the three of them."""
    padding = -len(data) & 3
    total = OVERHEAD_BYTES + len(data) + padding
    before = ENHANCED_HEAD.pack(ENHANCED, total, interface_number, wall_ns >> 32, wall_ns & 0xFFFFFFFF, len(data), original_bytes)
    return before, bytes(padding) + FLAGS_OPTION.pack(FLAGS, 4, 2 if outgoing else 1, 0, 0) + total.to_bytes(4, "little")


def statistics(wall_ns: int, received: int, dropped: int) -> bytes:
    """What the kernel counted, all interfaces together; filed under the first."""
    counts = [(RECEIVED, struct.pack("<Q", received)), (DROPPED, struct.pack("<Q", dropped))]
    return _block(STATISTICS, struct.pack("<III", 0, wall_ns >> 32, wall_ns & 0xFFFFFFFF) + _options(counts))


def _options(given: Iterable[tuple[int, bytes]]) -> bytes:
    return b"".join(_option(code, value) for code, value in given) + bytes(4)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) & 3)


def _block(kind: int, content: bytes) -> bytes:
    total = len(content) + 12
    return struct.pack("<II", kind, total) + content + struct.pack("<I", total)
