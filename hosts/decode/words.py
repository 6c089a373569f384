"""What packets say, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hosts import wire
from hosts.rc import wire as rc

Said = Mapping[str, Mapping[str, int]]
"""Fields by header."""

UNIT_US = 1e6 / wire.TIMESTAMP_HZ
MOST_RANGES = 6  # of a SACK's bitmap; more of them would make a line that nobody reads
M_WORDS: Mapping[int, str] = {wire.SKIP_NONE: "", wire.SKIP_ONCE: "SKIP_ONCE", wire.ALWAYS_SKIP: "ALWAYS_SKIP"}
FLAG_WORDS: Mapping[int, str] = {wire.HELD: "held back", wire.DUPLICATE: "a duplicate came", wire.NACKED: "NACKed data is still missing"}
RC_NAMES: Mapping[int, str] = {
    rc.WRITE_FIRST: "Write First", rc.WRITE_MIDDLE: "Write Middle", rc.WRITE_LAST: "Write Last",
    rc.WRITE_LAST_IMM: "Write Last with Immediate", rc.WRITE_ONLY: "Write Only", rc.WRITE_ONLY_IMM: "Write Only with Immediate",
    rc.ACK: "ACK", rc.CNP: "CNP",
}  # fmt: skip
SYNDROMES: Mapping[int, str] = {
    rc.SYNDROME_ACK: "ACK", rc.NAK_PSN_SEQUENCE: "NAK: PSN sequence error", rc.NAK_INVALID_REQUEST: "NAK: invalid request",
    rc.NAK_REMOTE_ACCESS: "NAK: remote access error",
}  # fmt: skip


def head(bth: Mapping[str, int]) -> str:
    """A packet of which no more than the BTH is there."""
    opcode = bth["opcode"]
    name = wire.OPCODES.get(opcode) or (f"RC {RC_NAMES[opcode]}" if opcode in RC_NAMES else f"opcode {opcode:#04x}")
    return f"{name} to QP {bth['destination_qp']:#x}, PSN {bth['psn']}"


def mrc(bth: Mapping[str, int], said: Said, trimmed: str = "", payload_bytes: int = 0) -> str:
    """A packet of MRC; `trimmed` is the reason that the DSCP of a Write without its payload names."""
    opcode = bth["opcode"]
    if wire.is_write(opcode):
        return _data(bth, said, trimmed, payload_bytes)
    if opcode == wire.SACK:
        return _sack(bth, said["SETH"], said["CC_STATE"])
    if opcode == wire.NACK:
        return _nack(said["NETH"])
    if opcode == wire.PROBE:
        return f"Probe {said['PETH']['probe_id']} asks, {_stamp(said['PETH']['tx_timestamp'])}"
    if opcode == wire.ACK:
        return f"ACK of all up to PSN {bth['psn']}, MSN {said['AETH']['msn']}"
    return _endpoint(bth, said.get("ERTH") or said["EETH"])


def _data(bth: Mapping[str, int], said: Said, trimmed: str, payload_bytes: int) -> str:
    reth = said["RETH"]
    parts = [
        f"{wire.OPCODES[bth['opcode']]} PSN {bth['psn']} MSN {said['METH']['msn']}",
        f"{trimmed}: {reth['dma_length']} B cut off" if trimmed else f"{payload_bytes} B to {reth['va']:#x}",
        f"immediate {said['IMMDT']['imm']:#x}" if "IMMDT" in said else "",
        "RTX" if bth["rtx"] else "",
        _stamp(said["TSETH"]["tx_timestamp"]) if "TSETH" in said else "",
    ]
    return ", ".join(part for part in parts if part)


def _sack(bth: Mapping[str, int], seth: Mapping[str, int], state: Mapping[str, int]) -> str:
    also = ", ".join(_ranges(seth["cack_psn"] + seth["sack_offset"], seth["bitmap"]))
    parts = [
        _sack_of(bth, seth) + f", all up to PSN {seth['cack_psn']}" + (f" and {also}" if also else ""),
        M_WORDS.get(seth["m"], ""),
        *(text for bit, text in FLAG_WORDS.items() if seth["cc_flags"] & bit),
        f"window {seth['mpr'] * wire.MPR_UNIT}",
        f"{state['rcvd_bytes'] * wire.RECEIVED_UNIT_BYTES} B received",
        f"penalty {state['rcv_cwnd_pen']}" if state["rcv_cwnd_pen"] else "",
        f"port {_ports(seth['down_ports'])} down" if seth["down_ports"] else "",
        _stamp(state["tx_timestamp"]),
    ]
    return ", ".join(part for part in parts if part)


def _sack_of(bth: Mapping[str, int], seth: Mapping[str, int]) -> str:
    """What it answers: a probe, or the packet that it names."""
    if seth["probe_reply"]:
        return f"Probe reply to {seth['ack_psn_offset'] & 0xFFFF} (SACK {bth['psn']})"
    return f"SACK {bth['psn']} for PSN {seth['cack_psn'] + seth['ack_psn_offset'] & wire.PSN_MASK} of EV {seth['entropy']}"


def _ranges(base: int, bitmap: int) -> Iterator[str]:
    """The PSNs of a bitmap, consecutive ones together: "257", "260-270"."""
    shown, bit = 0, 0
    while bitmap >> bit:
        if bitmap >> bit & 1:
            first = bit
            while bitmap >> bit + 1 & 1:
                bit += 1
            if shown == MOST_RANGES:
                yield "more"
                return
            shown += 1
            yield _range(base + first & wire.PSN_MASK, base + bit & wire.PSN_MASK)
        bit += 1


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _nack(neth: Mapping[str, int]) -> str:
    reason = wire.NACK_REASONS.get(neth["reason"], f"reason {neth['reason']:#x}")
    return f"NACK {reason} of PSN {neth['nack_psn']} on EV {neth['entropy']}, {_stamp(neth['tx_timestamp'])}"


def _endpoint(bth: Mapping[str, int], said: Mapping[str, int]) -> str:
    operation = wire.ENDPOINT_OPS.get(said["op"], f"operation {said['op']}")
    way = f" along EV {said['entropy']}" if "entropy" in said else ""
    name = f"{wire.OPCODES[bth['opcode']]} {bth['psn']} {operation}{way}"
    return f"{name}: {_reachable(said['port_mask'])} can be reached, {_stamp(said['tx_timestamp'])}"


def _reachable(mask: int) -> str:
    """A mask of 32 ports; those that a NIC does not have may be 1 or 0."""
    down = ~mask & wire.ALL_PORTS
    if not mask or not down:
        return "all ports" if mask else "no port"
    return f"all ports but {_ports(down)}" if down.bit_count() <= wire.ALL_PORTS.bit_count() // 2 else f"port {_ports(mask)}"


def _ports(mask: int) -> str:
    return " ".join(str(port) for port in range(mask.bit_length()) if mask >> port & 1) or "none"


def _stamp(value: int) -> str:
    """A tx_timestamp: it counts up to 8.4 ms and begins again."""
    return f"ts {value * UNIT_US:.1f} us"


def _syndrome(syndrome: int) -> str:
    """An AETH's verdict."""
    return SYNDROMES.get(syndrome, f"syndrome {syndrome:#04x}")


def rc_packet(bth: Mapping[str, int], said: Said, payload_bytes: int) -> str:
    """A packet of RoCE RC."""
    if "AETH" in said:
        return f"RC {_syndrome(said['AETH']['syndrome'])} PSN {bth['psn']}, MSN {said['AETH']['msn']}"
    if bth["opcode"] == rc.CNP:
        return f"RC CNP to QP {bth['destination_qp']:#x}: its packets met congestion"
    parts = [
        f"RC {RC_NAMES[bth['opcode']]} PSN {bth['psn']}",
        f"{payload_bytes} B",
        f"of {said['RETH']['dma_length']} to {said['RETH']['va']:#x}" if "RETH" in said else "",
        f"immediate {said['IMMDT']['imm']:#x}" if "IMMDT" in said else "",
        "asks for an ACK" if bth["a"] else "",
    ]
    return ", ".join(part for part in parts if part)
