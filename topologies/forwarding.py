"""Executes the switches' rules in pure Python: where a packet goes, and where a fault stops it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network

from topologies import usid
from topologies.addresses import USID_BITS, USID_BLOCK, mac, usid_address
from topologies.model import End, Link, Topology

MOST_HOPS = 64
"""A packet that makes more hops is in a loop (the hop limit that Linux gives packets)."""

_IDS_MASK = (1 << 128 - USID_BLOCK.prefixlen) - 1


@dataclass(frozen=True)
class Trace:
    """A packet's way: nodes it reached and links it crossed. `delivered_to` is a host, or None with the `reason` why it died."""

    delivered_to: str | None
    nodes: tuple[str, ...]
    links: tuple[str, ...]
    reason: str = ""


class Tables:
    """A switch's rules, arranged for lookup: per table the prefix lengths by falling priority, each with its rules by prefix."""

    def __init__(self, rules: Iterable[usid.Rule]) -> None:
        self._groups: dict[int, dict[tuple[int, int], dict[int, usid.Rule]]] = {}
        for rule in sorted(rules, key=lambda rule: -rule.priority):
            network = IPv6Network(rule.prefix or "::/0")
            bits = 128 - network.prefixlen
            group = self._groups.setdefault(rule.table, {}).setdefault((rule.priority, bits), {})
            group.setdefault(int(network.network_address) >> bits, rule)

    def lookup(self, table: int, destination: int) -> usid.Rule | None:
        """The rule of the highest priority that matches, or None: a miss, which drops in secure mode."""
        for (_, bits), by_prefix in self._groups.get(table, {}).items():
            rule = by_prefix.get(destination >> bits)
            if rule is not None:
                return rule
        return None


@dataclass
class _Packet:
    destination: int
    eth_dst: str | None = None


def compile_tables(rules: Mapping[str, Iterable[usid.Rule]]) -> dict[str, Tables]:
    """Rules by switch, made ready for `forward`."""
    return {switch: Tables(some) for switch, some in rules.items()}


def forward(
    tables: Mapping[str, Tables],
    topology: Topology,
    src: str,
    destination: str,
    port: int = 0,
    down_links: Collection[str] = frozenset(),
    down_switches: Collection[str] = frozenset(),
) -> Trace:
    """Sends one packet from NIC port `port` of host `src` and follows it until it is delivered or dies.

    `tables` is `compile_tables(usid.tables(topology))`, or made from other rules. Give the faults as sets: they are asked at every hop.
    """
    packet, nodes, out = _Packet(int(IPv6Address(destination))), [src], port
    links: list[str] = []
    while len(links) < MOST_HOPS:
        link = topology.link_at(nodes[-1], out)
        reason = _obstacle(nodes[-1], out, link, down_links, down_switches)
        if link is None or reason:
            return Trace(None, tuple(nodes), tuple(links), reason)
        arrival = link.other(nodes[-1])
        nodes.append(arrival.node)
        links.append(link.name)
        if topology.nodes[arrival.node].kind == "host":
            reason = _refusal(topology, packet, arrival)
            return Trace(None if reason else arrival.node, tuple(nodes), tuple(links), reason)
        found = _execute(tables[arrival.node], packet)
        if found is None or found == arrival.port:
            return Trace(None, tuple(nodes), tuple(links), f"{arrival.node} {'drops it' if found is None else 'does not send it back'}")
        out = found
    return Trace(None, tuple(nodes), tuple(links), f"more than {MOST_HOPS} hops: a loop")


def _obstacle(at: str, out: int, link: Link | None, down_links: Collection[str], down_switches: Collection[str]) -> str:
    """Why nothing comes across, or an empty string."""
    if link is None:
        return f"{at} has nothing on port {out}"
    if link.name in down_links:
        return f"link {link.name} is down"
    far = link.other(at).node
    return f"switch {far} is down" if far in down_switches else ""


def _refusal(topology: Topology, packet: _Packet, arrival: End) -> str:
    """Why a host does not take the packet, or an empty string: the frame must bear its MAC, and its own uSID must be all that is left."""
    if packet.eth_dst != mac(arrival):
        return f"{arrival.node} takes no frame for {packet.eth_dst}"
    if packet.destination != int(IPv6Address(usid_address(topology.nodes[arrival.node]))):
        return f"{arrival.node} is not {IPv6Address(packet.destination)}"
    return ""


def _execute(tables: Tables, packet: _Packet) -> int | None:
    """Runs a switch's tables on the packet, from table 0; the port it leaves by, or None if it is dropped.

    As in Open vSwitch here, a resubmit and an output are a rule's last action.
    """
    table: int | None = usid.OWN_TABLE
    while table is not None:
        rule, after = tables.lookup(table, packet.destination), None
        for action in rule.actions if rule else ():
            if isinstance(action, usid.Shift):
                packet.destination = packet.destination & ~_IDS_MASK | packet.destination << USID_BITS & _IDS_MASK
            elif isinstance(action, usid.SetEthDst):
                packet.eth_dst = action.mac
            elif isinstance(action, usid.Output):
                return action.port
            else:
                after = _later(table, action.table)
        table = after
    return None


def _later(table: int, following: int) -> int | None:
    """The table to go on with; our rules only ever go forward, so anything else is treated as a drop and cannot loop."""
    return following if following > table else None
