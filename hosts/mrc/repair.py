"""What a send QP does about a packet that is missing: its path is left, and the packet is sent again."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from hosts.mrc.ev import LOCAL_DOWN, Ev
from hosts.mrc.evs import EvSet
from hosts.mrc.frames import SackFields
from hosts.mrc.loss import Flight, Tx
from hosts.mrc.message import Outgoing
from hosts.mrc.recovery import TIMEOUT, Recoveries
from hosts.mrc.verdicts import Verdicts
from hosts.mrc.window import RttEstimator, Window
from hosts.wire import BITMAP_BITS, DUPLICATE, NACKED

COVERAGES = 4  # newest SACK bitmaps remembered: together they say which PSNs the receiver spoke about


class Repair:
    """Judges transmissions by what SACKs say, and queues the retransmissions."""

    __slots__ = ("_covers", "_evs", "_flight", "_outgoing", "_recoveries", "_rtt", "_verdicts", "_window")

    def __init__(
        self, evs: EvSet, flight: Flight, verdicts: Verdicts, outgoing: Outgoing, window: Window, rtt: RttEstimator, recoveries: Recoveries
    ) -> None:
        self._evs, self._flight, self._verdicts, self._outgoing = evs, flight, verdicts, outgoing
        self._window, self._rtt, self._recoveries = window, rtt, recoveries
        self._covers: deque[int] = deque(maxlen=COVERAGES)  # first PSNs of the newest SACK bitmaps

    def on_news(self, now: float, base: int, say: SackFields) -> None:
        """The newest SACK so far, whose bitmap begins at PSN `base`: what it misses is lost if its path has delivered since."""
        self._covers.append(base)
        end = base if say.cc_flags & NACKED else base + BITMAP_BITS
        for tx in self._flight.overtaken(lambda psn: base <= psn < end):
            self._lost(now, tx, "loss_fifo")

    def on_receive_done(self, now: float) -> None:
        """After a batch of SACKs: who was outrun."""
        for tx in self._flight.outrun(now, self._covered):
            if tx.open:
                self._lost(now, tx, "loss_rack")

    def judge_elders(self, now: float, elders: Iterable[Tx], arrived: Tx) -> None:
        """A copy arrived, and earlier transmissions of the packet had not: those sent well before it are lost."""
        for tx in elders:
            if tx.order < arrived.order and not tx.condemned and not tx.trimmed and self._flight.is_outrun(tx, arrived, now):
                self._recoveries.add(TIMEOUT, arrived.sent_s - tx.sent_s, self._rtt.srtt_s)
                self._lost(now, tx, "loss_rack")

    def wrong_verdicts(self, now: float, psn: int, say: SackFields) -> None:
        """A transmission judged lost arrived after all: the SACK names it, or its only successor came as a duplicate."""
        for tx in self._flight.condemned(psn):
            came_twice = say.cc_flags & DUPLICATE and tx.packet.count == 2
            if came_twice or tx.is_named(say.entropy, say.stamp):
                self._verdicts.overturn(now, tx)

    def withdraw(self, evs: Collection[Ev]) -> None:
        """The ports of these EVs are down, or were: what they carry is sent again, and that is no verdict on any packet."""
        for tx in self._flight.open_on(evs):
            self._flight.condemn(tx)
            self._retransmit(tx, "port_down" if tx.ev.down & LOCAL_DOWN else "peer_port_down" if tx.ev.down else TIMEOUT)
        for ev in evs:
            ev.sent.clear()

    def refused(self, tx: Tx, cause: str) -> None:
        """Queues the packet of which only the header arrived, or that was not taken, unless a newer transmission is under way."""
        packet = tx.packet
        if packet.tx is not None and not packet.tx.open:
            packet.failed = cause, tx
            self._outgoing.again(packet)

    def _covered(self, psn: int) -> bool:
        return any(base <= psn < base + BITMAP_BITS for base in self._covers)

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
                self._flight.condemn(other)
            self._retransmit(other, reason)

    def _blame(self, now: float, tx: Tx, reason: str) -> None:
        ev = tx.ev
        self._flight.condemn(tx)
        ev.lost_packets += 1
        self._verdicts.leave(now, ev, tx, reason)
        if self._evs.most_are_lost:
            self._window.on_mass_loss(now)

    def _retransmit(self, tx: Tx, reason: str) -> None:
        """Queues the packet of a lost transmission, unless it is settled or another one is still open."""
        packet = tx.packet
        if packet.tx is None or packet.tx.open or packet.queued:
            return
        if not any(elder.open for elder in packet.elder):
            packet.failed = reason, tx
            self._outgoing.again(packet)
