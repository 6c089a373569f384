"""All BGP speakers of a fabric in one object: what happens goes in, what is to be done comes out. No clock, no sockets."""

from __future__ import annotations

import random
from collections.abc import Collection
from functools import partial
from typing import Any

from testbed.pathvector.actions import Action, Fib, Install, Record, SendKeepalive
from testbed.pathvector.agenda import Agenda
from testbed.pathvector.messages import Update
from testbed.pathvector.options import BgpOvsOptions
from testbed.pathvector.session import End, Session
from testbed.pathvector.settling import settle_ribs
from testbed.pathvector.speaker import Speaker
from testbed.routing.config import asn, host_ports, host_prefix
from topologies import Topology


class PathVector:
    """The caller tells what the switches see (`port`, `heard`, `switch_up`, `switch_down`), and calls `advance` when `due`.

    All times are seconds of one clock of the caller's, and never go back.
    """

    def __init__(self, topology: Topology, options: BgpOvsOptions, seed: int) -> None:
        self.options, self.agenda, self.rng = options, Agenda(), random.Random(f"pathvector/{seed}")
        self._topology = topology
        self._actions: list[Action] = []
        self._now = 0.0
        self._hosts = {
            (switch, ifname): host_prefix(topology, link.a.node)
            for switch in topology.switches
            for ifname, link in host_ports(topology, switch)
        }
        self._carrier = {end.ifname: True for link in topology.links.values() for end in (link.a, link.b)}
        self._changes = dict.fromkeys(self._carrier, 0)
        self._sessions: dict[str, tuple[Session, End]] = {}
        self._make_sessions()
        self._speakers = {switch: self._speaker(switch) for switch in topology.switches}

    def _make_sessions(self) -> None:
        for link in self._topology.links.values():
            if link.tier != "NIC-T0":
                ends = End(link.a.node, link.a.ifname), End(link.b.node, link.b.ifname)
                session = Session(self, ends)
                self._sessions.update({end.ifname: (session, end) for end in ends})

    def _speaker(self, switch: str) -> Speaker:
        return Speaker(asn(self._topology, switch), self.options, self.rng, self.agenda, self._send, partial(self._install, switch))

    def settle(self, *, now: float = 0.0, ports_down: Collection[str] = (), switches_down: Collection[str] = ()) -> dict[str, Fib]:
        """Begins with what BGP has come to with these ports (interface names) and switches down; the tables of all other switches.

        All sessions of links with both ends up are established. Called once, before anything else; a controller that comes back calls
        it with what it finds down, and so goes on from live tables.
        """
        self._now = now
        for ifname in ports_down:
            self._carrier[ifname] = False
        for switch in switches_down:
            self._speakers[switch].alive = False
        for ifname, (_, end) in self._sessions.items():
            end.carrier, end.running = self._carrier[ifname], self._speakers[end.switch].alive
        for session in {id(session): session for session, _ in self._sessions.values()}.values():
            session.begin(now)
        for (switch, ifname), address in self._hosts.items():
            if self._carrier[ifname]:
                self._speakers[switch].rib.local[address] = ifname
        settle_ribs(
            self._live(), {ifname: (session.far(end).switch, session.far(end).ifname) for ifname, (session, end) in self._sessions.items()}
        )
        for speaker in self._live().values():
            speaker.fib.begin({address: best.ports for address, best in speaker.rib.best.items()})
        self._actions = [action for action in self._actions if not isinstance(action, Record)]
        return self.tables()

    def tables(self) -> dict[str, Fib]:
        """The tables of all switches that are there, as they should be at this moment."""
        return {switch: dict(speaker.fib.shown) for switch, speaker in self._live().items()}

    def _live(self) -> dict[str, Speaker]:
        return {switch: speaker for switch, speaker in self._speakers.items() if speaker.alive}

    def port(self, now: float, switch: str, ifname: str, up: bool) -> None:
        """A switch's port has carrier, or has none (any more)."""
        self._run(now)
        if self._carrier[ifname] == up:
            return
        self._carrier[ifname] = up
        self._changes[ifname] = change = self._changes[ifname] + 1
        if up:
            self._speakers[switch].fib.skip(ifname, False)
        elif self.options.local_repair:
            self.agenda.at(now + self.options.local_repair_s, lambda at: self._repair(switch, ifname, change))
        self.agenda.at(now + self.options.carrier_delay_s, lambda at: self._noticed(at, switch, ifname, change))

    def _repair(self, switch: str, ifname: str, change: int) -> None:
        if self._changes[ifname] == change:
            self._speakers[switch].fib.skip(ifname, True)

    def _noticed(self, t: float, switch: str, ifname: str, change: int) -> None:
        """The speaker learns of the carrier, unless it has changed again meanwhile."""
        if self._changes[ifname] != change:
            return
        up = self._carrier[ifname]
        if ifname in self._sessions:
            session, end = self._sessions[ifname]
            if end.carrier != up:
                session.set_carrier(t, end, up)
        elif self._speakers[switch].alive:
            self._speakers[switch].originate(t, self._hosts[switch, ifname], ifname if up else None)

    def heard(self, now: float, switch: str, ifname: str) -> None:
        """A keepalive packet from the neighbour has arrived at this port."""
        self._run(now)
        if ifname in self._sessions:
            session, end = self._sessions[ifname]
            session.hear(now, end)

    def switch_up(self, now: float, switch: str) -> None:
        """A switch is there (again), with an empty table; its ports are as they were told last. Nothing if it was there."""
        self._run(now)
        if self._speakers[switch].alive:
            return
        self._speakers[switch] = speaker = self._speaker(switch)
        for (owner, ifname), address in self._hosts.items():
            if owner == switch and self._carrier[ifname]:
                speaker.originate(now, address, ifname)
        self._set_running(now, switch, True)

    def switch_down(self, now: float, switch: str) -> None:
        """A switch is gone, with its speaker and its table."""
        self._run(now)
        if self._speakers[switch].alive:
            self._set_running(now, switch, False)
            self._speakers[switch].alive = False

    def _set_running(self, t: float, switch: str, running: bool) -> None:
        for session, end in self._sessions.values():
            if end.switch == switch:
                session.set_running(t, end, running)

    def due(self) -> float | None:
        """When `advance` has something to do next; None if only an event from outside can bring that."""
        return self._now if self._actions else self.agenda.due()

    def advance(self, now: float) -> list[Action]:
        """Does everything that is due until `now`, each at its own time; what the caller has to carry out, in order."""
        self._run(now)
        actions, self._actions = self._actions, []
        return actions

    def _run(self, now: float) -> None:
        self.agenda.run(now)
        self._now = max(self._now, now)

    def packet(self, end: End) -> None:
        """For sessions: a real packet leaves, where there is carrier."""
        if self._carrier[end.ifname]:
            self._actions.append(SendKeepalive(end.switch, end.ifname))

    def record(self, t: float, event: str, end: End, **more: Any) -> None:
        """For sessions: history."""
        peer = self._sessions[end.ifname][0].far(end).switch
        self._actions.append(Record(t, {"source": "routing", "event": event, "node": end.switch, "peer": peer, **more}))

    def established(self, t: float, end: End) -> None:
        """For sessions: an end's speaker has a neighbour."""
        self._speakers[end.switch].session_up(t, end.ifname, end.session)

    def ended(self, t: float, end: End) -> None:
        """For sessions: it has lost it."""
        self._speakers[end.switch].session_down(t, end.ifname)

    def update(self, t: float, end: End, message: Update) -> None:
        """For sessions: a message has arrived."""
        self._speakers[end.switch].receive(t, end.ifname, end.session, message)

    def _send(self, t: float, ifname: str, updates: list[Update]) -> None:
        session, end = self._sessions[ifname]
        session.send(t, end, updates)

    def _install(self, switch: str, address: str, ports: tuple[str, ...]) -> None:
        self._actions.append(Install(switch, address, ports))
