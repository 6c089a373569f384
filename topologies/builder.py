"""Assembles a topology: numbers the nodes of a tier, gives out ports, and refuses what names, ports and uSIDs cannot carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from topologies.model import HOST_TIER, TIER_NAMES, BadTopology, End, Link, Node, Topology

USID_RANGES: Mapping[int, range] = {
    0: range(0x1001, 0x2000),
    1: range(0x2001, 0x3000),
    2: range(0x3001, 0x4000),
    HOST_TIER: range(0x8001, 0x10000),
}
"""The uSIDs of a tier: the first hex digit says which tier, the rest is the node's index. Zero is no uSID: it ends a container."""

LONGEST_IFNAME = 15
"""Linux: IFNAMSIZ is 16 with the terminating zero."""

MOST_LINKS = 65_536
"""No machine emulates more; it keeps a mistyped size from filling the memory."""


@dataclass(frozen=True)
class Size:
    """What a topology would have: nodes by tier, links, and the longest interface name by example."""

    nodes: Mapping[int, int]
    links: int
    ifnames: Iterable[str]

    def check(self, kind: str) -> None:
        """BadTopology, before anything is built, if it cannot be built or makes no fabric."""
        if self.nodes[HOST_TIER] < 2:
            raise BadTopology(f"{kind}: this makes {self.nodes[HOST_TIER]} host, but traffic needs two: ask for more")
        for tier, count in self.nodes.items():
            what, most = ("hosts" if tier == HOST_TIER else f"{TIER_NAMES[tier]} switches"), len(USID_RANGES[tier])
            if count > most:
                raise BadTopology(f"{kind}: {count} {what} need more uSIDs than 16 bits give them ({most}): ask for fewer")
        for name in self.ifnames:
            if len(name) > LONGEST_IFNAME:
                raise BadTopology(
                    f"{kind}: interface name {name} has more than Linux's {LONGEST_IFNAME} characters: ask for a smaller fabric"
                )
        if self.links > MOST_LINKS:
            raise BadTopology(f"{kind}: {self.links} links are more than the {MOST_LINKS} that we build: ask for a smaller fabric")


class Builder:
    """Collects nodes and links in order. Links must come tier by tier from below: so a switch's down ports are numbered first."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._links: list[Link] = []
        self._count: Counter[int] = Counter()
        self._next_port: dict[str, int] = {}

    def host(self, name: str, pod: int = 0) -> None:
        """Adds a host; its first port is 0, as with Mininet."""
        self._add(Node(name, "host", HOST_TIER, pod, 0, *self._number(HOST_TIER)), first_port=0)

    def switch(self, name: str, tier: int, pod: int = 0, plane: int = 1) -> None:
        """Adds a switch; its first port is 1, the lowest OpenFlow port number."""
        self._add(Node(name, "switch", tier, pod, plane, *self._number(tier)), first_port=1)

    def _number(self, tier: int) -> tuple[int, int]:
        """The next uSID and index of a tier."""
        self._count[tier] += 1
        return USID_RANGES[tier][self._count[tier] - 1], self._count[tier]

    def _add(self, node: Node, first_port: int) -> None:
        self._nodes[node.name] = node
        self._next_port[node.name] = first_port

    def link(self, lower: str, upper: str) -> None:
        """Connects the next free ports of two nodes, the lower tier first."""
        tier = f"{TIER_NAMES[self._nodes[lower].tier]}-{TIER_NAMES[self._nodes[upper].tier]}"
        ends = self._take_port(lower), self._take_port(upper)
        self._links.append(Link(f"{lower}-{upper}", *ends, tier, self._nodes[upper].plane, len(self._links) + 1))

    def _take_port(self, name: str) -> End:
        port = self._next_port[name]
        self._next_port[name] += 1
        return End(name, port, self._nodes[name].usid)

    def topology(self, kind: str, params: Mapping[str, int]) -> Topology:
        """What was collected."""
        return Topology(kind, params, self._nodes.values(), self._links)
