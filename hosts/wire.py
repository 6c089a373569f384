"""The MRC packet format, written once: each header is a table of words of named bit fields.

From the tables derive the generic codec here (tests, decoding), the `struct` formats of the fast path (`Header.format`) and the scapy
layers (`hosts.scapy_layers`). Sources: MRC 1.0 as told in docs/mrc.md, RoCEv2 (InfiniBand specification, annex A17) for BTH, RETH, ImmDt,
AETH and the ICRC, RFC 8200 and RFC 768 for the addresses around them. Where the place of a field is not published, the table says "ours".
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

Buffer = bytes | bytearray | memoryview
Word = tuple[tuple[str, int], ...]

WORD_FORMATS = {8: "B", 16: "H", 32: "I", 64: "Q", 128: "16s"}


@dataclass(frozen=True)
class Header:
    """One header: words of 8, 16, 32, 64 or 128 bits, each a row of (field name, bits), most significant first.

    Fields named in `signed` are two's complement. A name that starts with an underscore is reserved: zero when packed.
    """

    name: str
    words: tuple[Word, ...]
    signed: frozenset[str] = frozenset()

    @cached_property
    def fields(self) -> Word:
        """All fields in wire order."""
        return tuple(field for word in self.words for field in word)

    @cached_property
    def format(self) -> str:
        """The `struct` format of the words, without byte order: what the fast path is made of."""
        return "".join(self._word_format(word) for word in self.words)

    def _word_format(self, word: Word) -> str:
        letter = WORD_FORMATS[sum(bits for _, bits in word)]
        return letter.lower() if word[0][0] in self.signed else letter

    @cached_property
    def size_bytes(self) -> int:
        """Length on the wire."""
        return sum(bits for _, bits in self.fields) // 8

    def byte_offset(self, field: str) -> int:
        """Index of the byte in which `field` starts."""
        passed = 0
        for name, bits in self.fields:
            if name == field:
                return passed // 8
            passed += bits
        raise KeyError(f"{self.name} has no field {field!r}")

    def pack(self, **values: int) -> bytes:
        """The header's bytes; fields not given are zero.

        Raises:
            KeyError: a field that the header does not have.
            OverflowError: a value that does not fit its field.
        """
        unknown = values.keys() - {name for name, _ in self.fields}
        if unknown:
            raise KeyError(f"{self.name} has no field {', '.join(sorted(unknown))}")
        total = 0
        for name, bits in self.fields:
            total = (total << bits) | self._encode(name, bits, values.get(name, 0))
        return total.to_bytes(self.size_bytes, "big")

    def unpack(self, data: Buffer, offset: int = 0) -> dict[str, int]:
        """All fields of the header at byte `offset`.

        Raises:
            ValueError: fewer bytes than the header has.
        """
        raw = bytes(data[offset : offset + self.size_bytes])
        if len(raw) < self.size_bytes:
            raise ValueError(f"{self.name} needs {self.size_bytes} B at byte {offset}, {len(raw)} are there")
        whole = int.from_bytes(raw, "big")
        return {name: (whole >> shift & mask ^ sign) - sign for name, shift, mask, sign in self._places}

    @cached_property
    def reserved(self) -> tuple[str, ...]:
        """The fields that have no meaning, and should be zero."""
        return tuple(name for name, _ in self.fields if name.startswith("_"))

    @cached_property
    def _places(self) -> tuple[tuple[str, int, int, int], ...]:
        """Name, place from the right, mask, and of two's complement the sign bit, of each field."""
        left, places = 8 * self.size_bytes, []
        for name, bits in self.fields:
            left -= bits
            places.append((name, left, (1 << bits) - 1, 1 << bits - 1 if name in self.signed else 0))
        return tuple(places)

    def _encode(self, name: str, bits: int, value: int) -> int:
        low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if name in self.signed else (0, 1 << bits)
        if not low <= value < high:
            raise OverflowError(f"{self.name}.{name} has {bits} bits, {value} does not fit")
        return value & ((1 << bits) - 1)


def fast(*headers: Header) -> struct.Struct:
    """One big-endian `struct.Struct` for consecutive headers, one value a word."""
    return struct.Struct(">" + "".join(header.format for header in headers))


IPV6 = Header("IPV6", (
    (("version", 4), ("traffic_class", 8), ("flow_label", 20)),
    (("payload_length", 16),), (("next_header", 8),), (("hop_limit", 8),),
    (("source", 128),), (("destination", 128),),
))  # fmt: skip
UDP = Header("UDP", ((("source_port", 16),), (("destination_port", 16),), (("length", 16),), (("checksum", 16),)))
BTH = Header("BTH", (
    (("opcode", 8),), (("solicited", 1), ("migration", 1), ("pad", 2), ("version", 4)), (("pkey", 16),),
    (("resv8a", 8), ("destination_qp", 24)),
    (("a", 1), ("r", 1), ("rtx", 1), ("ts", 1), ("_resv4", 4), ("psn", 24)),
))  # fmt: skip
METH = Header("METH", ((("rqmsn", 16),), (("msn", 16),)))
TSETH = Header("TSETH", ((("tx_timestamp", 16),), (("flag", 1), ("_resv11", 11), ("type", 4))))
RETH = Header("RETH", ((("va", 64),), (("rkey", 32),), (("dma_length", 32),)))
IMMDT = Header("IMMDT", ((("imm", 32),),))
CNPH = Header("CNPH", ((("_resv128", 128),),))  # what follows BTH in a congestion notification packet (RoCEv2, A17.9.3)
AETH = Header("AETH", ((("syndrome", 8), ("msn", 24)),))
# SETH to EETH: the fields and the sizes are known; where the flags of the first word and the reserved bits stand is ours, after UEC's PDS
# headers. The meaning of cc_flags (HELD, DUPLICATE, NACKED) is ours too, see docs/mrc.md, and that the 8 bits before cack_psn, elsewhere
# reserved, name the NIC ports of the SACK's sender that are down (bit i = port i): zero, as in a SACK without them, means that all are up.
SETH = Header("SETH", (
    (("type", 5), ("next", 4), ("m", 2), ("probe_reply", 1), ("_resv4", 4)), (("ack_psn_offset", 16),),
    (("entropy", 32),), (("source_id", 16),), (("destination_id", 16),),
    (("down_ports", 8), ("cack_psn", 24)),
    (("cc_type", 4), ("cc_flags", 4)), (("mpr", 8),), (("sack_offset", 16),),
    (("bitmap", 64),),
), signed=frozenset({"ack_psn_offset", "sack_offset"}))  # fmt: skip
CC_STATE = Header("CC_STATE", (
    (("tx_timestamp", 16), ("ooo_count", 15), ("restore_cwnd", 1), ("rcv_cwnd_pen", 7), ("_resv1", 1), ("rcvd_bytes", 24)),
))  # fmt: skip
NETH = Header("NETH", (
    (("reason", 8),), (("vendor", 8),), (("_resv16", 16),), (("entropy", 32),), (("source_id", 16),), (("destination_id", 16),),
    (("nack_psn", 24), ("cc_type", 4), ("_resv4", 4)), (("tx_timestamp", 16),), (("_resv16b", 16),),
))  # fmt: skip
PETH = Header("PETH", (
    (("type", 5), ("next", 4), ("_resv7", 7)), (("probe_id", 16),), (("source_id", 16),), (("destination_id", 16),),
    (("tx_timestamp", 16),), (("_resv16", 16),), (("_resv32", 32),),
))  # fmt: skip
# ERTH.port_mask: bit i = 1, port i can be reached. EETH's `status`, and that it repeats mask, timestamp and EV of what it answers: ours.
ERTH = Header("ERTH", (
    (("op", 8), ("_resv24", 24)), (("port_mask", 32),), (("tx_timestamp", 16),), (("_resv16", 16),), (("_resv32", 32),),
))  # fmt: skip
EETH = Header("EETH", (
    (("op", 8), ("status", 8), ("_resv16", 16)), (("port_mask", 32),), (("tx_timestamp", 16),), (("_resv16b", 16),), (("entropy", 32),),
    (("_resv128", 128),), (("_resv32", 32),),
))  # fmt: skip
HEADERS: Mapping[str, Header] = {
    header.name: header for header in (IPV6, UDP, BTH, METH, TSETH, RETH, IMMDT, CNPH, AETH, SETH, CC_STATE, NETH, PETH, ERTH, EETH)
}

MRC_OPCODES = 0b110  # the three bits on the left of an opcode say the kind of transport; RC has 0b000
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_LAST_IMM, WRITE_ONLY, WRITE_ONLY_IMM = 0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xCB
ACK, ENDPOINT_REQUEST, ENDPOINT_RESPONSE, SACK, NACK, PROBE = 0xD1, 0xD8, 0xD9, 0xDC, 0xDD, 0xDE
OPCODES: Mapping[int, str] = {
    WRITE_FIRST: "Write First", WRITE_MIDDLE: "Write Middle", WRITE_LAST: "Write Last", WRITE_LAST_IMM: "Write Last with Immediate",
    WRITE_ONLY: "Write Only", WRITE_ONLY_IMM: "Write Only with Immediate", ACK: "ACK", ENDPOINT_REQUEST: "Endpoint Request",
    ENDPOINT_RESPONSE: "Endpoint Response", SACK: "SACK", NACK: "NACK", PROBE: "Probe",
}  # fmt: skip
WITH_IMMEDIATE = frozenset({WRITE_LAST_IMM, WRITE_ONLY_IMM})
NO_CREDITS = 0x1F  # AETH.syndrome of an ACK that limits nothing
TRIMMED, TRIMMED_LASTHOP, NO_BITMAP, NO_PKT_BUFFER, NO_RESOURCE, PSN_OOR_WINDOW, UNEXPECTED_EVENT = 1, 2, 6, 7, 0x0A, 0x0B, 0x19
NACK_REASONS: Mapping[int, str] = {
    TRIMMED: "TRIMMED", TRIMMED_LASTHOP: "TRIMMED_LASTHOP", NO_BITMAP: "NO_BITMAP", NO_PKT_BUFFER: "NO_PKT_BUFFER",
    NO_RESOURCE: "NO_RESOURCE", PSN_OOR_WINDOW: "PSN_OOR_WINDOW", UNEXPECTED_EVENT: "UNEXPECTED_EVENT",
}  # fmt: skip
PORT_STATUS_UPDATE, EV_PROBE = 0, 1  # ERTH.op, and EETH.op that answers it
ENDPOINT_OPS: Mapping[int, str] = {PORT_STATUS_UPDATE: "PORT_STATUS_UPDATE", EV_PROBE: "EV_PROBE"}
ENDPOINT_QPN = 2  # Endpoint Requests and Responses speak for the whole NIC, so they name no QP of a pair

# The roles are the specification's, the values one implementer's.
DSCP_CONTROL, DSCP_TRIMMED, DSCP_NO_TRIM, DSCP_TRIMMABLE, DSCP_TRIMMABLE_RETX, DSCP_TRIMMED_LASTHOP = 46, 12, 0, 4, 8, 16
DSCP_ROLES: Mapping[int, str] = {
    DSCP_CONTROL: "CONTROL", DSCP_TRIMMED: "TRIMMED", DSCP_NO_TRIM: "NO_TRIM", DSCP_TRIMMABLE: "TRIMMABLE",
    DSCP_TRIMMABLE_RETX: "TRIMMABLE_RETX", DSCP_TRIMMED_LASTHOP: "TRIMMED_LASTHOP",
}  # fmt: skip
# By the DSCP that a switch gives to what it trimmed.
TRIM_REASONS: Mapping[int, int] = {DSCP_TRIMMED: TRIMMED, DSCP_TRIMMED_LASTHOP: TRIMMED_LASTHOP}
TRIMMED_DSCPS: Mapping[int, int] = {reason: dscp for dscp, reason in TRIM_REASONS.items()}
NOT_ECT, ECT1, ECT0, CE = 0, 1, 2, 3  # the low two bits of the traffic class (RFC 3168)

UDP_PORT = 4791
UDP_PORTS = frozenset({UDP_PORT, 4971})  # one table of the MRC specification prints 4971
DYNAMIC_PORTS = range(49152, 1 << 16)  # RFC 6335; RoCEv2 takes a flow's entropy, its source port, from them (annex A17)
PROTOCOL_UDP, PROTOCOL_IPV6 = 17, 41
TSETH_TYPE = 1  # TSETH.type
TIMESTAMP_HZ = 7_812_500  # unit of tx_timestamp: 128 ns
PSN_BITS = 24
PSN_MASK = (1 << PSN_BITS) - 1
BITMAP_BITS = 64  # of a SACK
QP_MASK = 0xFFFFFF
HELD, DUPLICATE, NACKED = 1, 2, 4  # SETH.cc_flags
SKIP_NONE, SKIP_ONCE, ALWAYS_SKIP = 0, 1, 2  # SETH.m: what becomes of the named EV
M_SHIFT, M_MASK = 5, 3  # of SETH.m in the first word
SACK_PORTS = 0xFF  # the ports that SETH.down_ports can name
ALL_PORTS = (1 << 32) - 1  # those that ERTH.port_mask can
MPR_UNIT, RECEIVED_UNIT_BYTES = 128, 256  # of SETH.mpr, in packets, and of CC_STATE.rcvd_bytes
DOWN_PORTS_SHIFT = 24  # of SETH.down_ports in the word of cack_psn
ICRC_BYTES = 4
A_BIT, R_BIT, RTX_BIT, TS_BIT = 1 << 31, 1 << 30, 1 << 29, 1 << 28  # in BTH's last word, above the PSN
PROBE_REPLY_BIT = 1 << 4  # in SETH's first word
CLASS_SHIFT = 4  # of the traffic class in IPv6's first two bytes
DSCP_MASK = 0xFC  # of the traffic class
BTH_OFFSET = IPV6.size_bytes + UDP.size_bytes
OUTER_BYTES = 14 + IPV6.size_bytes  # Ethernet and outer IPv6 around an inner packet
RESV8A_OFFSET = BTH.byte_offset("resv8a")
ADDRESSES_MASKED = ((0, 0x0F), (1, 0xFF), (2, 0xFF), (3, 0xFF), (7, 0xFF), (46, 0xFF), (47, 0xFF))


def headers_of(opcode: int, timestamped: bool) -> tuple[Header, ...]:
    """The extension headers between BTH and payload.

    Raises:
        ValueError: an opcode that MRC does not have.
    """
    if is_write(opcode):
        return (METH, *((TSETH,) if timestamped else ()), RETH, *((IMMDT,) if opcode in WITH_IMMEDIATE else ()))
    others: Mapping[int, tuple[Header, ...]] = {
        ACK: (AETH,), ENDPOINT_REQUEST: (ERTH,), ENDPOINT_RESPONSE: (EETH,), SACK: (SETH, CC_STATE), NACK: (NETH,), PROBE: (PETH,),
    }  # fmt: skip
    if opcode not in others:
        raise ValueError(f"opcode {opcode:#04x} is none of MRC's")
    return others[opcode]


def ports_of(entropy: int) -> tuple[int, int]:
    """(UDP source port, flow label) of an EV: its low and its high 16 bits."""
    return entropy & 0xFFFF, entropy >> 16


def entropy_of(source_port: int, flow_label: int) -> int:
    """The EV that a received packet carries."""
    return (flow_label & 0xFFFF) << 16 | source_port


def addresses(source: bytes, destination: bytes, entropy: int, content_bytes: int, udp_port: int = UDP_PORT) -> bytes:
    """Inner IPv6 and UDP headers (48 B) around `content_bytes` from BTH to ICRC. Checksum 0, as RFC 6935 allows inside a tunnel."""
    port, label = ports_of(entropy)
    length = UDP.size_bytes + content_bytes
    return IPV6.pack(
        version=6, flow_label=label, payload_length=length, next_header=PROTOCOL_UDP, hop_limit=64,
        source=int.from_bytes(source, "big"), destination=int.from_bytes(destination, "big"),
    ) + UDP.pack(source_port=port, destination_port=udp_port, length=length)  # fmt: skip


def addresses_crc(head: Buffer) -> int:
    """CRC state after the RoCEv2 pseudo field (8 bytes of ones) and the 48 bytes of IPv6 and UDP with their variant fields masked."""
    masked = bytearray(head[:BTH_OFFSET])
    for index, bits in ADDRESSES_MASKED:
        masked[index] |= bits
    return zlib.crc32(masked, zlib.crc32(b"\xff" * 8))


def head_crc(head: Buffer) -> int:
    """CRC state after the addresses and the first words of BTH, of which resv8a counts as ones."""
    transport = bytearray(head[BTH_OFFSET:])
    transport[RESV8A_OFFSET] = 0xFF
    return zlib.crc32(transport, addresses_crc(head))


def icrc(packet: Buffer) -> bytes:
    """ICRC of an inner packet without its ICRC: RoCEv2's rule, the CRC's low byte first."""
    return head_crc(packet).to_bytes(ICRC_BYTES, "little")


def marked(packet: Buffer) -> bytes:
    """An inner packet as a congested switch hands it on: CE set. The ICRC leaves the traffic class out."""
    return _with_class(packet, CE, CE)


def trimmed(packet: Buffer, reason: int = TRIMMED) -> bytes:
    """An inner packet of a Write as a switch trims it: cut behind the headers, without ICRC, lengths and DSCP set."""
    bth = BTH.unpack(packet, BTH_OFFSET)
    end = BTH_OFFSET + BTH.size_bytes + sum(header.size_bytes for header in headers_of(bth["opcode"], bool(bth["ts"])))
    cut = bytearray(_with_class(packet[:end], TRIMMED_DSCPS[reason] << 2, DSCP_MASK))
    for offset in (IPV6.byte_offset("payload_length"), IPV6.size_bytes + UDP.byte_offset("length")):
        cut[offset : offset + 2] = (end - IPV6.size_bytes).to_bytes(2, "big")
    return bytes(cut)


def is_write(opcode: int) -> bool:
    """Whether it carries data: the only packets that a switch may trim."""
    return WRITE_FIRST <= opcode <= WRITE_ONLY_IMM


def _with_class(packet: Buffer, bits: int, mask: int) -> bytes:
    """`packet` with the bits of `mask` in its traffic class set to `bits`."""
    first = int.from_bytes(packet[:2], "big") & ~(mask << CLASS_SHIFT) | bits << CLASS_SHIFT
    return first.to_bytes(2, "big") + bytes(packet[2:])


def unwrap(psn: int, near: int) -> int:
    """The endless sequence number whose low 24 bits are `psn` and that is nearest to `near`."""
    half = 1 << (PSN_BITS - 1)
    return near + ((psn - near + half) & PSN_MASK) - half


def timestamp(now: float) -> int:
    """16-bit tx_timestamp of CLOCK_MONOTONIC seconds; it wraps every 8.4 ms."""
    return int(now * TIMESTAMP_HZ) & 0xFFFF


def build(head: Buffer, bth: Mapping[str, int], extensions: Sequence[tuple[Header, Mapping[str, int]]], payload: Buffer = b"") -> bytes:
    """A whole inner packet by the tables, padded and sealed. For tests and tools; the fast path lives in `hosts.mrc.frames`."""
    pad = -len(payload) % 4
    body = BTH.pack(**{"pkey": 0xFFFF, "pad": pad, **bth}) + b"".join(header.pack(**values) for header, values in extensions)
    packet = bytes(head) + body + bytes(payload) + bytes(pad)
    return packet + icrc(packet)


def build_between(
    source: bytes,
    destination: bytes,
    entropy: int,
    bth: Mapping[str, int],
    extensions: Sequence[tuple[Header, Mapping[str, int]]],
    payload: Buffer = b"",
) -> bytes:
    """As `build`, behind the addresses that belong to it."""
    content = BTH.size_bytes + sum(header.size_bytes for header, _ in extensions) + len(payload) + -len(payload) % 4 + ICRC_BYTES
    return build(addresses(source, destination, entropy, content), bth, extensions, payload)
