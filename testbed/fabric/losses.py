"""Packets that the link program loses for several reasons at once: all, all data, or a share of them. Each goes with its own reason."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from testbed.errors import UsageError
from testbed.fabric import link_parameters
from testbed.fabric.bpf import MAX_EVS, LinkProgram, row_of
from testbed.fabric.reasons import count
from topologies import Link

Times = tuple[float, float]
Whole = Literal["drop_all", "drop_data"]
BOTH = (True, False)
"""Both directions of a link: what end a sends (True) and what end b sends."""
_CHANCE = ("loss_probability", "ev_probability", "ev_count", "evs")


def both(link: Link) -> list[tuple[Link, bool]]:
    """Both directions of one link, as `Losses.drop` takes them."""
    return [(link, from_a) for from_a in BOTH]


@dataclass(frozen=True)
class Chance:
    """A reason to lose packets by chance: a share of all, or (with `evs`) of those with these entropy values."""

    share: float
    evs: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Former:
    """Of a row without any reason: the share that it loses anyway, its rule for EVs, and the fields as they are in memory."""

    loss: float
    by_ev: Chance
    fields: tuple[Any, ...]


class Losses:
    """Writes what is lost into the rows of the link program. Thread-safe. Effective with the write: the next packet is judged by it."""

    def __init__(self, program: LinkProgram) -> None:
        self._program = program
        self._lock = threading.RLock()
        self._whole: Counter[tuple[Whole, int]] = Counter()  # (field, row) -> number of reasons
        self._chances: dict[int, dict[str, Chance]] = {}
        self._former: dict[int, _Former] = {}

    def drop(self, field: Whole, directions: Iterable[tuple[Link, bool]], on: bool) -> Times:
        """One more reason (or one less) to lose everything, or all data, of some directions (link, whether from end a)."""
        with self._lock:
            issued = time.monotonic()
            for link, from_a in directions:
                number = row_of(link, from_a)
                if count(self._whole, (field, number), more=on) and on:
                    self._program.rows["first_drop_ns"][number] = 0
                self._program.rows[field][number] = self._whole[field, number]
            return issued, time.monotonic()

    def lose(self, link: Link, reason: str, chance: Chance, ends: Iterable[bool] = BOTH) -> Times:
        """Loses by chance what these ends send, on top of what they lose anyway; UsageError for what the program cannot do."""
        with self._lock:
            issued = time.monotonic()
            numbers = [row_of(link, from_a) for from_a in ends]
            for number in numbers:
                _combined({**self._chances.get(number, {}), reason: chance})
            for number in numbers:
                self._chances.setdefault(number, {})[reason] = chance
                self._apply(number)
            return issued, time.monotonic()

    def restore(self, link: Link, reason: str) -> Times:
        """Takes a reason of `lose` away from both directions; without any left the row is what it was."""
        with self._lock:
            issued = time.monotonic()
            for number in (row_of(link, from_a) for from_a in BOTH):
                if self._chances.get(number, {}).pop(reason, None) is not None:
                    self._apply(number)
            return issued, time.monotonic()

    def _apply(self, number: int) -> None:
        row = self._program.rows[number]
        former = self._former.setdefault(number, _read(row))
        if not self._chances[number]:
            for name, value in zip(_CHANCE, former.fields, strict=True):
                row[name] = value
            del self._former[number]
            return
        share, by_ev = _combined(self._chances[number])
        rule = by_ev or former.by_ev
        loss = 1 - (1 - former.loss) * (1 - share) if share else former.loss
        link_parameters.change(row, loss=loss, evs=rule.evs, ev_loss=rule.share)


def _read(row: Any) -> _Former:
    told = link_parameters.read(row)
    return _Former(told.loss, Chance(told.ev_loss, tuple(told.evs)), tuple(row[name].copy() for name in _CHANCE))


def _combined(chances: dict[str, Chance]) -> tuple[float, Chance | None]:
    """(share of all packets, the rule for EVs): independent losses multiply; the program has one rule for EVs."""
    passes = math.prod(1 - chance.share for chance in chances.values() if not chance.evs)
    rules = [chance for chance in chances.values() if chance.evs]
    if not rules:
        return 1 - passes, None
    evs = tuple(sorted({ev for rule in rules for ev in rule.evs}))
    if len({rule.share for rule in rules}) > 1 or len(evs) > MAX_EVS:
        raise UsageError(f"a link direction can lose one share of the packets of at most {MAX_EVS} EVs at a time")
    return 1 - passes, Chance(rules[0].share, evs)
