"""The agent's sockets: raw IPv6-in-IPv6 a NIC port for MRC (without the outer header: ecmp_network.py), UDP for RoCE RC.

Nothing here blocks, and nothing needs neighbour discovery.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import stat
import struct
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from hosts.commands import SocketSettings
from hosts.core import Transmit
from hosts.wire import CE, ECT0, NOT_ECT, UDP_PORT
from testbed.errors import HostError

PROTOCOL_IPV6 = 41
MAX_DATAGRAM_BYTES = 65536

# From Linux' asm-generic/socket.h, in6.h and prctl.h; Python's socket module does not have them.
SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_ATTACH_FILTER = 32, 33, 26
IPV6_DONTFRAG = 62
IPV6_MTU_DISCOVER, IPV6_PMTUDISC_INTERFACE = 23, 4
TCLASS_SPACE = socket.CMSG_SPACE(struct.calcsize("i"))
SOL_PACKET, PACKET_STATISTICS = 263, 6
BPF_RET_NOTHING = (ctypes.c_ubyte * 8)(0x06)  # the classic BPF program `ret #0`

# The network, or this host's own port to it, is not there: the packet is lost, as it would be behind a cut link.
LOST_ERRNOS = frozenset({errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTUNREACH, errno.ENODEV, errno.ENXIO, errno.EADDRNOTAVAIL, errno.EPERM,
                         errno.ECONNREFUSED})  # fmt: skip
NOBUFS_PAUSE_S = 0.001

TOO_MANY_SOCKETS = "raise `ulimit -n`, or give fewer peers, QPs or connections"
MOST_WAITING = 8192  # packets of a socket that is full: what it was asked to send beyond is lost, as in any queue

# Linux lets a raw IPv6 socket fill twice its send buffer, and then says ENOBUFS, not EAGAIN (net/ipv6/ip6_output.c, __ip6_append_data).
RAW_SEND_BUFFERS = 2


Ancillary = tuple[int, int, bytes]  # level, type, data: a control message of sendmsg


class Outlet:
    """A socket to send from. A packet that it cannot take now waits here, in order, until it can.

    Ancillary data of another traffic class than the socket's: `bare` for packets without payload, `again` for what is sent again.
    """

    def __init__(
        self, sock: socket.socket, port: int, counters: Counter[str], bare: Iterable[Ancillary] = (), again: Iterable[Ancillary] = ()
    ) -> None:
        self.socket, self._port, self._counters, self._bare, self._again = sock, port, counters, bare, again
        self._sendmsg = sock.sendmsg
        self.waiting: deque[Transmit] = deque()
        self._addresses: dict[str, tuple[str, int, int, int]] = {}
        self.retry_soon = False  # after ENOBUFS the socket looks writable: retry after a pause instead

    def send(self, packet: Transmit) -> bool:
        """Sends the packet, or keeps it and says False if the socket is full; HostError if it is larger than the MTU."""
        if not self.waiting and self._send(packet):
            return True
        if len(self.waiting) < MOST_WAITING:
            self.waiting.append(packet)
        else:
            self._counters["send_queue_full"] += 1
        return False

    def flush(self) -> None:
        """Sends what waits, as far as the socket takes it."""
        while self.waiting and self._send(self.waiting[0]):
            self.waiting.popleft()

    def _send(self, packet: Transmit) -> bool:
        """False if the socket takes nothing now."""
        try:
            ancillary = self._again if packet.again else () if packet.payload else self._bare
            self._sendmsg((packet.header, packet.payload, packet.trailer), ancillary, 0, self._addresses[packet.destination])
        except KeyError:
            self._addresses[packet.destination] = (packet.destination, self._port, 0, 0)
            return self._send(packet)
        except BlockingIOError:
            self._counters["send_blocked"] += 1
            self.retry_soon = False
            return False
        except OSError as error:
            return self._on_error(error, packet)
        return True

    def _on_error(self, error: OSError, packet: Transmit) -> bool:
        if error.errno in (errno.ENOBUFS, errno.ENOMEM):
            self._counters["send_no_buffer"] += 1
            self.retry_soon = True
            return False
        if error.errno in LOST_ERRNOS:
            self._counters[f"send_{errno.errorcode[error.errno]}"] += 1
            return True
        size = len(packet.header) + len(packet.payload) + len(packet.trailer)
        raise HostError(
            f"sending {size} bytes to {packet.destination}: {error.strerror}: check the link's MTU and the host's addresses"
        ) from error


class Reader(NamedTuple):
    """A socket that receives, the NIC port behind it, and whom to tell before a packet that came marked is handed on (None: nobody)."""

    socket: socket.socket
    port: int
    on_marked: Callable[[], None] | None = None


class Network(Protocol):
    """A transport's sockets."""

    counters: Counter[str]
    readers: dict[int, Reader]  # by file descriptor

    def send(self, packet: Transmit) -> bool:
        """Sends one packet, or keeps it until the socket takes it; False if it waits."""

    def outlets(self) -> Iterable[Outlet]:
        """All sockets that send."""

    def close(self) -> None:
        """Closes every socket."""


class MrcNetwork:
    """Two raw sockets of protocol 41 a NIC port: one for data, which also receives, and one for control; they differ in traffic class.

    Data is ECN-capable, so that a congested link marks it; control and probes are not.
    """

    def __init__(self, host: str, ports: Iterable[int], settings: SocketSettings) -> None:
        self.counters: Counter[str] = Counter()
        self.readers: dict[int, Reader] = {}
        self._data: dict[int, Outlet] = {}
        self._control: dict[int, Outlet] = {}
        for port in ports:
            data = _raw_socket(f"{host}-eth{port}", settings.data_dscp, ECT0, settings)
            control = _raw_socket(f"{host}-eth{port}", settings.control_dscp, NOT_ECT, settings)
            receive_nothing(control)
            self.readers[data.fileno()] = Reader(data, port)
            bare, again = _class_of(settings.data_dscp, NOT_ECT), _class_of(settings.again_dscp, ECT0)
            self._data[port], self._control[port] = Outlet(data, 0, self.counters, bare, again), Outlet(control, 0, self.counters)

    def send(self, packet: Transmit) -> bool:
        """Sends out of the packet's NIC port, in its class; False if the packet waits."""
        return (self._control if packet.control else self._data)[packet.port].send(packet)

    def outlets(self) -> Iterable[Outlet]:
        """Data and control socket of each port."""
        return (*self._data.values(), *self._control.values())

    def close(self) -> None:
        """Closes every socket."""
        for outlet in self.outlets():
            outlet.socket.close()


class RcNetwork:
    """One UDP socket that receives on RoCEv2's port, and one a QP that sends from the QP's own source port.

    With `on_marked` data is ECN-capable, and each received packet's traffic class is asked for, which costs time: without, none is.
    """

    def __init__(self, address: str, settings: SocketSettings, on_marked: Callable[[], None] | None = None) -> None:
        self.counters: Counter[str] = Counter()
        self._address, self._settings, self._data_ecn = address, settings, NOT_ECT if on_marked is None else ECT0
        receiver = udp_socket(address, UDP_PORT, settings.control_dscp, NOT_ECT, settings)
        if on_marked is not None:
            receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        self.readers: dict[int, Reader] = {receiver.fileno(): Reader(receiver, 0, on_marked)}
        self._outlets: dict[int, Outlet] = {}

    def send(self, packet: Transmit) -> bool:
        """Sends from the packet's source port. A QP end sends either data or acknowledgements, so its class never changes."""
        outlet = self._outlets.get(packet.source_port)
        if outlet is None:
            dscp, ecn = (self._settings.control_dscp, NOT_ECT) if packet.control else (self._settings.data_dscp, self._data_ecn)
            sock = udp_socket(self._address, packet.source_port, dscp, ecn, self._settings)
            outlet = self._outlets[packet.source_port] = Outlet(sock, UDP_PORT, self.counters)
        return outlet.send(packet)

    def outlets(self) -> Iterable[Outlet]:
        """One a QP end that has sent."""
        return self._outlets.values()

    def close(self) -> None:
        """Closes every socket."""
        for sock in (*(reader.socket for reader in self.readers.values()), *(outlet.socket for outlet in self._outlets.values())):
            sock.close()


def receive_marked(sock: socket.socket, buffer: memoryview, on_marked: Callable[[], None]) -> int:
    """One datagram into `buffer`; `on_marked` is called if it met congestion (CE). As `recv_into`, it raises OSError."""
    size, ancillary, _, _ = sock.recvmsg_into((buffer,), TCLASS_SPACE)
    for level, kind, data in ancillary:
        if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_TCLASS and int.from_bytes(data, sys.byteorder) & CE == CE:
            on_marked()
    return size


def _traffic_class(dscp: int, ecn: int) -> int:
    return dscp << 2 | ecn


def _class_of(dscp: int, ecn: int) -> tuple[Ancillary, ...]:
    """The ancillary data that gives one packet this traffic class."""
    return ((socket.IPPROTO_IPV6, socket.IPV6_TCLASS, struct.pack("=i", _traffic_class(dscp, ecn))),)


def _raw_socket(device: str, dscp: int, ecn: int, settings: SocketSettings) -> socket.socket:
    sock = send_socket(device, PROTOCOL_IPV6, settings, settings.send_buffer_bytes // RAW_SEND_BUFFERS)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, _traffic_class(dscp, ecn))
    return sock


def send_socket(device: str, protocol: int, settings: SocketSettings, send_buffer_bytes: int) -> socket.socket:
    """A raw IPv6 socket of that protocol that sends out of `device`."""
    try:
        sock = socket.socket(socket.AF_INET6, socket.SOCK_RAW, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode() + b"\0")
    except OSError as error:
        raise HostError(f"a raw IPv6 socket on {device}: {error.strerror}: the agent needs root and that interface") from error
    _prepare(sock, 0, settings, send_buffer_bytes)
    return sock


def udp_socket(address: str, port: int, dscp: int, ecn: int, settings: SocketSettings) -> socket.socket:
    """A UDP socket of that address and port, whose packets have this DSCP and ECN."""
    sock = new_socket(socket.SOCK_DGRAM)
    try:
        sock.bind((address, port))
    except OSError as error:
        sock.close()
        raise HostError(f"binding UDP [{address}]:{port}: {error.strerror}: the host must have that address, and one agent only") from error
    _prepare(sock, _traffic_class(dscp, ecn), settings, settings.send_buffer_bytes)
    return sock


def new_socket(kind: socket.SocketKind) -> socket.socket:
    """A socket of IPv6; HostError if this process can have no more."""
    try:
        return socket.socket(socket.AF_INET6, kind)
    except OSError as error:
        raise HostError(f"opening another socket: {error.strerror}: {TOO_MANY_SOCKETS}") from error


def _prepare(sock: socket.socket, traffic_class: int, settings: SocketSettings, send_buffer_bytes: int) -> None:
    """Buffers as asked, even above the system's limits; the class; no fragmentation: a packet that does not fit is an error.

    What fits is the link's MTU alone: with path MTU discovery anyone's "packet too big" message could stop the agent.
    """
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, settings.receive_buffer_bytes)
    sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, send_buffer_bytes)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, traffic_class)
    sock.setsockopt(socket.IPPROTO_IPV6, IPV6_DONTFRAG, 1)
    sock.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_INTERFACE)


def receive_nothing(sock: socket.socket) -> None:
    """A raw socket gets a copy of every packet of its protocol; one that only sends refuses them all."""
    program = struct.pack("HxxxxxxP", 1, ctypes.addressof(BPF_RET_NOTHING))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


def socket_drops(descriptors: Iterable[int], tables: Iterable[Path] = (Path("/proc/net/raw6"), Path("/proc/net/udp6"))) -> int:
    """Packets that the kernel dropped at these sockets because their buffers were full: last column, by inode.

    Of packet sockets no table tells; the kernel counts from its last answer on, so this is asked once, at the end.
    """
    descriptors = list(descriptors)
    inodes = {str(os.fstat(descriptor).st_ino) for descriptor in descriptors}
    rows = (line.split() for table in tables for line in table.read_text().splitlines()[1:])
    return sum(int(row[12]) for row in rows if row[9] in inodes) + sum(map(_packet_socket_drops, descriptors))


def _packet_socket_drops(descriptor: int) -> int:
    """`tp_drops` of a packet socket (packet(7)); 0 of any other."""
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return 0
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        if sock.family != socket.AF_PACKET:
            return 0
        _packets, drops = struct.unpack("=II", sock.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
    return int(drops)
