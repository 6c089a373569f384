"""Messages on their way out: cut into packets, numbered, and kept until they are acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from hosts import wire
from hosts.mrc.loss import Packet, Tx
from hosts.wire import unwrap

Arrived = Callable[[Packet, float, Tx | None], None]

MSN_MASK = 0xFFFF

OPCODES = {  # by (first packet of its message, last one, with immediate)
    (True, True, False): wire.WRITE_ONLY, (True, True, True): wire.WRITE_ONLY_IMM, (True, False, False): wire.WRITE_FIRST,
    (False, False, False): wire.WRITE_MIDDLE, (False, True, False): wire.WRITE_LAST, (False, True, True): wire.WRITE_LAST_IMM,
}  # fmt: skip


class Message:
    """One Write, plain (`imm` is None) or with an Immediate, and how far it was cut into packets; `msns` are METH's two."""

    __slots__ = ("data", "imm", "msns", "offset", "va", "whole")

    def __init__(self, data: memoryview, va: int, imm: int | None, msns: tuple[int, int]) -> None:
        self.data, self.va, self.imm, self.msns, self.offset = data, va, imm, msns, 0
        self.whole = False  # cut to its end

    def cut(self, psn: int, size_bytes: int) -> Packet:
        """The next packet."""
        start, total = self.offset, len(self.data)
        end = min(start + size_bytes, total)
        self.offset = end
        self.whole = end == total
        opcode = OPCODES[start == 0, self.whole, self.whole and self.imm is not None]
        return Packet(psn, opcode, self.msns, self.va + start, self.data[start:end], self.imm if self.whole else None)


class Outgoing:
    """All messages of a send QP that are not wholly acknowledged, and their packets. PSNs are endless."""

    __slots__ = (
        "_ends",
        "_immediates",
        "_messages",
        "_payload_bytes",
        "_rtx",
        "_sacked",
        "acked_bytes",
        "first_psn",
        "next_psn",
        "packets",
        "posted",
        "una",
    )

    def __init__(self, first_psn: int, payload_bytes: int) -> None:
        self.first_psn = self.una = self.next_psn = first_psn  # first of all; oldest unacknowledged; next new one
        self.packets: dict[int, Packet] = {}  # sent, not acknowledged
        self.acked_bytes = 0
        self.posted = 0  # messages ever
        self._payload_bytes, self._immediates = payload_bytes, 0
        self._sacked = 0  # bit i: PSN una + i was acknowledged
        self._messages: deque[Message] = deque()
        self._ends: deque[int] = deque()  # last PSN of each message not yet wholly acknowledged
        self._rtx: list[int] = []  # PSNs to retransmit, a heap: oldest first

    def post(self, data: memoryview, va: int, imm: int | None) -> None:
        """Queues a Write of `data` to the address `va`, plain or with an Immediate. MSN counts all, RQMSN those with an Immediate."""
        self._messages.append(Message(data, va, imm, (self._immediates & MSN_MASK, self.posted & MSN_MASK)))
        self.posted += 1
        self._immediates += imm is not None

    @property
    def messages(self) -> int:
        """Messages posted that are not wholly acknowledged."""
        return len(self._messages) + len(self._ends)

    @property
    def ready(self) -> bool:
        """Whether `next` may have a packet."""
        return bool(self._messages or self._rtx)

    def again(self, packet: Packet) -> None:
        """Queues a retransmission, unless one is queued or the packet was acknowledged."""
        if not packet.queued and packet.psn in self.packets:
            packet.queued = True
            heappush(self._rtx, packet.psn)

    def next(self, mpr_packets: int) -> Packet | None:
        """The next packet to send within the receiver's window: the oldest retransmission, else a new one."""
        rtx, end = self._rtx, self.una + mpr_packets
        while rtx:
            if rtx[0] >= end:
                return None
            packet = self.packets.get(heappop(rtx))
            if packet is not None and packet.queued:
                packet.queued = False
                return packet
        if not self._messages or self.next_psn >= end:
            return None
        message, psn = self._messages[0], self.next_psn
        packet = self.packets[psn] = message.cut(psn, self._payload_bytes)
        self.next_psn += 1
        if message.whole:
            self._messages.popleft()
            self._ends.append(psn)
        return packet

    def unwrapped(self, psn24: int) -> int | None:
        """The PSN that a peer means, if it was ever sent (or is the one before the first)."""
        psn = unwrap(psn24, self.una)
        return psn if self.first_psn - 1 <= psn < self.next_psn else None

    def unacknowledged(self, psn24: int) -> Packet | None:
        """The packet that a peer means, while it is not acknowledged."""
        psn = self.unwrapped(psn24)
        return None if psn is None else self.packets.get(psn)

    def acknowledge(self, now: float, cack: int, base: int, bitmap: int, known: Tx | None, arrived: Arrived) -> int:
        """Settles all packets up to `cack` and those of the bitmap that starts at PSN `base`; returns how many are new.

        `arrived` (`Flight.arrived`) is told of each, and of the transmission that is known to have arrived.
        """
        packets, una, before = self.packets, self.una, len(self.packets)
        if cack >= una:
            for psn in range(una, cack + 1):
                packet = packets.pop(psn, None)
                if packet is not None:
                    self.acked_bytes += len(packet.payload)
                    arrived(packet, now, known)
            self._sacked >>= cack + 1 - una
            self.una = una = cack + 1
            while self._ends and self._ends[0] <= cack:
                self._ends.popleft()
        bits = bitmap << (base - una) if base >= una else bitmap >> (una - base)
        bits &= ((1 << (self.next_psn - una)) - 1) & ~self._sacked
        self._sacked |= bits
        while bits:
            low = bits & -bits
            bits ^= low
            packet = packets.pop(una + low.bit_length() - 1, None)
            if packet is not None:
                self.acked_bytes += len(packet.payload)
                arrived(packet, now, known)
        return before - len(packets)

    def clear(self) -> None:
        """Forgets everything: the QP has failed."""
        for packet in self.packets.values():
            packet.release()
        for pending in (self.packets, self._messages, self._ends, self._rtx):
            pending.clear()
