"""Which transmissions are lost: by the order of a path, by age, and what to do when a verdict proves wrong.

A path is FIFO: a packet that is missing while a later one of the same EV arrived is lost for sure (`loss_fifo`). A dead path delivers no
later one; there a packet is presumed lost when one that was sent later, on any EV, by more than an allowance has arrived before it
(`loss_rack`, after RFC 8985). No clock takes part in a verdict, only the order of sending and of arrival: a stall of either host or of all
paths condemns nobody. What is merely overdue is sent again as a copy, and the copy's arrival is the evidence.
Only arrivals whose transmission is known beyond doubt count: packets sent once, or named by the SACK with EV and timestamp.

A NACK of a trimmed packet is none of them. What a switch trims goes on in the control class and overtakes whole packets, those of its own
path too: it is no evidence against anything that was sent before it. The other way round the order holds, so a trimmed packet could only
be taken for lost if its NACK is slower than the SACK of a later packet. Where a SACK says that NACKed data is missing (`NACKED`), the
order of the path is therefore no proof, and the verdict waits for the NACK or for `loss_rack`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable

from hosts.mrc.ev import Ev
from hosts.mrc.params import MrcParams
from hosts.mrc.window import RttEstimator

NOTHING = memoryview(b"")
# Before there is a verdict, a packet that was overtaken keeps new data off its path: at once while few are in flight, since then the next
# one is long in coming; else when it was overtaken by this share of the allowance, since queues of unlike length overtake all the time.
FEW_IN_FLIGHT = 8
LATE_SHARE = 0.5
JUDGED_LIMIT = 2048  # lost transmissions remembered, in case one arrives after all


class Packet:
    """A data packet from its first transmission until it is acknowledged."""

    __slots__ = ("count", "elder", "failed", "imm", "msns", "opcode", "payload", "psn", "queued", "tx", "va")

    def __init__(self, psn: int, opcode: int, msns: tuple[int, int], va: int, payload: memoryview, imm: int | None) -> None:
        self.psn, self.opcode, self.msns, self.va, self.payload, self.imm = psn, opcode, msns, va, payload, imm
        self.tx: Tx | None = None  # newest transmission
        self.elder: list[Tx] = []  # earlier ones that are still open
        self.count = 0  # transmissions that may have brought the data: not those known to be trimmed
        self.queued = False  # waits for its retransmission
        self.failed: tuple[str, Tx] | None = None  # why a retransmission is due, and the transmission that failed: its EV is to be avoided

    def release(self) -> None:
        """It is settled. What it refers to is let go of by hand: an agent runs without the collector of cycles."""
        self.tx, self.failed, self.payload = None, None, NOTHING
        if self.elder:
            self.elder = []

    def named(self, entropy: int, stamp: int) -> Tx | None:
        """The transmission that a SACK names by EV and timestamp."""
        if self.tx is not None and self.tx.is_named(entropy, stamp):
            return self.tx
        return next((elder for elder in self.elder if elder.is_named(entropy, stamp)), None)


class Tx:
    """One transmission of a packet. It is open until it arrived, was judged lost, or its packet is known to have arrived."""

    __slots__ = ("condemned", "copied", "ev", "open", "order", "packet", "sent_s", "stamp", "trimmed")

    def __init__(self, packet: Packet, ev: Ev, order: int, sent_s: float, stamp: int) -> None:
        self.packet, self.ev, self.order, self.sent_s, self.stamp = packet, ev, order, sent_s, stamp
        self.open, self.condemned = True, False
        self.copied = False  # sent again without a verdict
        self.trimmed = False  # arrived without its data

    def is_named(self, entropy: int, stamp: int) -> bool:
        """Whether a SACK that echoes `entropy` and `stamp` for this packet means this transmission."""
        return self.ev.index == entropy and self.stamp == stamp


class Allowance:
    """By how much a packet may be overtaken before it is presumed lost; doubled by false alarms, halved by time. Seconds."""

    __slots__ = ("_params", "_rtt", "_since", "_widen")

    def __init__(self, params: MrcParams, rtt: RttEstimator) -> None:
        self._params, self._rtt, self._widen, self._since = params, rtt, 1.0, 0.0

    def widen(self, now: float) -> None:
        """A verdict by age was wrong."""
        self._widen = min(self._factor(now) * 2.0, self._params.rack_widen_max)
        self._since = now

    def common_s(self, now: float) -> float:
        """The allowance of an EV of average speed."""
        rtt, params = self._rtt, self._params
        spare = max((params.rack_srtt - 1.0) * rtt.srtt_s + params.rack_rttvar * rtt.var_s, params.rack_min_s)
        return spare * (self._factor(now) if self._widen > 1.0 else 1.0)

    def slower_s(self, ev: Ev) -> float:
        """How much more time the packets of `ev` take than those of others, as far as is known."""
        return max(0.0, ev.rtt_s - self._rtt.srtt_s)

    def overdue_s(self, now: float, newest_rtt_s: float) -> float:
        """Age from which a packet is overdue: a RTT (of the newest arrival, if that was slow: RFC 8985, 6.2 step 5) and the allowance."""
        return max(self._rtt.srtt_s, newest_rtt_s) + self.common_s(now)

    def _factor(self, now: float) -> float:
        halvings = (now - self._since) / self._params.rack_decay_s
        return max(1.0, self._widen * math.pow(0.5, halvings))


class Flight:
    """All open transmissions of a QP, and the two rules of loss over them."""

    __slots__ = (
        "_allowance",
        "_judged",
        "_judged_order",
        "_newest_order",
        "_newest_rtt_s",
        "_next_order",
        "_order",
        "_touched",
        "_unsure",
        "count",
        "late",
        "newest_sent_s",
    )  # fmt: skip

    def __init__(self, allowance: Allowance) -> None:
        self.count = 0  # open transmissions
        self.late: Ev | None = None  # of the oldest open one, when clearly later ones have arrived: new data goes elsewhere meanwhile
        self._newest_order, self._newest_rtt_s, self.newest_sent_s = -1, 0.0, float("-inf")  # of what surely arrived
        self._allowance = allowance
        self._next_order = 0
        self._order: deque[Tx] = deque()  # in order of sending
        self._touched: dict[Ev, None] = {}  # a set in order: verdicts follow from the seed
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
        """`packet` is acknowledged, and released; `known` is a transmission, of this or another packet, that surely arrived, or None."""
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
        if packet.count == 1 and not tx.trimmed:
            self._credit(tx, now)
        elif known is not None and known.packet is packet:
            self._credit(known, now)
        packet.release()

    def _credit(self, tx: Tx, now: float) -> None:
        """`tx` arrived beyond doubt: evidence against what was sent before it."""
        ev = tx.ev
        if tx.order > ev.acked_order:
            ev.acked_order = tx.order
            self._touched[ev] = None
        if tx.order > self._newest_order:
            self._newest_order, self.newest_sent_s = tx.order, tx.sent_s
            self._newest_rtt_s = now - tx.sent_s

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

    def outrun(self, now: float, covered: Callable[[int], bool]) -> list[Tx]:
        """Transmissions presumed lost, because what was sent clearly later has arrived; `covered` as above, of the newest SACKs."""
        order, allowance, newest_s = self._order, self._allowance, self.newest_sent_s
        common_s, lost = allowance.common_s(now), list[Tx]()
        while order:
            tx = order[0]
            if tx.open:
                if tx.sent_s + common_s + allowance.slower_s(tx.ev) >= newest_s or not covered(tx.packet.psn):
                    break  # a PSN that no SACK spoke about is unknown, not missing
                lost.append(tx)
            order.popleft()
        self.late = self._late_ev(common_s * LATE_SHARE, covered)
        return lost

    def _late_ev(self, margin_s: float, covered: Callable[[int], bool]) -> Ev | None:
        """The EV of the oldest open transmission, if a later one has arrived that was sent at least so much later as the EV is slower than
        others, and with many in flight by `margin_s` more.
        """
        tx = self._order[0] if self._order else None
        if tx is None or tx.order > self._newest_order or not covered(tx.packet.psn):
            return None
        least_s = self._allowance.slower_s(tx.ev) + (margin_s if self.count > FEW_IN_FLIGHT else 0.0)
        return tx.ev if tx.sent_s + least_s <= self.newest_sent_s else None

    def overdue(self, now: float) -> tuple[list[Tx], float | None]:
        """Transmissions that should have arrived by the clock, each named once; and when to look again (None: no reason to)."""
        limit_s, late = self._allowance.overdue_s(now, self._newest_rtt_s), list[Tx]()
        for tx in self._order:
            if tx.order > self._newest_order:
                break
            if tx.open and not tx.copied:
                due = tx.sent_s + limit_s + self._allowance.slower_s(tx.ev)
                if now < due:
                    return late, due
                tx.copied = True
                late.append(tx)
        return late, None

    def open_on(self, evs: Collection[Ev]) -> list[Tx]:
        """Open transmissions on any of these EVs, in order of sending."""
        return [tx for tx in self._order if tx.open and tx.ev in evs]

    def is_outrun(self, tx: Tx, arrived: Tx, now: float) -> bool:
        """Whether the arrival of `arrived` speaks against `tx`."""
        return tx.sent_s + self._allowance.common_s(now) + self._allowance.slower_s(tx.ev) < arrived.sent_s

    def oldest(self) -> Tx | None:
        """The oldest open transmission."""
        order = self._order
        while order and not order[0].open:
            order.popleft()
        return order[0] if order else None

    def newest(self) -> Tx | None:
        """The newest open transmission."""
        return next((tx for tx in reversed(self._order) if tx.open), None)

    def condemn(self, tx: Tx) -> None:
        """Closes `tx` as lost and remembers it."""
        if tx.open:
            tx.open = False
            self.count -= 1
        tx.condemned = True
        psn = tx.packet.psn
        if psn not in self._judged:
            self._judged_order.append(psn)
        self._judged.setdefault(psn, []).append(tx)
        if len(self._judged_order) > JUDGED_LIMIT:
            self._judged.pop(self._judged_order.popleft(), None)

    def under_way(self, packet: Packet, entropy: int, stamp: int) -> Tx | None:
        """The named transmission of `packet`, if it is open or was judged lost, and is not yet known to be trimmed."""
        candidates = (packet.tx, *packet.elder, *self.condemned(packet.psn))
        named = (tx for tx in candidates if tx is not None and tx.is_named(entropy, stamp))
        return next((tx for tx in named if not tx.trimmed and (tx.open or tx.condemned)), None)

    def trimmed(self, tx: Tx) -> None:
        """`tx` arrived without its data: it is under way no more, and proves nothing about any other."""
        tx.trimmed = True
        tx.packet.count -= 1
        if tx.open:
            tx.open = False
            self.count -= 1
        sent = tx.ev.sent
        while sent and not sent[0].open:
            sent.popleft()

    def condemned(self, psn: int) -> Iterable[Tx]:
        """Transmissions of `psn` that were judged lost."""
        return self._judged.get(psn, ())

    def clear(self) -> None:
        """Forgets everything in flight, and what was judged."""
        for book in (self._order, self._touched, self._unsure, self._judged, self._judged_order):
            book.clear()
        self.count = 0
