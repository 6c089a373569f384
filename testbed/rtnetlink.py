"""rtnetlink messages as bytes: the few that the testbed needs, built and taken apart. Pure; layouts from linux/rtnetlink.h."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address

from testbed import netlink_wire
from testbed.netlink_wire import NLM_F_DUMP, NLM_F_REPLACE, align, attributes

LINK = struct.Struct("=BxHiII")  # struct ifinfomsg: family, device type, index, flags, change
ROUTE = struct.Struct("=BBBBBBBBI")  # struct rtmsg: family, dst_len, src_len, tos, table, protocol, scope, type, flags
HOP = struct.Struct("=HBBi")  # struct rtnexthop: length, flags, hops, ifindex

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
IFLA_IFNAME, IFLA_OPERSTATE = 3, 16
OPER_DORMANT = b"\x05"  # linux/if.h: a carrier that is not to be used, which is how a `remote` fault is told to one end
RTA_DST, RTA_OIF, RTA_MULTIPATH, RTA_TABLE, RTA_NH_ID = 1, 4, 9, 15, 30
IFF_UP, IFF_LOWER_UP = 0x1, 0x10000
RTNH_F_DEAD, RTNH_F_LINKDOWN = 0x01, 0x10
RTPROT_KERNEL, RTPROT_BGP = 2, 186
RT_TABLE_MAIN = 254
RTMGRP_LINK, RTMGRP_IPV6_ROUTE = 0x001, 0x400


@dataclass(frozen=True)
class LinkMessage:
    """An interface as the kernel reports it. `up`: administratively up, with carrier, and not dormant."""

    index: int
    name: str
    up: bool
    deleted: bool


@dataclass(frozen=True)
class NextHop:
    """One next hop of a route. `usable` is False when the kernel marks it dead or without carrier."""

    ifindex: int
    usable: bool


@dataclass(frozen=True)
class RouteMessage:
    """An IPv6 route of some table. `change` is `add`, `replace` or `del`; `protocol` as in linux/rtnetlink.h (186 = BGP)."""

    change: str
    prefix: str
    table: int
    protocol: int
    nexthop_id: int
    hops: tuple[NextHop, ...]


def dump_request(kind: int, sequence: int) -> bytes:
    """Bytes that ask for all links (RTM_GETLINK) or all IPv6 routes (RTM_GETROUTE)."""
    body = LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0) if kind == RTM_GETLINK else ROUTE.pack(socket.AF_INET6, *[0] * 8)
    return netlink_wire.request(kind, NLM_F_DUMP, sequence, body)


def messages(datagram: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(type, flags, body) of each message in a datagram; NetlinkError for an error message, ValueError for broken lengths."""
    for message in netlink_wire.messages(datagram):
        message.raise_refusal()
        yield message.kind, message.flags, message.body


def parse_link(kind: int, body: bytes) -> LinkMessage:
    """Takes an RTM_NEWLINK or RTM_DELLINK body apart."""
    _, _, index, flags, _ = LINK.unpack_from(body)
    found = attributes(body[LINK.size :])
    name = found.get(IFLA_IFNAME, b"").rstrip(b"\0").decode()
    up = bool(flags & IFF_UP and flags & IFF_LOWER_UP) and found.get(IFLA_OPERSTATE) != OPER_DORMANT
    return LinkMessage(index, name, up, kind == RTM_DELLINK)


def parse_route(kind: int, flags: int, body: bytes) -> RouteMessage | None:
    """Takes an RTM_NEWROUTE or RTM_DELROUTE body apart; None for other families than IPv6."""
    family, length, _, _, table, protocol, _, _, route_flags = ROUTE.unpack_from(body)
    if family != socket.AF_INET6:
        return None
    found = attributes(body[ROUTE.size :])
    address = str(IPv6Address(found.get(RTA_DST, bytes(16))))
    change = "del" if kind == RTM_DELROUTE else "replace" if flags & NLM_F_REPLACE else "add"
    table = _integer(found[RTA_TABLE]) if RTA_TABLE in found else table
    return RouteMessage(change, f"{address}/{length}", table, protocol, _integer(found.get(RTA_NH_ID, b"")), _hops(found, route_flags))


def _hops(found: dict[int, bytes], route_flags: int) -> tuple[NextHop, ...]:
    """The next hops: a list of them, or the single one that lies in the route itself."""
    if RTA_MULTIPATH in found:
        return tuple(_multipath(found[RTA_MULTIPATH]))
    if RTA_OIF in found:
        return (NextHop(_integer(found[RTA_OIF]), _usable(route_flags)),)
    return ()


def _multipath(block: bytes) -> Iterator[NextHop]:
    at = 0
    while at < len(block):
        if len(block) - at < HOP.size:
            raise ValueError(f"netlink: {len(block) - at} bytes behind the last next hop")
        length, flags, _, ifindex = HOP.unpack_from(block, at)
        if not HOP.size <= length <= len(block) - at:
            raise ValueError(f"next hop of {length} bytes at {at} in a block of {len(block)}")
        yield NextHop(ifindex, _usable(flags))
        at += align(length)


def _usable(flags: int) -> bool:
    return not flags & (RTNH_F_DEAD | RTNH_F_LINKDOWN)


def _integer(value: bytes) -> int:
    return int.from_bytes(value, "little")
