"""The send QP: spraying, SACKs, NACKs, retransmission, probes, timers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from random import Random

from hosts import wire
from hosts.core import Event, PathSpec, QpError, Transmit
from hosts.mrc.backoff import Backoff
from hosts.mrc.congestion import Congestion
from hosts.mrc.ev import Ev
from hosts.mrc.evs import EvSet
from hosts.mrc.frames import Framer, NackFields, SackFields
from hosts.mrc.idle import IdleProbes, Lifeline
from hosts.mrc.loss import Allowance, Flight, Packet, Tx
from hosts.mrc.message import Outgoing
from hosts.mrc.params import MOST_MPR_UNITS, MrcParams
from hosts.mrc.recovery import REFUSED, TRIMMED, Recoveries
from hosts.mrc.repair import Repair
from hosts.mrc.sent import Sent
from hosts.mrc.verdicts import PathHistory, Verdicts
from hosts.wire import A_BIT, DUPLICATE, HELD, MPR_UNIT, PSN_MASK, RTX_BIT, SKIP_NONE, TS_BIT, timestamp, unwrap


class SendQp:
    """Writes to one peer; `place` is its number among the QPs to that peer.

    Times are CLOCK_MONOTONIC seconds; PSNs are endless inside, 24 bits on the wire.
    """

    def __init__(
        self, peer: str, qp: int, paths: tuple[PathSpec, ...], params: MrcParams, rng: Random, events: list[Event],
        recoveries: Recoveries, congestion: Congestion, place: int = 0,
    ) -> None:  # fmt: skip
        self.peer, self.qp = peer, qp
        first_psn = rng.randrange(1 << wire.PSN_BITS) if params.initial_psn < 0 else params.initial_psn
        self.evs = EvSet(paths, params, rng, place)
        self.rtt, self.window = congestion.rtt, congestion.window
        self.idle, self.lifeline = IdleProbes(self.evs, params), Lifeline(self.evs, params)
        self.allowance = Allowance(params, self.rtt)
        self.flight = Flight(self.allowance)
        congestion.join(self.flight, self.evs)
        self._under_way = self.flight if params.qps == 1 else congestion  # counts what takes of the window
        self.verdicts = Verdicts(self.evs, params, self.rtt, self.allowance, PathHistory(peer, qp, events))
        self.error: QpError | None = None
        self.tx_packets = self.rtx_packets = self.trimmed_packets = self.marked_packets = 0
        self.nacks: Counter[str] = Counter()  # that named something under way, by reason
        self._params, self._events, self._recoveries = params, events, recoveries
        self._framer: Framer | None = None
        self._rkey = self._base = self._penalty = 0
        self._mpr = params.mpr_packets
        self._sent = Sent()
        self._outgoing = Outgoing(first_psn, params.payload_bytes)
        self._repair = Repair(self.evs, self.flight, self.verdicts, self._outgoing, self.window, self.rtt, recoveries)
        self._urgent: deque[tuple[Packet, Ev | None]] = deque()  # copies to send whatever the window says, perhaps on a certain EV
        self.heard = False  # a SACK came since the last on_receive_done
        self._newest_sack = -1
        self._limited, self._flags = False, TS_BIT
        self._spare = False  # the job has had less to send than it may
        self._look_at: float | None = None
        self._backoff = Backoff(params, self.rtt)

    def connect(self, framer: Framer, rkey: int, base: int, mpr_packets: int) -> None:
        """Takes the peer's attributes; the QP may send from now on."""
        self._framer, self._rkey, self._base, self._mpr = framer, rkey, base, mpr_packets

    def post(self, data: memoryview, remote_offset: int, imm: int | None) -> None:
        """Queues a Write of bytes, plain or with an Immediate."""
        if self.error is None:
            self._outgoing.post(data, self._base + remote_offset, imm)

    @property
    def posted(self) -> int:
        """Messages posted so far."""
        return self._outgoing.posted

    @property
    def done(self) -> int:
        """Messages that are wholly acknowledged: always the first ones posted."""
        return self._outgoing.posted - self._outgoing.messages

    @property
    def first_psn(self) -> int:
        """Of the QP's first packet."""
        return self._outgoing.first_psn

    @property
    def acked_bytes(self) -> int:
        """Bytes that the peer has acknowledged."""
        return self._outgoing.acked_bytes

    # Sending

    @property
    def ready(self) -> bool:
        """Whether `transmit` may have something to send: not while the window is full, once `transmit` has seen that it is."""
        if self._urgent or self.evs.probed or self.idle.pending or self.lifeline.pending:
            return self.error is None
        return self._outgoing.ready and not (self._limited and self._under_way.count + 1 > self.window.cwnd_packets)

    def transmit(self, now: float) -> Iterator[Transmit]:
        """What may be sent now: copies, due probes, retransmissions, new data."""
        if self._framer is None or self.error is not None:
            return
        if (idle := self.idle.due(now)) is not None:
            yield self._probe(*idle, now)
        if (quiet := self.lifeline.due(now)) is not None:
            yield self._probe(*quiet, now)
        for ev in self.evs.due_probes(now, self.rtt.srtt_s) if self.evs.probed else ():
            self._events.append(Event(now, "probe", {"peer": self.peer, "ev": ev.index, "outcome": "sent"}))
            yield self._probe(ev, ev.probe_id, now)
        self.verdicts.convict(now, self.flight.newest_sent_s)
        stamp = timestamp(now)
        while self._urgent:
            packet, wanted = self._urgent.popleft()
            if packet.psn in self._outgoing.packets:
                packet.queued = False  # the copy is its retransmission
                yield self._send(packet, now, stamp, wanted)
        under_way, cwnd_packets, following = self._under_way, self.window.cwnd_packets, self._outgoing.next
        while under_way.count + 1 <= cwnd_packets:
            next_packet = following(self._mpr)
            if next_packet is None:
                self._limited, self._spare = False, True
                return
            yield self._send(next_packet, now, stamp)
        self._limited, self._spare = True, False

    def _send(self, packet: Packet, now: float, stamp: int, wanted: Ev | None = None) -> Transmit:
        assert self._framer is not None
        flags = self._flags
        if self._spare and self.flight.count < self._params.ack_every:  # perhaps no packet follows soon that would bring the news
            flags |= A_BIT
        if packet.tx is None:
            ev = self.evs.pick(self.flight.late)
        else:
            failed = packet.failed[1] if packet.failed is not None else packet.tx
            ev = wanted if wanted is not None and not wanted.is_mute else self.evs.pick_again(failed.ev, self.flight.late)
            flags |= RTX_BIT
            self.rtx_packets += 1
            self._recoveries.repaired(packet, now, self.rtt.srtt_s)
        self._sent.note(packet.psn, ev.index, stamp, packet.tx is not None)
        self.flight.send(packet, ev, now, stamp)
        self.tx_packets += 1
        header, trailer = self._framer.data(
            ev.index, packet.opcode, packet.psn & PSN_MASK | flags, packet.msns, stamp, packet.va, self._rkey, packet.payload, packet.imm
        )
        return Transmit(ev.path.port, ev.path.destination, header, packet.payload, trailer, False, again=flags & RTX_BIT != 0)

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
        answer = self.evs.probe_answered(now, probe_id)
        if answer is None:
            return "unexpected_probe_reply"
        ev, proved = answer
        self._events.append(Event(now, "probe", {"peer": self.peer, "ev": ev.index, "outcome": "answered"}))
        if proved:
            self.verdicts.restore(now, ev, ev.proof)
        return None

    def _revive(self, ev: Ev) -> None:
        """A path carries again after an outage of all: the oldest packet goes there, and the timeouts start anew (the retries do not)."""
        oldest = self.flight.oldest()
        if oldest is not None:
            oldest.copied = True
            self._backoff.carries()
            self._urgent.append((oldest.packet, ev))

    def on_sack(self, now: float, say: SackFields) -> str | None:
        """Takes a SACK. Returns the reason to count when it cannot be true, else None."""
        cack = self._outgoing.unwrapped(say.cack)
        if cack is None:
            return "sack_out_of_window"
        named, base = cack + say.ack_psn_offset, cack + say.sack_offset
        if not self._sent.has(named, say.entropy, say.stamp):
            return "sack_unknown"
        self.heard = True
        trigger = self._outgoing.packets.get(named)
        known = trigger.named(say.entropy, say.stamp) if trigger is not None and not say.cc_flags & DUPLICATE else None
        elders = trigger.elder if trigger is not None and known is not None else ()
        self._repair.wrong_verdicts(now, named, say)
        acked = self._outgoing.acknowledge(now, cack, base, say.bitmap, known, self.flight.arrived)
        self._learn(now, acked, known, say.cc_flags & HELD != 0, say.skip == wire.SKIP_ONCE)
        wrong = None
        if self._is_news(say.number):
            self._repair.on_news(now, base, say)
            wrong = self._heed(say)
        if elders and known is not None:
            self._repair.judge_elders(now, elders, known)
        if say.skip != SKIP_NONE:
            self._skip(now, say)
        return wrong

    def _heed(self, say: SackFields) -> str | None:
        """What the receiver wants of the sender: its penalty, its window. Returns the reason to count if the window is none, else None."""
        if say.penalty != self._penalty:
            self._penalty = say.penalty
            self.window.on_penalty(say.penalty)
        if not 1 <= say.mpr <= MOST_MPR_UNITS:
            return "mpr_out_of_range"
        self._mpr = say.mpr * MPR_UNIT
        return None

    def _skip(self, now: float, say: SackFields) -> None:
        """The receiver asks for another EV than the named one: once, because it met congestion, or for good."""
        ev = self.evs.numbered(say.entropy)
        if ev is None:
            return
        if say.skip == wire.SKIP_ONCE:
            self.marked_packets += 1
            ev.marked_packets += 1
            self.evs.skip(ev)
        elif say.skip == wire.ALWAYS_SKIP:
            self.verdicts.leave(now, ev, None, "always_skip")

    def on_nack(self, now: float, say: NackFields) -> str | None:
        """Takes a NACK. Returns the reason to count when it names nothing that is known, else None."""
        name = wire.NACK_REASONS.get(say.reason)
        if name is None:
            return "nack_reason"
        packet = self._outgoing.unacknowledged(say.psn)
        tx = None if packet is None else self.flight.under_way(packet, say.entropy, say.stamp)
        if tx is None:
            return "nack_unknown"
        self.nacks[name] += 1
        if say.reason == wire.UNEXPECTED_EVENT:
            self.fail("the peer met an UNEXPECTED_EVENT")
        else:
            self._on_refused(now, tx, say.reason)
        return None

    def _on_refused(self, now: float, tx: Tx, reason: int) -> None:
        """`tx` did arrive, without its data or without being taken: no loss, and no evidence against any other (see `hosts.mrc.loss`)."""
        trimmed = reason in wire.TRIMMED_DSCPS
        self.flight.trimmed(tx)
        if tx.condemned:
            self.verdicts.overturn(now, tx)
        if trimmed:
            self.trimmed_packets += 1
            tx.ev.trimmed_packets += 1
            self.evs.skip(tx.ev)
        if reason != wire.PSN_OOR_WINDOW:
            self.window.on_trimmed(now)
        self._repair.refused(tx, TRIMMED if trimmed else REFUSED)
        self.lifeline.end()
        given_up = self._backoff.heard(now)
        if given_up is not None:
            self.fail(given_up)

    def is_newest(self, number: int) -> bool:
        """Whether no SACK of a higher number has come than this one."""
        return number == self._newest_sack & PSN_MASK

    def _is_news(self, number: int) -> bool:
        """False for an overtaken SACK: it still acknowledges, but what it misses may have arrived since."""
        endless = unwrap(number, max(self._newest_sack, 0))
        news = endless > self._newest_sack
        self._newest_sack = max(endless, self._newest_sack)
        return news

    def _learn(self, now: float, acked: int, sampled: Tx | None, held: bool, marked: bool) -> None:
        """RTT, window and timeout from a SACK that acknowledged `acked` packets; one that was held back tells the window the least RTT."""
        rtt_s = None
        if sampled is not None:
            rtt_s = now - sampled.sent_s
            if held:
                rtt_s -= self._params.ack_delay_s
            else:
                self.rtt.sample(now, rtt_s)
                sampled.ev.sample_rtt(rtt_s)
        if acked:
            if self.lifeline.used:
                self.lifeline.end()
            self._backoff.progress(now)
        self.window.on_sack(now, acked, rtt_s, self._limited and self._outgoing.ready, marked)
        self._flags = TS_BIT | A_BIT if self._asks() else TS_BIT

    def _asks(self) -> bool:
        """Whether packets ask for a SACK at once: when too few are in flight, or they come too slowly, for one SACK to cover several."""
        params, cwnd = self._params, self.window.cwnd_packets
        return cwnd < params.ack_every or self.rtt.srtt_s > params.ack_gap_delay_s * cwnd

    def on_receive_done(self, now: float) -> None:
        """After a batch of SACKs: who was outrun, and who is overdue."""
        self.heard = False
        if self.error is not None:
            return
        self._repair.on_receive_done(now)
        self.verdicts.convict(now, self.flight.newest_sent_s)
        self._copy_overdue(now)

    def _copy_overdue(self, now: float) -> None:
        """Sends copies of what is overdue, without judging it: perhaps all packets are late alike."""
        late, self._look_at = self.flight.overdue(now)
        self._urgent.extend((tx.packet, None) for tx in late)

    # From outside: ports

    def on_ports(self, now: float, local_down: int, peer_down: int) -> None:
        """These NIC ports are down (bit i is port i), here and at the peer: what is under way on them is sent again on others."""
        if self.error is None and (cut := self.verdicts.ports(now, local_down, peer_down)):
            self._repair.withdraw(cut)

    # Timers

    def next_deadline(self) -> float | None:
        """The earliest of: a packet overdue, a probe timeout, a path probe, an idle probe."""
        if self.error is not None or self._framer is None:
            return None
        earliest, look_at = self._backoff.due(self.flight.oldest()), self._look_at
        if look_at is not None and (earliest is None or look_at < earliest):
            earliest = look_at
        if not (self.evs.probed or self.idle.pending or self.lifeline.pending):
            return earliest
        probes = (earliest, self.evs.next_probe(), self.idle.next_deadline(), self.lifeline.next_deadline())
        return min((at for at in probes if at is not None), default=None)

    def on_timer(self, now: float) -> None:
        """Runs what is due, but for the path probes, which `transmit` sends."""
        if self.error is not None:
            return
        if self._look_at is not None and now >= self._look_at:
            self._copy_overdue(now)
        timeout_at = self._backoff.due(self.flight.oldest())
        if timeout_at is not None and now >= timeout_at:
            self._on_timeout(now)

    def _on_timeout(self, now: float) -> None:
        """Sends a packet again on another EV, without judging the first: the answer will tell. In the end, the QP fails."""
        reason = self._backoff.passed(now)
        if reason is not None:
            self.fail(reason)
            return
        oldest = self.flight.oldest()
        if oldest is not None:
            oldest.copied = True
            asked = self.flight.newest() if self._backoff.first else oldest
            self._urgent.append(((asked or oldest).packet, None))
        self.lifeline.begin(now)

    def fail(self, reason: str) -> None:
        """The QP has failed for good: lets go of all data. What still comes for it is the caller's to count."""
        self.error = QpError(self.peer, reason)
        self.flight.clear()
        self._outgoing.clear()
        self._urgent.clear()
        for ev in self.evs.evs:
            ev.sent.clear()
