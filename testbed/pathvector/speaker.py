"""One switch's BGP speaker: messages are worked on one after another, changes gather, neighbours are told, tables are written."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from math import inf

from testbed.pathvector.agenda import Agenda
from testbed.pathvector.fib import ForwardingTable, Write
from testbed.pathvector.messages import Update
from testbed.pathvector.options import BgpOvsOptions
from testbed.pathvector.rib import Rib

Send = Callable[[float, str, list[Update]], None]
"""Takes time, interface and messages: they leave."""


class Speaker:
    """Lives from a switch's boot to its end; the next boot makes a new one, so nothing of an old life is acted on."""

    def __init__(self, asn: int, options: BgpOvsOptions, rng: random.Random, agenda: Agenda, send: Send, write: Write) -> None:
        self.rib = Rib(asn, options.ecmp_width)
        self.alive = True
        self._options, self._rng, self._agenda, self._send = options, rng, agenda, send
        self.fib = ForwardingTable(options, agenda, lambda address, ports: write(address, ports) if self.alive else None)
        self._touched: set[str] = set()
        self._to_tell: dict[str, set[str]] = {}
        self._told_at: dict[str, float] = {}
        self._session: dict[str, int] = {}
        self._busy_until = -inf

    def session_up(self, t: float, ifname: str, session: int) -> None:
        """A neighbour is there: it is told everything."""
        self.rib.open(ifname)
        self._session[ifname] = session
        self._told_at.pop(ifname, None)
        self._tell_of(t, ifname, self.rib.best)

    def session_down(self, t: float, ifname: str) -> None:
        """A neighbour is gone, and all that it announced."""
        del self._session[ifname]
        self._to_tell.pop(ifname, None)
        self._touch(t, self.rib.close(ifname))

    def originate(self, t: float, address: str, ifname: str | None) -> None:
        """A host of this switch is there, or gone (None)."""
        if ifname is None:
            self.rib.local.pop(address, None)
        else:
            self.rib.local[address] = ifname
        self._touch(t, {address})

    def receive(self, t: float, ifname: str, session: int, update: Update) -> None:
        """A message has arrived: it waits until those before it are done."""
        work_s = self._options.process_s * (1 + self._rng.random() * self._options.process_jitter)
        self._busy_until = max(t, self._busy_until) + work_s
        self._agenda.at(self._busy_until, lambda done: self._learn(done, ifname, session, update))

    def _learn(self, t: float, ifname: str, session: int, update: Update) -> None:
        if self.alive and self._session.get(ifname) == session:
            self._touch(t, self.rib.learn(ifname, update))

    def _touch(self, t: float, addresses: set[str]) -> None:
        """The decision comes a while after the first of the changes that it takes in."""
        if addresses and not self._touched:
            self._agenda.at(t + self._options.batch_s, self._decide)
        self._touched |= addresses

    def _decide(self, t: float) -> None:
        if not self.alive:
            return
        ports, paths = self.rib.decide(self._touched)
        self._touched = set()
        self.fib.change(t, ports)
        for ifname in self._session:
            self._tell_of(t, ifname, paths)

    def _tell_of(self, t: float, ifname: str, addresses: Iterable[str]) -> None:
        """At once, or when the neighbour's MRAI is over."""
        waiting = self._to_tell.get(ifname, set())
        if not waiting and (waiting := set(addresses)):
            self._to_tell[ifname] = waiting
            self._agenda.at(
                max(t, self._told_at.get(ifname, -inf) + self._options.mrai_s), partial(self._tell, ifname, self._session[ifname])
            )
        waiting |= set(addresses)

    def _tell(self, ifname: str, session: int, t: float) -> None:
        if self.alive and self._session.get(ifname) == session and (updates := self.rib.tell(ifname, self._to_tell.pop(ifname, set()))):
            self._told_at[ifname] = t
            self._send(t, ifname, updates)
