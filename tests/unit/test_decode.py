"""The decoder: what it says of sound packets, what it finds wrong in others, and that no bytes make it raise."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
import wire_samples
from fuzzing import mutated, seeded, times
from hypothesis import given
from hypothesis import strategies as st
from wire_samples import FRAMES, MRC, RC, TRIMMED, classed, ethernet, framed

from hosts import wire
from hosts.decode import KINDS, LINK_TYPES, REASONS, Packet, as_dict, decode, sentence
from hosts.decode.network import MOST_HEADERS
from hosts.decode.walk import MOST_LAYERS

INNER_AT = 14 + wire.IPV6.size_bytes
BTH_AT = INNER_AT + wire.BTH_OFFSET
NAMES = {wire_samples.SOURCE: "h1", wire_samples.TARGET: "h2", "fcbb:bb00:101::": "t0_1_1", "fcbb:bb00:2::": "h2"}


def reasons(packet: Packet) -> list[str]:
    return [problem.reason for problem in packet.problems]


@pytest.mark.parametrize("name", FRAMES)
def test_a_sound_packet_has_no_problem(name: str) -> None:
    assert decode(FRAMES[name]).problems == []


@pytest.mark.parametrize("name", FRAMES)
def test_the_layers_cover_all_but_the_payload(name: str) -> None:
    packet = decode(FRAMES[name])
    sizes = {"ETHERNET": 14, "ICRC": 4, **{header.name: header.size_bytes for header in wire.HEADERS.values()}}
    pad = int(packet.layer("BTH")["pad"]) if packet.kind != "trimmed" else 0
    assert sum(sizes[layer.name] for layer in packet.layers) + packet.payload_bytes + pad == len(FRAMES[name])


@pytest.mark.parametrize("name", [*MRC, *RC])
def test_the_icrc_is_told_with_the_expected_one(name: str) -> None:
    icrc = decode(FRAMES[name]).layer("ICRC")
    assert icrc["value"] == icrc["expected"] == FRAMES[name][-4:].hex()


@pytest.mark.parametrize("name", TRIMMED)
def test_a_trimmed_packet_decodes_as_such_and_has_no_icrc(name: str) -> None:
    packet = decode(FRAMES[name])
    assert (packet.kind, packet.layer("ICRC")) == ("trimmed", {})
    assert f"{name.rpartition(', ')[2]}: 7 B cut off" in packet.says


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Write Middle", "Write Middle PSN 258 MSN 5, 7 B to 0x10000, ts 596.5 us"),
        ("a retransmission", "Write Middle PSN 258 MSN 5, 7 B to 0x10000, RTX, ts 596.5 us"),
        ("Write Only with Immediate, no timestamp", "Write Only with Immediate PSN 258 MSN 5, 7 B to 0x10000, immediate 0xdeadbeef"),
        ("ACK", "ACK of all up to PSN 258, MSN 5"),
        ("NACK PSN_OOR_WINDOW", "NACK PSN_OOR_WINDOW of PSN 258 on EV 131073, ts 596.5 us"),
        ("Probe", "Probe 77 asks, ts 596.5 us"),
        (
            "Probe reply",
            "Probe reply to 77 (SACK 7), all up to PSN 255 and 257, 259, window 1024, 25344 B received, penalty 3, ts 596.5 us",
        ),
        (
            "SACK m=1",
            "SACK 7 for PSN 259 of EV 131073, all up to PSN 255 and 257, 259, SKIP_ONCE, window 1024, "
            "25344 B received, penalty 3, ts 596.5 us",
        ),
        (
            "SACK, ports down",
            "SACK 7 for PSN 259 of EV 131073, all up to PSN 255 and 257, 259, held back, NACKed data is still missing, window 1024, "
            "25344 B received, penalty 3, port 1 down, ts 596.5 us",
        ),
        ("Endpoint Request PORT_STATUS_UPDATE", "Endpoint Request 0 PORT_STATUS_UPDATE: port 0 2 can be reached, ts 596.5 us"),
        ("Endpoint Response EV_PROBE", "Endpoint Response 0 EV_PROBE along EV 131073: port 0 2 can be reached, ts 596.5 us"),
        ("RC Write First", "RC Write First PSN 5, 8 B, of 3000 to 0x10000"),
        ("RC NAK", "RC NAK: PSN sequence error PSN 6, MSN 3"),
        ("RC CNP", "RC CNP to QP 0x22: its packets met congestion"),
    ],
)
def test_what_a_packet_says(name: str, says: str) -> None:
    assert decode(FRAMES[name]).says == says


def test_the_whole_sentence_with_names() -> None:
    assert sentence(decode(FRAMES["Probe"]), NAMES) == (
        "h1 > h2  3 left: t0_1_1 201 h2  EV 131073  Probe 77 asks, ts 596.5 us  CONTROL Not-ECT"
    )


def test_the_usids_of_a_packet_on_its_last_hop() -> None:
    assert decode(framed(MRC["Probe"], usids=(2,))).usids == (2,)


def test_a_mark_is_told() -> None:
    assert decode(framed(wire.marked(MRC["Write Middle"]))).traffic_class == "TRIMMABLE CE"


def with_class(name: str, inner: int, outer: int) -> str:
    """What is told of a packet with these traffic classes."""
    return decode(framed(classed(MRC[name], inner), traffic_class=outer)).traffic_class


@pytest.mark.parametrize(
    ("inner", "outer", "told"),
    [
        (0, 4 << 2 | wire.ECT0, "TRIMMABLE ECT(0)"),
        (12 << 2, 12 << 2 | wire.ECT0, "TRIMMED ECT(0)"),
        (wire.CE, 4 << 2 | wire.CE, "TRIMMABLE CE"),
        (4 << 2, 0, "NO_TRIM Not-ECT (inner: TRIMMABLE Not-ECT)"),
        (0, 4 << 2 | wire.CE, "TRIMMABLE CE (inner: NO_TRIM Not-ECT)"),
        (wire.CE, 4 << 2 | wire.ECT0, "TRIMMABLE ECT(0) (inner: NO_TRIM CE)"),
        (63 << 2, 46 << 2, "CONTROL Not-ECT (inner: DSCP 63 Not-ECT)"),
    ],
)
def test_of_the_inner_class_is_told_what_differs(inner: int, outer: int, told: str) -> None:
    assert with_class("Write Middle", inner, outer) == told


@pytest.mark.parametrize(
    ("mask", "says"), [((1 << 32) - 1, "all ports"), ((1 << 32) - 3, "all ports but 1"), (1, "port 0"), (0, "no port")]
)
def test_which_ports_an_endpoint_can_be_reached_at(mask: int, says: str) -> None:
    packet = wire_samples.inner(wire.ENDPOINT_REQUEST, [(wire.ERTH, {"port_mask": mask})], qp=wire.ENDPOINT_QPN, psn=9)
    assert decode(framed(packet)).says == f"Endpoint Request 9 PORT_STATUS_UPDATE: {says} can be reached, ts 0.0 us"


def test_long_bitmaps_are_told_in_ranges_and_cut_short() -> None:
    packet = decode(framed(wire_samples.sack(bitmap=int("10" * 8 + "1110", 2))))
    assert "all up to PSN 255 and 257-259, 261, 263, 265, 267, 269, more, window" in packet.says


@pytest.mark.parametrize("port", sorted(wire.UDP_PORTS))
def test_both_udp_ports_are_mrc(port: int) -> None:
    inner = bytearray(MRC["Probe"][:-4])
    inner[42:44] = port.to_bytes(2, "big")
    packet = decode(framed(bytes(inner) + wire.icrc(inner)))
    assert (packet.kind, packet.problems) == ("probe", [])


# What is wrong


def resealed(name: str, offset: int, value: int) -> bytes:
    """A frame with one byte of the inner packet changed, and its ICRC right again."""
    inner = bytearray(MRC[name][:-4])
    inner[offset] = value
    return framed(bytes(inner) + wire.icrc(inner))


def overlaid(frame: bytes, changes: Mapping[int, int]) -> bytes:
    changed = bytearray(frame)
    for offset, value in changes.items():
        changed[offset] = value
    return bytes(changed)


def unpadded() -> bytes:
    """A Write of seven bytes that ends without its byte of padding, sealed."""
    inner = bytearray(MRC["Write Middle"][:-5])
    inner[BTH + 1] = 0
    for offset in (4, 44):
        inner[offset : offset + 2] = (len(inner) + 4 - 40).to_bytes(2, "big")
    return bytes(inner) + wire.icrc(inner)


BTH = wire.BTH_OFFSET
NETH = SETH = ERTH = METH = BTH + 12
TSETH = METH + 4


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (overlaid(FRAMES["Write Middle"], {BTH_AT + 40: 0xAA}), "icrc"),
        (FRAMES["Write Middle"][:-1], "truncated"),
        (FRAMES["SACK m=0"][: BTH_AT + 20], "truncated"),
        (FRAMES["Probe"][:20], "truncated"),
        (FRAMES["Probe"] + b"12345678", "overlong"),
        (resealed("Probe", BTH, 0xDF), "unknown_opcode"),
        (resealed("Probe", BTH, 0x64), "unknown_opcode"),
        (resealed("Probe", BTH + 1, 1), "bad_version"),
        (resealed("Probe", BTH + 8, 1), "reserved_bits"),
        (resealed("SACK m=0", SETH + 1, 0x60), "unknown_m"),
        (resealed("NACK TRIMMED", NETH, 0x42), "unknown_nack_reason"),
        (resealed("NACK TRIMMED", NETH + 2, 1), "reserved_bits"),
        (resealed("Endpoint Request EV_PROBE", ERTH, 9), "unknown_endpoint_op"),
        (resealed("Endpoint Request EV_PROBE", BTH + 7, 9), "wrong_qp"),
        (resealed("Write Middle", TSETH + 3, 2), "unknown_type"),
        (resealed("Write Middle", TSETH + 4 + 15, 6), "dma_length"),
        (framed(unpadded()), "bad_pad"),
        (resealed("Write Middle", 45, 99), "bad_length"),
        (overlaid(FRAMES["Probe"], {14: 0x40}), "bad_version"),
        (framed(MRC["Probe"] + b"1234"), "overlong"),
        (ethernet(wire.IPV6.pack(version=6, next_header=41) * 9), "overlong"),
        (ethernet(wire_samples.rc_cnp(flags=0)), "no_becn"),
        (ethernet(wire_samples.rc_cnp(more=b"more")), "overlong"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(frame: bytes, reason: str) -> None:
    assert reason in reasons(decode(frame))


def test_a_wrong_icrc_is_told_with_both_values() -> None:
    frame = overlaid(FRAMES["Probe"], {len(FRAMES["Probe"]) - 1: 0})
    (problem,) = decode(frame).problems
    assert problem.text == f"the ICRC is {frame[-4:].hex()}, but {FRAMES['Probe'][-4:].hex()} is expected"


def test_a_trimmed_packet_with_a_payload_left_is_no_sound_one() -> None:
    inner = classed(MRC["Write Middle"], wire.TRIMMED_DSCPS[wire.TRIMMED] << 2)
    assert reasons(decode(framed(inner))) == ["trimmed_payload"]


def test_only_data_can_be_trimmed() -> None:
    packet = decode(framed(classed(MRC["Probe"], wire.TRIMMED_DSCPS[wire.TRIMMED] << 2)))
    assert (packet.kind, reasons(packet)) == ("probe", ["not_trimmable"])


def test_data_behind_a_packet_that_carries_none_is_found() -> None:
    packet = wire_samples.inner(wire.PROBE, [(wire.PETH, {})], payload=bytes(8))
    assert reasons(decode(framed(packet))) == ["overlong"]


def test_more_headers_inside_each_other_than_make_sense_end_the_walk() -> None:
    packet = b""
    for _ in range(MOST_HEADERS + 1):
        packet = wire.IPV6.pack(version=6, next_header=41, payload_length=len(packet)) + packet
    assert reasons(decode(ethernet(packet))) == ["nested"]


def test_one_truncation_is_told_once() -> None:
    assert reasons(decode(FRAMES["Write Middle"][:-1])) == ["truncated"]


# Captures that keep too little


@pytest.mark.parametrize("name", ["Write Middle", "SACK m=0", "RC Write First"])
def test_what_the_capture_cut_is_no_problem_of_the_packet(name: str) -> None:
    frame = FRAMES[name]
    for kept in range(len(frame)):
        packet = decode(frame[:kept], original_bytes=len(frame))
        assert (packet.cut, packet.problems) == (True, []), kept


def test_a_packet_that_is_cut_by_the_capture_is_marked_in_its_sentence() -> None:
    frame = FRAMES["Write Middle"]
    assert sentence(decode(frame[:140], original_bytes=len(frame)), NAMES).endswith(f"[140 of {len(frame)} B captured]")


def test_a_truncated_packet_is_truncated_in_a_capture_that_cut_it_too() -> None:
    packet = decode(FRAMES["Write Middle"][:100], original_bytes=120)
    assert (packet.cut, reasons(packet)) == (True, ["truncated"])


# What else is in the fabric


def ip(next_header: int, content: bytes) -> bytes:
    return ethernet(wire.IPV6.pack(version=6, next_header=next_header, payload_length=len(content), hop_limit=1) + content)


def tcp(port: int, flags: int, content: bytes = b"") -> bytes:
    return port.to_bytes(2, "big") + bytes.fromhex("00b3") + bytes(8) + bytes([0x50, flags]) + bytes(6) + content


UPDATE = b"\xff" * 16 + (23).to_bytes(2, "big") + b"\x02" + bytes(4)
SRH = bytes([17, 0, 4, 0]) + bytes(4)


@pytest.mark.parametrize(
    ("frame", "kind", "says"),
    [
        (ip(6, tcp(40000, 0x18, UPDATE)), "bgp", "BGP UPDATE"),
        (ip(6, tcp(40000, 0x02)), "bgp", "BGP's TCP 40000 > 179 SYN 0 B"),
        (ip(17, bytes.fromhex("c0000ec8000c0000") + bytes([0x20, 0xC0, 3, 24])), "bfd", "BFD Up"),
        (ip(58, bytes([135, 0, 0, 0]) + bytes(20)), "nd", "Neighbour Solicitation"),
        (ip(58, bytes([3, 0, 0, 0]) + bytes(20)), "icmpv6", "Time Exceeded"),
        (ip(17, bytes.fromhex("0035003500080000")), "udp", "UDP 53 > 53"),
        (ip(43, SRH + bytes.fromhex("0035003500080000")), "udp", "UDP 53 > 53"),
        (ip(44, bytes(8)), "other", "a fragment"),
        (ip(59, b""), "other", "next header 59"),
        (ethernet(bytes(40), 0x0800), "ipv4", "IPv4"),
        (ethernet(bytes(40), 0x0806), "arp", "ARP"),
        (ethernet(bytes(40), 0x88B5), "other", "a frame that measures a link's rate"),
        (ethernet(bytes(40), 0x1234), "other", "EtherType 0x1234"),
    ],
)
def test_what_is_neither_mrc_nor_rc_is_named(frame: bytes, kind: str, says: str) -> None:
    packet = decode(frame)
    assert (packet.kind, packet.says, packet.problems) == (kind, says, [])


def test_a_vlan_tag_is_stepped_over() -> None:
    frame = FRAMES["Probe"]
    assert decode(frame[:12] + bytes.fromhex("81000001") + frame[12:]).kind == "probe"


@pytest.mark.parametrize(
    ("link_type", "before"),
    [(101, b""), (229, b""), (113, bytes(14) + b"\x86\xdd"), (276, b"\x86\xdd" + bytes(18))],
)
def test_other_link_types_lead_to_the_same_packet(link_type: int, before: bytes) -> None:
    assert decode(before + FRAMES["Probe"][14:], link_type=link_type).kind == "probe"


@pytest.mark.parametrize("frame", [ethernet(bytes.fromhex("00018100") * 50_000, 0x8100), ip(0, bytes(60_000))], ids=["VLAN", "extensions"])
def test_a_packet_of_nothing_but_headers_is_no_longer_explained_than_any_other(frame: bytes) -> None:
    packet = decode(frame)
    assert reasons(packet) == ["nested"]
    assert len(packet.layers) == MOST_LAYERS


def test_a_padded_short_frame_is_no_problem() -> None:
    assert decode(ip(58, bytes([135, 0, 0, 0])) + bytes(2)).problems == []


def test_a_link_type_that_is_not_known_is_named() -> None:
    assert (decode(b"abc", link_type=7).kind, decode(b"abc", link_type=7).says) == ("other", "link type 7")


# Whatever comes


@given(st.binary(max_size=200), st.sampled_from([*LINK_TYPES, 7]), st.integers(0, 300))
def test_no_bytes_make_it_raise(frame: bytes, link_type: int, more: int) -> None:
    whole(decode(frame, len(frame) + more, link_type))


@given(st.sampled_from(sorted(FRAMES)), st.data())
def test_no_cut_and_no_change_makes_it_raise(name: str, data: st.DataObject) -> None:
    frame = bytearray(FRAMES[name])
    for offset in data.draw(st.lists(st.integers(0, len(frame) - 1), max_size=8)):
        frame[offset] = data.draw(st.integers(0, 255))
    whole(decode(frame[: data.draw(st.integers(0, len(frame)))], len(frame)))


def whole(packet: Packet) -> None:
    """Whatever it was, it is explained and can be written down."""
    assert packet.kind in KINDS
    assert set(reasons(packet)) <= set(REASONS)
    told = json.loads(json.dumps(as_dict(packet, NAMES)))
    assert told["summary"] == sentence(packet, NAMES)
    assert "\n" not in told["summary"]


MUTATIONS = 300_000  # about a minute here


def test_a_fuzzer_finds_no_bytes_that_make_it_raise() -> None:
    draw, frames = seeded("decoder"), list(FRAMES.values())
    found: set[str] = set()
    for number in range(times(MUTATIONS)):
        frame = mutated(draw.choice(frames), frames, draw)
        packet = decode(frame, len(frame) + draw.choice((0, 0, 0, 7, 4000)))
        assert packet.kind in KINDS, number
        assert sentence(packet, NAMES), number
        found.update(reasons(packet))
    assert found | {"nested"} == set(REASONS)
