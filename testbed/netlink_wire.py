"""Netlink's wire format: messages and attributes, walked strictly. Pure; layouts from linux/netlink.h.

Whatever does not fit (a length that is too small, or that points behind the end) is a ValueError: half an answer is worse than none.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

HEADER = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence, port
ATTRIBUTE = struct.Struct("=HH")  # struct nlattr: length, type
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_ACK, NLM_F_REPLACE, NLM_F_DUMP = 0x001, 0x004, 0x100, 0x300
_TYPE_MASK = 0x3FFF  # above are two flags: nested, network byte order
_STATUS = struct.Struct("=i")  # how an error and the end of a dump start: 0 or a negative errno


class NetlinkError(Exception):
    """The kernel refused a request; `errno` says why."""

    def __init__(self, errno: int) -> None:
        self.errno = errno
        super().__init__(f"netlink error {errno}: {os.strerror(errno)}")


class Message(NamedTuple):
    """One message: its type, flags, the sequence number of the request that it answers, and what follows the header."""

    kind: int
    flags: int
    sequence: int
    body: bytes

    def raise_refusal(self) -> None:
        """NetlinkError if it says that a request, or the rest of a dump, was refused."""
        if self.kind in (NLMSG_ERROR, NLMSG_DONE) and len(self.body) >= _STATUS.size:
            (status,) = _STATUS.unpack_from(self.body)
            if status:
                raise NetlinkError(-status)


def request(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    """The bytes of a request."""
    return HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST | flags, sequence, 0) + body


def messages(datagram: bytes) -> Iterator[Message]:
    """The messages of a datagram. ValueError for lengths that do not fit."""
    at = 0
    while at < len(datagram):
        if len(datagram) - at < HEADER.size:
            raise ValueError(f"netlink: {len(datagram) - at} bytes behind the last message")
        length, kind, flags, sequence, _port = HEADER.unpack_from(datagram, at)
        if not HEADER.size <= length <= len(datagram) - at:
            raise ValueError(f"netlink message of {length} bytes at {at} in a datagram of {len(datagram)}")
        yield Message(kind, flags, sequence, datagram[at + HEADER.size : at + length])
        at += align(length)


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded."""
    return ATTRIBUTE.pack(ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) & 3)


def attributes(block: bytes) -> dict[int, bytes]:
    """Attributes by type; of a repeated type the last one. ValueError as `attribute_list`."""
    return dict(attribute_list(block))


def attribute_list(block: bytes) -> Iterator[tuple[int, bytes]]:
    """(type, value) of each attribute in their order, without the type's flags. ValueError for lengths that do not fit."""
    at = 0
    while at < len(block):
        if len(block) - at < ATTRIBUTE.size:
            raise ValueError(f"netlink: {len(block) - at} bytes behind the last attribute")
        length, kind = ATTRIBUTE.unpack_from(block, at)
        if not ATTRIBUTE.size <= length <= len(block) - at:
            raise ValueError(f"netlink attribute of {length} bytes at {at} in a block of {len(block)}")
        yield kind & _TYPE_MASK, block[at + ATTRIBUTE.size : at + length]
        at += align(length)


def align(length: int) -> int:
    """Where the next message or attribute starts: multiples of 4 bytes."""
    return length + 3 & ~3
