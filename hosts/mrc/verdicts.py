"""What becomes of a path on which a packet is missing: left at once, called bad when that is sure, taken back when it was a mistake.

A missing packet may still lie in a queue. So its path is left without delay, but is called ASSUMED_BAD only when a packet has arrived that
was sent longer after it than any queue holds one back, or when a probe was not answered (docs/decisions/0012-late-is-not-lost.md). As
everywhere in loss detection, no clock takes part.
"""

from __future__ import annotations

from dataclasses import dataclass

from hosts.core import Event
from hosts.mrc.evs import ASSUMED_BAD, SKIP, Ev, EvSet
from hosts.mrc.loss import Allowance, Tx
from hosts.mrc.params import MrcParams
from hosts.mrc.window import RttEstimator

BITS_PER_BYTE = 8


@dataclass(frozen=True)
class PathHistory:
    """Notes a QP's changes of path states in the host's history."""

    peer: str
    qp: int
    events: list[Event]

    def note(self, now: float, ev: Ev, reason: str) -> None:
        """`ev` just became bad, or good again."""
        self.events.append(Event(now, "ev_state", {"peer": self.peer, "qp": self.qp, **ev.change(reason)}))


class Verdicts:
    """Takes EVs out of use and back. `spurious` counts those that were called bad by mistake."""

    __slots__ = ("_allowance", "_evs", "_history", "_patience_s", "_rtt", "_suspects", "spurious")

    def __init__(self, evs: EvSet, params: MrcParams, rtt: RttEstimator, allowance: Allowance, history: PathHistory) -> None:
        self._evs, self._rtt, self._allowance, self._history = evs, rtt, allowance, history
        packet_s = params.payload_bytes * BITS_PER_BYTE / params.link_rate_bps if params.link_rate_bps > 0 else 0.0
        self._patience_s = params.late_packets * packet_s  # how long the deepest queue holds a packet back; 0 = not known
        self._suspects: list[Ev] = []  # out of use, and not yet called bad
        self.spurious = 0

    def leave(self, now: float, ev: Ev, cause: Tx | None, reason: str) -> None:
        """Takes `ev` out of use; it is bad at once, unless `reason` says that its packet may only be late."""
        perhaps_late = reason == "loss_rack" and self._patience_s > 0
        if self._evs.retire(now, ev, cause, SKIP if perhaps_late else ASSUMED_BAD):
            self._evs.schedule_probe(now, ev, self._rtt.srtt_s)
            if perhaps_late:
                self._suspects.append(ev)
            else:
                self._history.note(now, ev, reason)
        elif not perhaps_late and ev.state == SKIP:
            self._call_bad(now, ev, reason)

    def convict(self, now: float, newest_sent_s: float) -> None:
        """Calls those suspects bad for which it is sure; `newest_sent_s` is when the newest packet that arrived was sent."""
        if not self._suspects:
            return
        self._suspects = [ev for ev in self._suspects if ev.out and ev.state == SKIP]
        for ev in self._suspects:
            if ev.probe_missed or (ev.cause is not None and newest_sent_s > ev.cause.sent_s + self._patience_s):
                self._call_bad(now, ev, "loss_rack")

    def overturn(self, now: float, tx: Tx) -> None:
        """`tx` was judged lost and has arrived; whether its EV comes back depends on whether that verdict is why it is out."""
        if tx.ev.cause is tx:
            self.spurious += tx.ev.state == ASSUMED_BAD
            self._allowance.widen(now)
            self.restore(now, tx.ev, "spurious")

    def restore(self, now: float, ev: Ev, reason: str) -> None:
        """Takes `ev` back into use."""
        if not ev.out:
            return
        was_bad = ev.state == ASSUMED_BAD
        self._evs.restore(ev)
        if was_bad:
            self._history.note(now, ev, reason)

    def _call_bad(self, now: float, ev: Ev, reason: str) -> None:
        ev.state = ASSUMED_BAD
        self._history.note(now, ev, reason)
