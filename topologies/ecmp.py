"""Equal-cost forwarding by destination as OpenFlow rules: what a switch that routes has for each host, settled or in between.

Two tables. The first has one rule a host, so that a route is one message to the switch, and changes in one step. A rule with several next
hops hashes the flow to an index, names the set of its next hops in a register, and leaves the choice of the port to the second table, whose
rows of a set must therefore be there before a rule names it, and go after it (make before break).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from topologies import usid
from topologies.addresses import mac
from topologies.model import BadTopology, Topology, UnknownNode

ROUTE_TABLE, HOP_TABLE = 0, 1
PRIORITY, MISS_PRIORITY = 100, 0
INDEX_REGISTER, SET_REGISTER = 0, 1
REGISTER_BITS = 32
HASH_FIELDS = "symmetric_l3l4+udp"
"""Open vSwitch's NX_HASH_FIELDS_SYMMETRIC_L3L4_UDP (3): addresses, protocol, ports of TCP, SCTP *and UDP*; plain l3l4 leaves UDP's out."""
ALGORITHM = "modulo_n"
# An odd factor keeps the hash bases of up to 65536 switches apart, and far from each other in most bits (Knuth's 16-bit golden ratio).
_SPREAD = 40503
_BASIS_BITS = 16

Fib = Mapping[str, Collection[str]]
"""Host address -> names of the interfaces that lead there."""


@dataclass(frozen=True)
class DecHopLimit:
    """What a router does to every packet: one hop less; a packet that has none left is dropped."""

    def text(self) -> str:
        """As Open vSwitch writes it."""
        return "dec_ttl"


@dataclass(frozen=True)
class Multipath:
    """Hashes the flow to an index below `count`, into the index register. Each switch has another `basis`, else tiers choose alike."""

    basis: int
    count: int

    def text(self) -> str:
        """As Open vSwitch writes it."""
        return f"multipath({HASH_FIELDS},{self.basis},{ALGORITHM},{self.count},0,NXM_NX_REG{INDEX_REGISTER}[])"


@dataclass(frozen=True)
class LoadSet:
    """Names the set of next hops for the second table."""

    number: int

    def text(self) -> str:
        """As Open vSwitch writes it."""
        return f"load:{self.number:#x}->NXM_NX_REG{SET_REGISTER}[]"


@dataclass(frozen=True)
class ToController:
    """Sends the packet to the controller, if there is one."""

    most_bytes: int

    def text(self) -> str:
        """As Open vSwitch writes it."""
        return f"CONTROLLER:{self.most_bytes}"


Action = DecHopLimit | Multipath | LoadSet | ToController | usid.Resubmit | usid.SetEthDst | usid.Output


@dataclass(frozen=True)
class Rule:
    """One flow. It matches one of: an IPv6 destination, a choice (set, index) of the second table, an IPv6 protocol, or everything."""

    table: int
    priority: int
    actions: tuple[Action, ...]
    destination: str | None = None
    choice: tuple[int, int] | None = None
    protocol: int | None = None

    def text(self) -> str:
        """One line of a flow file for `ovs-ofctl add-flows`."""
        actions = ",".join(action.text() for action in self.actions) or "drop"
        return f"table={self.table},priority={self.priority}{self._match()},actions={actions}"

    def _match(self) -> str:
        if self.destination is not None:
            return f",ipv6,ipv6_dst={self.destination}"
        if self.choice is not None:
            number, index = self.choice
            return f",reg{INDEX_REGISTER}={hex(index) if index else 0},reg{SET_REGISTER}={number:#x}"
        return "" if self.protocol is None else f",ipv6,nw_proto={self.protocol}"


def set_number(ports: Iterable[int]) -> int:
    """What stands for a set of next hops in the register: one bit a port. BadTopology for a port that has no bit."""
    number = 0
    for port in ports:
        if not 1 <= port <= REGISTER_BITS:
            raise BadTopology(f"port {port} cannot be a next hop: a switch that routes has at most {REGISTER_BITS} ports")
        number |= 1 << port - 1
    return number


def beyond_ports(topology: Topology) -> str | None:
    """Why the switches of a fabric cannot route so, a sentence; None if they can. Several ways at once lead up only."""
    for switch in topology.switches:
        tier = topology.nodes[switch].tier
        up = [link.end(switch).port for link in topology.links_of(switch) if topology.nodes[link.other(switch).node].tier > tier]
        if len(up) > 1 and max(up) > REGISTER_BITS:
            return f"{switch} has uplinks up to port {max(up)}: a switch that routes by OpenFlow has at most {REGISTER_BITS} ports"
    return None


def basis(topology: Topology, switch: str, seed: int) -> int:
    """The hash basis of a switch: another one for each, from the arm's seed; 16 bits, as NXActionMultipath has it."""
    return (seed + _SPREAD * (topology.switches.index(switch) + 1)) % (1 << _BASIS_BITS)


def ports_to(topology: Topology, switch: str, ifnames: Collection[str]) -> tuple[int, ...]:
    """Port numbers of a switch's interfaces, sorted. UnknownNode for one that is not its own."""
    numbers = {link.end(switch).ifname: link.end(switch).port for link in topology.links_of(switch)}
    unknown = sorted(set(ifnames) - set(numbers))
    if unknown:
        raise UnknownNode(f"{switch} has no interface {unknown[0]}: its interfaces are {', '.join(numbers)}")
    return tuple(sorted(numbers[ifname] for ifname in ifnames))


def route_rule(topology: Topology, switch: str, address: str, ports: tuple[int, ...], seed: int) -> Rule:
    """The rule of a host's address: straight to the only next hop, or hashed over all. The last switch addresses the frame to the NIC."""
    if len(ports) == 1:
        return Rule(ROUTE_TABLE, PRIORITY, (DecHopLimit(), *_last_hop(topology, switch, ports[0])), destination=address)
    choose = (Multipath(basis(topology, switch, seed), len(ports)), LoadSet(set_number(ports)), usid.Resubmit(HOP_TABLE))
    return Rule(ROUTE_TABLE, PRIORITY, (DecHopLimit(), *choose), destination=address)


def _last_hop(topology: Topology, switch: str, port: int) -> tuple[Action, ...]:
    link = topology.link_at(switch, port)
    if link is None:
        raise UnknownNode(f"{switch} has nothing on port {port}")
    far = link.other(switch)
    address = (usid.SetEthDst(mac(far)),) if topology.nodes[far.node].kind == "host" else ()
    return (*address, usid.Output(port))


def hop_rules(ports: tuple[int, ...]) -> tuple[Rule, ...]:
    """The rows of a set of next hops in the second table; none for a set of one, which needs no choice."""
    if len(ports) < 2:
        return ()
    number = set_number(ports)
    return tuple(Rule(HOP_TABLE, PRIORITY, (usid.Output(port),), choice=(number, index)) for index, port in enumerate(ports))


def base_rules() -> tuple[Rule, ...]:
    """What is there before any route: a drop rule in both tables, whose counters show what got lost."""
    return tuple(Rule(table, MISS_PRIORITY, ()) for table in (ROUTE_TABLE, HOP_TABLE))


def rules(topology: Topology, switch: str, fib: Fib, seed: int) -> tuple[Rule, ...]:
    """All rules of a switch with these routes. An address without interfaces has no rule, and falls to the drop rule."""
    routes = {address: ports_to(topology, switch, ifnames) for address, ifnames in fib.items() if ifnames}
    hops = [rule for ports in sorted(set(routes.values())) for rule in hop_rules(ports)]
    found = [route_rule(topology, switch, address, ports, seed) for address, ports in sorted(routes.items())]
    return (*base_rules(), *hops, *found)


def tables(topology: Topology, fibs: Mapping[str, Fib], seed: int) -> dict[str, tuple[Rule, ...]]:
    """The rules of every switch that has a FIB."""
    return {switch: rules(topology, switch, fib, seed) for switch, fib in fibs.items()}
