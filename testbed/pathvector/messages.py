"""What speakers send each other: the parts of BGP's messages (RFC 4271 section 4) that routing here depends on."""

from __future__ import annotations

from dataclasses import dataclass

Path = tuple[int, ...]
"""AS numbers, the nearest first."""


@dataclass(frozen=True)
class Update:
    """One UPDATE: addresses that are reached by `path`, or addresses that are not reached any more."""

    announced: tuple[str, ...] = ()
    path: Path = ()
    withdrawn: tuple[str, ...] = ()


@dataclass(frozen=True)
class Notification:
    """The sender has ended the session."""


@dataclass(frozen=True)
class Sent:
    """A message on its way: when it was sent, and in which of the link's sessions."""

    t: float
    session: int
    message: Update | Notification
