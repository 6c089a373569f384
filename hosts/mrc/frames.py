"""The fast path of the codec: packets from preassembled templates, and the check of received ones. Same bytes as `hosts.wire.build`."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Mapping
from typing import NamedTuple
from zlib import crc32

from hosts import wire
from hosts.wire import BTH, BTH_OFFSET, CC_STATE, EETH, ERTH, ICRC_BYTES, IMMDT, METH, NETH, PETH, RETH, SETH, TSETH, UDP_PORTS, Header

# Everything before BTH's last word (flags and PSN) repeats from packet to packet: addresses, ports, length, opcode, QP. This head is built,
# checked and summed once, and then remembered; the fast path only packs or unpacks what follows it.
HEAD_WORDS = len(BTH.words) - 1
PSN_OFFSET = BTH_OFFSET + BTH.byte_offset("psn") - 1  # of the whole last word


def _after_head(*headers: Header) -> struct.Struct:
    """The `Struct` of BTH's last word and of the headers after BTH."""
    return struct.Struct(">" + BTH.format[HEAD_WORDS:] + "".join(header.format for header in headers))


DATA = _after_head(METH, TSETH, RETH)
DATA_IMM = _after_head(METH, TSETH, RETH, IMMDT)
DATA_BARE = _after_head(METH, RETH)
SACK = _after_head(SETH, CC_STATE)
NACK = _after_head(NETH)
PROBE = _after_head(PETH)
REQUEST, RESPONSE = _after_head(ERTH), _after_head(EETH)
PKEY = 0xFFFF
TSETH_TYPE = wire.TSETH_TYPE
CACHE_LIMIT = 8192  # heads; a flood of forged ones must not fill the memory
SHORTEST = BTH_OFFSET + BTH.size_bytes + ICRC_BYTES
SACK_BYTES, NACK_BYTES, PROBE_BYTES = (PSN_OFFSET + form.size + ICRC_BYTES for form in (SACK, NACK, PROBE))
REQUEST_BYTES, RESPONSE_BYTES = (PSN_OFFSET + form.size + ICRC_BYTES for form in (REQUEST, RESPONSE))
OP_SHIFT = 24  # of the operation in ERTH's and EETH's first word
PSN_SHIFT = 8  # of nack_psn in its word


class Malformed(Exception):
    """A received packet that is not for us or not whole; `reason` is the counter's name."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class SackFields(NamedTuple):
    """What a receiver says in a SACK; PSNs as on the wire, `mpr` in units of 128, `received` in units of 256 B, `penalty` of 128.

    `down_ports`: mask of its own NIC ports that are down.
    """

    number: int
    probe_reply: bool
    ack_psn_offset: int
    entropy: int
    cack: int
    cc_flags: int
    mpr: int
    sack_offset: int
    bitmap: int
    stamp: int
    out_of_order: int
    received: int
    skip: int = wire.SKIP_NONE
    penalty: int = 0
    down_ports: int = 0


class NackFields(NamedTuple):
    """Which transmission a NACK names, and why; the PSN as on the wire."""

    reason: int
    entropy: int
    psn: int
    stamp: int


def parse_nack(datagram: memoryview) -> NackFields:
    """The fields of a sound NACK packet.

    Raises:
        Malformed: the packet is shorter or longer than a NACK.
    """
    if len(datagram) != NACK_BYTES:
        raise Malformed("bad_length")
    _, reason, _, _, entropy, _, _, psn, stamp, _ = NACK.unpack_from(datagram, PSN_OFFSET)
    return NackFields(reason, entropy, psn >> PSN_SHIFT, stamp)


def parse_sack(datagram: memoryview) -> SackFields:
    """The fields of a sound SACK packet.

    Raises:
        Malformed: the packet is shorter or longer than a SACK.
    """
    if len(datagram) != SACK_BYTES:
        raise Malformed("bad_length")
    number, first, ack_psn_offset, entropy, _, _, cack, cc, mpr, sack_offset, bitmap, state = SACK.unpack_from(datagram, PSN_OFFSET)
    return SackFields(
        number & wire.PSN_MASK, first & wire.PROBE_REPLY_BIT != 0, ack_psn_offset, entropy, cack & wire.PSN_MASK, cc & 0xF, mpr,
        sack_offset, bitmap, state >> 48, state >> 33 & 0x7FFF, state & 0xFFFFFF, first >> wire.M_SHIFT & wire.M_MASK, state >> 25 & 0x7F,
        cack >> wire.DOWN_PORTS_SHIFT,
    )  # fmt: skip


class EndpointFields(NamedTuple):
    """What an Endpoint Request or Response says; `number` is its PSN. Of a response `entropy` is the EV of the request."""

    number: int
    op: int
    port_mask: int
    stamp: int
    entropy: int = 0


def parse_endpoint(datagram: memoryview, response: bool) -> EndpointFields:
    """The fields of a sound Endpoint Request or Response.

    Raises:
        Malformed: the packet is shorter or longer than that.
    """
    form, size = (RESPONSE, RESPONSE_BYTES) if response else (REQUEST, REQUEST_BYTES)
    if len(datagram) != size:
        raise Malformed("bad_length")
    number, first, port_mask, stamp, _, entropy = form.unpack_from(datagram, PSN_OFFSET)[:6]
    return EndpointFields(number & wire.PSN_MASK, first >> OP_SHIFT, port_mask, stamp, entropy if response else 0)


class Head(NamedTuple):
    """What the first 56 bytes of a received packet say: its length, EV, CRC state after them, BTH's fields, and what switches did.

    `end_bytes`: where the payload ends, before padding and ICRC.
    `marked`: it met a queue; `trimmed`: 0, or the reason of the NACK that a trimmed packet asks for. Such a packet has no ICRC.
    """

    length_bytes: int
    entropy: int
    crc: int
    opcode: int
    end_bytes: int
    qp: int
    marked: bool
    trimmed: int


class Framer:
    """Builds the packets from one host to one peer's QP."""

    __slots__ = ("_destination", "_heads", "_ids", "_port", "_qp", "_source")

    def __init__(self, source: str, destination: str, own_qp: int, peer_qp: int, udp_port: int) -> None:
        self._source, self._destination = ipaddress.IPv6Address(source).packed, ipaddress.IPv6Address(destination).packed
        self._qp, self._port = peer_qp, udp_port
        self._ids = own_qp & 0xFFFF, peer_qp & 0xFFFF
        self._heads: dict[tuple[int, int, int], tuple[bytes, int]] = {}

    def _head(self, entropy: int, opcode: int, form: struct.Struct, payload_bytes: int) -> tuple[bytes, int]:
        """Template of all headers, filled up to the PSN's word, and the CRC state over what is filled."""
        if len(self._heads) >= CACHE_LIMIT:
            self._heads.clear()
        pad = -payload_bytes & 3
        content = PSN_OFFSET - BTH_OFFSET + form.size + payload_bytes + pad + ICRC_BYTES
        bth = BTH.pack(opcode=opcode, pad=pad, pkey=PKEY, destination_qp=self._qp)[: PSN_OFFSET - BTH_OFFSET]
        head = wire.addresses(self._source, self._destination, entropy, content, self._port) + bth
        entry = self._heads[entropy, opcode, form.size + payload_bytes] = (head + bytes(form.size), wire.head_crc(head))
        return entry

    def data(
        self,
        entropy: int,
        opcode: int,
        psn_flags: int,
        msns: tuple[int, int],
        stamp: int,
        va: int,
        rkey: int,
        payload: memoryview,
        imm: int | None,
    ) -> tuple[bytearray, bytes]:
        """Header and trailer of a data packet; `psn_flags` is BTH's last word, `msns` METH's two; `imm` is None for opcodes without one."""
        size = len(payload)
        form = DATA if imm is None else DATA_IMM
        template, crc = self._heads.get((entropy, opcode, form.size + size)) or self._head(entropy, opcode, form, size)
        header = bytearray(template)
        if imm is None:
            DATA.pack_into(header, PSN_OFFSET, psn_flags, *msns, stamp, TSETH_TYPE, va, rkey, size)
        else:
            DATA_IMM.pack_into(header, PSN_OFFSET, psn_flags, *msns, stamp, TSETH_TYPE, va, rkey, size, imm)
        crc = crc32(payload, crc32(header[PSN_OFFSET:], crc))
        if not size & 3:
            return header, crc.to_bytes(ICRC_BYTES, "little")
        padding = bytes(-size & 3)
        return header, padding + crc32(padding, crc).to_bytes(ICRC_BYTES, "little")

    def sack(self, entropy: int, say: SackFields) -> tuple[bytearray, bytes]:
        """Header and trailer of a SACK sent with `entropy`."""
        template, crc = self._heads.get((entropy, wire.SACK, SACK.size)) or self._head(entropy, wire.SACK, SACK, 0)
        header = bytearray(template)
        SACK.pack_into(
            header, PSN_OFFSET, say.number,
            say.skip << wire.M_SHIFT | (wire.PROBE_REPLY_BIT if say.probe_reply else 0), say.ack_psn_offset, say.entropy, *self._ids,
            say.down_ports << wire.DOWN_PORTS_SHIFT | say.cack, say.cc_flags, say.mpr, say.sack_offset, say.bitmap,
            say.stamp << 48 | say.out_of_order << 33 | say.penalty << 25 | say.received,
        )  # fmt: skip
        return header, crc32(header[PSN_OFFSET:], crc).to_bytes(ICRC_BYTES, "little")

    def nack(self, entropy: int, say: NackFields) -> tuple[bytearray, bytes]:
        """Header and trailer of a NACK sent with `entropy`."""
        template, crc = self._heads.get((entropy, wire.NACK, NACK.size)) or self._head(entropy, wire.NACK, NACK, 0)
        header = bytearray(template)
        NACK.pack_into(header, PSN_OFFSET, 0, say.reason, 0, 0, say.entropy, *self._ids, say.psn << PSN_SHIFT, say.stamp, 0)
        return header, crc32(header[PSN_OFFSET:], crc).to_bytes(ICRC_BYTES, "little")

    def probe(self, entropy: int, probe_id: int, stamp: int) -> tuple[bytearray, bytes]:
        """Header and trailer of a probe of the path of `entropy`."""
        template, crc = self._heads.get((entropy, wire.PROBE, PROBE.size)) or self._head(entropy, wire.PROBE, PROBE, 0)
        header = bytearray(template)
        PROBE.pack_into(header, PSN_OFFSET, 0, 0, probe_id, *self._ids, stamp, 0, 0)
        return header, crc32(header[PSN_OFFSET:], crc).to_bytes(ICRC_BYTES, "little")

    def endpoint(self, entropy: int, opcode: int, say: EndpointFields) -> tuple[bytearray, bytes]:
        """Header and trailer of an Endpoint Request or Response sent with `entropy`."""
        form = REQUEST if opcode == wire.ENDPOINT_REQUEST else RESPONSE
        template, crc = self._heads.get((entropy, opcode, form.size)) or self._head(entropy, opcode, form, 0)
        header = bytearray(template)
        if form is REQUEST:
            form.pack_into(header, PSN_OFFSET, say.number, say.op << OP_SHIFT, say.port_mask, say.stamp, 0, 0)
        else:
            form.pack_into(header, PSN_OFFSET, say.number, say.op << OP_SHIFT, say.port_mask, say.stamp, 0, say.entropy, bytes(16), 0)
        return header, crc32(header[PSN_OFFSET:], crc).to_bytes(ICRC_BYTES, "little")


class Inspector:
    """Checks received packets: addresses, lengths, ICRC but of trimmed ones. What depends only on the head is remembered.

    `sources`: the address of the peer of each QP here; nobody else may speak to it.
    """

    __slots__ = ("_address", "_known", "_sources")

    def __init__(self, address: str, sources: Mapping[int, str] | None = None) -> None:
        self._address = ipaddress.IPv6Address(address).packed
        self._sources = {qp: ipaddress.IPv6Address(source).packed for qp, source in (sources or {}).items()}
        self._known: dict[bytes, Head] = {}

    def inspect(self, datagram: memoryview) -> Head:
        """The head of a sound packet for this host.

        Raises:
            Malformed: with the reason to count.
        """
        raw = bytes(datagram[:PSN_OFFSET])
        head = self._known.get(raw) or self._learn(raw)
        if len(datagram) != head.length_bytes:
            raise Malformed("truncated" if len(datagram) < head.length_bytes else "overlong")
        if head.trimmed:
            return head
        if crc32(datagram[PSN_OFFSET:-ICRC_BYTES], head.crc) != int.from_bytes(datagram[-ICRC_BYTES:], "little"):
            raise Malformed("icrc")
        return head

    def _learn(self, raw: bytes) -> Head:
        """Reads a head that is not known yet."""
        if len(raw) < PSN_OFFSET:
            raise Malformed("truncated")
        ip, udp = wire.IPV6.unpack(raw), wire.UDP.unpack(raw, wire.IPV6.size_bytes)
        self._refuse(raw, ip, udp)
        if len(self._known) >= CACHE_LIMIT:
            self._known.clear()
        entropy = wire.entropy_of(udp["source_port"], ip["flow_label"])
        bth = BTH.unpack(raw + bytes(BTH.size_bytes), BTH_OFFSET)
        if self._sources.get(bth["destination_qp"], raw[8:24]) != raw[8:24]:
            raise Malformed("wrong_source")
        length = wire.IPV6.size_bytes + ip["payload_length"]
        trimmed = wire.TRIM_REASONS.get(ip["traffic_class"] >> 2, 0)
        if trimmed and not wire.is_write(bth["opcode"]):
            raise Malformed("not_trimmable")  # the DSCP must not excuse anything else from its ICRC
        end = length if trimmed else length - ICRC_BYTES - bth["pad"]
        head = self._known[raw] = Head(
            length, entropy, wire.head_crc(raw), bth["opcode"], end, bth["destination_qp"],
            ip["traffic_class"] & wire.CE == wire.CE, trimmed,
        )  # fmt: skip
        return head

    def _refuse(self, raw: bytes, ip: dict[str, int], udp: dict[str, int]) -> None:
        if ip["version"] != 6 or ip["next_header"] != wire.PROTOCOL_UDP or udp["destination_port"] not in UDP_PORTS:
            raise Malformed("not_mrc")
        if raw[24:40] != self._address:
            raise Malformed("wrong_address")
        if udp["length"] != ip["payload_length"] or wire.IPV6.size_bytes + udp["length"] < SHORTEST:
            raise Malformed("bad_length")
