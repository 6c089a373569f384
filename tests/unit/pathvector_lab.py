"""A world for the model of BGP: links that pass packets or do not, in virtual time, and the tables that come of its installs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testbed.pathvector import BgpOvsOptions, Fib, Install, PathVector, Record, SendKeepalive
from testbed.pathvector.agenda import Agenda
from testbed.routing.expected import expected_fibs
from topologies import Topology

FLIGHT_S = 0.001
QUICK: dict[str, Any] = {"keepalive_s": 1.0, "hold_s": 3.0}


class World:
    """Faults as the fabric has them; `history` has every record with its time, `installs` every change of a table."""

    def __init__(self, topology: Topology, seed: int = 1, watch: Callable[[World], None] | None = None, **options: Any) -> None:
        self.topology = topology
        self.model = PathVector(topology, BgpOvsOptions.from_mapping(options), seed)
        self.now = 0.0
        self.tables: dict[str, Fib] = self.model.settle()
        self.history: list[tuple[float, dict[str, Any]]] = []
        self.installs: list[tuple[float, Install]] = []
        self.packets = 0
        self.deaf: set[str] = set()
        """Interfaces whose packets are lost on the way."""
        self.dark: set[str] = set()
        """Interfaces without carrier, by the link's own fault."""
        self.dead: set[str] = set()
        self._watch = watch
        self._flights = Agenda()
        self._far = {end.ifname: link.other(end.node) for link in topology.links.values() for end in (link.a, link.b)}

    def run(self, for_s: float) -> None:
        """Time passes."""
        until = self.now + for_s
        while (at := min(self.model.due() or until, self._flights.due() or until)) < until:
            self.now = max(self.now, at)
            self._flights.run(self.now)
            self._carry_out()
        self.now = until
        self._carry_out()

    def _carry_out(self) -> None:
        for action in self.model.advance(self.now):
            if isinstance(action, SendKeepalive):
                self._send(action.ifname)
            elif isinstance(action, Record):
                self.history.append((action.t, dict(action.event)))
            else:
                self._install(action)

    def _send(self, ifname: str) -> None:
        self.packets += 1
        far = self._far[ifname]
        if self._passes(ifname, far.ifname):
            self._flights.at(self.now + FLIGHT_S, lambda at: self._arrive(at, ifname))

    def _arrive(self, at: float, ifname: str) -> None:
        far = self._far[ifname]
        if self._passes(ifname, far.ifname) and far.node not in self.dead:
            self.model.heard(at, far.node, far.ifname)

    def _passes(self, ifname: str, far: str) -> bool:
        return ifname not in self.deaf and not {ifname, far} & self.dark

    def _install(self, action: Install) -> None:
        self.installs.append((self.now, action))
        table = self.tables[action.switch]
        if action.ports:
            table[action.address] = action.ports
        else:
            del table[action.address]
        if self._watch:
            self._watch(self)

    def carrier(self, link: str, up: bool) -> None:
        """Both ends see it."""
        found = self.topology.link(link)
        for end in (found.a, found.b):
            (self.dark.discard if up else self.dark.add)(end.ifname)
        self._tell_ports(link)

    def remote(self, link: str, seen_by: str, on: bool) -> None:
        """One end sees it, and nothing passes."""
        self.silent(link, on)
        found = self.topology.link(link).end(seen_by)
        self.model.port(self.now, seen_by, found.ifname, not on)

    def silent(self, link: str, on: bool) -> None:
        """Nobody sees it."""
        for end in (self.topology.link(link).a, self.topology.link(link).b):
            self.one_way(end.ifname, on)

    def one_way(self, ifname: str, on: bool) -> None:
        """What that end sends is lost."""
        (self.deaf.add if on else self.deaf.discard)(ifname)

    def kill(self, switch: str) -> None:
        """As the fabric does: links first."""
        self.dead.add(switch)
        for link in self.topology.links_of(switch):
            self._tell_ports(link.name)
        self._carry_out()
        self.model.switch_down(self.now, switch)
        self.tables[switch] = {}

    def boot(self, switch: str) -> None:
        """The other way round."""
        self.dead.discard(switch)
        for link in self.topology.links_of(switch):
            self._tell_ports(link.name)
        self.model.switch_up(self.now, switch)

    def _tell_ports(self, link: str) -> None:
        found = self.topology.link(link)
        up = not ({found.a.ifname, found.b.ifname} & self.dark or {found.a.node, found.b.node} & self.dead)
        for end in (found.a, found.b):
            if self.topology.nodes[end.node].kind == "switch":
                self.model.port(self.now, end.node, end.ifname, up)

    def expected(self, *down: str) -> dict[str, Fib]:
        """What the topology demands with these links and the killed switches down."""
        fibs = expected_fibs(self.topology, down, self.dead)
        return {switch: {address: tuple(sorted(ports)) for address, ports in fib.items()} for switch, fib in fibs.items()}

    def settled(self) -> dict[str, Fib]:
        """The tables of the switches that live, as the installs made them."""
        return {switch: fib for switch, fib in self.tables.items() if switch not in self.dead}

    def events(self, event: str, **fields: Any) -> list[tuple[float, dict[str, Any]]]:
        """Those of a kind, with these fields."""
        return [(t, found) for t, found in self.history if found["event"] == event and fields.items() <= found.items()]


def valley(world: World) -> str | None:
    """Where a packet would go down and up again, or None: what points down is followed by nothing that points up."""
    tier = {name: node.tier for name, node in world.topology.nodes.items()}
    far = {end.ifname: link.other(end.node).node for link in world.topology.links.values() for end in (link.a, link.b)}
    for switch, table in world.tables.items():
        for address, ports in table.items():
            for below in (far[port] for port in ports if tier[far[port]] < tier[switch]):
                onward = world.tables.get(below, {}).get(address, ())
                if any(tier[far[port]] > tier[below] for port in onward):
                    return f"{switch} sends {address} down to {below}, which sends it up again"
    return None
