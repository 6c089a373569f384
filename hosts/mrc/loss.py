"""Which transmissions are lost: by the order of a path, by age, and what to do when a verdict proves wrong.

A path is FIFO: a packet that is missing while a later one of the same EV arrived is lost for sure (`loss_fifo`). A dead path delivers no
later one; there a packet is presumed lost when some packet sent later arrived and it is older than a RTT plus an allowance (`loss_rack`;
RFC 8985's idea). Both count only arrivals whose transmission is known beyond doubt: packets sent once, or named by the SACK with their EV.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable

from hosts.mrc.evs import Ev
from hosts.mrc.params import MrcParams
from hosts.mrc.window import RttEstimator

JUDGED_LIMIT = 2048  # lost transmissions remembered, in case one arrives after all


class Packet:
    """A data packet from its first transmission until it is acknowledged."""

    __slots__ = ("count", "elder", "imm", "msns", "opcode", "payload", "psn", "queued", "tx", "va")

    def __init__(self, psn: int, opcode: int, msns: tuple[int, int], va: int, payload: memoryview, imm: int | None) -> None:
        self.psn, self.opcode, self.msns, self.va, self.payload, self.imm = psn, opcode, msns, va, payload, imm
        self.tx: Tx | None = None  # newest transmission
        self.elder: list[Tx] = []  # earlier ones that are still open
        self.count = 0
        self.queued = False  # waits for its retransmission


class Tx:
    """One transmission of a packet. It is open until it arrived, was judged lost, or its packet is known to have arrived."""

    __slots__ = ("ev", "open", "order", "packet", "sent_s", "stamp")

    def __init__(self, packet: Packet, ev: Ev, order: int, sent_s: float, stamp: int) -> None:
        self.packet, self.ev, self.order, self.sent_s, self.stamp = packet, ev, order, sent_s, stamp
        self.open = True


class Allowance:
    """How much later than a RTT a packet may come before it is presumed lost; doubled by false alarms, halved by time."""

    __slots__ = ("_params", "_rtt", "_since", "_widen")

    def __init__(self, params: MrcParams, rtt: RttEstimator) -> None:
        self._params, self._rtt, self._widen, self._since = params, rtt, 1.0, 0.0

    def widen(self, now: float) -> None:
        """A verdict by age was wrong."""
        self._widen = min(self._factor(now) * 2.0, self._params.rack_widen_max)
        self._since = now

    def age_limit_s(self, now: float, newest_rtt_s: float) -> float:
        """Age from which a packet is presumed lost. The RTT of the newest arrival counts in, so that a stall of the peer, which delays
        all packets alike, condemns none (RFC 8985, section 6.2 step 5)."""
        rtt, params = self._rtt, self._params
        spare = max((params.rack_srtt - 1.0) * rtt.srtt_s + params.rack_rttvar * rtt.var_s, params.rack_min_s)
        return max(rtt.srtt_s, newest_rtt_s) + spare * (self._factor(now) if self._widen > 1.0 else 1.0)

    def _factor(self, now: float) -> float:
        halvings = (now - self._since) / self._params.rack_decay_s
        return max(1.0, self._widen * math.pow(0.5, halvings))


class Flight:
    """All open transmissions of a QP, and the two rules of loss over them."""

    __slots__ = (
        "_allowance", "_judged", "_judged_order", "_next_order", "_order", "_touched", "_unsure", "count", "newest_order", "newest_rtt_s",
    )  # fmt: skip

    def __init__(self, allowance: Allowance) -> None:
        self.count = 0  # open transmissions
        self.newest_order, self.newest_rtt_s = -1, 0.0
        self._allowance = allowance
        self._next_order = 0
        self._order: deque[Tx] = deque()  # in order of sending
        self._touched: set[Ev] = set()
        self._unsure: list[Tx] = []  # overtaken on their own path, but no SACK has yet covered them
        self._judged: dict[int, list[Tx]] = {}
        self._judged_order: deque[int] = deque()

    def send(self, packet: Packet, ev: Ev, now: float, stamp: int) -> Tx:
        """Records a transmission."""
        tx = Tx(packet, ev, self._next_order, now, stamp)
        self._next_order += 1
        self._order.append(tx)
        ev.sent.append(tx)
        ev.tx_packets += 1
        ev.last_tx_s = now
        if packet.tx is not None and packet.tx.open:
            packet.elder.append(packet.tx)
        packet.tx = tx
        packet.count += 1
        self.count += 1
        return tx

    def arrived(self, packet: Packet, now: float, known: Tx | None) -> None:
        """`packet` is acknowledged; `known` is the transmission that arrived when a packet was sent more than once, None if not known."""
        tx = packet.tx
        if tx is None:
            return
        if tx.open:
            tx.open = False
            self.count -= 1
        for elder in packet.elder:
            if elder.open:
                elder.open = False
                self.count -= 1
        if packet.count == 1:
            self._credit(tx, now)
        elif known is not None:
            self._credit(known, now)

    def _credit(self, tx: Tx, now: float) -> None:
        """`tx` arrived beyond doubt: evidence against what was sent before it."""
        ev = tx.ev
        if tx.order > ev.acked_order:
            ev.acked_order = tx.order
            self._touched.add(ev)
        if tx.order > self.newest_order:
            self.newest_order = tx.order
            self.newest_rtt_s = now - tx.sent_s

    def overtaken(self, covered: Callable[[int], bool]) -> list[Tx]:
        """Transmissions lost by the order of their path; `covered` tells whether the SACK at hand speaks about a PSN at all."""
        suspects, self._unsure = self._unsure, []
        for ev in self._touched:
            sent, limit = ev.sent, ev.acked_order
            while sent and sent[0].order <= limit:
                tx = sent.popleft()
                if tx.open:
                    suspects.append(tx)
        self._touched.clear()
        lost: list[Tx] = []
        for tx in suspects:
            if tx.open:
                (lost if covered(tx.packet.psn) else self._unsure).append(tx)
        return lost

    def aged(self, now: float, covered: Callable[[int], bool]) -> tuple[list[Tx], float | None]:
        """Transmissions presumed lost by age, and when to look again (None: no reason to)."""
        order, limit_s = self._order, self._allowance.age_limit_s(now, self.newest_rtt_s)
        lost: list[Tx] = []
        while order:
            tx = order[0]
            if tx.open:
                if tx.order > self.newest_order:
                    return lost, None
                if now < tx.sent_s + limit_s:
                    return lost, tx.sent_s + limit_s
                if not covered(tx.packet.psn):
                    return lost, None  # unknown is not missing; the probe timeout will ask
                lost.append(tx)
            order.popleft()
        return lost, None

    def old_enough(self, tx: Tx, now: float) -> bool:
        """Whether age speaks against `tx`."""
        return now >= tx.sent_s + self._allowance.age_limit_s(now, self.newest_rtt_s)

    def oldest(self) -> Tx | None:
        """The oldest open transmission."""
        order = self._order
        while order and not order[0].open:
            order.popleft()
        return order[0] if order else None

    def condemn(self, tx: Tx) -> None:
        """Closes `tx` as lost and remembers it."""
        if tx.open:
            tx.open = False
            self.count -= 1
        psn = tx.packet.psn
        if psn not in self._judged:
            self._judged_order.append(psn)
        self._judged.setdefault(psn, []).append(tx)
        if len(self._judged_order) > JUDGED_LIMIT:
            self._judged.pop(self._judged_order.popleft(), None)

    def condemned(self, psn: int) -> Iterable[Tx]:
        """Transmissions of `psn` that were judged lost."""
        return self._judged.get(psn, ())

    def clear(self) -> None:
        """Forgets everything in flight."""
        self._order.clear()
        self.count = 0
