"""The scapy layers say what the tables say."""

from __future__ import annotations

import pytest
import wire_samples

from hosts import wire
from hosts.mrc.frames import Framer, NackFields, SackFields
from hosts.scapy_layers import dissect, layers, seal

FRAMER = Framer("fd00::a", "fd00::b", 0x11, 0x22, wire.UDP_PORT)


def data_packet(imm: int | None, payload: bytes = b"payload!") -> bytes:
    opcode = wire.WRITE_MIDDLE if imm is None else wire.WRITE_ONLY_IMM
    header, trailer = FRAMER.data(0x20001, opcode, wire.TS_BIT | 5, (1, 2), 3, 4, 6, memoryview(payload), imm)
    return bytes(header) + payload + trailer


@pytest.mark.parametrize("name", sorted(set(wire.HEADERS) - {"IPV6", "UDP"}))
def test_each_layer_builds_the_bytes_of_its_table(name: str) -> None:
    header = wire.HEADERS[name]
    values = {field: (index * 37 + 1) % (1 << (bits - 1) if bits > 1 else 2) for index, (field, bits) in enumerate(header.fields)}
    assert bytes(layers()[name](**values)) == header.pack(**values)


@pytest.mark.parametrize(
    ("imm", "expected"), [(None, ["METH", "TSETH", "RETH", "Raw", "ICRC"]), (9, ["METH", "TSETH", "RETH", "IMMDT", "Raw", "ICRC"])]
)
def test_a_data_packet_dissects_into_its_headers(imm: int | None, expected: list[str]) -> None:
    packet = dissect(data_packet(imm))
    names = [packet.getlayer(index).name for index in range(3 + len(expected))]
    assert names == ["IPv6", "UDP", "BTH", *expected]


def test_dissected_fields_are_right() -> None:
    raw = data_packet(9)
    packet = dissect(raw)
    made = layers()
    assert (packet.fl, packet[made["UDP"]].sport, packet[made["UDP"]].chksum) == (2, 1, 0)
    assert (packet[made["BTH"]].psn, packet[made["BTH"]].destination_qp) == (5, 0x22)
    assert (packet[made["RETH"]].va, packet[made["RETH"]].dma_length) == (4, 8)
    assert packet[made["ICRC"]].value.to_bytes(4, "little") == raw[-4:]


def test_a_sack_dissects_with_signed_offsets() -> None:
    header, trailer = FRAMER.sack(1, SackFields(3, True, -5, 7, 8, 0, 8, -1, 1 << 63, 2, 0, 0))
    packet = dissect(bytes(header) + trailer)
    seth = packet[layers()["SETH"]]
    assert (seth.ack_psn_offset, seth.sack_offset, seth.probe_reply, seth.bitmap) == (-5, -1, 1, 1 << 63)
    assert packet[layers()["CC_STATE"]].tx_timestamp == 2


def test_a_sack_that_skips_once_dissects() -> None:
    header, trailer = FRAMER.sack(1, SackFields(3, False, 0, 7, 8, 0, 8, 1, 0, 2, 0, 0, wire.SKIP_ONCE, 5))
    packet = dissect(bytes(header) + trailer)
    assert (packet[layers()["SETH"]].m, packet[layers()["CC_STATE"]].rcv_cwnd_pen) == (1, 5)


def test_a_nack_dissects() -> None:
    header, trailer = FRAMER.nack(1, NackFields(wire.TRIMMED, 7, 8, 9))
    packet = dissect(bytes(header) + trailer)
    neth = packet[layers()["NETH"]]
    assert (neth.reason, neth.entropy, neth.nack_psn, neth.tx_timestamp) == (1, 7, 8, 9)
    assert packet[layers()["ICRC"]].value.to_bytes(4, "little") == trailer


@pytest.mark.parametrize(("imm", "last"), [(None, "RETH"), (9, "IMMDT")])
def test_a_trimmed_packet_dissects_into_headers_alone(imm: int | None, last: str) -> None:
    packet = dissect(wire.trimmed(data_packet(imm), wire.TRIMMED_LASTHOP))
    assert (packet.lastlayer().name, packet.tc >> 2, packet[layers()["RETH"]].dma_length) == (last, 16, 8)


@pytest.mark.parametrize("imm", [None, 9])
def test_scapy_builds_the_same_packet_as_the_fast_path(imm: int | None) -> None:
    made, raw = layers(), data_packet(imm)
    packet = made["IPV6"](src="fd00::a", dst="fd00::b", fl=2, hlim=64) / made["UDP"](sport=1, dport=4791, chksum=0, len=len(raw) - 40)
    packet.plen, packet.nh = len(raw) - 40, 17
    opcode = wire.WRITE_MIDDLE if imm is None else wire.WRITE_ONLY_IMM
    packet = packet / made["BTH"](opcode=opcode, destination_qp=0x22, ts=1, psn=5) / made["METH"](rqmsn=1, msn=2)
    packet = packet / made["TSETH"](tx_timestamp=3) / made["RETH"](va=4, rkey=6, dma_length=8)
    packet = packet / made["IMMDT"](imm=imm) if imm is not None else packet
    assert seal(packet / b"payload!") == raw


def test_every_data_packet_survives_dissection_and_rebuilding() -> None:
    raw = data_packet(9)
    assert bytes(dissect(raw)) == raw


@pytest.mark.parametrize("cut", range(48, 100, 3))
def test_a_cut_packet_does_not_break_the_dissection(cut: int) -> None:
    assert dissect(data_packet(9)[:cut]).name == "IPv6"


def test_a_packet_of_roce_rc_is_left_to_scapys_own_layer() -> None:
    from scapy.contrib import roce

    made = layers()
    packet = made["IPV6"](src="fd00::a", dst="fd00::b") / made["UDP"](sport=1, dport=4791) / roce.BTH(opcode=0x0A) / b"payload"
    assert dissect(bytes(packet))[roce.BTH].opcode == 0x0A


@pytest.mark.parametrize("name", wire_samples.MRC)
def test_every_opcode_dissects_into_its_chain_of_layers(name: str) -> None:
    raw = wire_samples.MRC[name]
    packet, made = dissect(raw), layers()
    expected = [header.name for header in wire.headers_of(raw[wire.BTH_OFFSET], "no timestamp" not in name)]
    assert all(packet.haslayer(made[layer]) for layer in ("UDP", "BTH", *expected, "ICRC"))
    absent = set(made) - {"IPV6", "UDP", "BTH", "ICRC", *expected}
    assert [layer for layer in absent if packet.haslayer(made[layer])] == []
    assert packet.haslayer("Raw") == wire.is_write(raw[wire.BTH_OFFSET])


@pytest.mark.parametrize("name", wire_samples.MRC)
def test_every_opcode_survives_dissection_and_rebuilding(name: str) -> None:
    assert bytes(dissect(wire_samples.MRC[name])) == wire_samples.MRC[name]


@pytest.mark.parametrize("name", wire_samples.TRIMMED)
def test_every_trimmed_packet_dissects_into_headers_alone(name: str) -> None:
    raw = wire_samples.TRIMMED[name]
    packet = dissect(raw)
    assert packet.lastlayer().name == wire.headers_of(raw[wire.BTH_OFFSET], "no timestamp" not in name)[-1].name


@pytest.mark.parametrize("name", wire_samples.RC)
def test_packets_of_rc_are_left_to_scapys_own_layer(name: str) -> None:
    from scapy.contrib import roce

    assert dissect(wire_samples.RC[name]).haslayer(roce.BTH)
