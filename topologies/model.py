"""A fabric as plain data: nodes, links, and all shortest paths of a pair of hosts. Nothing here touches the system."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from testbed.errors import UsageError

HOST_TIER = -1
TIER_NAMES: Mapping[int, str] = {HOST_TIER: "NIC", 0: "T0", 1: "T1", 2: "T2"}


class BadTopology(UsageError):
    """Parameters that make no fabric, or a fabric that its names, ports or uSIDs cannot carry."""


class UnknownLink(UsageError):
    """A link that the topology does not have."""


class UnknownNode(UsageError):
    """A node that the topology does not have, or one of the wrong kind."""


@dataclass(frozen=True)
class Node:
    """A host (tier -1) or a switch (tier 0 to 2).

    `pod` is 0 where there are no pods (T2 switches, multi-plane fabrics); `plane` is 0 for hosts, which are in all planes;
    `usid` is the node's 16-bit SRv6 id; `index` counts the nodes of a tier from 1.
    """

    name: str
    kind: str
    tier: int
    pod: int
    plane: int
    usid: int
    index: int


@dataclass(frozen=True)
class End:
    """One end of a link: a port of a node. `usid` is the node's, so that a MAC address can be derived from the end alone."""

    node: str
    port: int
    usid: int = field(default=0, compare=False, repr=False)

    @property
    def ifname(self) -> str:
        """The interface's name, as Mininet would call it."""
        return f"{self.node}-eth{self.port}"


@dataclass(frozen=True)
class Link:
    """A cable between `a` (the lower tier) and `b`; `tier` is NIC-T0, T0-T1 or T1-T2; `index` counts from 1 and is unique."""

    name: str
    a: End
    b: End
    tier: str
    plane: int
    index: int

    def end(self, node: str) -> End:
        """The end at `node`; UnknownNode if the link has none there."""
        return self._pick(node, self.a, self.b)

    def other(self, node: str) -> End:
        """The end away from `node`; UnknownNode if the link does not touch it."""
        return self._pick(node, self.b, self.a)

    def _pick(self, node: str, if_a: End, if_b: End) -> End:
        if node == self.a.node:
            return if_a
        if node == self.b.node:
            return if_b
        raise UnknownNode(f"link {self.name} has no end at {node!r}: give {self.a.node} or {self.b.node}")


@dataclass(frozen=True)
class Path:
    """A way from a host to a host: every node and every link in order.

    `port` is the NIC port that the source sends from, `far_port` the one that the destination receives on.
    """

    nodes: tuple[str, ...]
    links: tuple[str, ...]
    plane: int
    port: int
    far_port: int = 0

    def reverse(self) -> Path:
        """The same cables, walked back."""
        return Path(self.nodes[::-1], self.links[::-1], self.plane, self.far_port, self.port)


class Topology:
    """Nodes and links by name, in a fixed order, and what follows from them. Built by `topologies.build`; not changed afterwards."""

    def __init__(self, kind: str, params: Mapping[str, int], nodes: Iterable[Node], links: Iterable[Link]) -> None:
        self.kind = kind
        self.params = dict(params)
        self.nodes = {node.name: node for node in nodes}
        self.links = {link.name: link for link in links}
        self.hosts = tuple(name for name, node in self.nodes.items() if node.kind == "host")
        self.switches = tuple(name for name, node in self.nodes.items() if node.kind == "switch")
        self._links_of = self._sorted_links()
        self._at = {(end.node, end.port): link for link in self.links.values() for end in (link.a, link.b)}
        self._attached = {host: tuple(link.other(host).node for link in self._links_of[host]) for host in self.hosts}
        self._hops_to: dict[tuple[str, ...], dict[str, int]] = {}
        self._paths: dict[tuple[str, str], tuple[Path, ...]] = {}

    def _sorted_links(self) -> dict[str, tuple[Link, ...]]:
        """The links of each node in port order."""
        by_node: dict[str, list[Link]] = {name: [] for name in self.nodes}
        for link in self.links.values():
            by_node[link.a.node].append(link)
            by_node[link.b.node].append(link)
        return {name: tuple(sorted(links, key=lambda link: link.end(name).port)) for name, links in by_node.items()}

    def node(self, name: str) -> Node:
        """The node of that name; UnknownNode otherwise, with the nearest names."""
        found = self.nodes.get(name)
        if found is None:
            raise UnknownNode(f"there is no node {name!r} in this {self.kind}{did_you_mean(name, self.nodes)}")
        return found

    def link(self, name: str) -> Link:
        """The link of that name, whichever end comes first; UnknownLink otherwise, with the nearest names."""
        found = self.links.get(name) or self.links.get("-".join(reversed(name.split("-"))))
        if found is None:
            raise UnknownLink(f"there is no link {name!r} in this {self.kind}{self._link_hint(name)}")
        return found

    def _link_hint(self, name: str) -> str:
        ends = name.split("-")
        if len(ends) == 2 and set(ends) <= set(self.nodes):
            return f": {ends[0]} is linked to {', '.join(link.other(ends[0]).node for link in self._links_of[ends[0]])}"
        return did_you_mean(name, self.links)

    def links_of(self, node: str) -> tuple[Link, ...]:
        """The links of `node` in port order; UnknownNode if there is no such node."""
        return self._links_of[self.node(node).name]

    def link_at(self, node: str, port: int) -> Link | None:
        """The link on that port, or None."""
        return self._at.get((node, port))

    def paths(self, src: str, dst: str) -> tuple[Path, ...]:
        """All shortest paths from host to host in a stable order: `paths(b, a)[i]` is `paths(a, b)[i].reverse()`.

        UnknownNode for anything but two different hosts.
        """
        found = self._paths.get((src, dst))
        if found is None:
            self._require_pair(src, dst)
            found = self._find_paths(src, dst)
            self._paths[src, dst] = found
            self._paths[dst, src] = tuple(path.reverse() for path in found)
        return found

    def _require_pair(self, src: str, dst: str) -> None:
        for name in (src, dst):
            if self.node(name).kind != "host":
                raise UnknownNode(f"{name} is a switch: paths run from a host to a host")
        if src == dst:
            raise UnknownNode(f"a path runs between two different hosts, not from {src} to itself")

    def _find_paths(self, src: str, dst: str) -> tuple[Path, ...]:
        """Walks from the lower-numbered host, so that both directions of a pair have one order."""
        if self.nodes[src].index > self.nodes[dst].index:
            return tuple(path.reverse() for path in self._find_paths(dst, src))
        return tuple(self._as_path(src, links) for links in self._walk(src, dst, self._hops(self._attached[dst])))

    def _walk(self, node: str, dst: str, hops: Mapping[str, int]) -> Iterator[tuple[Link, ...]]:
        if node == dst:
            yield ()
            return
        for link in self._nearer(node, dst, hops):
            for rest in self._walk(link.other(node).node, dst, hops):
                yield (link, *rest)

    def _nearer(self, node: str, dst: str, hops: Mapping[str, int]) -> list[Link]:
        """The links of `node` that lead nearest to `dst`; other hosts never forward, so `hops` leaves them out."""
        around = [(0 if (far := link.other(node).node) == dst else hops.get(far, len(self.nodes)), link) for link in self._links_of[node]]
        least = min(distance for distance, _ in around)
        return [link for distance, link in around if distance == least]

    def _hops(self, attached: tuple[str, ...]) -> dict[str, int]:
        """Hops from every switch to a host on the switches `attached`, by breadth-first search; kept, as many pairs ask."""
        hops = self._hops_to.get(attached)
        if hops is None:
            hops = dict.fromkeys(attached, 1)
            frontier = list(attached)
            while frontier:
                frontier = [node for name in frontier for node in self._unseen_switches(name, hops)]
            self._hops_to[attached] = hops
        return hops

    def _unseen_switches(self, name: str, hops: dict[str, int]) -> list[str]:
        """Numbers the neighbouring switches that were not reached before, and returns them."""
        around = [link.other(name).node for link in self._links_of[name]]
        unseen = [node for node in around if node not in hops and self.nodes[node].kind == "switch"]
        hops.update(dict.fromkeys(unseen, hops[name] + 1))
        return unseen

    def _as_path(self, src: str, links: tuple[Link, ...]) -> Path:
        nodes = [src]
        for link in links:
            nodes.append(link.other(nodes[-1]).node)
        ports = links[0].end(src).port, links[-1].end(nodes[-1]).port
        return Path(tuple(nodes), tuple(link.name for link in links), links[0].plane, *ports)

    def path_shapes(self, dst: str) -> dict[str, tuple[int, int]]:
        """For every other host: how many shortest paths lead from it to `dst`, and their hops. Counted, not listed: fast at any size."""
        hops, counts = self._hops(self._attached[self.node(dst).name]), {dst: 1}
        for node in (*hops, *(host for host in self.hosts if host != dst)):
            counts[node] = sum(counts[link.other(node).node] for link in self._nearer(node, dst, hops))
        return {host: (counts[host], 1 + min(hops[t0] for t0 in self._attached[host])) for host in self.hosts if host != dst}

    def connected(self, down_links: Collection[str] = (), down_switches: Collection[str] = ()) -> bool:
        """Whether every pair of hosts still has a shortest path that no fault touches; UnknownLink or UnknownNode for foreign names."""
        down = {self.link(name).name for name in down_links} | {self.node(name).name for name in down_switches}
        # Hosts on the same switches with the same switches left are alike: one of each kind stands for all.
        alike = Counter((self._attached[host], self._live_switches(host, down)) for host in self.hosts)
        for (attached, live), count in alike.items():
            hops = self._hops(attached)
            reaching = self._reaching(live, hops, down)
            sources = (source for source in alike if count > 1 or source != (attached, live))
            # Any port of a source will do: in both kinds of fabric all ports of a host are equally far from its peer.
            if any(reaching.isdisjoint(live_switches) for _, live_switches in sources):
                return False
        return True

    def cut_off(self, dst: str, down_links: Collection[str]) -> set[str]:
        """The hosts whose shortest paths to `dst` all have one of `down_links`; UnknownLink or UnknownNode for foreign names."""
        down = {self.link(name).name for name in down_links}
        reaching = self._reaching(self._live_switches(self.node(dst).name, down), self._hops(self._attached[dst]), down)
        return {host for host in self.hosts if host != dst and reaching.isdisjoint(self._live_switches(host, down))}

    def _live_switches(self, host: str, down: set[str]) -> tuple[str, ...]:
        """The switches that a host's live NIC ports lead to."""
        ends = ((link.name, link.other(host).node) for link in self._links_of[host])
        return tuple(switch for link, switch in ends if not (link in down or switch in down))

    def _reaching(self, live: tuple[str, ...], hops: Mapping[str, int], down: set[str]) -> set[str]:
        """The switches from which live links of shortest paths lead to one of `live`."""
        reached, frontier = set(live), list(live)
        while frontier:
            node = frontier.pop()
            for link in self._links_of[node]:
                other = link.other(node).node
                if hops.get(other) == hops[node] + 1 and not (other in reached or other in down or link.name in down):
                    reached.add(other)
                    frontier.append(other)
        return reached


def did_you_mean(word: str, known: Collection[str]) -> str:
    """The end of an error's sentence: the nearest known words, or nothing."""
    near = get_close_matches(word, known, n=3, cutoff=0.6)
    return f": did you mean {' or '.join(near)}?" if near else ""
