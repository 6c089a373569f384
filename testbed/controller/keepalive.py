"""The packet that says that a link passes packets: IPv6 to all nodes of the link, with the DSCP of BGP and BFD.

As FRR's packets it goes in the link's control class, passes a switch that hangs, and is lost with all else on a link that fails silently.
"""

from __future__ import annotations

import struct
from ipaddress import IPv6Address

from testbed.link_settings import DSCP_ROUTING
from topologies import ecmp
from topologies.addresses import mac
from topologies.model import End

PROTOCOL = 253
"""IPv6 next header for experiments (RFC 3692, section 2.1)."""
PAYLOAD = b"MRC testbed keepalive 1\n"
_FRAME_BYTES = 14 + 40 + len(PAYLOAD)
_ALL_NODES = IPv6Address("ff02::1")
_ALL_NODES_MAC = bytes.fromhex("333300000001")
_ETHERTYPE_IPV6 = 0x86DD
LISTEN_PRIORITY = 200
RULE = ecmp.Rule(ecmp.ROUTE_TABLE, LISTEN_PRIORITY, (ecmp.ToController(_FRAME_BYTES),), protocol=PROTOCOL)
"""What a switch does with one that arrives."""


def frame(end: End) -> bytes:
    """The packet that leaves by this port of a switch."""
    version_class_label = 6 << 28 | DSCP_ROUTING << 22
    header = struct.pack("!IHBB", version_class_label, len(PAYLOAD), PROTOCOL, 1)
    source = IPv6Address(f"fe80::{end.usid:x}:{end.port:x}")
    own = bytes.fromhex(mac(end).replace(":", ""))
    return _ALL_NODES_MAC + own + struct.pack("!H", _ETHERTYPE_IPV6) + header + source.packed + _ALL_NODES.packed + PAYLOAD


def is_keepalive(data: bytes) -> bool:
    """Whether a received packet is one."""
    return (
        data[12:14] == struct.pack("!H", _ETHERTYPE_IPV6) and data[20:21] == bytes([PROTOCOL]) and data[54 : 54 + len(PAYLOAD)] == PAYLOAD
    )
