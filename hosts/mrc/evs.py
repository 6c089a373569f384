"""The EVs of one send QP: their paths, their states, the spraying order and the probes that bring a path back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any

from hosts.core import PathSpec
from hosts.mrc.params import MrcParams

if TYPE_CHECKING:
    from hosts.mrc.loss import Tx

GOOD, SKIP, ASSUMED_BAD, DENIED = "GOOD", "SKIP", "ASSUMED_BAD", "DENIED"
PROBE_ID_MASK = 0xFFFF


class Ev:
    """One entropy value and what is known of its path."""

    __slots__ = (
        "acked_order", "cause", "index", "last_tx_s", "lost_packets", "marked_packets", "out", "path", "probe_at", "probe_id",
        "probe_missed", "probe_open", "probes_answered", "probes_sent", "retired_at", "rtt_s", "sent", "state", "trimmed_packets",
        "tx_packets",
    )  # fmt: skip

    def __init__(self, index: int, path: PathSpec) -> None:
        self.index, self.path, self.state = index, path, GOOD
        self.sent: deque[Tx] = deque()  # data transmissions in order, from the first that is not yet settled
        self.acked_order = -1  # order of the newest transmission on this EV that surely arrived
        self.out = False  # of the rotation: ASSUMED_BAD, or SKIP while that is not sure yet
        self.cause: Tx | None = None  # the loss that took it out
        self.tx_packets = self.lost_packets = self.trimmed_packets = self.marked_packets = 0
        self.probes_sent = self.probes_answered = 0
        self.last_tx_s: float | None = None
        self.retired_at = self.probe_at = float("-inf")
        self.probe_id = -1
        self.probe_open = self.probe_missed = False
        self.rtt_s = 0.0  # smoothed; 0 = unknown

    def change(self, reason: str) -> dict[str, Any]:
        """What the history says of a change between GOOD and ASSUMED_BAD (docs/architecture.md, `ev_state`)."""
        before, after = (GOOD, ASSUMED_BAD) if self.state == ASSUMED_BAD else (ASSUMED_BAD, GOOD)
        return {
            "ev": self.index, "path": list(self.path.links), "from": before, "to": after, "reason": reason, "last_tx_s": self.last_tx_s,
            "first_lost_tx_s": self.cause.sent_s if self.cause is not None else None,
        }  # fmt: skip

    def sample_rtt(self, rtt_s: float) -> None:
        """Takes one RTT sample of this EV's path."""
        self.rtt_s += (rtt_s - self.rtt_s) / 8 if self.rtt_s else rtt_s


class EvSet:
    """Sprays over the EVs that are not bad in seeded pseudo-random order; below the floor also over those retired longest ago."""

    __slots__ = ("_active", "_floor", "_next", "_params", "_probe_id", "_rng", "bad", "evs")

    def __init__(self, paths: tuple[PathSpec, ...], params: MrcParams, rng: Random) -> None:
        wanted = max(params.evs, len(paths))
        count = -(-wanted // len(paths)) * len(paths)  # the same number on every path
        self.evs = tuple(Ev(index, paths[index % len(paths)]) for index in range(count))
        self.bad: list[Ev] = []
        self._params, self._rng, self._floor = params, rng, min(params.ev_min_active, count)
        self._probe_id = rng.randrange(PROBE_ID_MASK + 1)
        self._active: list[Ev] = []
        self._next = 0
        self._rebuild()

    def __len__(self) -> int:
        return len(self.evs)

    @property
    def good_count(self) -> int:
        """How many EVs are GOOD, or are only skipped once."""
        return len(self.evs) - len(self.bad)

    def pick(self, avoid: Ev | None = None) -> Ev:
        """The EV of the next packet; another one than `avoid` when there is another."""
        ev = self._advance()
        while ev is avoid and len(self._active) > 1:
            ev = self._advance()
        return ev

    def skip(self, ev: Ev) -> None:
        """`ev` met congestion: the rotation passes it over once. When it passes over all, it goes on as if there were no reason to."""
        if ev.state == GOOD:
            ev.state = SKIP

    def _advance(self) -> Ev:
        while True:
            if self._next >= len(self._active):
                self._reorder()
            ev = self._active[self._next]
            self._next += 1
            if ev.state != SKIP or ev.out:
                return ev
            ev.state = GOOD

    def _reorder(self) -> None:
        last = self._active[-1]
        self._rng.shuffle(self._active)  # a fixed order would keep two senders in step on the same path
        if self._active[0] is last:
            self._active.append(self._active.pop(0))
        self._next = 0

    def retire(self, now: float, ev: Ev, cause: Tx | None, state: str = ASSUMED_BAD) -> bool:
        """Takes `ev` out of use, after the loss of `cause` if there was one; False when it was out (it goes to the back of the reserve).

        `state` SKIP: it is out, and probed, but not yet called bad.
        """
        first = not ev.out
        ev.retired_at, ev.cause = now, cause
        if first:
            ev.state, ev.out = state, True
            ev.probes_answered, ev.probe_open, ev.probe_missed = 0, False, False
            self.bad.append(ev)
        self._rebuild()
        return first

    def schedule_probe(self, now: float, ev: Ev, srtt_s: float) -> None:
        """Sets when `ev` is probed next."""
        interval = max(self._params.probe_interval_s, self._params.probe_rtts * srtt_s)
        ev.probe_at = now + interval * (1.0 + self._rng.uniform(-1.0, 1.0) * self._params.probe_jitter)

    def restore(self, ev: Ev) -> None:
        """Makes `ev` GOOD again."""
        ev.state, ev.out, ev.cause, ev.probe_open = GOOD, False, None, False
        self.bad.remove(ev)
        self._rebuild()

    def next_probe(self) -> float | None:
        """When the next probe is due."""
        return min((ev.probe_at for ev in self.bad), default=None)

    def due_probes(self, now: float, srtt_s: float) -> Iterator[Ev]:
        """The EVs to probe now, each with a fresh `probe_id`; a probe without answer until now ends the row of successes."""
        for ev in [ev for ev in self.bad if ev.probe_at <= now]:
            if ev.probe_open:
                ev.probes_answered, ev.probe_missed = 0, True
            self._probe_id = (self._probe_id + 1) & PROBE_ID_MASK
            ev.probe_id, ev.probe_open = self._probe_id, True
            ev.probes_sent += 1
            self.schedule_probe(now, ev, srtt_s)
            yield ev

    def idle_probe(self, ev: Ev) -> int:
        """The id of a probe that only measures: it proves nothing about the state of `ev`."""
        self._probe_id = (self._probe_id + 1) & PROBE_ID_MASK
        ev.probes_sent += 1
        return self._probe_id

    def probe_answered(self, probe_id: int) -> tuple[Ev, bool] | None:
        """The EV whose probe was answered and whether it has proved itself; None when the answer is late, doubled or forged."""
        for ev in self.bad:
            if ev.probe_open and ev.probe_id == probe_id:
                ev.probe_open = False
                ev.probes_answered += 1
                return ev, ev.probes_answered >= self._params.probe_successes
        return None

    def _rebuild(self) -> None:
        active = [ev for ev in self.evs if not ev.out]
        if len(active) < self._floor:
            active += sorted(self.bad, key=lambda ev: ev.retired_at)[: self._floor - len(active)]
        self._rng.shuffle(active)
        self._active, self._next = active, 0
