"""A small rtnetlink client: one socket a namespace, kept open, so that a fault costs one system call and no process.

Structures and numbers: linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/pkt_sched.h.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.errors import HostError
from testbed.fabric.namespaces import entered

IFF_UP, IFF_LOWER_UP = 0x1, 0x10000
RTM_SETLINK, RTM_GETLINK, RTM_GETQDISC, RTM_NEWTCLASS, RTM_GETTCLASS, RTM_GETTFILTER = 19, 18, 38, 40, 42, 46
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_DUMP = 0x1, 0x4, 0x300
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_LINK = struct.Struct("=BxHiII")  # family, type, index, flags, change mask
_TRAFFIC = struct.Struct("=BxxxiIII")  # family, index, handle, parent, info
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU = 1, 3, 4
_TCA_KIND, _TCA_OPTIONS = 1, 2
_TYPE_MASK = 0x3FFF
_RECEIVE_BYTES = 1 << 17


@dataclass(frozen=True)
class Interface:
    """One network interface as the kernel tells it; `flags` as in linux/if.h."""

    index: int
    name: str
    flags: int
    mtu_bytes: int
    mac: str

    @property
    def is_up(self) -> bool:
        """Whether it was set up."""
        return bool(self.flags & IFF_UP)

    @property
    def has_carrier(self) -> bool:
        """Whether it is up and sees its peer: what the data path goes by."""
        return bool(self.flags & IFF_LOWER_UP)


@dataclass(frozen=True)
class TrafficObject:
    """A qdisc, class or filter: kind, handle, parent, `info` (a filter's priority and protocol), attributes by number."""

    ifindex: int
    handle: int
    parent: int
    info: int
    attributes: dict[int, bytes]

    @property
    def kind(self) -> str:
        """As `htb` or `u32`."""
        return self.attributes.get(1, b"").rstrip(b"\0").decode()


class Netlink:
    """A route-netlink socket that lives in the namespace of process `pid`. Safe for several threads."""

    def __init__(self, pid: int) -> None:
        self._lock = threading.Lock()
        self._sequence = 0
        with entered(pid):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))

    def close(self) -> None:
        """Lets go of the namespace."""
        self._socket.close()

    def set_up(self, ifindex: int, up: bool) -> None:
        """Sets an interface up or down; returns when the kernel has done it."""
        body = _LINK.pack(0, 0, ifindex, IFF_UP if up else 0, IFF_UP)
        for _ in self._ask(RTM_SETLINK, _NLM_F_ACK, body):
            pass

    def interface(self, ifindex: int) -> Interface:
        """The interface of that index."""
        return _interface(next(self._ask(RTM_GETLINK, 0, _LINK.pack(0, 0, ifindex, 0, 0))))

    def interfaces(self) -> list[Interface]:
        """All interfaces of the namespace."""
        return [_interface(payload) for payload in self._ask(RTM_GETLINK, _NLM_F_DUMP, _LINK.pack(0, 0, 0, 0, 0))]

    def qdiscs(self) -> list[TrafficObject]:
        """All qdiscs of the namespace."""
        return self._traffic(RTM_GETQDISC, 0, 0)

    def classes(self, ifindex: int) -> list[TrafficObject]:
        """The classes of an interface."""
        return self._traffic(RTM_GETTCLASS, ifindex, 0)

    def change_class(self, ifindex: int, class_: TrafficObject, options: bytes) -> None:
        """Gives an existing class new options (the content of TCA_OPTIONS); returns when the kernel has done it."""
        body = _TRAFFIC.pack(0, ifindex, class_.handle, class_.parent, 0) + attribute(_TCA_KIND, class_.kind.encode() + b"\0")
        for _ in self._ask(RTM_NEWTCLASS, _NLM_F_ACK, body + attribute(_TCA_OPTIONS, options)):
            pass

    def filters(self, ifindex: int, parent: int) -> list[TrafficObject]:
        """The filters of an interface below a qdisc (`parent` = its handle)."""
        return self._traffic(RTM_GETTFILTER, ifindex, parent)

    def _traffic(self, kind: int, ifindex: int, parent: int) -> list[TrafficObject]:
        return [_traffic_object(payload) for payload in self._ask(kind, _NLM_F_DUMP, _TRAFFIC.pack(0, ifindex, 0, parent, 0))]

    def _ask(self, kind: int, flags: int, body: bytes) -> Iterator[bytes]:
        """The payloads of the answer. Collected under the lock, so that threads do not take each other's answers."""
        with self._lock:
            self._sequence += 1
            header = _HEADER.pack(_HEADER.size + len(body), kind, _NLM_F_REQUEST | flags, self._sequence, 0)
            self._socket.send(header + body)
            return iter(list(self._answers(self._sequence, bool(flags))))

    def _answers(self, sequence: int, until_done: bool) -> Iterator[bytes]:
        while True:
            for kind, number, payload in _messages(self._socket.recv(_RECEIVE_BYTES)):
                if number != sequence:
                    continue
                if kind == _NLMSG_DONE or (kind == _NLMSG_ERROR and _raise_error(payload)):
                    return
                yield payload
                if not until_done:
                    return


def attribute(kind: int, value: bytes) -> bytes:
    """One netlink attribute, padded."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) & 3)


def attributes(data: bytes) -> dict[int, bytes]:
    """Netlink attributes by type; of a repeated type the last one."""
    return dict(attribute_list(data))


def attribute_list(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Netlink attributes in their order."""
    offset = 0
    while offset + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if length < _ATTRIBUTE.size:
            return
        yield kind & _TYPE_MASK, data[offset + _ATTRIBUTE.size : offset + length]
        offset += length + 3 & ~3


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, _flags, sequence, _port = _HEADER.unpack_from(data, offset)
        yield kind, sequence, data[offset + _HEADER.size : offset + length]
        offset += length + 3 & ~3


def _raise_error(payload: bytes) -> bool:
    """True for an acknowledgement; HostError for an error."""
    (number,) = struct.unpack_from("=i", payload)
    if number:
        raise HostError(f"the kernel refused a request about an interface or its queues: {os.strerror(-number)}")
    return True


def _interface(payload: bytes) -> Interface:
    _family, _type, index, flags, _change = _LINK.unpack_from(payload)
    found = attributes(payload[_LINK.size :])
    (mtu,) = struct.unpack("=I", found[_IFLA_MTU])
    mac = ":".join(f"{byte:02x}" for byte in found.get(_IFLA_ADDRESS, b""))
    return Interface(index, found[_IFLA_IFNAME].rstrip(b"\0").decode(), flags, mtu, mac)


def _traffic_object(payload: bytes) -> TrafficObject:
    _family, ifindex, handle, parent, info = _TRAFFIC.unpack_from(payload)
    return TrafficObject(ifindex, handle, parent, info, attributes(payload[_TRAFFIC.size :]))
