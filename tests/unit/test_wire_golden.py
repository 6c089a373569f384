"""Golden bytes of every packet type, from BTH to ICRC: a table that changes shows here, whatever else agrees with it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import pytest
import wire_samples
from hypothesis import given
from hypothesis import strategies as st

from hosts import wire

# BTH, then the extension headers, the payload with its padding, the ICRC. The values are those of wire_samples.
GOLDEN: Mapping[str, str] = {
    "Write First": "c610ffff0000002210000102 00040005 12340001 00000000000100000000abcd00000007 7061796c6f616400 b063457b",
    "Write First, no timestamp": "c610ffff0000002200000102 00040005 00000000000100000000abcd00000007 7061796c6f616400 0aadb8b1",
    "Write Middle": "c710ffff0000002210000102 00040005 12340001 00000000000100000000abcd00000007 7061796c6f616400 d25b6d51",
    "Write Middle, no timestamp": "c710ffff0000002200000102 00040005 00000000000100000000abcd00000007 7061796c6f616400 4d3ffc1e",
    "Write Last": "c810ffff0000002210000102 00040005 12340001 00000000000100000000abcd00000007 7061796c6f616400 ad37850d",
    "Write Last, no timestamp": "c810ffff0000002200000102 00040005 00000000000100000000abcd00000007 7061796c6f616400 e54db29e",
    "Write Last with Immediate": (
        "c910ffff0000002210000102 00040005 12340001 00000000000100000000abcd00000007 deadbeef 7061796c6f616400 16c11401"
    ),
    "Write Last with Immediate, no timestamp": (
        "c910ffff0000002200000102 00040005 00000000000100000000abcd00000007 deadbeef 7061796c6f616400 19fdb2f7"
    ),
    "Write Only": "ca10ffff0000002210000102 00040005 12340001 00000000000100000000abcd00000007 7061796c6f616400 6947d559",
    "Write Only, no timestamp": "ca10ffff0000002200000102 00040005 00000000000100000000abcd00000007 7061796c6f616400 2a6f4a1b",
    "Write Only with Immediate": (
        "cb10ffff0000002210000102 00040005 12340001 00000000000100000000abcd00000007 deadbeef 7061796c6f616400 ae18777a"
    ),
    "Write Only with Immediate, no timestamp": (
        "cb10ffff0000002200000102 00040005 00000000000100000000abcd00000007 deadbeef 7061796c6f616400 dd8de2a3"
    ),
    "a retransmission": "c710ffff0000002230000102 00040005 12340001 00000000000100000000abcd00000007 7061796c6f616400 2b999e48",
    "ACK": "d100ffff0000002200000102 1f000005 c837bd63",
    "Endpoint Request PORT_STATUS_UPDATE": "d800ffff0000000200000000 00000000000000051234000000000000 5ab6b04b",
    "Endpoint Response PORT_STATUS_UPDATE": (
        "d900ffff0000000200000000 000000000000000512340000000200010000000000000000000000000000000000000000 8581ad4a"
    ),
    "Endpoint Request EV_PROBE": "d800ffff0000000200000000 01000000000000051234000000000000 cb27d8e5",
    "Endpoint Response EV_PROBE": (
        "d900ffff0000000200000000 010000000000000512340000000200010000000000000000000000000000000000000000 1055dddf"
    ),
    "NACK TRIMMED": "dd00ffff0000002200000000 0100000000020001001100220001020012340000 a5f6eb3a",
    "NACK TRIMMED_LASTHOP": "dd00ffff0000002200000000 0200000000020001001100220001020012340000 6fbb4295",
    "NACK NO_BITMAP": "dd00ffff0000002200000000 0600000000020001001100220001020012340000 3650afdb",
    "NACK NO_PKT_BUFFER": "dd00ffff0000002200000000 0700000000020001001100220001020012340000 706bc8be",
    "NACK NO_RESOURCE": "dd00ffff0000002200000000 0a00000000020001001100220001020012340000 dd6d9908",
    "NACK PSN_OOR_WINDOW": "dd00ffff0000002200000000 0b00000000020001001100220001020012340000 9b56fe6d",
    "NACK UNEXPECTED_EVENT": "dd00ffff0000002200000000 1900000000020001001100220001020012340000 328bf647",
    "SACK m=0": "dc00ffff0000002200000007 000000040002000100110022000000ff00080001000000000000000a 1234000406000063 3248d443",
    "SACK m=1": "dc00ffff0000002200000007 002000040002000100110022000000ff00080001000000000000000a 1234000406000063 a4c020dc",
    "SACK m=2": "dc00ffff0000002200000007 004000040002000100110022000000ff00080001000000000000000a 1234000406000063 5f5f4ca7",
    "SACK, ports down": "dc00ffff0000002200000007 000000040002000100110022020000ff05080001000000000000000a 1234000406000063 225465b1",
    "Probe": "de00ffff0000002200000000 0000004d001100221234000000000000 78988daa",
    "Probe reply": "dc00ffff0000002200000007 0010004d0002000100110022000000ff00080001000000000000000a 1234000406000063 191ff787",
}
"""By the name of a sample; a line a packet."""


@pytest.mark.parametrize("name", wire_samples.MRC)
def test_golden_bytes(name: str) -> None:
    assert wire_samples.MRC[name][wire.BTH_OFFSET :].hex() == GOLDEN[name].replace(" ", "")


def test_every_opcode_every_nack_reason_and_every_operation_has_golden_bytes() -> None:
    packets = [bytes.fromhex(text) for text in GOLDEN.values()]
    assert {packet[0] for packet in packets} == set(wire.OPCODES)
    assert {packet[12] for packet in packets if packet[0] == wire.NACK} == set(wire.NACK_REASONS)
    assert {packet[12] for packet in packets if packet[0] in (wire.ENDPOINT_REQUEST, wire.ENDPOINT_RESPONSE)} == set(wire.ENDPOINT_OPS)


@pytest.mark.parametrize("name", [*wire_samples.MRC, *wire_samples.RC])
def test_the_icrc_is_that_of_annex_a17(name: str) -> None:
    """Worked out here on its own: ones for traffic class, flow label, hop limit, UDP checksum and BTH's byte 4, and eight bytes before."""
    packet = {**wire_samples.MRC, **wire_samples.RC}[name]
    masked = bytearray(b"\xff" * 8 + packet[:-4])
    masked[8:12], masked[15], masked[54:56], masked[60] = b"\x6f\xff\xff\xff", 0xFF, b"\xff\xff", 0xFF
    assert packet[-4:] == zlib.crc32(masked).to_bytes(4, "little")


@pytest.mark.parametrize("name", wire_samples.TRIMMED)
def test_a_trimmed_packet_is_its_headers_alone(name: str) -> None:
    cut = wire_samples.TRIMMED[name]
    whole = GOLDEN[name.rpartition(", ")[0]].split()
    assert cut[wire.BTH_OFFSET :].hex() == "".join(whole[:-2])


@given(st.sampled_from(sorted(wire.OPCODES)), st.booleans(), st.binary(max_size=64), st.data())
def test_whole_packets_survive_a_round_trip(opcode: int, timestamped: bool, payload: bytes, data: st.DataObject) -> None:
    headers = (wire.BTH, *wire.headers_of(opcode, timestamped))
    said = [{name: data.draw(_values(header, name, bits)) for name, bits in header.fields} for header in headers]
    said[0] |= {"opcode": opcode, "ts": int(timestamped), "pad": -len(payload) % 4}
    packet = wire.build(bytes(wire.BTH_OFFSET), said[0], list(zip(headers[1:], said[1:], strict=True)), payload)
    at, read = wire.BTH_OFFSET, []
    for header in headers:
        read.append(header.unpack(packet, at))
        at += header.size_bytes
    assert read == said
    assert packet[at : len(packet) - wire.ICRC_BYTES - read[0]["pad"]] == payload


def _values(header: wire.Header, name: str, bits: int) -> st.SearchStrategy[int]:
    signed = name in header.signed
    return st.integers(-(1 << (bits - 1)) if signed else 0, (1 << (bits - signed)) - 1)
