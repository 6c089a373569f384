"""From a captured frame to the transport: link layer, IPv6 within IPv6, UDP; what is neither MRC nor RC is named and left alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from ipaddress import IPv6Address

from hosts import wire
from hosts.decode.roce import roce
from hosts.decode.walk import Stop, Walk
from hosts.wire import Header

ETHERNET = Header("ETHERNET", ((("destination", 48), ("source", 48), ("type", 16)),))
VLAN = Header("VLAN", ((("tag", 16),), (("type", 16),)))
SLL = Header("SLL", ((("direction", 16),), (("device", 16),), (("address_length", 16),), (("address", 64),), (("type", 16),)))
SLL2 = Header("SLL2", (
    (("type", 16),), (("unused", 16),), (("interface", 32),), (("device", 16),), (("direction", 8),), (("address_length", 8),),
    (("address", 64),),
))  # fmt: skip
EXTENSION = Header("IPV6_EXTENSION", ((("next_header", 8),), (("length", 8),), (("data", 48),)))
TCP = Header("TCP", (
    (("source_port", 16),), (("destination_port", 16),), (("sequence", 32),), (("acknowledgement", 32),),
    (("offset", 4), ("reserved", 4), ("flags", 8)), (("window", 16),), (("checksum", 16),), (("urgent", 16),),
))  # fmt: skip
BGP = Header("BGP", ((("marker", 128),), (("length", 16),), (("type", 8),)))
BFD = Header("BFD", ((("version", 3), ("diagnostic", 5)), (("state", 2), ("flags", 6)), (("detect_multiplier", 8),), (("length", 8),)))
ICMPV6 = Header("ICMPV6", ((("type", 8),), (("code", 8),), (("checksum", 16),)))

IPV4_TYPE, ARP_TYPE, IPV6_TYPE, VLAN_TYPES = 0x0800, 0x0806, 0x86DD, frozenset({0x8100, 0x88A8})
OTHER_TYPES: Mapping[int, str] = {IPV4_TYPE: "IPv4", ARP_TYPE: "ARP", 0x88CC: "LLDP", 0x88B5: "a frame that measures a link's rate"}
MIN_FRAME_BYTES = 60  # shorter frames are padded to this (IEEE 802.3), without the check sequence
USID_SHIFT = 80  # of the first uSID in a destination
MOST_HEADERS = 8  # IPv6 in IPv6: the fabric has two, and nobody sends more than a few
EXTENSIONS = frozenset({0, 43, 60})  # hop-by-hop, routing (SRv6's SRH), destination options (RFC 8200); 44 is a fragment
PROTOCOL_TCP, PROTOCOL_FRAGMENT, PROTOCOL_ICMPV6 = 6, 44, 58
BGP_PORT, BFD_PORTS = 179, frozenset({3784, 3785, 4784})  # RFC 4271, 5881, 5883
BGP_TYPES: Mapping[int, str] = {1: "OPEN", 2: "UPDATE", 3: "NOTIFICATION", 4: "KEEPALIVE", 5: "ROUTE-REFRESH"}
BFD_STATES = ("AdminDown", "Down", "Init", "Up")
TCP_FLAGS: Mapping[int, str] = {2: "SYN", 1: "FIN", 4: "RST"}
NEIGHBOUR_TYPES: Mapping[int, str] = {
    133: "Router Solicitation", 134: "Router Advertisement", 135: "Neighbour Solicitation", 136: "Neighbour Advertisement", 137: "Redirect",
}  # fmt: skip
ICMPV6_TYPES: Mapping[int, str] = {
    1: "Destination Unreachable", 2: "Packet Too Big", 3: "Time Exceeded", 4: "Parameter Problem", 128: "Echo Request", 129: "Echo Reply",
    143: "Multicast Listener Report",
}  # fmt: skip
ECN_NAMES: Mapping[int, str] = {wire.NOT_ECT: "Not-ECT", wire.ECT1: "ECT(1)", wire.ECT0: "ECT(0)", wire.CE: "CE"}


def ethernet(walk: Walk) -> None:
    """Link type 1."""
    _by_type(walk, walk.take(ETHERNET)["type"])


def cooked(walk: Walk) -> None:
    """Link type 113: Linux' header for captures on any interface."""
    _by_type(walk, walk.take(SLL)["type"])


def cooked2(walk: Walk) -> None:
    """Link type 276: its second version."""
    _by_type(walk, walk.take(SLL2)["type"])


def raw(walk: Walk) -> None:
    """Link types 12, 14, 101, 229: nothing before the IP header."""
    walk.need(1, "IP")
    _by_type(walk, IPV4_TYPE if walk.data[0] >> 4 == 4 else IPV6_TYPE)


LINK_TYPES: Mapping[int, Callable[[Walk], None]] = {
    1: ethernet, 12: raw, 14: raw, 101: raw, 113: cooked, 229: raw, 276: cooked2,
}  # fmt: skip
"""By the number that pcap and pcapng files give the link layer."""


def _by_type(walk: Walk, kind: int) -> None:
    while kind in VLAN_TYPES:
        kind = walk.take(VLAN)["type"]
    if kind == IPV6_TYPE:
        ipv6(walk)
        return
    walk.packet.kind = {IPV4_TYPE: "ipv4", ARP_TYPE: "arp"}.get(kind, "other")
    walk.packet.says = OTHER_TYPES.get(kind, f"EtherType {kind:#06x}")


def ipv6(walk: Walk, depth: int = 0) -> None:
    """An IPv6 header and all behind it; within it may be another one."""
    if depth == MOST_HEADERS:
        raise walk.stop("nested", f"more than {MOST_HEADERS} IPv6 headers inside each other")
    ip_at, ip = walk.at, walk.take(wire.IPV6)
    if ip["version"] != 6:
        raise walk.stop("bad_version", f"IPv6's version is {ip['version']}")
    walk.packet.source, walk.packet.destination = (str(walk.packet.layers[-1].fields[end]) for end in ("source", "destination"))
    walk.packet.says = f"next header {ip['next_header']}"
    _traffic_class(walk, ip["traffic_class"])
    walk.bound(ip["payload_length"], "IPv6's payload length", padded=depth == 0 and walk.packet.original_bytes <= MIN_FRAME_BYTES)
    protocol = _extensions(walk, ip["next_header"])
    if protocol == wire.PROTOCOL_IPV6:
        walk.packet.usid_block, walk.packet.usids = usids(ip["destination"])
        ipv6(walk, depth + 1)
    elif protocol == wire.PROTOCOL_UDP:
        _udp(walk, ip_at, ip)
    elif protocol == PROTOCOL_TCP:
        _tcp(walk)
    elif protocol == PROTOCOL_ICMPV6:
        _icmpv6(walk)


@lru_cache(maxsize=4096)
def usids(destination: int) -> tuple[str, tuple[int, ...]]:
    """The block of an outer destination, as an address, and the ids after it, up to the first zero (RFC 9800: 32 bits, then 16 an id)."""
    found = []
    for shift in range(USID_SHIFT, -1, -16):
        usid = destination >> shift & 0xFFFF
        if not usid:
            break
        found.append(usid)
    return str(IPv6Address(destination >> 96 << 96)), tuple(found)


def _traffic_class(walk: Walk, value: int) -> None:
    """The outer header's is told, on which switches act; of the inner one's, on which NICs act, a DSCP and a mark that differ.

    An inner DSCP of 0 says nothing: whoever wraps a packet has put it into the outer header.
    """
    dscp, marked = value >> 2, value & wire.CE == wire.CE
    told, before = f"{wire.DSCP_ROLES.get(dscp, f'DSCP {dscp}')} {ECN_NAMES[value & 3]}", walk.packet.traffic_class
    if not before:
        walk.packet.traffic_class = told
    elif (dscp and before.split()[:-1] != told.split()[:-1]) or marked != before.endswith(ECN_NAMES[wire.CE]):
        walk.packet.traffic_class = f"{before} (inner: {told})"


def _extensions(walk: Walk, protocol: int) -> int:
    """The protocol behind the extension headers; each is 8 bytes and as many times 8 as it says."""
    while protocol in EXTENSIONS:
        header = walk.take(EXTENSION)
        walk.need(8 * header["length"], "an IPv6 extension header")
        walk.at += 8 * header["length"]
        protocol = header["next_header"]
    if protocol == PROTOCOL_FRAGMENT:
        walk.packet.says = "a fragment"
        raise Stop
    return protocol


def _udp(walk: Walk, ip_at: int, ip: Mapping[str, int]) -> None:
    udp_at, udp = walk.at, walk.take(wire.UDP)
    walk.packet.kind, walk.packet.says = "udp", f"UDP {udp['source_port']} > {udp['destination_port']}"
    if udp["length"] != walk.end - udp_at and not walk.short:
        walk.problem("bad_length", f"UDP's length is {udp['length']}, but IPv6's payload length leaves {walk.end - udp_at}")
    if udp["destination_port"] in wire.UDP_PORTS:
        roce(walk, ip_at, ip, udp)
    elif udp["destination_port"] in BFD_PORTS:
        walk.packet.kind, walk.packet.says = "bfd", "BFD"
        walk.packet.says = f"BFD {BFD_STATES[walk.take(BFD)['state']]}"


def _tcp(walk: Walk) -> None:
    walk.packet.kind, walk.packet.says = "tcp", "TCP"
    begin, tcp = walk.at, walk.take(TCP)
    walk.at = max(walk.at, begin + 4 * tcp["offset"])
    flags = [name for bit, name in TCP_FLAGS.items() if tcp["flags"] & bit]
    walk.packet.payload_bytes = max(0, walk.left)
    walk.packet.says = " ".join([f"TCP {tcp['source_port']} > {tcp['destination_port']}", *flags, f"{walk.packet.payload_bytes} B"])
    if BGP_PORT in (tcp["source_port"], tcp["destination_port"]):
        walk.packet.kind, walk.packet.says = "bgp", f"BGP's {walk.packet.says}"
        _bgp(walk)


def _bgp(walk: Walk) -> None:
    """The message at the beginning of a segment, if one begins there: TCP may cut them anywhere."""
    if walk.left >= BGP.size_bytes and walk.data[walk.at : walk.at + 16] == b"\xff" * 16:
        kind = walk.take(BGP)["type"]
        walk.packet.says = f"BGP {BGP_TYPES.get(kind, f'message type {kind}')}"


def _icmpv6(walk: Walk) -> None:
    walk.packet.kind, walk.packet.says = "icmpv6", "ICMPv6"
    kind = walk.take(ICMPV6)["type"]
    walk.packet.kind = "nd" if kind in NEIGHBOUR_TYPES else "icmpv6"
    walk.packet.says = {**NEIGHBOUR_TYPES, **ICMPV6_TYPES}.get(kind, f"ICMPv6 type {kind}")
