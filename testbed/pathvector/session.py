"""One BGP session between two switches: each end has its own opinion of it, and only packets that really arrive change the other's.

Messages travel in the model, but a message arrives with the next packet that crosses the link (as a rule the one that was sent with it); so
a link that loses packets holds up messages, as TCP would, and an end that has given up is only believed dead once something of it gets
through.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from testbed.pathvector.agenda import Agenda
from testbed.pathvector.messages import Notification, Sent, Update
from testbed.pathvector.options import BgpOvsOptions

HELLO_S = 0.2
"""Between the attempts of an end that has no session: what it sends may be the first packet after a silence. (FRR tries again within a
second of the first packet that passes; docs/bgp.md.)"""
HELLOS_MISSED = 3
"""A handshake fails when an end has heard nothing for so many attempts."""
RETRANSMIT_S = 0.2
"""First retransmission of a message; doubled each time (Linux: TCP_RTO_MIN, RFC 6298 5.5)."""
BFD_JITTER = 0.25
"""A BFD packet comes up to so much of the interval early (RFC 5880 6.8.7)."""


class Owner(Protocol):
    """What a session wants of the fabric that it is part of."""

    options: BgpOvsOptions
    agenda: Agenda
    rng: random.Random

    def packet(self, end: End) -> None:
        """A real packet leaves the end."""

    def record(self, t: float, event: str, end: End, **more: Any) -> None:
        """History of an end: `node` and `peer` are its switch and the other one."""

    def established(self, t: float, end: End) -> None:
        """The end's speaker has a neighbour."""

    def ended(self, t: float, end: End) -> None:
        """It has lost it."""

    def update(self, t: float, end: End, message: Update) -> None:
        """A message has arrived at the end."""


@dataclass
class End:
    """One end: what its switch knows. `out` holds what it sent and the other end has not got yet."""

    switch: str
    ifname: str
    carrier: bool = True
    running: bool = True
    up: bool = False
    session: int = 0
    heard: float = -math.inf
    ready_since: float = -math.inf
    out: list[Sent] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        """Whether it tries to get a session."""
        return self.carrier and self.running and not self.up


class Session:
    """The two ends of a link, and all sessions that they have one after another."""

    def __init__(self, owner: Owner, ends: tuple[End, End]) -> None:
        self._owner, self.ends = owner, ends
        self._number, self._opening = 0, False

    def far(self, end: End) -> End:
        """The other end."""
        return self.ends[0] if end is self.ends[1] else self.ends[1]

    def begin(self, t: float) -> None:
        """Established from the start, if both ends are there; else those that are there try."""
        if all(end.ready for end in self.ends):
            self._establish(t)
        else:
            for end in self.ends:
                self._try(t, end)

    def set_carrier(self, t: float, end: End, up: bool) -> None:
        """The end's switch has learnt of its carrier. Without it the session falls at once (RFC 7938 7.1: fast external failover)."""
        end.carrier = up
        self._changed(t, end, "carrier")

    def set_running(self, t: float, end: End, running: bool) -> None:
        """The end's speaker has come or gone."""
        end.running = running
        self._changed(t, end, "speaker")

    def _changed(self, t: float, end: End, reason: str) -> None:
        if end.carrier and end.running:
            self._try(t, end)
        else:
            self._opening = False
            self._drop(t, end, reason)

    def send(self, t: float, end: End, updates: list[Update]) -> None:
        """Messages leave, and a packet that carries them."""
        end.out += [Sent(t, end.session, update) for update in updates]
        self._transmit(t, end, end.session, RETRANSMIT_S)

    def _transmit(self, t: float, end: End, session: int, again_s: float) -> None:
        """As TCP: over and over, until it has arrived or the session is over."""
        if end.out and end.up and end.session == session:
            self._owner.packet(end)
            self._owner.agenda.at(t + again_s, lambda at: self._transmit(at, end, session, 2 * again_s))

    def hear(self, t: float, end: End) -> None:
        """A packet has arrived at the end, and with it all that the other one sent until now."""
        if not (end.carrier and end.running):
            return
        end.heard = t
        far = self.far(end)
        arrived, far.out = far.out, []
        for sent in arrived:
            at = max(t, sent.t + self._owner.options.propagation_s)
            self._owner.agenda.at(at, partial(self._arrive, end, sent))
        self._handshake(t)

    def _arrive(self, end: End, sent: Sent, t: float) -> None:
        """What belongs to another session than the end's own is nothing to it."""
        if not (end.up and end.session == sent.session):
            return
        message = sent.message
        if isinstance(message, Update):
            counts = {"announced": len(message.announced), "withdrawn": len(message.withdrawn)}
            self._owner.record(t, "bgp_message", end, kind="update", **counts)
            self._owner.update(t, end, message)
        else:
            self._owner.record(t, "bgp_message", end, kind="notification", announced=0, withdrawn=0)
            self._drop(t, end, "notification")

    def _drop(self, t: float, end: End, reason: str) -> None:
        """The end gives the session up, and says so as soon as anything of it gets through: a NOTIFICATION, or its kernel's reset."""
        if not end.up:
            return
        end.up = False
        end.out = [] if reason == "notification" else [Sent(t, end.session, Notification())]
        self._owner.record(t, "session", end, up=False, reason=reason)
        self._owner.ended(t, end)
        self._try(t, end)

    def _try(self, t: float, end: End) -> None:
        """Begins to look for the other end."""
        if end.ready:
            end.ready_since = t
            self._hello(t, end, t)

    def _hello(self, t: float, end: End, since: float) -> None:
        if end.ready and end.ready_since == since:
            self._owner.packet(end)
            self._owner.agenda.at(t + HELLO_S, lambda at: self._hello(at, end, since))

    def _handshake(self, t: float) -> None:
        """Both ends want a session and have heard each other since: it takes a while, in which they must go on hearing each other."""
        since = max(end.ready_since for end in self.ends)
        if self._opening or not all(end.ready and end.heard >= since for end in self.ends):
            return
        self._opening = True
        options = self._owner.options
        takes_s = self._owner.rng.uniform(options.session_min_s, options.session_max_s)
        self._owner.agenda.at(t + takes_s, lambda at: self._finish(at, since))

    def _finish(self, t: float, since: float) -> None:
        if max(end.ready_since for end in self.ends) != since or not self._opening:
            return  # one of them was away in between, and another handshake is or will be on its way
        self._opening = False
        if all(end.ready and t - end.heard <= HELLOS_MISSED * HELLO_S for end in self.ends):
            self._establish(t)

    def _establish(self, t: float) -> None:
        """Both ends begin at once, so their keepalives are in step; sessions are not, so that a fabric's do not all come at once."""
        self._number += 1
        first = t + self._owner.options.liveness_s * self._owner.rng.random()
        for end in self.ends:
            end.up, end.session, end.heard, end.out = True, self._number, t, []
        for end in self.ends:
            self._owner.record(t, "session", end, up=True, reason="established")
            self._owner.established(t, end)
            self._owner.agenda.at(first, partial(self._keepalive, end, self._number))
            self._watch(t, end, self._number)

    def _keepalive(self, end: End, session: int, t: float) -> None:
        if end.up and end.session == session:
            self._owner.packet(end)
            options = self._owner.options
            early = self._owner.rng.random() * BFD_JITTER if options.bfd_interval_s else 0.0
            self._owner.agenda.at(t + options.liveness_s * (1 - early), partial(self._keepalive, end, session))

    def _watch(self, t: float, end: End, session: int) -> None:
        """Looks again whenever the end might have been quiet for too long."""
        if not (end.up and end.session == session):
            return
        options = self._owner.options
        patience_s = min(options.hold_s, options.bfd_detect_s)
        if t >= end.heard + patience_s:
            self._drop(t, end, "bfd" if options.bfd_detect_s < options.hold_s else "hold")
        else:
            self._owner.agenda.at(end.heard + patience_s, lambda at: self._watch(at, end, session))
