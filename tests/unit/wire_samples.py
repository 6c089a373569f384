"""One sound inner packet for every opcode and every variant of it: what golden bytes, scapy layers and decoder are tested on."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from hosts import wire
from hosts.rc import wire as rc
from hosts.rc.wire import ACK as RC_ACK
from hosts.rc.wire import ACK_REQUEST, AETH, IMMDT, NAK_PSN_SEQUENCE, RETH, SYNDROME_ACK, Flow
from hosts.rc.wire import WRITE_FIRST as RC_WRITE_FIRST
from hosts.rc.wire import WRITE_LAST_IMM as RC_WRITE_LAST_IMM
from hosts.rc.wire import WRITE_MIDDLE as RC_WRITE_MIDDLE

SOURCE, TARGET = "fd00:0:0:1::1", "fd00:0:0:2::1"
ENTROPY = 0x00020001  # flow label 2, source port 1
PAYLOAD = b"payload"  # 7 bytes, so that one byte of padding follows
IMM = 0xDEADBEEF
CONTROL = 46

Extensions = list[tuple[wire.Header, Mapping[str, int]]]


def inner(opcode: int, extensions: Extensions, payload: bytes = b"", dscp: int = CONTROL, qp: int = 0x22, **bth: int) -> bytes:
    """An inner packet by the tables, from its IPv6 header to its ICRC."""
    ends = ipaddress.IPv6Address(SOURCE).packed, ipaddress.IPv6Address(TARGET).packed
    return classed(wire.build_between(*ends, ENTROPY, {"opcode": opcode, "destination_qp": qp, **bth}, extensions, payload), dscp << 2)


def classed(packet: bytes, traffic_class: int) -> bytes:
    """An inner packet with another traffic class, which its ICRC leaves out."""
    return (0x6000 | traffic_class << 4).to_bytes(2, "big") + packet[2:]


def write(opcode: int, timestamped: bool = True, **bth: int) -> bytes:
    """A data packet of seven bytes."""
    values: dict[str, dict[str, int]] = {
        "METH": {"rqmsn": 4, "msn": 5},
        "TSETH": {"tx_timestamp": 0x1234, "type": wire.TSETH_TYPE},
        "RETH": {"va": 0x10000, "rkey": 0xABCD, "dma_length": len(PAYLOAD)},
        "IMMDT": {"imm": IMM},
    }
    extensions: Extensions = [(header, values[header.name]) for header in wire.headers_of(opcode, timestamped)]
    return inner(opcode, extensions, PAYLOAD, dscp=4, ts=int(timestamped), **{"psn": 0x000102, **bth})


def sack(**seth: int) -> bytes:
    """A SACK: all up to PSN 0xff, then 0x101 and 0x103, and the packet named is 0x103."""
    said = {
        "entropy": ENTROPY, "source_id": 0x11, "destination_id": 0x22, "cack_psn": 0xFF, "ack_psn_offset": 4, "mpr": 8, "sack_offset": 1,
        "bitmap": 0b1010, **seth,
    }  # fmt: skip
    state = {"tx_timestamp": 0x1234, "ooo_count": 2, "rcv_cwnd_pen": 3, "rcvd_bytes": 0x63}
    return inner(wire.SACK, [(wire.SETH, said), (wire.CC_STATE, state)], psn=7)


def nack(reason: int) -> bytes:
    """A NACK of PSN 0x102."""
    said = {"reason": reason, "entropy": ENTROPY, "source_id": 0x11, "destination_id": 0x22, "nack_psn": 0x102, "tx_timestamp": 0x1234}
    return inner(wire.NACK, [(wire.NETH, said)])


def endpoint(opcode: int, op: int) -> bytes:
    """An Endpoint Request or Response about ports 0 and 2."""
    (header,) = wire.headers_of(opcode, False)
    said = {"op": op, "port_mask": 0b101, "tx_timestamp": 0x1234}
    return inner(opcode, [(header, said | ({"entropy": ENTROPY} if opcode == wire.ENDPOINT_RESPONSE else {}))], qp=wire.ENDPOINT_QPN)


def _mrc() -> dict[str, bytes]:
    samples = {f"{wire.OPCODES[opcode]}{'' if ts else ', no timestamp'}": write(opcode, ts) for opcode in WRITES for ts in (True, False)}
    samples["a retransmission"] = write(wire.WRITE_MIDDLE, rtx=1)
    samples["ACK"] = inner(wire.ACK, [(wire.AETH, {"syndrome": wire.NO_CREDITS, "msn": 5})], psn=0x102)
    for op, name in wire.ENDPOINT_OPS.items():
        samples[f"Endpoint Request {name}"] = endpoint(wire.ENDPOINT_REQUEST, op)
        samples[f"Endpoint Response {name}"] = endpoint(wire.ENDPOINT_RESPONSE, op)
    samples |= {f"NACK {name}": nack(reason) for reason, name in wire.NACK_REASONS.items()}
    samples |= {f"SACK m={m}": sack(m=m) for m in (wire.SKIP_NONE, wire.SKIP_ONCE, wire.ALWAYS_SKIP)}
    samples["SACK, ports down"] = sack(down_ports=0b10, cc_flags=wire.HELD | wire.NACKED)
    samples["Probe"] = inner(wire.PROBE, [(wire.PETH, {"probe_id": 77, "source_id": 0x11, "destination_id": 0x22, "tx_timestamp": 0x1234})])
    samples["Probe reply"] = sack(probe_reply=1, ack_psn_offset=77)
    return samples


def _rc() -> dict[str, bytes]:
    flow = Flow(SOURCE, TARGET, 0xC001, 0x22)
    packets: list[tuple[str, int, int, bytes, bytes]] = [
        ("RC Write First", RC_WRITE_FIRST, 5, RETH.pack(0x10000, 0xABCD, 3000), PAYLOAD + b"!"),
        ("RC Write Middle", RC_WRITE_MIDDLE, 6, b"", PAYLOAD + b"!"),
        ("RC Write Last with Immediate", RC_WRITE_LAST_IMM, 7 | ACK_REQUEST, IMMDT.pack(IMM), PAYLOAD),
        ("RC ACK", RC_ACK, 7, AETH.pack(SYNDROME_ACK << 24 | 3), b""),
        ("RC NAK", RC_ACK, 6, AETH.pack(NAK_PSN_SEQUENCE << 24 | 3), b""),
    ]
    built = {name: _plain(b"".join(_built(flow, opcode, psn, more, payload))) for name, opcode, psn, more, payload in packets}
    return {**built, "RC CNP": rc_cnp()}


def rc_cnp(flags: int = rc.BECN, more: bytes = b"") -> bytes:
    """A CNP; `flags`: 0 for one without BECN. `more` stands behind its headers."""
    return _plain(b"".join(Flow(SOURCE, TARGET, 0xC001, 0x22).build(rc.CNP, 0, rc.CNP_RESERVED + more, b"", flags)))


def _built(flow: Flow, opcode: int, psn: int, extension: bytes, payload: bytes) -> tuple[bytes, bytes, bytes]:
    header, trailer = flow.build(opcode, psn, extension, payload)
    return header, payload, trailer


def _plain(datagram: bytes) -> bytes:
    """The IPv6 packet around a UDP payload of RC."""
    length = wire.UDP.size_bytes + len(datagram)
    ends = {"source": int(ipaddress.IPv6Address(SOURCE)), "destination": int(ipaddress.IPv6Address(TARGET))}
    ip = wire.IPV6.pack(version=6, payload_length=length, next_header=wire.PROTOCOL_UDP, hop_limit=64, **ends)
    return ip + wire.UDP.pack(source_port=0xC001, destination_port=wire.UDP_PORT, length=length, checksum=0x1234) + datagram


WRITES = tuple(opcode for opcode in wire.OPCODES if wire.is_write(opcode))
MRC: Mapping[str, bytes] = _mrc()
RC: Mapping[str, bytes] = _rc()
TRIMMED: Mapping[str, bytes] = {
    f"{name}, {wire.NACK_REASONS[reason]}": wire.trimmed(packet, reason)
    for name, packet in MRC.items()
    if wire.is_write(packet[wire.BTH_OFFSET])
    for reason in wire.TRIMMED_DSCPS
}


def framed(packet: bytes, usids: tuple[int, ...] = (0x101, 0x201, 2), **outer: Any) -> bytes:
    """The frame on a link: Ethernet and the outer IPv6 header with a list of uSIDs around an inner packet."""
    destination = 0xFCBBBB00 << 96
    for place, usid in enumerate(usids, start=1):
        destination |= usid << 96 - 16 * place
    values: dict[str, int] = {
        "version": 6,
        "traffic_class": int.from_bytes(packet[:2], "big") >> 4 & 0xFF,
        "payload_length": len(packet),
        "next_header": wire.PROTOCOL_IPV6,
        "hop_limit": 62,
        "source": int(ipaddress.IPv6Address(SOURCE)),
        "destination": destination,
        **outer,
    }
    return ethernet(wire.IPV6.pack(**values) + packet)


def ethernet(packet: bytes, kind: int = 0x86DD) -> bytes:
    """An Ethernet frame around a packet."""
    return bytes.fromhex("020001010002" + "020000010000") + kind.to_bytes(2, "big") + packet


FRAMES: Mapping[str, bytes] = {
    **{name: framed(packet) for name, packet in (*MRC.items(), *TRIMMED.items())},
    **{name: ethernet(packet) for name, packet in RC.items()},
}
