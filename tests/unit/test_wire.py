"""The packet format: golden bytes, round trips, the ICRC, and that the fast path writes what the tables say."""

from __future__ import annotations

import ipaddress
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hosts import wire
from hosts.mrc.frames import CACHE_LIMIT, Framer, Inspector, Malformed, NackFields, SackFields, parse_nack, parse_sack
from hosts.wire import BTH, BTH_OFFSET, HEADERS, IMMDT, METH, NETH, PETH, RETH, SETH, TSETH, Header

A, B = ipaddress.IPv6Address("fd00::a").packed, ipaddress.IPv6Address("fd00::b").packed
FRAMER = Framer("fd00::a", "fd00::b", 0x11, 0x22, wire.UDP_PORT)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("IPV6", 40), ("UDP", 8), ("BTH", 12), ("METH", 4), ("TSETH", 4), ("RETH", 16), ("IMMDT", 4), ("AETH", 4), ("SETH", 28),
        ("CC_STATE", 8), ("NETH", 20), ("PETH", 16), ("ERTH", 16), ("EETH", 36),
    ],
)  # fmt: skip
def test_header_sizes_are_the_published_ones(name: str, size: int) -> None:
    assert HEADERS[name].size_bytes == size


@pytest.mark.parametrize(
    ("header", "values", "golden"),
    [
        (
            BTH,
            {"opcode": 0xC9, "pad": 2, "pkey": 0xFFFF, "destination_qp": 0x123456, "rtx": 1, "ts": 1, "psn": 0xABCDEF},
            "c920ffff0012345630abcdef",
        ),
        (BTH, {"opcode": 0xDC, "a": 1, "r": 1}, "dc00000000000000c0000000"),
        (METH, {"rqmsn": 1, "msn": 0x203}, "00010203"),
        (TSETH, {"tx_timestamp": 0x1234, "flag": 1, "type": 1}, "12348001"),
        (RETH, {"va": 0x1122334455667788, "rkey": 0x99AABBCC, "dma_length": 4096}, "112233445566778899aabbcc00001000"),
        (IMMDT, {"imm": 0xDEADBEEF}, "deadbeef"),
        (wire.AETH, {"syndrome": 0x1F, "msn": 5}, "1f000005"),
        (
            SETH,
            {
                "m": 2, "probe_reply": 1, "ack_psn_offset": -2, "entropy": 0x01020304, "source_id": 5, "destination_id": 6,
                "cack_psn": 0x070809, "cc_type": 1, "cc_flags": 2, "mpr": 8, "sack_offset": 1, "bitmap": 0x8000000000000001,
            },
            "0050fffe01020304000500060007080912080001" + "8000000000000001",
        ),
        (
            wire.CC_STATE,
            {"tx_timestamp": 0xFFFF, "ooo_count": 1, "restore_cwnd": 1, "rcv_cwnd_pen": 3, "rcvd_bytes": 0x010203},
            "ffff000306010203",
        ),
        (
            wire.NETH,
            {"reason": 1, "vendor": 2, "entropy": 3, "source_id": 4, "destination_id": 5, "nack_psn": 6, "cc_type": 7, "tx_timestamp": 8},
            "0102000000000003000400050000067000080000",
        ),
        (PETH, {"probe_id": 0x0102, "source_id": 3, "destination_id": 4, "tx_timestamp": 5}, "00000102000300040005000000000000"),
        (wire.ERTH, {"op": 1, "port_mask": 0xF, "tx_timestamp": 2}, "010000000000000f0002000000000000"),
    ],
)  # fmt: skip
def test_golden_bytes(header: Header, values: dict[str, int], golden: str) -> None:
    assert header.pack(**values).hex() == golden


@given(st.data())
def test_every_header_survives_a_round_trip(data: st.DataObject) -> None:
    header = data.draw(st.sampled_from(list(HEADERS.values())))
    values = {}
    for name, bits in header.fields:
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if name in header.signed else (0, (1 << bits) - 1)
        values[name] = data.draw(st.integers(low, high))
    assert header.unpack(header.pack(**values)) == values


@given(st.sampled_from(list(HEADERS.values())))
def test_the_derived_struct_has_the_size_of_the_table(header: Header) -> None:
    assert wire.fast(header).size == header.size_bytes


def test_a_value_too_large_is_refused() -> None:
    with pytest.raises(OverflowError, match=r"BTH\.psn has 24 bits"):
        BTH.pack(psn=1 << 24)


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(KeyError, match="pns"):
        BTH.pack(pns=1)


def test_too_few_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="BTH needs 12 B"):
        BTH.unpack(bytes(11))


@given(st.integers(0, (1 << 32) - 1))
def test_the_entropy_is_striped_over_source_port_and_flow_label(entropy: int) -> None:
    head = wire.addresses(A, B, entropy, 16)
    ip, udp = wire.IPV6.unpack(head), wire.UDP.unpack(head, 40)
    assert udp["source_port"] == entropy & 0xFFFF
    assert wire.entropy_of(udp["source_port"], ip["flow_label"]) == entropy


@given(st.integers(0, 1 << 40), st.integers(-(1 << 22), 1 << 22))
def test_unwrapping_finds_the_nearest_psn(near: int, step: int) -> None:
    assert wire.unwrap((near + step) & wire.PSN_MASK, near) == near + step


# ICRC


def test_icrc_is_the_masked_crc_low_byte_first() -> None:
    packet = wire.build(wire.addresses(A, B, 7, 12 + 16 + 4), {"opcode": wire.PROBE, "destination_qp": 1}, [(PETH, {"probe_id": 1})])
    masked = bytearray(b"\xff" * 8 + packet[:-4])
    masked[8:12], masked[15], masked[54:56], masked[60] = b"\x6f\xff\xff\xff", 0xFF, b"\xff\xff", 0xFF
    assert packet[-4:] == zlib.crc32(masked).to_bytes(4, "little")


@pytest.mark.parametrize(("offset", "bits"), [(0, 0x0F), (1, 0xFF), (2, 0xFF), (3, 0xFF), (7, 0xFF), (46, 0xFF), (47, 0xFF), (52, 0xFF)])
def test_what_the_network_may_change_is_not_in_the_icrc(offset: int, bits: int) -> None:
    packet = bytearray(wire.addresses(A, B, 7, 16) + bytes(12))
    before = wire.icrc(packet)
    packet[offset] ^= bits
    assert wire.icrc(packet) == before


@pytest.mark.parametrize("offset", [0, 4, 6, 8, 24, 40, 42, 44, 48, 49, 53, 56, 59])
def test_everything_else_is_in_the_icrc(offset: int) -> None:
    packet = bytearray(wire.addresses(A, B, 7, 16) + bytes(12))
    before = wire.icrc(packet)
    packet[offset] ^= 0x10
    assert wire.icrc(packet) != before


# The fast path against the tables


@given(st.binary(max_size=70), st.one_of(st.none(), st.integers(0, 0xFFFFFFFF)), st.integers(0, 0xFFFFFFFF))
def test_fast_data_packets_equal_the_tables(payload: bytes, imm: int | None, entropy: int) -> None:
    opcode = wire.WRITE_MIDDLE if imm is None else wire.WRITE_LAST_IMM
    framer = Framer("fd00::a", "fd00::b", 0x111111, 0x222222, wire.UDP_PORT)
    header, trailer = framer.data(entropy, opcode, wire.TS_BIT | wire.RTX_BIT | 0x123456, (7, 8), 9, 1 << 40, 10, memoryview(payload), imm)
    extensions = [
        (METH, {"rqmsn": 7, "msn": 8}), (TSETH, {"tx_timestamp": 9, "type": 1}),
        (RETH, {"va": 1 << 40, "rkey": 10, "dma_length": len(payload)}), *([(IMMDT, {"imm": imm})] if imm is not None else []),
    ]  # fmt: skip
    content = 12 + sum(h.size_bytes for h, _ in extensions) + len(payload) + -len(payload) % 4 + 4
    bth = {"opcode": opcode, "destination_qp": 0x222222, "ts": 1, "rtx": 1, "psn": 0x123456}
    assert bytes(header) + payload + trailer == wire.build(wire.addresses(A, B, entropy, content), bth, extensions, payload)


SAY = SackFields(3, False, -5, 0x10002, 0xFFFFFF, wire.HELD, 8, -1, 1 << 63 | 5, 0x1234, 17, 99)


def test_fast_sacks_equal_the_tables() -> None:
    header, trailer = FRAMER.sack(4, SAY)
    seth = {
        "ack_psn_offset": -5, "entropy": 0x10002, "source_id": 0x11, "destination_id": 0x22, "cack_psn": 0xFFFFFF, "cc_flags": 1, "mpr": 8,
        "sack_offset": -1, "bitmap": 1 << 63 | 5,
    }  # fmt: skip
    state = {"tx_timestamp": 0x1234, "ooo_count": 17, "rcvd_bytes": 99}
    bth = {"opcode": wire.SACK, "destination_qp": 0x22, "psn": 3}
    expected = wire.build(wire.addresses(A, B, 4, 12 + 36 + 4), bth, [(SETH, seth), (wire.CC_STATE, state)])
    assert bytes(header) + trailer == expected


@pytest.mark.parametrize("probe_reply", [False, True])
def test_a_sack_is_read_as_it_was_said(probe_reply: bool) -> None:
    say = SAY._replace(probe_reply=probe_reply)
    header, trailer = FRAMER.sack(4, say)
    assert parse_sack(memoryview(bytes(header) + trailer)) == say


def test_a_skip_and_a_penalty_are_read_as_they_were_said() -> None:
    say = SAY._replace(skip=wire.ALWAYS_SKIP, penalty=127)
    header, trailer = FRAMER.sack(4, say)
    assert parse_sack(memoryview(bytes(header) + trailer)) == say


@given(st.integers(0, 0xFF))
def test_the_ports_that_are_down_are_read_as_they_were_said(down_ports: int) -> None:
    say = SAY._replace(down_ports=down_ports)
    header, trailer = FRAMER.sack(4, say)
    packet = bytes(header) + trailer
    assert parse_sack(memoryview(packet)) == say
    assert SETH.unpack(packet, BTH_OFFSET + BTH.size_bytes)["down_ports"] == down_ports


def test_golden_bytes_of_a_sack_that_skips_once_with_a_penalty() -> None:
    header, _trailer = FRAMER.sack(4, SAY._replace(skip=wire.SKIP_ONCE, penalty=3))
    assert (
        bytes(header[BTH_OFFSET:]).hex()
        == (
            "dc00ffff" + "00000022" + "00000003"  # BTH
            "0020fffb" + "00010002" + "00110022" + "00ffffff" + "0108ffff" + "8000000000000005"  # SETH: m = 01
            "1234" + "0022" + "0600" + "0063"  # CC_STATE: penalty 3 in the 7 bits from bit 31 down
        )
    )


NACK = NackFields(wire.TRIMMED_LASTHOP, 0x10002, 0xABCDEF, 0x1234)


def test_fast_nacks_equal_the_tables() -> None:
    header, trailer = FRAMER.nack(4, NACK)
    neth = {
        "reason": 2, "entropy": 0x10002, "source_id": 0x11, "destination_id": 0x22, "nack_psn": 0xABCDEF, "tx_timestamp": 0x1234,
    }  # fmt: skip
    expected = wire.build(wire.addresses(A, B, 4, 12 + 20 + 4), {"opcode": wire.NACK, "destination_qp": 0x22}, [(NETH, neth)])
    assert bytes(header) + trailer == expected
    assert parse_nack(memoryview(bytes(header) + trailer)) == NACK


def test_golden_bytes_of_a_nack() -> None:
    header, _trailer = FRAMER.nack(4, NACK)
    assert (
        bytes(header[BTH_OFFSET:]).hex()
        == (
            "dd00ffff" + "00000022" + "00000000"  # BTH
            "02000000" + "00010002" + "00110022" + "abcdef00" + "12340000"  # NETH
        )
    )


def test_fast_probes_equal_the_tables() -> None:
    header, trailer = FRAMER.probe(4, 77, 5)
    peth = {"probe_id": 77, "source_id": 0x11, "destination_id": 0x22, "tx_timestamp": 5}
    expected = wire.build(wire.addresses(A, B, 4, 12 + 16 + 4), {"opcode": wire.PROBE, "destination_qp": 0x22}, [(PETH, peth)])
    assert bytes(header) + trailer == expected


# Inspection of received packets


def probe(udp_port: int = wire.UDP_PORT) -> bytearray:
    header, trailer = Framer("fd00::a", "fd00::b", 1, 2, udp_port).probe(0x30004, 77, 5)
    return header + trailer


@pytest.mark.parametrize("udp_port", sorted(wire.UDP_PORTS))
def test_both_udp_ports_are_accepted(udp_port: int) -> None:
    assert Inspector("fd00::b").inspect(memoryview(probe(udp_port))).entropy == 0x30004


def with_byte(offset: int, value: int) -> bytearray:
    packet = probe()
    packet[offset] = value
    return packet


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (b"", "truncated"), (probe()[:47], "truncated"), (probe()[:-1], "truncated"), (probe() + b"x", "overlong"),
        (with_byte(60, 1), "icrc"), (with_byte(79, 1), "icrc"), (with_byte(6, 6), "not_mrc"), (with_byte(0, 0x40), "not_mrc"),
        (with_byte(42, 1), "not_mrc"), (with_byte(39, 0x0C), "wrong_address"), (with_byte(5, 9), "bad_length"),
        (with_byte(45, 9), "bad_length"),
    ],
)  # fmt: skip
def test_unsound_packets_are_refused_with_a_reason(packet: bytearray, reason: str) -> None:
    with pytest.raises(Malformed) as refused:
        Inspector("fd00::b").inspect(memoryview(packet))
    assert refused.value.reason == reason


def test_the_memory_of_heads_is_bounded() -> None:
    inspector = Inspector("fd00::b")
    framer = Framer("fd00::a", "fd00::b", 1, 2, wire.UDP_PORT)
    for entropy in range(CACHE_LIMIT + 100):
        header, trailer = framer.probe(entropy, 1, 1)
        inspector.inspect(memoryview(header + trailer))
    assert len(inspector._known) <= CACHE_LIMIT
    assert len(framer._heads) <= CACHE_LIMIT


@pytest.mark.parametrize("opcode", sorted(wire.OPCODES))
def test_each_opcode_is_an_mrc_opcode_with_known_headers(opcode: int) -> None:
    assert opcode >> 5 == 0b110
    assert wire.headers_of(opcode, True)


def test_an_unknown_opcode_has_no_headers() -> None:
    with pytest.raises(ValueError, match="0x04"):
        wire.headers_of(4, False)


def test_the_timestamp_counts_units_of_128_ns() -> None:
    assert wire.timestamp(1.0 + 128e-9 * 1000.5) - wire.timestamp(1.0) == 1000


def test_bth_starts_after_the_addresses() -> None:
    assert BTH_OFFSET == len(wire.addresses(A, B, 0, 0)) == 48


# What switches do


def data(imm: int | None = 9) -> bytes:
    payload = bytes(64)
    opcode = wire.WRITE_MIDDLE if imm is None else wire.WRITE_ONLY_IMM
    header, trailer = FRAMER.data(7, opcode, wire.TS_BIT | 5, (1, 2), 3, 4, 6, memoryview(payload), imm)
    return bytes(header) + payload + trailer


@pytest.mark.parametrize(("imm", "size"), [(None, 84), (9, 88)])
@pytest.mark.parametrize(("reason", "dscp"), [(wire.TRIMMED, 12), (wire.TRIMMED_LASTHOP, 16)])
def test_a_trimmed_packet_ends_behind_its_headers(imm: int | None, size: int, reason: int, dscp: int) -> None:
    cut = wire.trimmed(data(imm), reason)
    ip, udp = wire.IPV6.unpack(cut), wire.UDP.unpack(cut, 40)
    assert (len(cut), ip["payload_length"], udp["length"], ip["traffic_class"]) == (size, size - 40, size - 40, dscp << 2)


def test_trimming_keeps_the_mark() -> None:
    assert wire.IPV6.unpack(wire.trimmed(wire.marked(data())))["traffic_class"] == 12 << 2 | wire.CE


def test_a_marked_packet_is_sound_and_known_as_marked() -> None:
    inspector = Inspector("fd00::b")
    assert not inspector.inspect(memoryview(data())).marked
    assert inspector.inspect(memoryview(wire.marked(data()))).marked


@pytest.mark.parametrize("ecn", [0, 1, 2])
def test_only_ce_is_a_mark(ecn: int) -> None:
    packet = bytearray(data())
    packet[1] = ecn << 4
    assert not Inspector("fd00::b").inspect(memoryview(packet)).marked


@pytest.mark.parametrize("reason", [wire.TRIMMED, wire.TRIMMED_LASTHOP])
def test_a_trimmed_packet_needs_no_icrc(reason: int) -> None:
    head = Inspector("fd00::b").inspect(memoryview(wire.trimmed(data(), reason)))
    assert (head.trimmed, head.length_bytes, head.qp) == (reason, 88, 0x22)
