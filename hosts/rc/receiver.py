"""The receiving half of an RC QP: only the expected PSN is accepted, and placed at once. No I/O, no clock."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass

from hosts.core import Completion, Transmit
from hosts.rc import wire
from hosts.rc.params import RcParams


@dataclass(frozen=True)
class ReceiveAttributes:
    """What connecting a receive QP needs to know: `source` and `source_port` are this end's, for its ACKs."""

    peer: str
    source: str
    destination: str
    source_port: int
    peer_source_port: int
    peer_qpn: int
    rkey: int
    base_address: int
    first_psn: int


class ReceiveQp:
    """Places packets of one peer into `region`; `drops` counts what was not used, by reason."""

    def __init__(self, attributes: ReceiveAttributes, params: RcParams, region: memoryview, drops: Counter[str]) -> None:
        self.attributes, self.params, self.region, self.drops = attributes, params, region, drops
        self.incoming = wire.Flow(attributes.destination, attributes.source, attributes.peer_source_port, 0)
        self.outgoing = wire.Flow(attributes.source, attributes.destination, attributes.source_port, attributes.peer_qpn)
        self.expected = attributes.first_psn
        self.msn = 0
        self.completions: list[Completion] = []
        self.rx_packets = self.marked_packets = self.cnps_sent = 0
        self._ack_every = params.qp_ack_every
        self._cnp_s = params.dcqcn_cnp_interval_us * params.dcqcn_time_scale * 1e-6
        self._cnp_at, self._cnp_due = float("-inf"), False
        self._syndrome: int | None = None  # of the acknowledgement that is due
        self._nak_sent = self._dead = False
        self._unacknowledged = 0
        self._at = self._left = 0  # where in the region the running message goes on, and how much of it is to come
        self._in_message = False

    def on_data(self, bth: wire.Bth, datagram: memoryview) -> None:
        """Takes a Write packet whose ICRC is right."""
        ahead = (bth.psn - self.expected) & wire.PSN_MASK
        if self._dead:
            self.drops["qp_in_error"] += 1
        elif ahead == 0:
            self._on_expected(bth, datagram)
        elif ahead < 1 << 23:
            self._on_gap()
        else:
            self.drops["duplicate"] += 1
            self._owe(wire.SYNDROME_ACK)

    def _on_gap(self) -> None:
        """One NAK a gap (9.7.5.2.8): another one only after the expected packet came."""
        self.drops["out_of_order"] += 1
        if not self._nak_sent:
            self._nak_sent = True
            self._owe(wire.NAK_PSN_SEQUENCE)

    def _on_expected(self, bth: wire.Bth, datagram: memoryview) -> None:
        refused = self._place(bth, datagram)
        if refused is not None:
            self.drops["refused"] += 1
            self._owe(refused)
            self._dead = True
            return
        self._nak_sent = False
        self.expected = (self.expected + 1) & wire.PSN_MASK
        self.rx_packets += 1
        self._unacknowledged += 1
        if bth.ack_request or self._unacknowledged >= self._ack_every:
            self._owe(wire.SYNDROME_ACK)

    def _place(self, bth: wire.Bth, datagram: memoryview) -> int | None:
        """Puts the payload where it belongs; returns the NAK code if the request is not allowed."""
        at = wire.BTH.size
        starts, ends = bth.opcode in wire.STARTS, bth.opcode in wire.ENDS
        if starts == self._in_message:
            return wire.NAK_INVALID_REQUEST
        try:
            if starts:
                if not self._open(*wire.RETH.unpack_from(datagram, at)):
                    return wire.NAK_REMOTE_ACCESS
                at += wire.RETH.size
            imm = wire.IMMDT.unpack_from(datagram, at)[0] if bth.opcode in wire.WITH_IMM else None
        except struct.error:
            return wire.NAK_INVALID_REQUEST
        at += wire.IMMDT.size if imm is not None else 0
        payload = datagram[at : len(datagram) - wire.ICRC.size - bth.pad_bytes]
        if len(payload) > self._left or (ends and len(payload) != self._left):
            return wire.NAK_INVALID_REQUEST
        self._advance(payload, ends, imm)
        return None

    def _open(self, address: int, rkey: int, length: int) -> bool:
        """Starts a message; False if it is not wholly inside the region, or the key is wrong."""
        offset = address - self.attributes.base_address
        if rkey != self.attributes.rkey or not 0 <= offset <= len(self.region) - length:
            return False
        self._at, self._left = offset, length
        return True

    def _advance(self, payload: memoryview, ends: bool, imm: int | None) -> None:
        self.region[self._at : self._at + len(payload)] = payload
        self._at += len(payload)
        self._left -= len(payload)
        self._in_message = not ends
        if ends:
            self.msn = (self.msn + 1) & wire.PSN_MASK
        if imm is not None:
            self.completions.append(Completion(self.attributes.peer, imm))

    def _owe(self, syndrome: int) -> None:
        """An acknowledgement is due; a NAK that waits is not replaced by an ACK, since it acknowledges as much."""
        if self._syndrome is None or self._syndrome == wire.SYNDROME_ACK:
            self._syndrome = syndrome

    def on_mark(self, now: float) -> None:
        """A packet of this QP came marked: a CNP is due, unless one was sent a short while ago (the paper's NP state machine)."""
        self.marked_packets += 1
        if now >= self._cnp_at:
            self._cnp_at, self._cnp_due = now + self._cnp_s, True

    def notification(self) -> Transmit | None:
        """The CNP that is due, if one is."""
        if not self._cnp_due:
            return None
        self._cnp_due = False
        self.cnps_sent += 1
        header, trailer = self.outgoing.build(wire.CNP, 0, wire.CNP_RESERVED, b"", wire.BECN)
        a = self.attributes
        return Transmit(0, a.destination, header, b"", trailer, True, a.source_port)

    def acknowledgement(self) -> Transmit | None:
        """The acknowledgement that is due, if one is: an ACK of all that came in order, or a NAK of the PSN that is missing."""
        if self._syndrome is None:
            return None
        syndrome, self._syndrome, self._unacknowledged = self._syndrome, None, 0
        psn = self.expected if syndrome != wire.SYNDROME_ACK else self.expected - 1 & wire.PSN_MASK
        header, trailer = self.outgoing.build(wire.ACK, psn, wire.AETH.pack(syndrome << 24 | self.msn), b"")
        a = self.attributes
        return Transmit(0, a.destination, header, b"", trailer, True, a.source_port)
