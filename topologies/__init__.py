"""Fabrics as pure data: `build` one, then ask for its paths, addresses, uSID rules, and what the rules do with a packet.

The Mininet classes are in `topologies.mininet_topo`, which nothing here imports.
"""

from topologies import addresses, forwarding, usid
from topologies.catalogue import KINDS, build, summary, to_dict
from topologies.model import BadTopology, End, Link, Node, Path, Topology, UnknownLink, UnknownNode
from topologies.parameters import Parameter

__all__ = [
    "KINDS",
    "BadTopology",
    "End",
    "Link",
    "Node",
    "Parameter",
    "Path",
    "Topology",
    "UnknownLink",
    "UnknownNode",
    "addresses",
    "build",
    "forwarding",
    "summary",
    "to_dict",
    "usid",
]
