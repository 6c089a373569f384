"""The sending half of an RC QP: segmentation, go-back-N, ACK timeout, retry count, and its pace. No I/O, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from hosts.core import Event, Transmit
from hosts.rc import wire
from hosts.rc.params import RcParams
from hosts.rc.rate import Rate
from hosts.wire import IPV6, UDP

LINK_OVERHEAD_BYTES = 14 + IPV6.size_bytes + UDP.size_bytes  # before the UDP payload, Ethernet header included, as links count


@dataclass(frozen=True)
class SendAttributes:
    """What connecting a send QP needs to know: both ends' QP data."""

    peer: str
    source: str
    destination: str
    source_port: int
    qpn: int
    rkey: int
    base_address: int
    first_psn: int


@dataclass
class _Message:
    """A Write-with-Immediate; `first` is the absolute sequence number of its first packet."""

    data: memoryview
    address: int
    imm: int
    first: int
    packets: int


@dataclass
class Shared:
    """What all QPs of a pair have in common: how many packets may be outstanding, how many are, and why the pair failed."""

    window_packets: int
    outstanding: int = 0
    error: str | None = None
    qps: list[SendQp] = field(default_factory=list)


class SendQp:
    """Sequence numbers inside are absolute (never wrap); only the low 24 bits travel. `rate` is None without DCQCN."""

    def __init__(self, attributes: SendAttributes, params: RcParams, shared: Shared) -> None:
        self.attributes, self.params, self.shared = attributes, params, shared
        shared.qps.append(self)
        self.rate = Rate(params) if params.dcqcn else None
        # Below this rate an acknowledgement of `ack_every` packets could come after the ACK timeout, so each packet asks for its own.
        self._ask_below = 2 * params.qp_ack_every * params.payload_bytes / params.ack_timeout_s
        self.flow = wire.Flow(attributes.source, attributes.destination, attributes.source_port, attributes.qpn)
        self.acked = self.next = self.highest = self.end = attributes.first_psn
        self.messages: deque[_Message] = deque()
        self._cursor = 0  # index in `messages` of the message that `next` lies in
        self.deadline: float | None = None
        self.retries_left = params.retries
        self.closing = self.closed = False
        self.posted = self.done = 0  # messages ever, and those of them that are wholly acknowledged
        self.events: list[Event] = []
        self.tx_packets = self.rtx_packets = self.losses = self.acked_bytes = 0
        self.srtt_s: float | None = None
        self.base_rtt_s: float | None = None
        self._timed: tuple[int, float] | None = None

    def post(self, data: memoryview, remote_offset: int, imm: int) -> None:
        """Queues a message; an empty one is one packet without payload."""
        packets = max(1, -(-len(data) // self.params.payload_bytes))
        self.messages.append(_Message(data, self.attributes.base_address + remote_offset, imm, self.end, packets))
        self.end += packets
        self.posted += 1

    @property
    def error(self) -> str | None:
        """Why this QP failed, or another one of the pair: they live and fail together."""
        return self.shared.error

    @property
    def ready(self) -> bool:
        """Whether the window lets a packet go now."""
        shared = self.shared
        return self.next < self.end and shared.outstanding < shared.window_packets and shared.error is None

    def transmit(self, now: float) -> Iterator[Transmit]:
        """Packets that the window, and the rate if there is one, let go now."""
        if self.rate is not None:
            yield from self._paced(now, self.rate)
            return
        while self.ready:
            yield self._packet(now)

    def _paced(self, now: float, rate: Rate) -> Iterator[Transmit]:
        while self.ready and rate.lets(now):
            packet = self._packet(now)
            rate.on_sent(now, LINK_OVERHEAD_BYTES + len(packet.header) + len(packet.payload) + len(packet.trailer))
            yield packet

    def next_deadline(self) -> float | None:
        """The ACK timeout, or the moment at which the rate lets the next packet go."""
        if self.rate is None or not self.ready:
            return self.deadline
        due = self.rate.due()
        return due if self.deadline is None else min(due, self.deadline)

    def on_cnp(self, now: float) -> str | None:
        """Takes a CNP; returns the reason why it was ignored, if it was."""
        return "cnp_without_dcqcn" if self.rate is None else self.rate.on_cnp(now)

    def _packet(self, now: float) -> Transmit:
        message = self.messages[self._cursor]
        index, last = self.next - message.first, message.packets - 1
        offset = index * self.params.payload_bytes
        payload = message.data[offset : offset + self.params.payload_bytes]
        opcode = _opcode(index == 0, index == last)
        asks = index == last or (self.rate is not None and self.rate.current < self._ask_below)
        psn_word = self.next & wire.PSN_MASK | (wire.ACK_REQUEST if asks else 0)
        header, trailer = self.flow.build(opcode, psn_word, self._extension(message, index == 0, index == last), payload)
        self._count_sent(now, asks)
        if index == last:
            self._cursor += 1
        return Transmit(0, self.attributes.destination, header, payload, trailer, False, self.attributes.source_port)

    def _extension(self, message: _Message, first: bool, last: bool) -> bytes:
        reth = wire.RETH.pack(message.address, self.attributes.rkey, len(message.data)) if first else b""
        return reth + wire.IMMDT.pack(message.imm) if last else reth

    def _count_sent(self, now: float, asks: bool) -> None:
        self.tx_packets += 1
        if self.next < self.highest:
            self.rtx_packets += 1
        elif asks and self._timed is None:
            self._timed = (self.next, now)
        self.next += 1
        self.shared.outstanding += 1
        self.highest = max(self.highest, self.next)
        if self.deadline is None:
            self.deadline = now + self.params.ack_timeout_s

    def on_acknowledge(self, now: float, syndrome: int, psn: int) -> str | None:
        """Takes an ACK or NAK; returns the reason why it was ignored, if it was."""
        if self.error is not None:
            return "qp_in_error"
        nak = syndrome >> 5 == 3
        upto = self._absolute(psn) + (0 if nak else 1)
        if not self.acked <= upto <= self.highest:
            return "acknowledgement_out_of_window" if upto > self.highest else "old_acknowledgement"
        self._progress(now, upto)
        if syndrome == wire.NAK_PSN_SEQUENCE:
            self._on_sequence_nak(now)
        elif nak:
            self.fail(
                {wire.NAK_INVALID_REQUEST: "remote invalid request", wire.NAK_REMOTE_ACCESS: "remote access error"}.get(
                    syndrome, "remote operational error"
                )
            )
        return None

    def _absolute(self, psn: int) -> int:
        """The absolute number nearest to the acknowledged one with these low 24 bits."""
        ahead = (psn - self.acked) & wire.PSN_MASK
        return self.acked + (ahead if ahead < 1 << 23 else ahead - (1 << 24))

    def _progress(self, now: float, upto: int) -> None:
        if upto == self.acked:
            return
        self.shared.outstanding -= min(upto, self.next) - self.acked
        self.acked = upto
        self.retries_left = self.params.retries
        self._take_rtt(now)
        while self.messages and self.messages[0].first + self.messages[0].packets <= upto:
            self.acked_bytes += len(self.messages.popleft().data)
            self.done += 1
            self._cursor = max(0, self._cursor - 1)
        if self.next < upto:  # went back, and an acknowledgement of the first sending came after all
            self.next, self._cursor = upto, 0
        self.deadline = now + self.params.ack_timeout_s if self.acked < self.next else None
        if self.closing:
            self.close(now)

    def close(self, now: float) -> None:
        """No more is posted; it is closed when all that was is acknowledged."""
        self.closing = True
        if not self.messages and self.error is None and not self.closed:
            self.closed = True
            self.events.append(Event(now, "qp_closed", {"peer": self.attributes.peer, "qp": self.attributes.qpn}))

    def _take_rtt(self, now: float) -> None:
        if self._timed is None or self._timed[0] >= self.acked:
            return
        sample = now - self._timed[1]
        self._timed = None
        self.srtt_s = sample if self.srtt_s is None else self.srtt_s + (sample - self.srtt_s) / 8  # RFC 6298's alpha
        self.base_rtt_s = sample if self.base_rtt_s is None else min(sample, self.base_rtt_s)

    def _on_sequence_nak(self, now: float) -> None:
        if self.acked >= self.next:
            return
        self._retry("rc_nak", now)

    def on_timer(self, now: float) -> None:
        """The ACK timeout, if it is due."""
        if self.deadline is not None and now >= self.deadline and self.error is None:
            self._retry("rc_timeout", now)

    def _retry(self, event: str, now: float) -> None:
        """Goes back to the oldest unacknowledged packet; one retry less until the peer makes progress."""
        self.losses += 1
        self.retries_left -= 1
        fields = {"peer": self.attributes.peer, "psn": self.acked & wire.PSN_MASK, "retries_left": max(0, self.retries_left)}
        self.events.append(Event(now, event, fields))
        if self.retries_left < 0:
            self.fail("retry counter exceeded")
            return
        self.shared.outstanding -= self.next - self.acked
        self.next, self._cursor, self._timed = self.acked, 0, None
        self.deadline = None  # until it sends again, for which the other QPs may have to leave it room in the window

    def fail(self, reason: str) -> None:
        """The QP enters its error state for good, and the others of the pair with it."""
        if self.shared.error is None:
            self.shared.error = reason
            for qp in self.shared.qps:
                qp.deadline = None


def _opcode(first: bool, last: bool) -> int:
    """Every message is a Write-with-Immediate, so a last packet always carries the immediate."""
    if last:
        return wire.WRITE_ONLY_IMM if first else wire.WRITE_LAST_IMM
    return wire.WRITE_FIRST if first else wire.WRITE_MIDDLE
