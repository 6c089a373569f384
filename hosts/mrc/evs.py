"""The EVs of one send QP: how many a path, which of them the rotation uses, and the probes that bring a path back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from random import Random
from typing import TYPE_CHECKING

from hosts.core import PathSpec
from hosts.mrc.ev import ASSUMED_BAD, DENIED, GOOD, PORT_UP, PROBE, SKIP, Ev
from hosts.mrc.params import MOST_EVS, MrcParams
from hosts.mrc.rotation import Rotation
from testbed.errors import UsageError

if TYPE_CHECKING:
    from hosts.mrc.loss import Tx

PROBE_ID_MASK = 0xFFFF
AGAIN_TRIES = 3  # turns looked at: an EV may have the last one of a rotation and the first one of the next
FLOOR_SHARE = 4  # the floor is a quarter of the set, as in MRC's example
MOST_DOUBLINGS = 30
ANSWER_RTTS = 2.0  # of the EV: least time between two probes
LATE_PROBES = 32  # probes of an EV whose answers may come later than the next probe is due
RETURNING_PROBES = 8  # unanswered, after which an EV whose port came back is probed like any other


def spread(paths: tuple[PathSpec, ...], wanted: int, place: int = 0) -> tuple[Ev, ...]:
    """At least `wanted` EVs, at least one a path, and the same number on every plane: over all paths again and again, until each plane
    has its number. It is a multiple of the largest number of paths in a plane; at most MOST_EVS EVs come out.
    The QPs of a pair number their EVs on: `place` is the QP's number among them. The peer knows an EV by its number alone, so EV i always
    takes path i modulo the number of paths; where planes have unequally many paths some numbers are left out.

    Raises:
        UsageError: there are more paths than a QP can have EVs.
    """
    sizes: dict[int, int] = {}
    for path in paths:
        sizes[path.plane] = sizes.get(path.plane, 0) + 1
    step = max(sizes.values())
    most_rounds = MOST_EVS // (step * len(sizes))
    if not most_rounds:
        raise UsageError(f"a QP has at most {MOST_EVS} EVs, the same number on each plane: too few for {len(paths)} paths to one peer")
    room = dict.fromkeys(sizes, step * min(most_rounds, max(1, -(-wanted // (step * len(sizes))))))
    rounds = max(-(-room[plane] // size) for plane, size in sizes.items())
    numbered, evs = enumerate(paths * rounds, paths[0].ev + place * rounds * len(paths)), list[Ev]()
    for number, path in numbered:
        if room[path.plane]:
            room[path.plane] -= 1
            evs.append(Ev(number, path))
    return tuple(evs)


def numbers_text(evs: Iterable[Ev]) -> str:
    """The numbers of EVs, for people: "0 to 3, 6, 7"."""
    rows: list[list[int]] = []
    for ev in evs:
        if rows and ev.index == rows[-1][-1] + 1:
            rows[-1].append(ev.index)
        else:
            rows.append([ev.index])
    return ", ".join(f"{row[0]} to {row[-1]}" if len(row) > 1 else str(row[0]) for row in rows)


class EvSet:
    """All EVs of a send QP, those out of use in the order of leaving, and the rotation over the others.

    With fewer than the floor in use those help out that were lost longest ago, but neither denied ones nor those of a port that is down.
    """

    __slots__ = (
        "_floor",
        "_numbered",
        "_params",
        "_planes",
        "_probe_at",
        "_probe_id",
        "_rng",
        "_stale",
        "evs",
        "out",
        "pick",
        "probed",
        "rotation",
    )

    def __init__(self, paths: tuple[PathSpec, ...], params: MrcParams, rng: Random, place: int = 0) -> None:
        self.evs = spread(paths, params.evs, place)
        self._numbered = {ev.index: ev for ev in self.evs}
        self.out: list[Ev] = []
        self.probed: list[Ev] = []  # those of `out` on which probes are sent
        self.rotation = Rotation(rng)
        self.pick = self.rotation.pick
        self._planes = [[ev for ev in self.evs if ev.path.plane == plane] for plane in sorted({path.plane for path in paths})]
        self._params, self._rng = params, rng
        self._floor = min(params.ev_min_active or max(1, len(self.evs) // FLOOR_SHARE), len(self.evs))
        self._probe_id = rng.randrange(PROBE_ID_MASK + 1)
        self._probe_at: float | None = None
        self._stale = False
        self.arrange()

    def __len__(self) -> int:
        return len(self.evs)

    def numbered(self, number: int) -> Ev | None:
        """The EV of that number, if it is one of these."""
        return self._numbered.get(number)

    @property
    def good_count(self) -> int:
        """How many EVs are GOOD, or are only skipped once."""
        return len(self.evs) - len(self.out)

    @property
    def most_are_lost(self) -> bool:
        """Whether fewer than half of the EVs are in use, of those that are neither denied nor on a port that is down."""
        if not self.out:
            return False
        lost = sum(ev.state != DENIED and not ev.down for ev in self.out)
        return self.good_count < lost

    def count_ports(self) -> int:
        """How many of the NIC's ports the EVs in use have; all that the set has, if none is in use."""
        return len({ev.path.port for ev in self.evs if not ev.out} or {ev.path.port for ev in self.evs})

    def named(self, links: Collection[str], numbers: Collection[int]) -> list[Ev]:
        """The EVs with these numbers, and those whose path uses one of these links."""
        links, numbers = set(links), set(numbers)
        return [ev for ev in self.evs if ev.index in numbers or not links.isdisjoint(ev.path.links)]

    def pick_again(self, failed: Ev, late: Ev | None) -> Ev:
        """The EV of a retransmission: not `failed`, which lost the packet; nor `late`, whose put-off turn is next, if there is a third."""
        for _ in range(AGAIN_TRIES):
            ev = self.pick(late or failed)
            if ev is not failed:
                return ev
        return self.pick(failed)

    def skip(self, ev: Ev) -> None:
        """`ev` met congestion: the rotation passes it over once. When it passes over all, it goes on as if there were no reason to."""
        if ev.state == GOOD:
            ev.state = SKIP

    def retire(self, now: float, ev: Ev, cause: Tx | None, state: str = ASSUMED_BAD) -> bool:
        """Takes `ev` out of use, after the loss of `cause` if there was one; False when it was out (it goes to the back of the reserve).

        `state` SKIP: it is out, and probed, but not yet called bad.
        """
        first = not ev.out
        ev.retired_at, ev.cause = now, cause
        if first:
            ev.state = state
            ev.expect(PROBE)
            self.put_out((ev,))
        elif self.good_count < self._floor:
            self.arrange()
        return first

    def put_out(self, evs: Iterable[Ev]) -> None:
        """Takes EVs out of the rotation, or has it heed that their states changed."""
        for ev in evs:
            if not ev.out:
                ev.out = True
                self.out.append(ev)
        self.arrange()

    def restore(self, ev: Ev) -> None:
        """Makes `ev` GOOD again."""
        ev.state, ev.out, ev.cause, ev.down = GOOD, False, None, 0
        ev.expect(PROBE)
        self.out.remove(ev)
        self.arrange()

    def arrange(self) -> None:
        """Works out anew who has turns and who is probed."""
        self.probed, self._stale = [ev for ev in self.out if not ev.is_mute], True
        missing = self._floor - self.good_count
        helpers: list[Ev] = []
        if missing > 0:
            reserve = [ev for ev in self.probed if not ev.down]
            helpers = sorted(reserve, key=lambda ev: ev.retired_at)[:missing]
        self.rotation.arrange(self._planes, helpers if helpers or self.good_count else self._last_resort())

    def _last_resort(self) -> list[Ev]:
        """With all ports down there must be something to send on all the same, or no timeout would ever end the QP."""
        return self.probed or [ev for ev in self.out if ev.state != DENIED]

    # Probes

    def schedule_probe(self, now: float, ev: Ev, srtt_s: float) -> None:
        """Sets when `ev` is probed next: not before the answer to this probe can be here."""
        params = self._params
        returning = ev.proof == PORT_UP and ev.misses < RETURNING_PROBES
        interval = max(params.probe_interval_s, (params.port_up_rtts if returning else params.probe_rtts) * srtt_s)
        if ev.misses and interval < params.probe_interval_max_s:
            interval = min(interval * (1 << min(ev.misses, MOST_DOUBLINGS)), params.probe_interval_max_s)
        interval = max(interval, len(self.probed) / params.probe_rate_max, ANSWER_RTTS * ev.rtt_s)
        self.probe_at(ev, now + interval * (1.0 + self._rng.uniform(-1.0, 1.0) * params.probe_jitter))

    def probe_at(self, ev: Ev, at: float) -> None:
        """`ev` is probed next at that time."""
        ev.probe_at, self._stale = at, True

    def next_probe(self) -> float | None:
        """When the next probe is due."""
        if self._stale:
            self._probe_at, self._stale = min((ev.probe_at for ev in self.probed), default=None), False
        return self._probe_at

    def due_probes(self, now: float, srtt_s: float) -> Iterator[Ev]:
        """The EVs to probe now, each with a fresh `probe_id`; a probe without answer until now ends the row of successes."""
        for ev in [ev for ev in self.probed if ev.probe_at <= now]:
            if ev.probe_id in ev.asked:
                ev.probes_answered, ev.misses = 0, ev.misses + 1
            ev.probe_id = self.idle_probe(ev)
            ev.asked[ev.probe_id] = now
            if len(ev.asked) > LATE_PROBES:
                del ev.asked[next(iter(ev.asked))]
            self.schedule_probe(now, ev, srtt_s)
            yield ev

    def idle_probe(self, ev: Ev) -> int:
        """The id of a probe that only measures: it proves nothing about the state of `ev`."""
        self._probe_id = (self._probe_id + 1) & PROBE_ID_MASK
        ev.probes_sent += 1
        return self._probe_id

    def probe_answered(self, now: float, probe_id: int) -> tuple[Ev, bool] | None:
        """The EV whose probe was answered and whether it has proved itself; None when the answer is doubled, forged or very late.

        One that comes after the next probe proves nothing, but tells how long the path takes: else it would never be waited for.
        """
        for ev in self.probed:
            sent_s = ev.asked.pop(probe_id, None)
            if sent_s is not None:
                if probe_id != ev.probe_id:
                    ev.rtt_s = max(ev.rtt_s, now - sent_s)
                    return ev, False
                ev.misses = 0
                ev.probes_answered += 1
                needed = self._params.port_up_probes if ev.proof == PORT_UP else self._params.probe_successes
                return ev, ev.probes_answered >= needed
        return None
