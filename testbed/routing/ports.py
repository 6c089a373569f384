"""The kernel side of a T0's host ports: addresses, the host's route and neighbour entry. Commands as text (pure) and carrying them out."""

from __future__ import annotations

from testbed.routing import namespace
from testbed.routing.config import host_ports, host_prefix
from topologies import Link, Topology
from topologies.addresses import host_address, mac

HOST_GATEWAY = "fe80::1"
"""Address of every T0 on every host port; hosts use `default via fe80::1` with a permanent neighbour entry for the T0 port's MAC."""


def port_commands(topology: Topology, router: str, ifname: str | None = None) -> list[str]:
    """`ip -batch` lines for the host ports of a T0 (or only for `ifname`): idempotent; the interfaces must be up.

    The host's /128 is the *peer* of the T0's own address. The kernel then keeps a connected route to it, marks it dead without carrier,
    and brings it back after an administrative down as well, where it would forget a static route (as it does forget link-local addresses
    and neighbours: then this is to be done again).
    """
    lines = []
    for name, link in host_ports(topology, router):
        if ifname in (None, name):
            lines += _one_port(topology, router, name, link)
    return lines


def _one_port(topology: Topology, router: str, name: str, link: Link) -> list[str]:
    """Lines for one port: gateway address, connected host route, neighbour."""
    host = host_prefix(topology, link.a.node)
    return [
        f"address replace {HOST_GATEWAY}/64 dev {name} nodad",
        f"address replace {host_address(topology.nodes[router])} peer {host}/128 dev {name} nodad",
        f"neighbour replace {host} lladdr {mac(link.a)} dev {name} nud permanent",
    ]


def set_up(topology: Topology, router: str, pid: int, ifname: str | None = None) -> None:
    """Carries out `port_commands` in the namespace of `pid`; CommandFailed when the kernel refuses."""
    lines = port_commands(topology, router, ifname)
    if lines:
        namespace.run(pid, f"{router}: addresses of the host ports", ["ip", "-6", "-batch", "-"], "\n".join(lines) + "\n")


def flush_routes(router: str, pid: int) -> None:
    """Removes what a killed zebra left in the kernel: BGP's routes and next-hop objects of the namespace of `pid`."""
    namespace.run(pid, f"{router}: removing stale routes", ["ip", "-6", "route", "flush", "proto", "bgp"])
    namespace.run(pid, f"{router}: removing stale next hops", ["ip", "nexthop", "flush"])
