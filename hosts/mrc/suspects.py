"""Paths that were left because a packet is missing, while it may still lie in a queue (docs/decisions/0012-late-is-not-lost.md)."""

from __future__ import annotations

from hosts.mrc.evs import SKIP, Ev
from hosts.mrc.params import MrcParams

BITS_PER_BYTE = 8


class Suspects:
    """EVs that are out of use and not yet called bad. No clock convicts one: only an arrival that is too late for any queue, or silence."""

    __slots__ = ("_evs", "patience_s")

    def __init__(self, params: MrcParams) -> None:
        packet_s = params.payload_bytes * BITS_PER_BYTE / params.link_rate_bps if params.link_rate_bps > 0 else 0.0
        self.patience_s = params.late_packets * packet_s  # how long the deepest queue can hold a packet; 0 = not known
        self._evs: list[Ev] = []

    def __len__(self) -> int:
        return len(self._evs)

    def add(self, ev: Ev) -> None:
        """`ev` was taken out after the loss of its `cause`."""
        self._evs.append(ev)

    def convicted(self, newest_sent_s: float) -> list[Ev]:
        """Those that are bad for sure: a packet sent a queue's length after the missing one has arrived, or a probe was not answered."""
        open_cases = [ev for ev in self._evs if ev.out and ev.state == SKIP]
        bad = [ev for ev in open_cases if ev.probe_missed or self._too_late(ev, newest_sent_s)]
        self._evs = [ev for ev in open_cases if ev not in bad]
        return bad

    def _too_late(self, ev: Ev, newest_sent_s: float) -> bool:
        return ev.cause is not None and newest_sent_s > ev.cause.sent_s + self.patience_s
