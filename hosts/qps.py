"""What several QPs of a host pair have in common in every transport: which messages are outstanding, and in which order they complete."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from hosts.core import Completion, taken


class Posting(Protocol):
    """A send QP, as far as counting its messages goes."""

    @property
    def done(self) -> int:
        """Messages that are wholly acknowledged, of all that were ever posted."""


Qp = TypeVar("Qp", bound=Posting)


class Ledger(Generic[Qp]):
    """What was posted to a peer, in order, over all its QPs: each entry a QP, and how many it had been given with it."""

    def __init__(self) -> None:
        self._posted: deque[tuple[Qp, int]] = deque()

    def append(self, qp: Qp, posted: int) -> None:
        """A message was given to `qp`, the `posted`-th of its life."""
        self._posted.append((qp, posted))

    def outstanding(self) -> int:
        """Entries from the first one on that is not wholly acknowledged: as many as the last ones whose data must not change."""
        posted = self._posted
        while posted and posted[0][0].done >= posted[0][1]:
            posted.popleft()
        return len(posted)

    def clear(self) -> None:
        """Forgets everything: the QPs have failed."""
        self._posted.clear()


class InTurn:
    """What QPs that got messages in turn have completed, in the order in which the peer posted: message n came on QP n modulo their number.

    `completed` are the QPs' own lists, which are emptied.
    """

    def __init__(self, completed: Sequence[list[Completion]]) -> None:
        self._completed = tuple(completed)
        self._waiting = tuple(deque[Completion]() for _ in completed)
        self._turn = 0

    def take(self) -> list[Completion]:
        """Completions since the last call, as far as nothing before them is missing."""
        if len(self._completed) == 1:
            return taken(self._completed[0])
        _collect(self._completed, self._waiting)
        done: list[Completion] = []
        while self._waiting[self._turn]:
            done.append(self._waiting[self._turn].popleft())
            self._turn = (self._turn + 1) % len(self._waiting)
        return done


class InPieces:
    """What QPs have completed of which each got a piece of every message: a message is complete when all its pieces are."""

    def __init__(self, completed: Sequence[list[Completion]]) -> None:
        self._completed = tuple(completed)
        self._waiting = tuple(deque[Completion]() for _ in completed)

    def take(self) -> list[Completion]:
        """Messages completed since the last call, in the order in which the peer posted."""
        _collect(self._completed, self._waiting)
        done: list[Completion] = []
        while all(self._waiting):
            first, *_ = [waiting.popleft() for waiting in self._waiting]
            done.append(first)
        return done


def _collect(completed: Sequence[list[Completion]], waiting: Sequence[deque[Completion]]) -> None:
    for fresh, queue in zip(completed, waiting, strict=True):
        queue.extend(taken(fresh))
