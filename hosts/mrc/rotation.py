"""Whose turn it is: the seeded order of a send QP's EVs, and who stands in for those out of use.

A plane with a usable EV always has as many turns as it has EVs, so that the planes stay equal (MRC: an EV that is removed is replaced from
the same plane). A NIC that hashes entropy takes a fresh value; where the sender names the path, a fresh value would only name one of the
same paths again, so the turns of the absent go to EVs of the set. They pass from one to the next with each rotation: with one EV a path, a
stand-in for good would carry twice what the others do.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Sequence
from random import Random

from hosts.mrc.ev import DENIED, GOOD, SKIP, Ev


class Bench:
    """The EVs of one plane that take the turns of its absent ones.

    They are those of paths on which nothing was lost, if there are any: the next EV of a path that has just lost a packet is no relief.
    """

    __slots__ = ("_absent", "_waiting")

    def __init__(self, usable: Sequence[Ev], absent: Sequence[Ev], rng: Random) -> None:
        troubled = {ev.path.ev for ev in absent if ev.state != DENIED}
        drawn = [ev for ev in usable if ev.path.ev not in troubled] or list(usable)
        rng.shuffle(drawn)
        self._waiting, self._absent = deque(_by_turns(drawn)), absent

    def stand_ins(self) -> dict[Ev, Ev]:
        """Who takes whose turn in the rotation that begins."""
        chosen: dict[Ev, Ev] = {}
        for ev in self._absent:
            chosen[ev] = self._waiting[0]
            self._waiting.rotate(-1)
        return chosen


def _by_turns(evs: Sequence[Ev]) -> list[Ev]:
    """One EV of each path, then a second one of each, and so on."""
    taken: Counter[int] = Counter()
    rounds: dict[Ev, int] = {}
    for ev in evs:
        rounds[ev] = taken[ev.path.ev]
        taken[ev.path.ev] += 1
    return sorted(evs, key=rounds.__getitem__)


class Rotation:
    """Gives each turn to an EV; the order is drawn anew for each rotation, because a fixed one would keep two senders in step."""

    __slots__ = ("_alone", "_benches", "_next", "_own", "_rng", "_stand_ins", "_turns")

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._own: list[Ev] = []  # those who have a turn of their own
        self._benches: list[Bench] = []
        self._stand_ins: dict[Ev, Ev] = {}
        self._turns: list[Ev] = []
        self._next, self._alone = 0, True

    def arrange(self, planes: Collection[Sequence[Ev]], helpers: Sequence[Ev]) -> None:
        """Begins anew with the EVs that are not out of use, and with `helpers` that are, but are needed all the same (a turn each)."""
        self._own, self._benches = list(helpers), []
        for plane in planes:
            usable = [ev for ev in plane if not ev.out]
            self._own += usable
            absent = [ev for ev in plane if ev.out and ev not in helpers]
            if usable and absent:
                self._benches.append(Bench(usable, absent, self._rng))
        self._alone = len(self._own) == 1
        self._begin()

    def stand_in(self, ev: Ev) -> Ev | None:
        """Who takes the turn of `ev` in this rotation; None: nobody, its plane has no usable EV."""
        return self._stand_ins.get(ev)

    def pick(self, avoid: Ev | None = None) -> Ev:
        """The EV of the next packet; another one than `avoid` when there is another.

        Of the turns that `avoid` misses one is kept, and comes next: all of them in a row would be a burst on one path.
        """
        at = self._next
        if at < len(self._turns):
            ev = self._turns[at]
            if ev.state == GOOD and ev is not avoid:  # as nearly always
                self._next = at + 1
                return ev
        ev = self._advance()
        if ev is not avoid or self._alone:
            return ev
        while ev is avoid:
            ev = self._advance()
        self._turns.insert(self._next, avoid)
        return ev

    def _advance(self) -> Ev:
        while True:
            if self._next >= len(self._turns):
                self._begin()
            ev = self._turns[self._next]
            self._next += 1
            if ev.state != SKIP or ev.out:
                return ev
            ev.state = GOOD  # passed over once

    def _begin(self) -> None:
        last = self._turns[-1] if self._turns else None
        turns = self._own.copy()
        if self._benches:
            self._stand_ins = {ev: other for bench in self._benches for ev, other in bench.stand_ins().items()}
            turns += self._stand_ins.values()
        elif self._stand_ins:
            self._stand_ins = {}
        draw = self._rng.random
        turns.sort(key=lambda _: draw())  # a shuffle, at a third of the time of Random.shuffle
        if turns[0] is last:
            turns.append(turns.pop(0))
        self._turns, self._next = turns, 0
