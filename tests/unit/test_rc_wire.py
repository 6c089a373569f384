"""RoCEv2 packets: our bytes against scapy's independent implementation."""

from __future__ import annotations

import pytest

from hosts.rc import wire

SOURCE, DESTINATION, SOURCE_PORT, QPN = "fd00::1", "fd00::2", 51000, 0xABCDE


def built(opcode: int, psn_word: int, extension: bytes, payload: bytes) -> bytes:
    header, trailer = wire.Flow(SOURCE, DESTINATION, SOURCE_PORT, QPN).build(opcode, psn_word, extension, payload)
    return header + payload + trailer


def scapy_packet(datagram: bytes):
    from scapy.contrib import roce
    from scapy.layers.inet import UDP
    from scapy.layers.inet6 import IPv6

    packet = IPv6(src=SOURCE, dst=DESTINATION) / UDP(sport=SOURCE_PORT, dport=wire.UDP_PORT) / datagram
    return roce, IPv6(bytes(packet))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 1024, 4096])
def test_icrc_equals_scapys(size: int):
    datagram = built(wire.WRITE_MIDDLE, 77 | wire.ACK_REQUEST, b"", bytes(index % 251 for index in range(size)))
    roce, packet = scapy_packet(datagram)
    bth = packet[roce.BTH]
    assert bth.compute_icrc(bytes(bth)) == datagram[-4:]


def test_fields_are_where_scapy_sees_them():
    roce, packet = scapy_packet(built(wire.WRITE_MIDDLE, 0x123456 | wire.ACK_REQUEST, b"", b"abc"))
    bth = packet[roce.BTH]
    assert (bth.opcode, bth.dqpn, bth.psn, bth.ackreq, bth.padcount, bth.pkey) == (0x07, QPN, 0x123456, 1, 1, 0xFFFF)


def test_acknowledgement_is_where_scapy_sees_it():
    roce, packet = scapy_packet(built(wire.ACK, 5, wire.AETH.pack(wire.NAK_PSN_SEQUENCE << 24 | 9), b""))
    assert (packet[roce.AETH].syndrome, packet[roce.AETH].msn) == (0x60, 9)


def test_cnp_is_what_scapy_builds():
    from scapy.contrib import roce

    header, trailer = wire.Flow(SOURCE, DESTINATION, SOURCE_PORT, QPN).build(wire.CNP, 0, wire.CNP_RESERVED, b"", wire.BECN)
    _, packet = scapy_packet(header + trailer)
    bth = packet[roce.BTH]
    assert (bth.opcode, bth.becn, bth.fecn, bth.dqpn) == (roce.CNP_OPCODE, 1, 0, QPN)
    assert bytes(packet[roce.CNPPadding])[:16] == bytes(16)
    assert bth.compute_icrc(bytes(bth)) == trailer


def test_parse_reads_what_build_wrote():
    bth = wire.parse_bth(memoryview(built(wire.WRITE_ONLY_IMM, 0xFFFFFF | wire.ACK_REQUEST, bytes(20), b"12345")))
    assert bth == (wire.WRITE_ONLY_IMM, 3, QPN, True, 0xFFFFFF)


def test_any_flipped_bit_after_the_masked_byte_breaks_the_icrc():
    datagram = bytearray(built(wire.WRITE_MIDDLE, 7, b"", bytes(range(64))))
    flow = wire.Flow(SOURCE, DESTINATION, SOURCE_PORT, QPN)
    assert flow.intact(memoryview(datagram))
    for byte in (0, 5, 11, 12, 40, len(datagram) - 1):
        datagram[byte] ^= 0x10
        assert not flow.intact(memoryview(datagram)), byte
        datagram[byte] ^= 0x10


@pytest.mark.parametrize("wrong", [("fd00::3", DESTINATION, SOURCE_PORT), (SOURCE, "fd00::3", SOURCE_PORT), (SOURCE, DESTINATION, 51001)])
def test_icrc_covers_addresses_and_ports(wrong: tuple[str, str, int]):
    assert not wire.Flow(*wrong, QPN).intact(memoryview(built(wire.WRITE_MIDDLE, 7, b"", b"data")))


def test_short_packet_is_refused():
    with pytest.raises(Exception, match="buffer of at least"):
        wire.parse_bth(memoryview(b"short"))
