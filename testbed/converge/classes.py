"""Which pairs of hosts a fault can hit, and who has to act for each: the fault's own neighbour, or routers further away. Pure.

For one and the same cut BGP is as good as a source-routed transport for the pairs whose deciding router sits at the cut (it skips a next
hop), and is not for those of which other routers must be told; so the two are never put together.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from hosts.wire import DYNAMIC_PORTS
from testbed.routing.config import host_prefix
from testbed.routing.expected import Fib, expected_fibs
from testbed.scenario.faults import Fault
from testbed.scenario.kinds import takes_path
from topologies import Path, Topology

LOCAL, REMOTE = "local", "remote"
CLASSES = (LOCAL, REMOTE)
PORTS_A_PAIR = 4  # source ports a pair: several, so that ECMP spreads them over its paths
NEVER_SWITCHES = ("flap", "host-slow", "controller-kill")
Row = tuple[str, str]  # (link, node that sends on it)


@dataclass(frozen=True)
class Crossing:
    """How a pair meets a fault: its class, and the link directions on which its packets would enter what is broken."""

    flow_class: str
    rows: frozenset[Row]


@dataclass(frozen=True)
class ProbeFlow:
    """One stream of probes: a pair of hosts and a source port, so one path at any time."""

    flow_class: str
    source: str
    target: str
    port: int
    rows: frozenset[Row]


def why_not(fault: Fault) -> str:
    """Why convergence on such a fault cannot be measured; empty if it can."""
    if fault.kind in NEVER_SWITCHES or not takes_path(fault.kind, fault.params):
        return f"a {fault.kind} fault leaves the path in use: there is nothing to converge to"
    return ""


def crossings(topology: Topology, fault: Fault) -> dict[tuple[str, str], Crossing]:
    """Every ordered pair of hosts that the fault can hit and that still has a way around it, with how it meets the fault."""
    down = [fault.target] if fault.target_type == "switch" else []
    after = expected_fibs(topology, fault.links, down)
    found = {}
    for source, target in permutations(topology.hosts, 2):
        crossing = _crossing(topology, fault, after, topology.paths(source, target))
        if crossing is not None:
            found[source, target] = crossing
    return found


def _crossing(topology: Topology, fault: Fault, after: Mapping[str, Fib], paths: Sequence[Path]) -> Crossing | None:
    """None: no path meets the fault, or one does and is cut off by it (then no router can help)."""
    classes, rows = set[str](), set[Row]()
    for path in paths:
        row = first_row(fault, path)
        if row is None:
            continue
        flow_class = _class(topology, after, path, row[1])
        if flow_class is None:
            return None
        classes.add(flow_class)
        rows.add(row)
    return Crossing(LOCAL if classes == {LOCAL} else REMOTE, frozenset(rows)) if rows else None


def first_row(fault: Fault, path: Path) -> Row | None:
    """Where a path enters the first thing that is broken: (link, its sending node); None if it does not. Of `one-way` only that way."""
    sender = fault.params.get("from")
    for node, link in zip(path.nodes, path.links, strict=False):
        if link in fault.links and sender in (None, node):
            return link, node
    return None


def _class(topology: Topology, after: Mapping[str, Fib], path: Path, decider: str) -> str | None:
    """`local`: the router before the fault has another next hop left. `remote`: it has none, but the path's first router has a way."""
    prefix = host_prefix(topology, path.nodes[-1])
    if decider not in after:  # a host, or what is broken itself
        return None
    if after[decider].get(prefix):
        return LOCAL
    return REMOTE if after.get(path.nodes[1], {}).get(prefix) else None


def probe_flows(topology: Topology, fault: Fault, count: int, seed: int) -> tuple[ProbeFlow, ...]:
    """`count` streams for one fault, the same for all profiles: half of each class that there is, PORTS_A_PAIR a pair, drawn by `seed`."""
    rng = random.Random(f"{seed} {fault.id} {fault.target}")
    found = crossings(topology, fault)
    by_class = {name: [pair for pair, crossing in found.items() if crossing.flow_class == name] for name in CLASSES}
    present = [name for name in CLASSES if by_class[name]]
    each = count // len(present) if present else 0
    ports = iter(rng.sample(DYNAMIC_PORTS, count))
    return tuple(flow for name in present for flow in _of_class(rng, ports, found, by_class[name], each))


def _of_class(
    rng: random.Random,
    ports: Iterator[int],
    found: Mapping[tuple[str, str], Crossing],
    pairs: Sequence[tuple[str, str]],
    count: int,
) -> Iterator[ProbeFlow]:
    chosen = rng.sample(pairs, min(max(1, count // PORTS_A_PAIR), len(pairs)))
    for number in range(count):
        source, target = chosen[number % len(chosen)]
        crossing = found[source, target]
        yield ProbeFlow(crossing.flow_class, source, target, next(ports), crossing.rows)


def ends(topology: Topology, fault: Fault) -> frozenset[str]:
    """The routers at the fault: the switches at the ends of its links; of a broken switch its neighbours, not the switch itself."""
    nodes = {end.node for name in fault.links for end in (topology.link(name).a, topology.link(name).b)}
    return frozenset(node for node in nodes if topology.nodes[node].kind == "switch" and node != fault.target)
