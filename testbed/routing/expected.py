"""What BGP must come to: the next hops of every router for every host, worked out from the topology alone (no daemon asked)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from testbed.routing.config import asn, host_prefix
from topologies import Link, Topology

Fib = dict[str, frozenset[str]]  # host address -> names of the interfaces that lead there; unreachable hosts are absent
Route = tuple[tuple[int, ...], frozenset[str]]  # AS path as this router would announce it, next-hop interfaces


def expected_next_hops(
    topology: Topology, router: str, host: str, down_links: Collection[str] = (), down_switches: Collection[str] = ()
) -> frozenset[str]:
    """Interfaces of `router` that lead to `host` once BGP has settled with these links (by name) and switches down; empty = no route."""
    return _routes_to(topology, host, _alive(topology, down_links, down_switches)).get(router, ((), frozenset()))[1]


def expected_fibs(topology: Topology, down_links: Collection[str] = (), down_switches: Collection[str] = ()) -> dict[str, Fib]:
    """The host routes of every switch that is up: router -> host address -> next-hop interfaces."""
    alive = _alive(topology, down_links, down_switches)
    fibs: dict[str, Fib] = {router: {} for router in topology.switches if router not in down_switches}
    for host in topology.hosts:
        for router, (_, ports) in _routes_to(topology, host, alive).items():
            fibs[router][host_prefix(topology, host)] = ports
    return fibs


def _alive(topology: Topology, down_links: Collection[str], down_switches: Collection[str]) -> Mapping[str, tuple[Link, ...]]:
    """The live links of each node; names are checked, so that a typing error is not a silent "all up"."""
    dead = {topology.link(name).name for name in down_links}
    gone = {topology.node(name).name for name in down_switches}
    return {
        node: tuple(link for link in topology.links_of(node) if link.name not in dead and not {link.a.node, link.b.node} & gone)
        for node in topology.nodes
    }


def _routes_to(topology: Topology, host: str, links_of: Mapping[str, tuple[Link, ...]]) -> dict[str, Route]:
    """Spreads one host's prefix hop by hop, as eBGP does: shortest AS path wins, ties are shared, own ASN in the path is refused.

    One round is one more AS in the path, so a router keeps the first round that reaches it (RFC 4271 9.1.2.2 a; RFC 7938 5.2.3, 6.1).
    """
    routes: dict[str, Route] = {}
    wave: dict[str, Route] = _origins(topology, host, links_of)
    while wave:
        routes.update(wave)
        wave = _next_wave(topology, wave, routes, links_of)
    return routes


def _origins(topology: Topology, host: str, links_of: Mapping[str, tuple[Link, ...]]) -> dict[str, Route]:
    """The T0s with a live port to the host: they announce its prefix."""
    return {link.b.node: ((asn(topology, link.b.node),), frozenset({link.b.ifname})) for link in links_of[host]}


def _next_wave(
    topology: Topology, wave: Mapping[str, Route], known: Mapping[str, Route], links_of: Mapping[str, tuple[Link, ...]]
) -> dict[str, Route]:
    """Routers that hear of the prefix first from those in `wave`."""
    heard: dict[str, Route] = {}
    for sender in sorted(wave):
        path = wave[sender][0]
        for link in links_of[sender]:
            far = link.other(sender)
            if topology.nodes[far.node].kind != "switch" or far.node in known or asn(topology, far.node) in path:
                continue
            announced, ports = heard.get(far.node, ((asn(topology, far.node), *path), frozenset()))
            heard[far.node] = (announced, ports | {far.ifname})
    return heard
