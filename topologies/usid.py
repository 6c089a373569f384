"""SRv6 uSID forwarding as OpenFlow rules (RFC 9800, behaviour uN): what a switch is given once, at boot, and keeps.

A rule is written once, as data; the text for Open vSwitch and the pure-Python model are both derived from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Network
from typing import Protocol

from topologies.addresses import USID_BITS, USID_BLOCK, container, mac, node_prefix
from topologies.model import Link, Node, Path, Topology, UnknownNode

OWN_TABLE, NEIGHBOUR_TABLE = 0, 1
PRIORITY, MISS_PRIORITY = 100, 0


@dataclass(frozen=True)
class Shift:
    """Takes the first id out of the destination: all ids move one place to the left, and zero comes in at the end."""

    def text(self) -> str:
        """As Open vSwitch writes it. The ids are the low bits of the address; the block on the left stays."""
        kept = 128 - USID_BLOCK.prefixlen - USID_BITS
        field = "NXM_NX_IPV6_DST"
        return f"move:{field}[0..{kept - 1}]->{field}[{USID_BITS}..{kept + USID_BITS - 1}],load:0->{field}[0..{USID_BITS - 1}]"


@dataclass(frozen=True)
class Resubmit:
    """Looks the changed packet up in another table."""

    table: int

    def text(self) -> str:
        """As Open vSwitch writes it."""
        return f"resubmit(,{self.table})"


@dataclass(frozen=True)
class SetEthDst:
    """Addresses the frame to the host's NIC, which would drop it otherwise."""

    mac: str

    def text(self) -> str:
        """As Open vSwitch writes it."""
        return f"set_field:{self.mac}->eth_dst"


@dataclass(frozen=True)
class Output:
    """Sends the packet out of a port; never back where it came from, as OpenFlow has it."""

    port: int

    def text(self) -> str:
        """As Open vSwitch writes it."""
        return f"output:{self.port}"


Action = Shift | Resubmit | SetEthDst | Output


@dataclass(frozen=True)
class Rule:
    """One flow: `prefix` is the IPv6 destination it matches (None: everything); no actions means drop."""

    table: int
    priority: int
    prefix: str | None
    actions: tuple[Action, ...]

    def text(self) -> str:
        """One line of a flow file for `ovs-ofctl add-flows`."""
        match = f",ipv6,ipv6_dst={self.prefix}" if self.prefix else ""
        actions = ",".join(action.text() for action in self.actions) or "drop"
        return f"table={self.table},priority={self.priority}{match},actions={actions}"


class Flow(Protocol):
    """A flow of any kind of table, written once as data."""

    def text(self) -> str:
        """One line of a flow file for `ovs-ofctl add-flows`."""
        ...


def destination(topology: Topology, path: Path) -> str:
    """The outer IPv6 destination that leads along `path`: the uSID of every node after the source. BadTopology if they don't fit."""
    return container([topology.node(name).usid for name in path.nodes[1:]])


def rules(topology: Topology, switch: str) -> tuple[Rule, ...]:
    """All rules of a switch: its own uSID, each neighbour's, and a drop rule in both tables, whose counters show what got lost.

    UnknownNode if there is no such switch.
    """
    node = topology.node(switch)
    if node.kind != "switch":
        raise UnknownNode(f"{switch} is a host: only switches have rules")
    own = Rule(OWN_TABLE, PRIORITY, node_prefix(node), (Shift(), Resubmit(NEIGHBOUR_TABLE)))
    neighbours = [_neighbour_rule(topology, node, link) for link in topology.links_of(switch)]
    misses = [Rule(table, MISS_PRIORITY, None, ()) for table in (OWN_TABLE, NEIGHBOUR_TABLE)]
    return (own, misses[0], *neighbours, misses[1])


def _neighbour_rule(topology: Topology, node: Node, link: Link) -> Rule:
    far = link.other(node.name)
    neighbour = topology.nodes[far.node]
    address: tuple[Action, ...] = (SetEthDst(mac(far)),) if neighbour.kind == "host" else ()
    return Rule(NEIGHBOUR_TABLE, PRIORITY, node_prefix(neighbour), (*address, Output(link.end(node.name).port)))


def tables(topology: Topology) -> Mapping[str, tuple[Rule, ...]]:
    """The rules of every switch."""
    return {switch: rules(topology, switch) for switch in topology.switches}


def flow_file(rules: Iterable[Flow]) -> str:
    """The text of a switch's boot file, for `ovs-ofctl add-flows`."""
    return "".join(f"{rule.text()}\n" for rule in rules)


def canonical(text: str) -> frozenset[str]:
    """The flows in a flow file, or in what `ovs-ofctl --no-names dump-flows` printed, in one spelling each; anything else is left out.

    Counters, ages and cookies go; everything that changes what a flow does stays, so a foreign flow cannot hide.
    """
    return frozenset(_canonical_flow(line) for line in text.splitlines() if "actions=" in line)


def same(rules: Iterable[Flow], text: str) -> bool:
    """Whether the switch has these rules, all of them and no others; `text` as for `canonical`."""
    return canonical(flow_file(rules)) == canonical(text)


def differences(rules: Iterable[Flow], text: str) -> list[str]:
    """What `same` found wrong: a line for each flow that is missing or should not be there."""
    wanted, found = canonical(flow_file(rules)), canonical(text)
    return [f"missing: {flow}" for flow in sorted(wanted - found)] + [f"unexpected: {flow}" for flow in sorted(found - wanted)]


_NOT_THE_RULE = {"cookie", "duration", "n_packets", "n_bytes", "idle_age", "hard_age", "reset_counts"}
_FLOW_DEFAULTS = {"table": "0", "priority": "32768"}
"""What ovs-ofctl leaves out (ovs-fields(7) and ovs-ofctl(8))."""


def _canonical_flow(line: str) -> str:
    match, _, actions = line.partition("actions=")
    terms = dict(term.partition("=")[::2] for term in re.split(r"[,\s]+", match) if term)
    kept = _FLOW_DEFAULTS | {name: value for name, value in terms.items() if name not in _NOT_THE_RULE}
    if "ipv6_dst" in kept:
        kept["ipv6_dst"] = str(IPv6Network(kept["ipv6_dst"], strict=False))
    # OpenFlow 1.0 has an action of its own for the destination MAC; the later set_field does the same.
    actions = re.sub(r"mod_dl_dst:([0-9a-f:]+)", r"set_field:\1->eth_dst", actions.strip())
    return f"{','.join(f'{name}={value}'.rstrip('=') for name, value in sorted(kept.items()))} actions={actions}"
