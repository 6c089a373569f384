"""Every address of the fabric, derived from the nodes' uSIDs. The uSID layout is that of RFC 9800: a 32-bit block, then 16-bit ids."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv6Address, IPv6Network

from topologies.model import BadTopology, End, Node

USID_BLOCK = IPv6Network("fcbb:bb00::/32")
USID_BITS = 16
MOST_USIDS = (128 - USID_BLOCK.prefixlen) // USID_BITS
"""How many ids a destination holds after the block: six."""

_HOST_BLOCK = int(IPv6Address("fd00::"))


def node_prefix(node: Node) -> str:
    """The /48 that a node answers for."""
    return f"{usid_address(node)}/{USID_BLOCK.prefixlen + USID_BITS}"


def usid_address(node: Node) -> str:
    """The node's uSID with nothing after it: what is left of a destination on its last hop."""
    return container([node.usid])


def host_address(node: Node) -> str:
    """The NIC's own address: the inner destination of MRC, and the /128 that BGP announces."""
    return str(IPv6Address(_HOST_BLOCK | node.usid << 64 | 1))


def container(usids: Sequence[int]) -> str:
    """The block followed by `usids`, the first one on the left; BadTopology if there are more than fit."""
    if len(usids) > MOST_USIDS:
        raise BadTopology(f"a path of {len(usids)} uSIDs does not fit a destination, which holds {MOST_USIDS}")
    value = int(USID_BLOCK.network_address)
    for place, usid in enumerate(usids, start=1):
        value |= usid << 128 - USID_BLOCK.prefixlen - place * USID_BITS
    return str(IPv6Address(value))


def mac(end: End) -> str:
    """A locally administered unicast MAC: 02:00, the node's uSID, the port. BadTopology for an end that no topology made."""
    if not end.usid:
        raise BadTopology(f"{end.ifname} carries no uSID to make a MAC from: take ends from a topology's links")
    return ":".join(f"{byte:02x}" for byte in (0x02, 0x00, *end.usid.to_bytes(2, "big"), *end.port.to_bytes(2, "big")))
