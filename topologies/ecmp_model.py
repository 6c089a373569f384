"""Executes equal-cost rules in pure Python: everything that can become of a packet, whichever next hops the hashes choose."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address

from topologies import ecmp, usid
from topologies.addresses import mac
from topologies.model import End, Topology

Tables = Mapping[str, Iterable[ecmp.Rule]]


@dataclass(frozen=True)
class Spread:
    """Links that the packet may cross, hosts that may get it, and how it may get lost, a sentence each."""

    links: frozenset[str]
    delivered_to: frozenset[str]
    lost: frozenset[str]


def spread(
    tables: Tables,
    topology: Topology,
    src: str,
    address: str,
    port: int = 0,
    down_links: Collection[str] = frozenset(),
    down_switches: Collection[str] = frozenset(),
) -> Spread:
    """Sends a packet from NIC port `port` of host `src` to `address` along every choice of next hops. A loop is a loss, and named so."""
    walk = _Walk({switch: _Switch(rules) for switch, rules in tables.items()}, topology, address, set(down_links), set(down_switches))
    walk.send(src, port, None, ())
    return Spread(frozenset(walk.links), frozenset(walk.delivered_to), frozenset(walk.lost))


class _Switch:
    """A switch's rules, arranged for lookup by what they match."""

    def __init__(self, rules: Iterable[ecmp.Rule]) -> None:
        self.routes: dict[str, ecmp.Rule] = {}
        self.choices: dict[tuple[int, int], ecmp.Rule] = {}
        for rule in rules:
            if rule.destination is not None:
                self.routes[rule.destination] = rule
            elif rule.choice is not None:
                self.choices[rule.choice] = rule

    def ways(self, address: str) -> Iterator[tuple[int, str | None]]:
        """(port, destination MAC that it writes) for each choice of the hash; port 0 where a choice leads nowhere."""
        rule = self.routes.get(address)
        for chosen in self._chosen(rule) if rule else ():
            written = [action.mac for action in chosen if isinstance(action, usid.SetEthDst)]
            ports = [action.port for action in chosen if isinstance(action, usid.Output)]
            yield (ports[0] if ports else 0), (written[0] if written else None)

    def _chosen(self, rule: ecmp.Rule) -> Iterator[tuple[ecmp.Action, ...]]:
        hashed = next((action for action in rule.actions if isinstance(action, ecmp.Multipath)), None)
        if hashed is None:
            yield rule.actions
            return
        number = next(action.number for action in rule.actions if isinstance(action, ecmp.LoadSet))
        for index in range(hashed.count):
            row = self.choices.get((number, index))
            yield row.actions if row else ()


class _Walk:
    def __init__(
        self, switches: Mapping[str, _Switch], topology: Topology, address: str, down_links: set[str], down_switches: set[str]
    ) -> None:
        self._switches, self._topology, self._address = switches, topology, str(IPv6Address(address))
        self._down_links, self._down_switches = down_links, down_switches
        self.links: set[str] = set()
        self.delivered_to: set[str] = set()
        self.lost: set[str] = set()

    def send(self, node: str, port: int, eth_dst: str | None, before: tuple[str, ...]) -> None:
        """Out of a port, to whatever is there; `before`: the switches that had it."""
        link = self._topology.link_at(node, port)
        if link is None or link.name in self._down_links or link.other(node).node in self._down_switches:
            self.lost.add(f"{node} sends it to port {port}, where nothing takes it")
            return
        self.links.add(link.name)
        arrival = link.other(node)
        if self._topology.nodes[arrival.node].kind == "host":
            self._deliver(arrival, eth_dst)
        elif arrival.node in before:
            self.lost.add(f"it comes back to {arrival.node}: a loop")
        else:
            self._forward(arrival, (*before, arrival.node))

    def _deliver(self, arrival: End, eth_dst: str | None) -> None:
        if eth_dst == mac(arrival):
            self.delivered_to.add(arrival.node)
        else:
            self.lost.add(f"{arrival.node} takes no frame for {eth_dst}")

    def _forward(self, arrival: End, path: tuple[str, ...]) -> None:
        ways = set(self._switches[arrival.node].ways(self._address)) if arrival.node in self._switches else set()
        if not ways:
            self.lost.add(f"{arrival.node} has no route")
        for port, eth_dst in sorted(ways, key=str):
            if port == arrival.port:
                self.lost.add(f"{arrival.node} does not send it back")
            else:
                self.send(arrival.node, port, eth_dst, path)
