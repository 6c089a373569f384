"""The way back: over which paths a host answers a peer that writes to it, and the probes that find those that are dead in this direction.

SACKs and NACKs return on the path of the packet that they answer, which is known to carry, but only the other way. A path may be dead in
one direction alone, and nobody would tell the receiver: what it sends is not acknowledged. So, while a peer's data comes in and nothing
goes out to it, one EV of a small set is probed each round trip (EV_PROBE of hosts/mrc/endpoint.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random

from hosts.core import PathSpec
from hosts.mrc.ev import DENIED
from hosts.mrc.evs import EvSet
from hosts.mrc.params import MOST_REVERSE_EVS, MrcParams

MOST_OPEN = 64  # probes whose answer may still come
LEAST_PATIENCE_S = 0.010  # a busy peer answers late, and that is not the path's fault
LEAST_HURRY_S = 0.001  # between two probes in a hurry, however short the round trip


NEVER = float("inf")


class Alarm:
    """When the first of a host's sets has something to do; NEVER while nothing has come in for any since its last probe."""

    __slots__ = ("due_at",)

    def __init__(self) -> None:
        self.due_at = NEVER

    def by(self, at: float) -> None:
        """It is due by that time."""
        if at < self.due_at:
            self.due_at = at


@dataclass(slots=True)
class Probe:
    """One that was sent on path `path`. `missed`: it was not answered in time."""

    path: int
    sent_s: float
    missed: bool = False


class ReversePaths:
    """The reverse-path EV set towards one peer: `evs` are the places of paths, whose first EVs are the set. An EV's number modulo the
    number of paths is its path's place; the set has at most one EV of each path.

    `forward`: the EVs of this host's send QPs to the peer, whose verdicts hold for answers too. `local_down`: mask of this host's ports
    that are down.
    """

    def __init__(self, paths: Sequence[PathSpec], params: MrcParams, rng: Random, alarm: Alarm) -> None:
        self.forward: list[EvSet] = []
        self.local_down = 0
        self.asked = False  # data came in since the last probe
        self._paths, self._params, self._rng, self._alarm = paths, params, rng, alarm
        self.evs = chosen(paths, params.reverse_evs)
        self._is_choice = len(self.evs) > 1
        self.due_at = -NEVER if self._is_choice else NEVER  # the next probe, or the end of patience with one
        self._deck: list[int] = []
        self._turn = 0
        self._dead: dict[int, int] = {}  # paths whose probe was not answered, and how many were since
        self._shut: frozenset[int] = frozenset()  # paths over ports that are down
        self._barred: frozenset[int] = frozenset()  # paths over links that the administrator denied
        self._open: dict[int, Probe] = {}
        self._srtt_s, self._hurried = params.initial_rtt_s, 0
        self._probe_at = self.due_at

    @property
    def dead(self) -> frozenset[int]:
        """Paths on which the last probe was not answered."""
        return frozenset(self._dead)

    def way(self, entropy: int) -> int:
        """The EV on which to answer what came with `entropy`: the same, or another one if its path is known to be bad in this direction."""
        if not (self._dead or self._shut or self._barred or (self.forward and any(evs.out for evs in self.forward))):
            return entropy
        bad = self._bad()
        if entropy % len(self._paths) not in bad:
            return entropy
        for _ in self.evs:
            self._turn = (self._turn + 1) % len(self.evs)
            if self.evs[self._turn] not in bad:
                return self._paths[self.evs[self._turn]].ev
        return entropy

    def _bad(self) -> set[int]:
        """Paths not to answer on."""
        return {*self._dead, *self._shut, *self._barred, *(ev.index % len(self._paths) for evs in self.forward for ev in evs.out)}

    def on_ports(self, local_down: int, peer_down: int) -> None:
        """Masks of the ports that are down at each end."""
        self.local_down = local_down
        paths = enumerate(self._paths)
        self._shut = frozenset(at for at, path in paths if local_down >> path.port & 1 or peer_down >> path.peer_port & 1)

    def deny(self, links: Collection[str], on: bool) -> None:
        """What the administrator says of links, for the way back: also to a peer to whom no data is sent, so that there are no EVs."""
        named = {at for at, path in enumerate(self._paths) if not set(links).isdisjoint(path.links)}
        self._barred = self._barred | named if on else self._barred - named

    def is_denied(self, ev: int) -> bool:
        """Whether nothing of ours may be sent on this EV of the set."""
        number = self._paths[ev].ev
        return ev in self._barred or any((own := evs.numbered(number)) is not None and own.state == DENIED for evs in self.forward)

    # Probes

    def heard(self) -> None:
        """Data came in and is being answered: the way back matters, where there is another one."""
        if self._is_choice:
            self.asked = True
            self._alarm.by(self.due_at)

    def hurry(self, now: float) -> None:
        """A duplicate came: perhaps an answer was lost. Each EV of the set is probed once, one a round trip."""
        if self._hurried == 0 and self._is_choice:
            self._hurried = len(self.evs)
            self._probe_at = min(self._probe_at, now + self._round_s())
            self.due_at = min(self.due_at, self._probe_at)
            if self.asked:
                self._alarm.by(self.due_at)

    def due(self, now: float, number: int) -> int | None:
        """The path to probe now, with the probe's number, or None. Calls those paths dead whose probe has waited long enough."""
        patience_s = self._patience_s()
        for probe in self._open.values():
            if not probe.missed and now >= probe.sent_s + patience_s:
                probe.missed, self._dead[probe.path] = True, 0
        ev = self._next(now) if now >= self._probe_at else None
        if ev is not None:
            if len(self._open) >= MOST_OPEN:
                del self._open[next(iter(self._open))]
            self._open[number] = Probe(ev, now)
        self._set_due()
        return ev

    def _patience_s(self) -> float:
        """How long an answer is waited for."""
        return max(self._params.reverse_patience_rtts * self._srtt_s, LEAST_PATIENCE_S)

    def _set_due(self) -> None:
        waiting = [probe.sent_s for probe in self._open.values() if not probe.missed]
        self.due_at = min(self._probe_at, min(waiting) + self._patience_s()) if waiting else self._probe_at

    def postpone(self, now: float) -> None:
        """This host sends to the peer itself, and its own acknowledgements tell about the paths."""
        self.asked, self._hurried = False, 0
        self.due_at = self._probe_at = now + self._params.reverse_probe_min_s

    def _next(self, now: float) -> int | None:
        """A random EV of the set, each once before any a second time; none over a port of ours that is down, and none that is denied."""
        self.asked = False
        self._hurried = max(0, self._hurried - 1)
        self._probe_at = now + (self._round_s() if self._hurried else max(self._srtt_s, self._params.reverse_probe_min_s))
        for _ in self.evs:
            if not self._deck:
                self._deck = list(self.evs)
                self._rng.shuffle(self._deck)
            ev = self._deck.pop()
            if not self.local_down >> self._paths[ev].port & 1 and not self.is_denied(ev):
                return ev
        return None

    def _round_s(self) -> float:
        return max(self._srtt_s, LEAST_HURRY_S)

    def answered(self, now: float, number: int) -> int | None:
        """The path whose probe was answered; None if none of ours was, or it was answered before.

        A late answer takes the verdict back at once; one in time counts, and `reverse_successes` of them bring a dead path back.
        """
        probe = self._open.pop(number, None)
        if probe is None:
            return None
        self._srtt_s += (now - probe.sent_s - self._srtt_s) / 8
        if probe.path in self._dead:
            self._dead[probe.path] += 1
            if probe.missed or self._dead[probe.path] >= self._params.reverse_successes:
                del self._dead[probe.path]
        self._set_due()
        return probe.path


def chosen(paths: Sequence[PathSpec], wanted: int) -> list[int]:
    """The EVs of a set of `wanted` (0: one a path), taken from the planes in turn, and at least one a plane."""
    planes: dict[int, list[int]] = {}
    for at, path in enumerate(paths):
        planes.setdefault(path.plane, []).append(at)
    count = max(min(wanted or len(paths), len(paths), MOST_REVERSE_EVS), len(planes))
    rounds = max(len(members) for members in planes.values())
    in_turn = [members[at] for at in range(rounds) for members in planes.values() if at < len(members)]
    return in_turn[:count]
