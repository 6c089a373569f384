"""All BGP speakers of a fabric in one object: what happens goes in, what is to be done comes out. No clock, no sockets."""

from __future__ import annotations

from collections.abc import Collection

from testbed.pathvector.actions import Action, Fib
from testbed.pathvector.options import BgpOvsOptions
from testbed.routing.expected import expected_fibs
from topologies import Topology


class PathVector:
    """The caller tells what the switches see (`port`, `heard`, `switch_up`, `switch_down`), and calls `advance` when `due`.

    All times are seconds of one clock of the caller's, and never go back.
    """

    def __init__(self, topology: Topology, options: BgpOvsOptions, seed: int) -> None:
        self._topology, self._options, self._seed = topology, options, seed

    def settle(self, *, now: float = 0.0, ports_down: Collection[str] = (), switches_down: Collection[str] = ()) -> dict[str, Fib]:
        """Begins with what BGP has come to with these ports (interface names) and switches down; the tables of all other switches.

        All sessions of links with both ends up are established. Called once, before anything else; a controller that comes back calls
        it with what it finds down, and so goes on from live tables.
        """
        down = [link.name for link in self._topology.links.values() if {link.a.ifname, link.b.ifname} & set(ports_down)]
        fibs = expected_fibs(self._topology, down, switches_down)
        return {name: {address: tuple(sorted(ports)) for address, ports in fib.items()} for name, fib in fibs.items()}

    def port(self, now: float, switch: str, ifname: str, up: bool) -> None:
        """A switch's port has carrier, or has none (any more)."""

    def heard(self, now: float, switch: str, ifname: str) -> None:
        """A keepalive packet from the neighbour has arrived at this port."""

    def switch_up(self, now: float, switch: str) -> None:
        """A switch is there (again), with an empty table; its ports are as they were told last. Nothing if it was there."""

    def switch_down(self, now: float, switch: str) -> None:
        """A switch is gone, with its speaker and its table."""

    def due(self) -> float | None:
        """When `advance` has something to do next; None if only an event from outside can bring that."""
        return None

    def advance(self, now: float) -> list[Action]:
        """Does everything that is due until `now`, each at its own time; what the caller has to carry out, in order."""
        return []
