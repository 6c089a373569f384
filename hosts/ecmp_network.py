"""MRC's sockets where routers hash EVs (ECMP): its packets go out as they are, UDP over IPv6 to the peer's own address.

What makes the EV, source port and flow label, differs from packet to packet, so the IPv6 header is ours: raw sockets send it, and packet
sockets, which get what arrives from the IPv6 header on, receive. No UDP socket of the kernel's could do either.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections import Counter
from collections.abc import Iterable

from hosts import wire
from hosts.commands import SocketSettings
from hosts.core import Transmit
from hosts.sockets import SO_ATTACH_FILTER, SO_RCVBUFFORCE, Outlet, Reader, receive_nothing, send_socket, udp_socket
from hosts.wire import ECT0, NOT_ECT
from testbed.errors import HostError

ETH_P_IPV6 = 0x86DD
# Classic BPF (linux/bpf_common.h): codes of the instructions used, offsets from the IPv6 header on.
LOAD_BYTE, LOAD_HALF, JUMP_EQUAL, RETURN = 0x30, 0x28, 0x15, 0x06
NEXT_HEADER_AT, DESTINATION_PORT_AT = wire.IPV6.byte_offset("next_header"), wire.IPV6.size_bytes + wire.UDP.byte_offset("destination_port")
WHOLE = 0xFFFFFFFF


class EcmpNetwork:
    """Two raw sockets a NIC port that send, for data and for control, and a packet socket that receives.

    `address` is the host's own. The kernel gets a copy of each packet too, and would answer that nobody listens on MRC's port: so a UDP
    socket listens there, and reads nothing.
    """

    def __init__(self, host: str, address: str, ports: Iterable[int], settings: SocketSettings) -> None:
        self.counters: Counter[str] = Counter()
        self.readers: dict[int, Reader] = {}
        self._data: dict[int, Outlet] = {}
        self._control: dict[int, Outlet] = {}
        self._listeners = [_listener(address, port, settings) for port in sorted(wire.UDP_PORTS)]
        # The first two bytes of the IPv6 header: version and class. MRC's flow labels have 16 bits, so no bit of theirs is in there.
        self._first = _first_bytes(settings.data_dscp, ECT0)
        self._bare, self._again = _first_bytes(settings.data_dscp, NOT_ECT), _first_bytes(settings.again_dscp, ECT0)
        self._control_first = _first_bytes(settings.control_dscp, NOT_ECT)
        for port in ports:
            self._open(f"{host}-eth{port}", port, settings)

    def _open(self, device: str, port: int, settings: SocketSettings) -> None:
        receiver = _receiver(device, settings)
        self.readers[receiver.fileno()] = Reader(receiver, port)
        for outlets in (self._data, self._control):
            sock = send_socket(device, socket.IPPROTO_RAW, settings, settings.send_buffer_bytes)
            outlets[port] = Outlet(sock, 0, self.counters)

    def send(self, packet: Transmit) -> bool:
        """Sends out of the packet's NIC port, in its class; False if the packet waits."""
        header = packet.header
        assert isinstance(header, bytearray)  # as hosts.mrc.frames makes them, a fresh one each
        if packet.control:
            header[:2] = self._control_first
            return self._control[packet.port].send(packet)
        header[:2] = self._again if packet.again else self._first if packet.payload else self._bare
        return self._data[packet.port].send(packet)

    def outlets(self) -> Iterable[Outlet]:
        """Data and control socket of each port."""
        return (*self._data.values(), *self._control.values())

    def close(self) -> None:
        """Closes every socket."""
        for sock in (*self._listeners, *(reader.socket for reader in self.readers.values()), *(o.socket for o in self.outlets())):
            sock.close()


def _first_bytes(dscp: int, ecn: int) -> bytes:
    """Version and traffic class, and no flow label yet."""
    return wire.IPV6.pack(version=6, traffic_class=dscp << 2 | ecn)[:2]


def _receiver(device: str, settings: SocketSettings) -> socket.socket:
    """A packet socket for what comes in at `device` for MRC's ports, from the IPv6 header on."""
    try:
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)  # protocol 0: deaf until the filter is in place
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, settings.receive_buffer_bytes)
        _attach(sock, _only_mrc())
        sock.bind((device, ETH_P_IPV6))
    except OSError as error:
        raise HostError(f"a packet socket on {device}: {error.strerror}: the agent needs root and that interface") from error
    sock.setblocking(False)
    return sock


def _only_mrc() -> bytes:
    """UDP without extension headers, to one of MRC's ports. Of a jump the last two numbers are how many instructions it skips."""
    first, second = sorted(wire.UDP_PORTS)
    program = [
        (LOAD_BYTE, 0, 0, NEXT_HEADER_AT), (JUMP_EQUAL, 0, 4, wire.PROTOCOL_UDP),
        (LOAD_HALF, 0, 0, DESTINATION_PORT_AT), (JUMP_EQUAL, 1, 0, first), (JUMP_EQUAL, 0, 1, second),
        (RETURN, 0, 0, WHOLE), (RETURN, 0, 0, 0),
    ]  # fmt: skip
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _attach(sock: socket.socket, program: bytes) -> None:
    held = ctypes.create_string_buffer(program, len(program))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(held)))


def _listener(address: str, port: int, settings: SocketSettings) -> socket.socket:
    sock = udp_socket(address, port, settings.control_dscp, NOT_ECT, settings)
    receive_nothing(sock)
    return sock
