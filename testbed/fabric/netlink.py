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
from testbed.netlink_wire import NLM_F_ACK, NLM_F_DUMP, NLMSG_DONE, NLMSG_ERROR, NetlinkError, attribute, attributes, messages, request

IFF_UP, IFF_RUNNING, IFF_LOWER_UP = 0x1, 0x40, 0x10000
RTM_SETLINK, RTM_GETLINK, RTM_GETQDISC, RTM_NEWTCLASS, RTM_GETTCLASS, RTM_GETTFILTER = 19, 18, 38, 40, 42, 46
_LINK = struct.Struct("=BxHiII")  # family, type, index, flags, change mask
_TRAFFIC = struct.Struct("=BxxxiIII")  # family, index, handle, parent, info
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_OPERSTATE, _IFLA_LINKMODE = 1, 3, 4, 16, 17
_OPER_DORMANT, _OPER_UP = 5, 6  # linux/if.h
_TCA_KIND, _TCA_OPTIONS = 1, 2
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

    @property
    def is_running(self) -> bool:
        """Whether its operational state (RFC 2863) is up: what FRR and Open vSwitch go by."""
        return bool(self.flags & IFF_RUNNING)


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
        for _ in self._ask(RTM_SETLINK, NLM_F_ACK, body):
            pass

    def set_dormant(self, ifindex: int, dormant: bool) -> None:
        """Makes the operational state of an interface that has a carrier dormant, for good (link mode), or what its carrier says."""
        mode, state = (1, _OPER_DORMANT) if dormant else (0, _OPER_UP)
        attributes_ = attribute(_IFLA_OPERSTATE, bytes([state])) + attribute(_IFLA_LINKMODE, bytes([mode]))
        for _ in self._ask(RTM_SETLINK, NLM_F_ACK, _LINK.pack(0, 0, ifindex, 0, 0) + attributes_):
            pass

    def interface(self, ifindex: int) -> Interface:
        """The interface of that index."""
        return _interface(next(self._ask(RTM_GETLINK, 0, _LINK.pack(0, 0, ifindex, 0, 0))))

    def interfaces(self) -> list[Interface]:
        """All interfaces of the namespace."""
        return [_interface(payload) for payload in self._ask(RTM_GETLINK, NLM_F_DUMP, _LINK.pack(0, 0, 0, 0, 0))]

    def qdiscs(self) -> list[TrafficObject]:
        """All qdiscs of the namespace."""
        return self._traffic(RTM_GETQDISC, 0, 0)

    def classes(self, ifindex: int) -> list[TrafficObject]:
        """The classes of an interface."""
        return self._traffic(RTM_GETTCLASS, ifindex, 0)

    def change_class(self, ifindex: int, class_: TrafficObject, options: bytes) -> None:
        """Gives an existing class new options (the content of TCA_OPTIONS); returns when the kernel has done it."""
        body = _TRAFFIC.pack(0, ifindex, class_.handle, class_.parent, 0) + attribute(_TCA_KIND, class_.kind.encode() + b"\0")
        for _ in self._ask(RTM_NEWTCLASS, NLM_F_ACK, body + attribute(_TCA_OPTIONS, options)):
            pass

    def filters(self, ifindex: int, parent: int) -> list[TrafficObject]:
        """The filters of an interface below a qdisc (`parent` = its handle)."""
        return self._traffic(RTM_GETTFILTER, ifindex, parent)

    def _traffic(self, kind: int, ifindex: int, parent: int) -> list[TrafficObject]:
        return [_traffic_object(payload) for payload in self._ask(kind, NLM_F_DUMP, _TRAFFIC.pack(0, ifindex, 0, parent, 0))]

    def _ask(self, kind: int, flags: int, body: bytes) -> Iterator[bytes]:
        """The payloads of the answer. Collected under the lock, so that threads do not take each other's answers."""
        with self._lock:
            self._sequence += 1
            self._socket.send(request(kind, flags, self._sequence, body))
            return iter(list(self._answers(self._sequence, bool(flags))))

    def _answers(self, sequence: int, until_done: bool) -> Iterator[bytes]:
        while True:
            for message in messages(self._socket.recv(_RECEIVE_BYTES)):
                if message.sequence != sequence:
                    continue
                try:
                    message.raise_refusal()
                except NetlinkError as error:
                    said = os.strerror(error.errno)
                    raise HostError(f"the kernel refused a request about an interface or its queues: {said}") from error
                if message.kind in (NLMSG_DONE, NLMSG_ERROR):
                    return
                yield message.body
                if not until_done:
                    return


def _interface(payload: bytes) -> Interface:
    _family, _type, index, flags, _change = _LINK.unpack_from(payload)
    found = attributes(payload[_LINK.size :])
    (mtu,) = struct.unpack("=I", found[_IFLA_MTU])
    mac = ":".join(f"{byte:02x}" for byte in found.get(_IFLA_ADDRESS, b""))
    return Interface(index, found[_IFLA_IFNAME].rstrip(b"\0").decode(), flags, mtu, mac)


def _traffic_object(payload: bytes) -> TrafficObject:
    _family, ifindex, handle, parent, info = _TRAFFIC.unpack_from(payload)
    return TrafficObject(ifindex, handle, parent, info, attributes(payload[_TRAFFIC.size :]))
