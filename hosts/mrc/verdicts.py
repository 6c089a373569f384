"""What becomes of an EV: left at once when a packet is missing, called bad when that is sure, taken back when it was a mistake; out of use
while a port is down, or for as long as the administrator says.

A missing packet may still lie in a queue. So its path is left without delay, but is called ASSUMED_BAD only when a packet has arrived that
was sent longer after it than any queue holds one back, or when a probe was not answered (docs/decisions/0012-late-is-not-lost.md). As
everywhere in loss detection, no clock takes part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hosts.core import Event
from hosts.mrc.ev import ASSUMED_BAD, DENIED, GOOD, LOCAL_DOWN, PEER_DOWN, PORT_UP, PROBE, SKIP, Ev
from hosts.mrc.evs import EvSet
from hosts.mrc.loss import Allowance, Tx
from hosts.mrc.params import MrcParams
from hosts.mrc.window import RttEstimator
from testbed.errors import UsageError

BITS_PER_BYTE = 8


@dataclass(frozen=True)
class PathHistory:
    """Notes a QP's changes of path states in the host's history."""

    peer: str
    qp: int
    events: list[Event]

    def note(self, now: float, ev: Ev, before: str, reason: str, stand_in: Ev | None = None) -> None:
        """The state of `ev` was `before` and has just changed (docs/architecture.md, `ev_state`)."""
        fields = {
            "peer": self.peer, "qp": self.qp, "ev": ev.index, "plane": ev.path.plane, "path": list(ev.path.links),
            "from": before, "to": ev.state, "reason": reason, "last_tx_s": ev.last_tx_s,
            "first_lost_tx_s": ev.cause.sent_s if ev.cause is not None else None,
        }  # fmt: skip
        if before == GOOD:
            fields["stand_in"] = stand_in.index if stand_in is not None else None
        self.events.append(Event(now, "ev_state", fields))


class Verdicts:
    """Takes EVs out of use and back. `spurious` counts those that were called bad by mistake."""

    __slots__ = ("_allowance", "_evs", "_history", "_patience_s", "_ports", "_rtt", "_suspects", "spurious")

    def __init__(self, evs: EvSet, params: MrcParams, rtt: RttEstimator, allowance: Allowance, history: PathHistory) -> None:
        self._evs, self._rtt, self._allowance, self._history = evs, rtt, allowance, history
        packet_s = params.payload_bytes * BITS_PER_BYTE / params.link_rate_bps if params.link_rate_bps > 0 else 0.0
        self._patience_s = params.late_packets * packet_s  # how long the deepest queue holds a packet back; 0 = not known
        self._suspects: list[Ev] = []  # out of use, and not yet called bad
        self._ports = (0, 0)  # those down here, and at the peer
        self.spurious = 0

    # Losses

    def leave(self, now: float, ev: Ev, cause: Tx | None, reason: str) -> None:
        """Takes `ev` out of use; it is bad at once, unless `reason` says that its packet may only be late."""
        if ev.state == DENIED:
            ev.was_good = False
        if ev.state == DENIED or ev.down:
            return  # out of use for another reason, and a loss would tell nothing new
        perhaps_late = reason == "loss_rack" and self._patience_s > 0
        if self._evs.retire(now, ev, cause, SKIP if perhaps_late else ASSUMED_BAD):
            self._evs.schedule_probe(now, ev, self._rtt.srtt_s)
            if perhaps_late:
                self._suspects.append(ev)
            else:
                self._call_bad(now, ev, reason)
        elif not perhaps_late and ev.state == SKIP:
            self._call_bad(now, ev, reason)

    def convict(self, now: float, newest_sent_s: float) -> None:
        """Calls those suspects bad for which it is sure; `newest_sent_s` is when the newest packet that arrived was sent."""
        if not self._suspects:
            return
        self._suspects = [ev for ev in self._suspects if ev.out and ev.state == SKIP]
        for ev in self._suspects:
            if ev.misses or (ev.cause is not None and newest_sent_s > ev.cause.sent_s + self._patience_s):
                self._call_bad(now, ev, "loss_rack")

    def overturn(self, now: float, tx: Tx) -> None:
        """`tx` was judged lost and has arrived; whether its EV comes back depends on whether that verdict is why it is out."""
        if tx.ev.cause is tx:
            self.spurious += tx.ev.state == ASSUMED_BAD
            self._allowance.widen(now)
            self.restore(now, tx.ev, "spurious")

    def restore(self, now: float, ev: Ev, reason: str) -> None:
        """Takes `ev` back into use; never one that is denied."""
        if not ev.out or ev.state == DENIED:
            return
        was_bad = ev.state == ASSUMED_BAD
        self._evs.restore(ev)
        if was_bad:
            self._history.note(now, ev, ASSUMED_BAD, reason)

    def _call_bad(self, now: float, ev: Ev, reason: str) -> None:
        ev.state = ASSUMED_BAD
        self._history.note(now, ev, GOOD, reason, self._evs.rotation.stand_in(ev))

    # Ports

    def ports(self, now: float, local_down: int, peer_down: int) -> list[Ev]:
        """These NIC ports are down (bit i is port i), here and at the peer; EVs on them are out of use, and probed at once afterwards.

        Returns the EVs on which what is outstanding is to be sent again: those that are cut off, and those that are back, on which
        something can only have been sent into the dead port, because nothing else was left.
        """
        if (local_down, peer_down) == self._ports:
            return []
        local_changed, peer_changed = local_down ^ self._ports[0], peer_down ^ self._ports[1]
        self._ports = local_down, peer_down
        cut, back = list[Ev](), list[Ev]()
        for ev in self._evs.evs:
            local, peer, before = 1 << ev.path.port, 1 << ev.path.peer_port, ev.down
            if local_changed & local:
                ev.down = ev.down & ~LOCAL_DOWN | (LOCAL_DOWN if local_down & local else 0)
            if peer_changed & peer:
                ev.down = ev.down & ~PEER_DOWN | (PEER_DOWN if peer_down & peer else 0)
            if ev.down & ~before:
                cut.append(ev)
            elif before & ~ev.down:
                back.append(ev)
        self._cut_off(now, [ev for ev in cut if ev.state != DENIED])
        self._give_back(now, [ev for ev in back if ev.state != DENIED])
        return cut + back

    def _cut_off(self, now: float, cut: list[Ev]) -> None:
        known = {ev for ev in cut if ev.state == ASSUMED_BAD}
        for ev in cut:
            ev.state, ev.retired_at, ev.cause = ASSUMED_BAD, now, None
            ev.expect(PROBE)
            self._evs.schedule_probe(now, ev, self._rtt.srtt_s)
        self._evs.put_out(cut)
        for ev in cut:
            if ev not in known:
                self._call_bad(now, ev, "port_down" if ev.down & LOCAL_DOWN else "peer_port_down")

    def _give_back(self, now: float, back: list[Ev]) -> None:
        """They are probed at once; the first that are answered bring them back, because the port was why they were out."""
        for ev in back:
            if ev.out:
                ev.expect(PROBE if ev.down else PORT_UP)
                self._evs.probe_at(ev, now)
        self._evs.arrange()

    # The administrator

    def refusal(self, evs: Iterable[Ev]) -> str | None:
        """Why these EVs may not be denied, or None."""
        leaving = set(evs)
        left = [ev for ev in self._evs.evs if ev.state != DENIED and ev not in leaving]
        if not left or (self._evs.good_count and all(ev.out for ev in left)):
            return f"QP {self._history.qp} to {self._history.peer} would have no usable EV left: leave it at least one that is GOOD"
        return None

    def deny(self, now: float, evs: Iterable[Ev], on: bool) -> None:
        """`on`: the administrator bars these EVs from data and probes; else he allows them again.

        Raises:
            UsageError: these are the last usable EVs; nothing has changed.
        """
        meant = [ev for ev in evs if (ev.state == DENIED) is not on]
        if on and meant and (problem := self.refusal(meant)):
            raise UsageError(problem)
        if on:
            self._bar(now, meant)
        else:
            for ev in meant:
                self._allow(now, ev)

    def _bar(self, now: float, evs: list[Ev]) -> None:
        before = {ev: ASSUMED_BAD if ev.state == ASSUMED_BAD else GOOD for ev in evs}
        for ev in evs:
            ev.state, ev.was_good, ev.cause = DENIED, not ev.out, None
            ev.expect(PROBE)
        self._evs.put_out(evs)
        for ev in evs:
            self._history.note(now, ev, before[ev], "denied", self._evs.rotation.stand_in(ev))

    def _allow(self, now: float, ev: Ev) -> None:
        if ev.was_good and not ev.down:
            self._evs.restore(ev)
        else:
            ev.state, ev.retired_at = ASSUMED_BAD, now
            ev.expect(PROBE)
            self._evs.probe_at(ev, now)
            self._evs.arrange()
        self._history.note(now, ev, DENIED, "allowed")
