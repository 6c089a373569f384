"""The kinds of topology by name, and what to tell about a built one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from topologies.addresses import host_address, mac, usid_address
from topologies.fat_tree import PARAMETERS as FAT_TREE_PARAMETERS
from topologies.fat_tree import fat_tree
from topologies.model import TIER_NAMES, BadTopology, End, Node, Topology, did_you_mean
from topologies.multi_plane import PARAMETERS as MULTI_PLANE_PARAMETERS
from topologies.multi_plane import multi_plane
from topologies.parameters import Parameter, resolve


@dataclass(frozen=True)
class Kind:
    """A kind of topology: its parameters and the function that builds it from them."""

    parameters: Sequence[Parameter]
    make: Callable[..., Topology]


KINDS: Mapping[str, Kind] = {
    "fat-tree": Kind(FAT_TREE_PARAMETERS, fat_tree),
    "multi-plane": Kind(MULTI_PLANE_PARAMETERS, multi_plane),
}


def build(kind: str, **params: object) -> Topology:
    """The topology of that kind; BadTopology, with every mistake in one sentence, for parameters that make none.

    `fat-tree`: k, oversubscription=1. `multi-plane`: planes, t0s, t1s, hosts_per_t0.
    """
    chosen = KINDS.get(kind)
    if chosen is None:
        raise BadTopology(f"there is no topology {kind!r}{did_you_mean(str(kind), KINDS)} (kinds: {', '.join(KINDS)})")
    return chosen.make(**resolve(kind, chosen.parameters, params))


def summary(topology: Topology) -> dict[str, Any]:
    """What a person wants to know first: counts by tier, and how many paths a pair has and how long they are."""
    nodes = Counter(TIER_NAMES[node.tier] for node in topology.nodes.values() if node.kind == "switch")
    return {
        "kind": topology.kind,
        "params": dict(topology.params),
        "hosts": len(topology.hosts),
        "switches": dict(sorted(nodes.items())),
        "links": dict(Counter(link.tier for link in topology.links.values())),
        "planes": len({link.plane for link in topology.links.values()}),
        **_path_summary(topology),
    }


def _path_summary(topology: Topology) -> dict[str, int]:
    """From the first host only: both kinds look the same from every host."""
    counts, hops = zip(*topology.path_shapes(topology.hosts[0]).values(), strict=True)
    return {"paths_min": min(counts), "paths_max": max(counts), "usids_max": max(hops)}


def to_dict(topology: Topology) -> dict[str, Any]:
    """The whole topology, fit for JSON: `summary`, `nodes` with their addresses, `links` with their ports and MACs."""
    return {
        "kind": topology.kind,
        "params": dict(topology.params),
        "summary": summary(topology),
        "nodes": [_node_dict(node) for node in topology.nodes.values()],
        "links": [
            {"name": link.name, "tier": link.tier, "plane": link.plane, "index": link.index, "a": _end_dict(link.a), "b": _end_dict(link.b)}
            for link in topology.links.values()
        ],
    }


def _node_dict(node: Node) -> dict[str, Any]:
    addresses = {"usid_address": usid_address(node)} | ({"address": host_address(node)} if node.kind == "host" else {})
    return {**asdict(node), "usid": f"{node.usid:04x}", **addresses}


def _end_dict(end: End) -> dict[str, Any]:
    return {"node": end.node, "port": end.port, "ifname": end.ifname, "mac": mac(end)}
