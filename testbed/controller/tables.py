"""What a switch's tables hold, and which messages change a route without losing a packet: pure bookkeeping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from topologies import Topology, ecmp

Routes = Mapping[str, tuple[int, ...]]
"""Host address -> port numbers, sorted."""


@dataclass(frozen=True)
class Change:
    """The messages of one changed route, in order, with a barrier after `before` and one after `route`.

    ``before``: rows of the next-hop table that the new route needs. ``route``: the route's rule, added over the old one in one step; None:
    it goes away (``address``). ``after``: sets of next hops that no route uses any more.
    """

    address: str
    kind: str
    before: tuple[ecmp.Rule, ...]
    route: ecmp.Rule | None
    after: tuple[int, ...]


class SwitchTables:
    """The routes of one switch as it was told, and the changes towards others."""

    def __init__(self, topology: Topology, switch: str, seed: int, live: Routes | None = None) -> None:
        self._topology, self._switch, self._seed = topology, switch, seed
        self._routes: dict[str, tuple[int, ...]] = dict(live or {})

    def change(self, address: str, ports: tuple[int, ...]) -> Change | None:
        """The change of a route to these ports (none: to be removed); None if it is so already."""
        old = self._routes.get(address, ())
        if old == ports:
            return None
        used = set(self._routes.values())
        if ports:
            self._routes[address] = ports
        else:
            del self._routes[address]
        unused = old if len(old) > 1 and old not in set(self._routes.values()) else ()
        return Change(
            address,
            "del" if not ports else "replace" if old else "add",
            () if ports in used else ecmp.hop_rules(ports),
            ecmp.route_rule(self._topology, self._switch, address, ports, self._seed) if ports else None,
            (ecmp.set_number(unused),) if unused else (),
        )

    def changes_to(self, wanted: Routes) -> list[Change]:
        """All changes that lead to exactly these routes; what is right already is not touched."""
        addresses = sorted({*self._routes, *wanted})
        found = [self.change(address, wanted.get(address, ())) for address in addresses]
        return [change for change in found if change is not None]
