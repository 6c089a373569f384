"""The fast path of the codec: packets from preassembled templates, and the check of received ones. Same bytes as `hosts.wire.build`."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from zlib import crc32

from hosts import wire
from hosts.wire import BTH, BTH_OFFSET, CC_STATE, ICRC_BYTES, IMMDT, METH, PETH, RETH, SETH, TSETH, UDP_PORTS, fast

DATA = fast(BTH, METH, TSETH, RETH)
DATA_IMM = fast(BTH, METH, TSETH, RETH, IMMDT)
DATA_BARE = fast(BTH, METH, RETH)
SACK = fast(BTH, SETH, CC_STATE)
PROBE = fast(BTH, PETH)
TRANSPORT = fast(BTH)
MASKED_RESV8A = 0xFF << 24  # in BTH's second word, as the ICRC sees it
RESV8A = BTH_OFFSET + wire.RESV8A_OFFSET
PKEY = 0xFFFF
TSETH_TYPE = 1
CACHE_LIMIT = 4096
SHORTEST = BTH_OFFSET + BTH.size_bytes + ICRC_BYTES


class Malformed(Exception):
    """A received packet that is not for us or not whole; `reason` is the counter's name."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class SackFields(NamedTuple):
    """What a receiver says in a SACK; PSNs as on the wire, `mpr` in units of 128, `received` in units of 256 B."""

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


def parse_sack(datagram: memoryview) -> SackFields:
    """The fields of a sound SACK packet.

    Raises:
        Malformed: the packet is shorter or longer than a SACK.
    """
    if len(datagram) != BTH_OFFSET + SACK.size + ICRC_BYTES:
        raise Malformed("bad_length")
    words = SACK.unpack_from(datagram, BTH_OFFSET)
    number, first, ack_psn_offset, entropy, _, _, cack, cc, mpr, sack_offset, bitmap, state = words[4:]
    return SackFields(
        number & wire.PSN_MASK, first & wire.PROBE_REPLY_BIT != 0, ack_psn_offset, entropy, cack & wire.PSN_MASK, cc & 0xF, mpr,
        sack_offset, bitmap, state >> 48, state >> 33 & 0x7FFF, state & 0xFFFFFF,
    )  # fmt: skip


class Framer:
    """Builds the packets from one host to one peer's QP."""

    __slots__ = ("_destination", "_heads", "_ids", "_port", "_qp", "_source")

    def __init__(self, source: str, destination: str, own_qp: int, peer_qp: int, udp_port: int) -> None:
        self._source, self._destination = ipaddress.IPv6Address(source).packed, ipaddress.IPv6Address(destination).packed
        self._qp, self._port = peer_qp | MASKED_RESV8A, udp_port
        self._ids = own_qp & 0xFFFF, peer_qp & 0xFFFF
        self._heads: dict[tuple[int, int], tuple[bytes, int]] = {}

    def _head(self, entropy: int, content_bytes: int, room: int) -> tuple[bytes, int]:
        """Template of the first bytes, with `room` for the transport headers, and the CRC state over its masked addresses."""
        head = wire.addresses(self._source, self._destination, entropy, content_bytes, self._port)
        entry = self._heads[entropy, content_bytes] = (head + bytes(room), wire.addresses_crc(head))
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
        """Header and trailer of a data packet; `psn_flags` is BTH's last word, `msns` METH's two."""
        size = len(payload)
        pad = -size & 3
        room = DATA.size if imm is None else DATA_IMM.size
        content = room + size + pad + ICRC_BYTES
        template, crc = self._heads.get((entropy, content)) or self._head(entropy, content, room)
        header = bytearray(template)
        if imm is None:
            DATA.pack_into(header, BTH_OFFSET, opcode, pad << 4, PKEY, self._qp, psn_flags, *msns, stamp, TSETH_TYPE, va, rkey, size)
        else:
            DATA_IMM.pack_into(
                header, BTH_OFFSET, opcode, pad << 4, PKEY, self._qp, psn_flags, *msns, stamp, TSETH_TYPE, va, rkey, size, imm
            )
        crc = crc32(payload, crc32(header[BTH_OFFSET:], crc))
        header[RESV8A] = 0
        padding = bytes(pad)
        return header, padding + crc32(padding, crc).to_bytes(ICRC_BYTES, "little")

    def sack(self, entropy: int, say: SackFields) -> tuple[bytearray, bytes]:
        """Header and trailer of a SACK sent with `entropy`."""
        template, crc = self._control(entropy, SACK.size)
        header = bytearray(template)
        SACK.pack_into(
            header, BTH_OFFSET, wire.SACK, 0, PKEY, self._qp, say.number,
            wire.PROBE_REPLY_BIT if say.probe_reply else 0, say.ack_psn_offset, say.entropy, *self._ids,
            say.cack, say.cc_flags, say.mpr, say.sack_offset, say.bitmap, say.stamp << 48 | say.out_of_order << 33 | say.received,
        )  # fmt: skip
        return self._sealed(header, crc)

    def probe(self, entropy: int, probe_id: int, stamp: int) -> tuple[bytearray, bytes]:
        """Header and trailer of a probe of the path of `entropy`."""
        template, crc = self._control(entropy, PROBE.size)
        header = bytearray(template)
        PROBE.pack_into(header, BTH_OFFSET, wire.PROBE, 0, PKEY, self._qp, 0, 0, probe_id, *self._ids, stamp, 0, 0)
        return self._sealed(header, crc)

    def _control(self, entropy: int, room: int) -> tuple[bytes, int]:
        content = room + ICRC_BYTES
        return self._heads.get((entropy, content)) or self._head(entropy, content, room)

    @staticmethod
    def _sealed(header: bytearray, crc: int) -> tuple[bytearray, bytes]:
        crc = crc32(header[BTH_OFFSET:], crc)
        header[RESV8A] = 0
        return header, crc.to_bytes(ICRC_BYTES, "little")


class Inspector:
    """Checks received packets: addresses, lengths, ICRC. What depends only on the first 48 bytes is remembered."""

    __slots__ = ("_address", "_known")

    def __init__(self, address: str) -> None:
        self._address = ipaddress.IPv6Address(address).packed
        self._known: dict[bytes, tuple[int, int, int]] = {}

    def inspect(self, datagram: memoryview) -> int:
        """The EV of a sound packet for this host.

        Raises:
            Malformed: with the reason to count.
        """
        head = bytes(datagram[:BTH_OFFSET])
        length, entropy, crc = self._known.get(head) or self._learn(head)
        if len(datagram) != length:
            raise Malformed("truncated" if len(datagram) < length else "overlong")
        crc = crc32(datagram[RESV8A + 1 : -ICRC_BYTES], crc32(b"\xff", crc32(datagram[BTH_OFFSET:RESV8A], crc)))
        if crc.to_bytes(ICRC_BYTES, "little") != datagram[-ICRC_BYTES:]:
            raise Malformed("icrc")
        return entropy

    def _learn(self, head: bytes) -> tuple[int, int, int]:
        """(whole length, EV, CRC state) of packets that start with `head`."""
        if len(head) < BTH_OFFSET:
            raise Malformed("truncated")
        ip, udp = wire.IPV6.unpack(head), wire.UDP.unpack(head, wire.IPV6.size_bytes)
        self._refuse(head, ip, udp)
        if len(self._known) >= CACHE_LIMIT:  # a flood of forged heads must not fill the memory
            self._known.clear()
        entropy = wire.entropy_of(udp["source_port"], ip["flow_label"])
        entry = self._known[head] = (wire.IPV6.size_bytes + ip["payload_length"], entropy, wire.addresses_crc(head))
        return entry

    def _refuse(self, head: bytes, ip: dict[str, int], udp: dict[str, int]) -> None:
        if ip["version"] != 6 or ip["next_header"] != wire.PROTOCOL_UDP or udp["destination_port"] not in UDP_PORTS:
            raise Malformed("not_mrc")
        if head[24:40] != self._address:
            raise Malformed("wrong_address")
        if udp["length"] != ip["payload_length"] or wire.IPV6.size_bytes + udp["length"] < SHORTEST:
            raise Malformed("bad_length")
