"""BTH and what follows it: MRC's packets, and those of RoCE RC, each with its ICRC checked and its headers read for contradictions."""

from __future__ import annotations

from collections.abc import Mapping

from hosts import wire
from hosts.decode import words
from hosts.decode.walk import Layer, Walk
from hosts.rc import wire as rc
from hosts.wire import Header

RC_HEADERS: Mapping[int, tuple[Header, ...]] = {
    opcode: (*((wire.RETH,) if opcode in rc.STARTS else ()), *((wire.IMMDT,) if opcode in rc.WITH_IMM else ())) for opcode in rc.WRITES
} | {rc.ACK: (wire.AETH,), rc.CNP: (wire.CNPH,)}
RC_KINDS: Mapping[int, str] = {rc.ACK: "rc-ack", rc.CNP: "rc-cnp"}
MRC_KINDS: Mapping[int, str] = {
    wire.ACK: "ack", wire.SACK: "sack", wire.NACK: "nack", wire.PROBE: "probe", wire.ENDPOINT_REQUEST: "endpoint",
    wire.ENDPOINT_RESPONSE: "endpoint",
}  # fmt: skip
# Header, field, the values that mean something, the reason to count by.
KNOWN_VALUES: tuple[tuple[Header, str, frozenset[int], str], ...] = (
    (wire.TSETH, "type", frozenset({wire.TSETH_TYPE}), "unknown_type"),
    (wire.SETH, "m", frozenset({wire.SKIP_NONE, wire.SKIP_ONCE, wire.ALWAYS_SKIP}), "unknown_m"),
    (wire.NETH, "reason", frozenset(wire.NACK_REASONS), "unknown_nack_reason"),
    (wire.ERTH, "op", frozenset(wire.ENDPOINT_OPS), "unknown_endpoint_op"),
    (wire.EETH, "op", frozenset(wire.ENDPOINT_OPS), "unknown_endpoint_op"),
)


def roce(walk: Walk, ip_at: int, ip: Mapping[str, int], udp: Mapping[str, int]) -> None:
    """The content of a UDP packet to one of RoCEv2's ports; `ip_at`: where its IPv6 header starts."""
    whole_at = ip_at if walk.at == ip_at + wire.BTH_OFFSET else None  # the ICRC's rule knows no extension headers
    walk.packet.kind, walk.packet.says = "roce", "RoCEv2"
    bth = walk.take(wire.BTH)
    if bth["version"]:
        walk.problem("bad_version", f"BTH's version is {bth['version']}")
    if bth["opcode"] >> 5 == wire.MRC_OPCODES:
        walk.packet.entropy = wire.entropy_of(udp["source_port"], ip["flow_label"])
        _mrc(walk, bth, wire.TRIM_REASONS.get(ip["traffic_class"] >> 2, 0), whole_at)
    else:
        _rc(walk, bth, whole_at)


def _mrc(walk: Walk, bth: Mapping[str, int], trimmed: int, whole_at: int | None) -> None:
    """`trimmed`: the reason that the DSCP names, or 0."""
    opcode, packet = bth["opcode"], walk.packet
    packet.says = words.head(bth)
    try:
        headers = wire.headers_of(opcode, bool(bth["ts"]))
    except ValueError:
        _unknown(walk, opcode, whole_at)
        return
    is_write = wire.is_write(opcode)
    packet.kind = MRC_KINDS.get(opcode, "trimmed" if trimmed else "data")
    said = {header.name: _checked(walk, header) for header in headers}
    if opcode == wire.SACK and said["SETH"]["probe_reply"]:
        packet.kind = "probe-reply"
    if trimmed and not is_write:
        walk.problem("not_trimmable", f"its DSCP says that it was trimmed, but a {wire.OPCODES[opcode]} has no data to cut off")
    _check_endpoint(walk, bth)
    if trimmed and is_write:
        packet.says = words.mrc(bth, said, wire.NACK_REASONS[trimmed])
        _check_trimmed(walk)
        return
    _end(walk, bth["pad"], whole_at)
    packet.says = words.mrc(bth, said, payload_bytes=packet.payload_bytes)
    if is_write:
        _check_data(walk, said["RETH"]["dma_length"])
    elif packet.payload_bytes:
        walk.problem("overlong", f"{packet.payload_bytes} B lie behind the headers of a {wire.OPCODES[opcode]}, which carries no data")


def _rc(walk: Walk, bth: Mapping[str, int], whole_at: int | None) -> None:
    opcode, packet = bth["opcode"], walk.packet
    packet.says = words.head(bth)
    if opcode not in RC_HEADERS:
        _unknown(walk, opcode, whole_at)
        return
    packet.kind = RC_KINDS.get(opcode, "rc-data")
    said = {header.name: _checked(walk, header) for header in RC_HEADERS[opcode]}
    _end(walk, bth["pad"], whole_at)
    packet.says = words.rc_packet(bth, said, packet.payload_bytes)
    if opcode == rc.CNP and packet.payload_bytes:
        walk.problem("overlong", f"{packet.payload_bytes} B lie behind the headers of a CNP, which carries no data")
    if opcode == rc.CNP and not bth["resv8a"] << 24 & rc.BECN:
        walk.problem("no_becn", "a CNP's BECN bit is not set")


def _unknown(walk: Walk, opcode: int, whole_at: int | None) -> None:
    """All that can still be said is whether it arrived as it was sent."""
    walk.problem("unknown_opcode", f"opcode {opcode:#04x} is neither one of MRC's nor of the RC Writes, ACKs and CNPs here")
    _end(walk, 0, whole_at)


def _checked(walk: Walk, header: Header) -> dict[str, int]:
    values = walk.take(header)
    for table, field, known, reason in KNOWN_VALUES:
        if table is header and values[field] not in known:
            walk.problem(reason, f"{header.name}.{field} is {values[field]:#x}, which has no meaning")
    return values


def _check_endpoint(walk: Walk, bth: Mapping[str, int]) -> None:
    if walk.packet.kind == "endpoint" and bth["destination_qp"] != wire.ENDPOINT_QPN:
        walk.problem("wrong_qp", f"{wire.OPCODES[bth['opcode']]}s go to QP {wire.ENDPOINT_QPN}, and not to {bth['destination_qp']:#x}")


def _check_trimmed(walk: Walk) -> None:
    """A trimmed packet ends behind its headers and has no ICRC."""
    if walk.left and not walk.short:
        walk.problem("trimmed_payload", f"its DSCP says that it was trimmed, but {walk.left} B are left behind its headers")


def _check_data(walk: Walk, dma_length: int) -> None:
    if walk.packet.payload_bytes != dma_length and not walk.short:
        walk.problem("dma_length", f"RETH's DMA length is {dma_length}, but the payload has {walk.packet.payload_bytes} B")


def _end(walk: Walk, pad_bytes: int, whole_at: int | None) -> None:
    """Payload, padding, ICRC."""
    payload_bytes = walk.left - pad_bytes - wire.ICRC_BYTES
    if walk.short:
        walk.packet.payload_bytes = max(0, walk.left)
        return
    if payload_bytes < 0:
        walk.problem("truncated", f"{walk.left} B are left for {pad_bytes} B of padding and the ICRC")
        return
    walk.packet.payload_bytes = payload_bytes
    if (payload_bytes + pad_bytes) % 4:
        walk.problem("bad_pad", f"{payload_bytes} B of payload and {pad_bytes} of padding are no multiple of 4")
    if walk.end > len(walk.data):
        walk.packet.cut = True
    elif whole_at is not None:
        _check_icrc(walk, whole_at)


def _check_icrc(walk: Walk, whole_at: int) -> None:
    at = walk.end - wire.ICRC_BYTES
    found, expected = walk.data[at : walk.end], wire.icrc(walk.data[whole_at:at])
    walk.packet.layers.append(Layer("ICRC", at, {"value": found.hex(), "expected": expected.hex()}))
    if found != expected:
        walk.problem("icrc", f"the ICRC is {found.hex()}, but {expected.hex()} is expected")
