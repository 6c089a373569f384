"""What a run captures: names from the command line become interfaces of nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.errors import UsageError
from testbed.scenario.problems import did_you_mean
from testbed.units import format_size
from topologies import Topology, UnknownLink, addresses

DEFAULT_LIMIT_BYTES = 20_000_000
LEAST_LIMIT_BYTES = 1 << 17
WHOLE_BYTES = 1 << 16
"""A snaplen that cuts nothing: no packet is larger."""


@dataclass(frozen=True)
class Target:
    """Where one capture listens; `name` is that of its files."""

    name: str
    node: str
    interfaces: tuple[str, ...]


@dataclass(frozen=True)
class CapturePlan:
    """What the command line asks for, of whatever topology. `limit_bytes`: of a file; `snaplen`: bytes kept of a packet."""

    names: tuple[str, ...] = ()
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    snaplen: int = WHOLE_BYTES

    def __post_init__(self) -> None:
        if self.limit_bytes < LEAST_LIMIT_BYTES:
            raise UsageError(f"--pcap-limit of {format_size(self.limit_bytes)}: give {format_size(LEAST_LIMIT_BYTES)} or more")

    def targets(self, topology: Topology) -> tuple[Target, ...]:
        """Each once, in the order given. UsageError names what the topology does not have."""
        found = {target.name: target for target in (resolve(topology, name) for name in self.names)}
        return tuple(found.values())

    def as_dict(self) -> dict[str, object]:
        """For a run's manifest."""
        return {"targets": list(self.names), "limit_bytes": self.limit_bytes, "snaplen": self.snaplen}


NO_CAPTURE = CapturePlan()


def resolve(topology: Topology, named: str) -> Target:
    """A link (`h1-t0_1_1`, heard at its lower end), a node with all its ports (`t0_1_1`), or one port (`h1:0`, `h1-eth0`). UsageError."""
    if named in topology.nodes:
        return Target(named, named, tuple(link.end(named).ifname for link in topology.links_of(named)))
    ports = _ports(topology)
    node, colon, port = named.partition(":")
    interface = f"{node}-eth{port}" if colon else named
    if interface in ports:
        return Target(interface, ports[interface], (interface,))
    try:
        link = topology.link(named)
    except UnknownLink as error:
        known = [*topology.links, *topology.nodes, *ports, *(_with_colon(name) for name in ports)]
        hint = did_you_mean(named, known, "links, nodes and ports")
        raise UsageError(f"--pcap {named}: there is no link, node or port of that name in this {topology.kind} ({hint})") from error
    return Target(link.name, link.a.node, (link.a.ifname,))


def _ports(topology: Topology) -> dict[str, str]:
    """The node of each interface."""
    return {end.ifname: end.node for link in topology.links.values() for end in (link.a, link.b)}


def _with_colon(interface: str) -> str:
    return interface.replace("-eth", ":")


def names_of(topology: Topology) -> Mapping[str, str]:
    """The name of every node by its addresses: each node's uSID alone, and each host's own address."""
    by_usid = {addresses.usid_address(node): name for name, node in topology.nodes.items()}
    return by_usid | {addresses.host_address(topology.nodes[host]): host for host in topology.hosts}
