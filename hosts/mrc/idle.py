"""Probes beside those of bad paths: for the RTT of the idle fabric, and for the first sign of life after an outage of all paths.

The idle RTT: a few probes on each EV when the QP is connected, one at a time, before any data queues up.

Without them the first RTT samples come from a burst of data that fills the sender's own link, and the window would take that queue for
the base RTT. They also make each switch learn the way of each path (Open vSwitch's first packet of a flow is slow).
"""

from __future__ import annotations

import statistics
from collections import deque

from hosts.mrc.ev import Ev
from hosts.mrc.evs import EvSet
from hosts.mrc.params import MrcParams

MOST_PROBES = 256  # of one QP: a QP with many EVs measures each one less often
LEAST_BETWEEN_S = 0.005  # between two probes of a lifeline: at most 200 small packets a second
PATIENCE_RTTS = 4.0  # of the initial RTT: a probe without answer until then is given up


class IdleProbes:
    """Which idle probe is due, and what the answered ones measured."""

    __slots__ = ("_evs", "_id", "_left", "_open", "_patience_s", "_samples", "_sent_s")

    def __init__(self, evs: EvSet, params: MrcParams) -> None:
        rounds = min(params.idle_probes, max(1, MOST_PROBES // len(evs))) if params.idle_probes else 0
        self._evs = evs
        self._left: deque[Ev] = deque(ev for _ in range(rounds) for ev in evs.evs)
        self._patience_s = PATIENCE_RTTS * params.initial_rtt_s
        self._open: Ev | None = None
        self._id, self._sent_s = -1, float("-inf")
        self._samples: list[float] = []

    @property
    def pending(self) -> bool:
        """Whether a probe is still to be sent or to be answered."""
        return self._open is not None or bool(self._left)

    @property
    def idle_rtt_s(self) -> float | None:
        """Median RTT of the answered probes; None without any."""
        return statistics.median(self._samples) if self._samples else None

    def next_deadline(self) -> float | None:
        """When the next probe may be sent at the latest; None when all are done."""
        if self._open is not None:
            return self._sent_s + self._patience_s
        return self._sent_s if self._left else None

    def due(self, now: float) -> tuple[Ev, int] | None:
        """The EV to probe now and the probe's id, or None."""
        if self._open is not None and now < self._sent_s + self._patience_s:
            return None
        self._open = None
        while self._left and self._left[0].is_mute:
            self._left.popleft()
        if not self._left:
            return None
        self._open = self._left.popleft()
        self._id, self._sent_s = self._evs.idle_probe(self._open), now
        return self._open, self._id

    def answered(self, now: float, probe_id: int) -> tuple[Ev, float] | None:
        """The EV and RTT in seconds of the probe in question; None if it is none of ours."""
        ev = self._open
        if ev is None or probe_id != self._id:
            return None
        self._open = None
        self._samples.append(now - self._sent_s)
        return ev, now - self._sent_s


class Lifeline:
    """Probes on one EV after another while nothing is acknowledged, so that the first path that comes back is noticed at once.

    When all paths are dead no arrival condemns any, so none is probed as ASSUMED_BAD; and the probe timeout has doubled to seconds.
    An answer is taken once an outage: probes alone prove nothing about data, and must not keep the QP from failing.
    """

    __slots__ = ("_asked", "_at", "_every_s", "_evs", "_next", "_taken")

    def __init__(self, evs: EvSet, params: MrcParams) -> None:
        self._evs, self._every_s = evs, max(params.probe_interval_s / len(evs), LEAST_BETWEEN_S)
        self._asked: deque[tuple[int, Ev]] = deque(maxlen=MOST_PROBES)
        self._at: float | None = None
        self._next, self._taken = 0, False

    @property
    def pending(self) -> bool:
        """Whether probes are being sent."""
        return self._at is not None

    @property
    def used(self) -> bool:
        """Whether this outage has needed it."""
        return self._at is not None or self._taken

    def begin(self, now: float) -> None:
        """A probe timeout has passed."""
        if self._at is None and not self._taken:
            self._at = now + self._every_s

    def end(self) -> None:
        """Data was acknowledged."""
        self._at, self._taken = None, False
        self._asked.clear()

    def next_deadline(self) -> float | None:
        """When the next probe is due."""
        return self._at

    def due(self, now: float) -> tuple[Ev, int] | None:
        """The EV to probe now and the probe's id, or None."""
        if self._at is None or now < self._at:
            return None
        self._at = now + self._every_s
        ev = self._following()
        if ev is None:
            return None
        probe_id = self._evs.idle_probe(ev)
        self._asked.append((probe_id, ev))
        return ev, probe_id

    def _following(self) -> Ev | None:
        """The next EV in turn that may be probed at all."""
        evs = self._evs.evs
        for _ in evs:
            ev = evs[self._next % len(evs)]
            self._next += 1
            if not ev.is_mute:
                return ev
        return None

    def answered(self, probe_id: int) -> Ev | None:
        """The EV that carries again; None if no probe of this outage was meant, or one was answered before."""
        ev = next((ev for number, ev in self._asked if number == probe_id), None)
        if ev is not None:
            self.end()
            self._taken = True
        return ev
