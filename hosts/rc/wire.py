"""RoCEv2 packets of an RC QP, as the UDP payload.

A Write is BTH | RETH (First, Only) | ImmDt (Last+Imm, Only+Imm) | payload | ICRC; an acknowledgement is BTH | AETH | ICRC; a congestion
notification packet (CNP, A17.9.3) is BTH with BECN set | 16 reserved bytes | ICRC.
InfiniBand Architecture Specification volume 1, chapter 9 (BTH, RETH, AETH, ImmDt) and annex A17 (RoCEv2).
"""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple
from zlib import crc32

from hosts import wire as table
from hosts.wire import UDP_PORT

BTH, RETH, IMMDT, AETH = (table.fast(header) for header in (table.BTH, table.RETH, table.IMMDT, table.AETH))
ICRC = struct.Struct("<I")  # sent with its least significant byte first

WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_LAST_IMM, WRITE_ONLY, WRITE_ONLY_IMM, ACK = 0x06, 0x07, 0x08, 0x09, 0x0A, 0x0B, 0x11
STARTS = frozenset({WRITE_FIRST, WRITE_ONLY, WRITE_ONLY_IMM})
ENDS = frozenset({WRITE_LAST, WRITE_LAST_IMM, WRITE_ONLY, WRITE_ONLY_IMM})
WITH_IMM = frozenset({WRITE_LAST_IMM, WRITE_ONLY_IMM})
CNP = 0x81
CNP_RESERVED = bytes(table.CNPH.size_bytes)
CNP_BYTES = BTH.size + table.CNPH.size_bytes + ICRC.size
BECN = 0x40 << 24  # in BTH's byte before the destination QP
WRITES = frozenset(range(WRITE_FIRST, WRITE_ONLY_IMM + 1))

DEFAULT_PKEY = 0xFFFF
PSN_MASK = QPN_MASK = 0xFFFFFF
ACK_REQUEST = 1 << 31

# AETH syndromes (9.7.5.2.1): ACK with "credits not limited", and NAK codes.
SYNDROME_ACK = 0x1F
NAK_PSN_SEQUENCE, NAK_INVALID_REQUEST, NAK_REMOTE_ACCESS = 0x60, 0x61, 0x62


class Bth(NamedTuple):
    """The fields of a BTH that RC uses here."""

    opcode: int
    pad_bytes: int
    qpn: int
    ack_request: bool
    psn: int


def parse_bth(datagram: memoryview) -> Bth:
    """Reads the first 12 bytes; struct.error if there are fewer."""
    opcode, flags, _, qp_word, psn_word = BTH.unpack_from(datagram)
    return Bth(opcode, flags >> 4 & 3, qp_word & QPN_MASK, bool(psn_word & ACK_REQUEST), psn_word & PSN_MASK)


class Flow:
    """One direction of a QP on the wire: builds its packets, and checks the ICRC of what arrives.

    The ICRC is the whole one of annex A17: it covers eight bytes of ones, the IPv6 header with traffic class, flow label and hop limit as
    ones, the UDP header with its checksum as ones, and the BTH with its FECN, BECN and reserved byte as ones. So nothing is left out, but
    what a router may change.
    """

    def __init__(self, source: str, destination: str, source_port: int, qpn: int) -> None:
        self._addresses = ipaddress.IPv6Address(source).packed + ipaddress.IPv6Address(destination).packed
        self._source_port, self._qpn = source_port, qpn
        self._seeds: dict[int, int] = {}

    def _seed(self, udp_payload_bytes: int) -> int:
        """CRC of all that lies before the BTH; it depends on the length only."""
        seed = self._seeds.get(udp_payload_bytes)
        if seed is None:
            length = udp_payload_bytes + 8
            ipv6 = struct.pack(">IHBB", 0x6FFFFFFF, length, 17, 255) + self._addresses
            udp = struct.pack(">HHHH", self._source_port, UDP_PORT, length, 0xFFFF)
            seed = self._seeds[udp_payload_bytes] = crc32(b"\xff" * 8 + ipv6 + udp)
        return seed

    def build(self, opcode: int, psn_word: int, extension: bytes, payload: memoryview | bytes, flags: int = 0) -> tuple[bytes, bytes]:
        """Header and trailer (padding and ICRC) around `payload`; `psn_word` is the PSN, with ACK_REQUEST or not; `flags` is BECN or 0."""
        pad_bytes = -len(payload) & 3
        total = BTH.size + len(extension) + len(payload) + pad_bytes + ICRC.size
        crc = crc32(BTH.pack(opcode, pad_bytes << 4, DEFAULT_PKEY, 0xFF000000 | self._qpn, psn_word), self._seed(total))
        crc = crc32(payload, crc32(extension, crc))
        padding = bytes(pad_bytes)
        header = BTH.pack(opcode, pad_bytes << 4, DEFAULT_PKEY, flags | self._qpn, psn_word) + extension
        return header, padding + ICRC.pack(crc32(padding, crc))

    def intact(self, datagram: memoryview) -> bool:
        """Is the ICRC of this received UDP payload right?"""
        masked = bytearray(datagram[: BTH.size])
        masked[4] = 0xFF
        crc = crc32(masked, self._seed(len(datagram)))
        end = len(datagram) - ICRC.size
        return crc32(datagram[BTH.size : end], crc) == int.from_bytes(datagram[end:], "little")
