"""The send QP: messages to packets, spraying, SACKs, retransmission, probes, timers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from random import Random

from hosts import wire
from hosts.core import Event, PathSpec, QpError, Transmit
from hosts.mrc.evs import ASSUMED_BAD, GOOD, Ev, EvSet
from hosts.mrc.frames import Framer, SackFields
from hosts.mrc.idle import IdleProbes, Lifeline
from hosts.mrc.loss import Allowance, Flight, Packet, Tx
from hosts.mrc.message import Message
from hosts.mrc.params import MrcParams
from hosts.mrc.window import DelayWindow, RttEstimator, Window
from hosts.wire import DUPLICATE, HELD, PSN_MASK, RTX_BIT, TS_BIT, timestamp, unwrap

BITMAP_BITS = 64
COVERAGES = 4  # newest SACK bitmaps remembered: together they say which PSNs the receiver spoke about
MSN_MASK = 0xFFFF


class SendQp:
    """Writes to one peer. Times are CLOCK_MONOTONIC seconds; PSNs are endless inside, 24 bits on the wire."""

    def __init__(self, peer: str, qp: int, paths: tuple[PathSpec, ...], params: MrcParams, rng: Random, events: list[Event]) -> None:
        self.peer, self.qp = peer, qp
        self.first_psn = rng.randrange(1 << wire.PSN_BITS) if params.initial_psn < 0 else params.initial_psn
        self.evs = EvSet(paths, params, rng)
        self.rtt = RttEstimator(params)
        self.idle = IdleProbes(self.evs, params)
        self.lifeline = Lifeline(self.evs, params)
        self.window: Window = DelayWindow(params, self.rtt)
        self.allowance = Allowance(params, self.rtt)
        self.flight = Flight(self.allowance)
        self.error: QpError | None = None
        self.tx_packets = self.rtx_packets = self.acked_bytes = self.spurious = 0
        self._params, self._events = params, events
        self._framer: Framer | None = None
        self._rkey = self._base = self._posted = 0
        self._mpr = params.mpr_packets
        self._una = self._next_psn = self.first_psn  # oldest unacknowledged PSN; next new one
        self._sacked = 0  # bit i: PSN _una + i was acknowledged
        self._packets: dict[int, Packet] = {}
        self._messages: deque[Message] = deque()
        self._ends: deque[int] = deque()  # last PSN of each message not yet wholly acknowledged
        self._rtx: list[int] = []  # PSNs to retransmit, a heap: oldest first
        self._urgent: deque[tuple[Packet, Ev | None]] = deque()  # copies to send whatever the window says, perhaps on a certain EV
        self.heard = False  # a SACK came since the last on_receive_done
        self._newest_sack = -1
        self._covers: deque[int] = deque(maxlen=COVERAGES)  # first PSNs of the newest SACK bitmaps
        self._limited = False
        self._look_at: float | None = None
        self._timeouts = self._retries = 0
        self._timeout_base = float("-inf")

    def connect(self, framer: Framer, rkey: int, base: int, mpr_packets: int) -> None:
        """Takes the peer's attributes; the QP may send from now on."""
        self._framer, self._rkey, self._base, self._mpr = framer, rkey, base, mpr_packets

    def post(self, data: memoryview, remote_offset: int, imm: int) -> None:
        """Queues a Write-with-Immediate."""
        if self.error is None:
            flat = data if data.format == "B" and data.ndim == 1 else data.cast("B")
            self._messages.append(Message(flat, self._base + remote_offset, imm, self._posted & MSN_MASK))
            self._posted += 1

    @property
    def outstanding_messages(self) -> int:
        """Messages posted that are not wholly acknowledged: their data must not change."""
        return len(self._messages) + len(self._ends)

    # Sending

    @property
    def ready(self) -> bool:
        """Whether `transmit` may have something to send."""
        return bool(self._messages or self._rtx or self._urgent or self.evs.bad or self.idle.pending or self.lifeline.pending)

    def transmit(self, now: float) -> Iterator[Transmit]:
        """What may be sent now: copies, due probes, retransmissions, new data."""
        if self._framer is None or self.error is not None:
            return
        if (idle := self.idle.due(now)) is not None:
            yield self._probe(*idle, now)
        if (quiet := self.lifeline.due(now)) is not None:
            probe_id = self.evs.idle_probe(quiet)
            self.lifeline.asked(quiet, probe_id)
            yield self._probe(quiet, probe_id, now)
        for ev in self.evs.due_probes(now, self.rtt.srtt_s) if self.evs.bad else ():
            self._events.append(Event(now, "probe", {"peer": self.peer, "ev": ev.index, "outcome": "sent"}))
            yield self._probe(ev, ev.probe_id, now)
        stamp = timestamp(now)
        while self._urgent:
            packet, wanted = self._urgent.popleft()
            if packet.psn in self._packets:
                yield self._send(packet, now, stamp, wanted)
        while self.flight.count < self.window.cwnd_packets:
            next_packet = self._next_packet()
            if next_packet is None:
                self._limited = False
                return
            yield self._send(next_packet, now, stamp)
        self._limited = True

    def _next_packet(self) -> Packet | None:
        while self._rtx:
            packet = self._packets.get(heappop(self._rtx))
            if packet is not None and packet.queued:
                packet.queued = False
                return packet
        if not self._messages or self._next_psn - self._una >= self._mpr:
            return None
        message, psn = self._messages[0], self._next_psn
        packet = self._packets[psn] = message.cut(psn, self._params.payload_bytes)
        self._next_psn += 1
        if packet.imm is not None:
            self._messages.popleft()
            self._ends.append(psn)
        return packet

    def _send(self, packet: Packet, now: float, stamp: int, wanted: Ev | None = None) -> Transmit:
        assert self._framer is not None
        before = packet.tx
        ev = wanted or self.evs.pick(before.ev if before is not None else None)
        self.flight.send(packet, ev, now, stamp)
        self.tx_packets += 1
        flags = TS_BIT
        if before is not None:
            flags |= RTX_BIT
            self.rtx_packets += 1
        header, trailer = self._framer.data(
            ev.index, packet.opcode, packet.psn & PSN_MASK | flags, packet.msns, stamp, packet.va, self._rkey, packet.payload, packet.imm
        )
        return Transmit(ev.path.port, ev.path.destination, header, packet.payload, trailer, False)

    def _probe(self, ev: Ev, probe_id: int, now: float) -> Transmit:
        assert self._framer is not None
        header, trailer = self._framer.probe(ev.index, probe_id, timestamp(now))
        return Transmit(ev.path.port, ev.path.destination, header, b"", trailer, False)

    # Acknowledgements

    def on_probe_reply(self, now: float, probe_id: int) -> str | None:
        """A probe was answered. Returns the reason to count when none of ours was, or too late, else None."""
        measured = self.idle.answered(now, probe_id)
        if measured is not None:
            ev, rtt_s = measured
            self.rtt.sample(now, rtt_s)
            ev.sample_rtt(rtt_s)
            return None
        if (alive := self.lifeline.answered(probe_id)) is not None:
            self._revive(alive)
            return None
        answer = self.evs.probe_answered(probe_id)
        if answer is None:
            return "unexpected_probe_reply"
        ev, proved = answer
        self._events.append(Event(now, "probe", {"peer": self.peer, "ev": ev.index, "outcome": "answered"}))
        if proved:
            self._restore(now, ev, "probe")
        return None

    def _revive(self, ev: Ev) -> None:
        """A path carries again after an outage of all: the oldest packet goes there, and the timeouts start anew (the retries do not)."""
        oldest = self.flight.oldest()
        if oldest is not None:
            oldest.copied, self._timeouts = True, 0
            self._urgent.append((oldest.packet, ev))

    def on_sack(self, now: float, say: SackFields) -> str | None:
        """Takes a SACK. Returns the reason to count when it cannot be true, else None."""
        cack = unwrap(say.cack, self._una)
        if cack >= self._next_psn or cack < self.first_psn - 1:
            return "sack_out_of_window"
        self.heard = True
        named, base = cack + say.ack_psn_offset, cack + say.sack_offset
        trigger = self._packets.get(named)
        known = self._transmission(trigger, say) if trigger is not None and not say.cc_flags & DUPLICATE else None
        self._wrong_verdicts(now, named, say)
        acked = self._acknowledge(now, cack, base, say.bitmap, trigger, known)
        self._learn(now, acked, known if not say.cc_flags & HELD else None)
        if self._is_news(say.number):
            self._covers.append(base)
            for tx in self.flight.overtaken(lambda psn: base <= psn < base + BITMAP_BITS):
                self._lost(now, tx, "loss_fifo")
        if known is not None and trigger is not None and trigger.count > 1:
            self._judge_elders(now, trigger, known)
        return None

    def _is_news(self, number: int) -> bool:
        """False for an overtaken SACK: it still acknowledges, but what it misses may have arrived since."""
        endless = unwrap(number, max(self._newest_sack, 0))
        news = endless > self._newest_sack
        self._newest_sack = max(endless, self._newest_sack)
        return news

    def _learn(self, now: float, acked: int, sampled: Tx | None) -> None:
        """RTT, window and timeout from a SACK that acknowledged `acked` packets."""
        rtt_s = None
        if sampled is not None:
            rtt_s = now - sampled.sent_s
            self.rtt.sample(now, rtt_s)
            sampled.ev.sample_rtt(rtt_s)
        if acked:
            if self.lifeline.used:
                self.lifeline.end()
            self._timeouts = self._retries = 0
            self._timeout_base = now
        self.window.on_sack(now, acked, rtt_s, self._limited, False)

    @staticmethod
    def _transmission(packet: Packet, say: SackFields) -> Tx | None:
        """The transmission that a SACK names by PSN, EV and timestamp."""
        tx = packet.tx
        if tx is not None and tx.is_named(say.entropy, say.stamp):
            return tx
        return next((elder for elder in packet.elder if elder.is_named(say.entropy, say.stamp)), None)

    def _acknowledge(self, now: float, cack: int, base: int, bitmap: int, trigger: Packet | None, known: Tx | None) -> int:
        """Settles all packets that the SACK says arrived; returns how many are new."""
        packets, arrived, una, before = self._packets, self.flight.arrived, self._una, len(self._packets)
        if cack >= una:
            for psn in range(una, cack + 1):
                packet = packets.pop(psn, None)
                if packet is not None:
                    self.acked_bytes += len(packet.payload)
                    arrived(packet, now, known if packet is trigger else None)
            self._sacked >>= cack + 1 - una
            self._una = una = cack + 1
            while self._ends and self._ends[0] <= cack:
                self._ends.popleft()
        bits = bitmap << (base - una) if base >= una else bitmap >> (una - base)
        bits &= ((1 << (self._next_psn - una)) - 1) & ~self._sacked
        self._sacked |= bits
        while bits:
            low = bits & -bits
            bits ^= low
            packet = packets.pop(una + low.bit_length() - 1, None)
            if packet is not None:
                self.acked_bytes += len(packet.payload)
                arrived(packet, now, known if packet is trigger else None)
        return before - len(packets)

    def on_receive_done(self, now: float) -> None:
        """After a batch of SACKs: who was outrun, and who is overdue."""
        self.heard = False
        if self.error is not None:
            return
        for tx in self.flight.outrun(now, self._covered):
            if tx.open:
                self._lost(now, tx, "loss_rack")
        self._copy_overdue(now)

    # Loss

    def _covered(self, psn: int) -> bool:
        return any(base <= psn < base + BITMAP_BITS for base in self._covers)

    def _copy_overdue(self, now: float) -> None:
        """Sends copies of what is overdue, without judging it: perhaps all packets are late alike."""
        late, self._look_at = self.flight.overdue(now)
        self._urgent.extend((tx.packet, None) for tx in late)

    def _judge_elders(self, now: float, packet: Packet, arrived: Tx) -> None:
        """A copy arrived, and earlier transmissions of the packet had not: those sent well before it are lost."""
        for tx in packet.elder:
            if tx.order < arrived.order and not tx.condemned and self.flight.is_outrun(tx, arrived, now):
                self._lost(now, tx, "loss_rack")

    def _lost(self, now: float, tx: Tx, reason: str) -> None:
        """A real loss: the EV goes out of use, and what it still carries is sent again on others."""
        ev = tx.ev
        doomed = [tx]
        if reason != "loss_fifo":  # after a FIFO loss the path has delivered since: it is not dead
            doomed += [other for other in ev.sent if other.open and other is not tx]
            ev.sent.clear()
        self._blame(now, tx, reason)
        for other in doomed:
            if other is not tx:
                self.flight.condemn(other)
            self._retransmit(other.packet)

    def _blame(self, now: float, tx: Tx, reason: str) -> None:
        ev = tx.ev
        self.flight.condemn(tx)
        ev.lost_packets += 1
        if self.evs.retire(now, ev, tx):
            self.evs.schedule_probe(now, ev, self.rtt.srtt_s)
            self._state_event(now, ev, GOOD, ASSUMED_BAD, reason, tx.sent_s)
        if self.evs.good_count * 2 < len(self.evs):
            self.window.on_mass_loss(now)

    def _retransmit(self, packet: Packet) -> None:
        """Queues `packet` unless a transmission of it is still open."""
        still_open = (packet.tx is not None and packet.tx.open) or any(tx.open for tx in packet.elder)
        if not packet.queued and not still_open and packet.psn in self._packets:
            packet.queued = True
            heappush(self._rtx, packet.psn)

    def _wrong_verdicts(self, now: float, psn: int, say: SackFields) -> None:
        """A transmission judged lost arrived after all: the SACK names it, or its only successor came as a duplicate."""
        for tx in self.flight.condemned(psn):
            came_twice = say.cc_flags & DUPLICATE and tx.packet.count == 2
            if (came_twice or tx.is_named(say.entropy, say.stamp)) and tx.ev.cause is tx:
                self.spurious += 1
                self.allowance.widen(now)
                self._restore(now, tx.ev, "spurious")

    def _restore(self, now: float, ev: Ev, reason: str) -> None:
        if ev.state == ASSUMED_BAD:
            self.evs.restore(ev)
            self._state_event(now, ev, ASSUMED_BAD, GOOD, reason, None)

    def _state_event(self, now: float, ev: Ev, before: str, after: str, reason: str, first_lost_s: float | None) -> None:
        fields = {
            "peer": self.peer, "qp": self.qp, "ev": ev.index, "path": list(ev.path.links), "from": before, "to": after, "reason": reason,
            "last_tx_s": ev.last_tx_s, "first_lost_tx_s": first_lost_s,
        }  # fmt: skip
        self._events.append(Event(now, "ev_state", fields))

    # Timers

    def next_deadline(self) -> float | None:
        """The earliest of: a packet overdue, a probe timeout, a path probe, an idle probe."""
        if self.error is not None or self._framer is None:
            return None
        earliest, look_at = self._timeout_at(), self._look_at
        if look_at is not None and (earliest is None or look_at < earliest):
            earliest = look_at
        if not (self.evs.bad or self.idle.pending or self.lifeline.pending):
            return earliest
        probes = (earliest, self.evs.next_probe(), self.idle.next_deadline(), self.lifeline.next_deadline())
        return min((at for at in probes if at is not None), default=None)

    def on_timer(self, now: float) -> None:
        """Runs what is due, but for the path probes, which `transmit` sends."""
        if self.error is not None:
            return
        if self._look_at is not None and now >= self._look_at:
            self._copy_overdue(now)
        timeout_at = self._timeout_at()
        if timeout_at is not None and now >= timeout_at:
            self._on_timeout(now)

    def _interval_s(self) -> float:
        params, rtt = self._params, self.rtt
        base = max(2.0 * rtt.srtt_s + 4.0 * rtt.var_s + params.ack_delay_s, params.pto_min_s)
        return min(base * float(1 << min(self._timeouts, 30)), params.rto_max_s)

    def _timeout_at(self) -> float | None:
        oldest = self.flight.oldest()
        if oldest is None:
            return None
        return (max(oldest.sent_s, self._timeout_base) if oldest.copied else oldest.sent_s) + self._interval_s()

    def _on_timeout(self, now: float) -> None:
        """Sends the oldest packet again on another EV, without judging the first: the answer will tell. In the end, the QP fails."""
        interval_s = self._interval_s()
        if interval_s >= self._params.rto_min_s:
            self._retries += 1
        if self._retries > self._params.rto_retries:
            self._fail(f"no acknowledgement after {self._params.rto_retries} retries, the last {interval_s:.3g} s long")
            return
        oldest = self.flight.oldest()
        if oldest is not None:
            oldest.copied = True
            self._urgent.append((oldest.packet, None))
        self.lifeline.begin(now)
        self._timeouts += 1
        self._timeout_base = now

    def _fail(self, reason: str) -> None:
        self.error = QpError(self.peer, reason)
        self.flight.clear()
        for pending in (self._packets, self._messages, self._ends, self._rtx, self._urgent):
            pending.clear()
        for ev in self.evs.evs:
            ev.sent.clear()
