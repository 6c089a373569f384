"""The options of a TCP socket: set, and read back. A table; HostError says what the kernel did not take."""

from __future__ import annotations

import errno
import math
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from hosts.tcp.params import TcpParams
from testbed.errors import HostError

# From Linux' asm-generic/socket.h; Python's socket module does not have them.
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
NAME_BYTES = 16  # TCP_CA_NAME_MAX of include/net/tcp.h


class Option(NamedTuple):
    """`level`, `number` and `value` of setsockopt; read back at `read` it must be at least `least`, and `value` itself if that is None."""

    name: str
    level: int
    number: int
    value: int
    read: int | None = None
    least: int | None = None


def options(params: TcpParams, dscp: int) -> Iterator[Option]:
    """What every socket gets, listening ones included: buffers must be there before the handshake scales windows.

    No delay (NCCL sets it, too): frames are written whole, and an acknowledgement must not wait for another one. What the kernel says of a
    buffer is twice what was asked for (socket(7)).
    """
    tcp, sol = socket.IPPROTO_TCP, socket.SOL_SOCKET
    yield Option("TCP_NODELAY", tcp, socket.TCP_NODELAY, 1)
    yield Option("IPV6_TCLASS", socket.IPPROTO_IPV6, socket.IPV6_TCLASS, dscp << 2)
    for name, force, size, read in (
        ("SO_SNDBUF", SO_SNDBUFFORCE, params.send_buffer_bytes, socket.SO_SNDBUF),
        ("SO_RCVBUF", SO_RCVBUFFORCE, params.receive_buffer_bytes, socket.SO_RCVBUF),
    ):
        if size:
            yield Option(name, sol, force, size, read, 2 * size)
    if params.user_timeout_s:
        yield Option("TCP_USER_TIMEOUT", tcp, socket.TCP_USER_TIMEOUT, math.ceil(params.user_timeout_s * 1000))
    if params.keepalive_s:
        yield Option("SO_KEEPALIVE", sol, socket.SO_KEEPALIVE, 1)
        yield Option("TCP_KEEPIDLE", tcp, socket.TCP_KEEPIDLE, params.keepalive_s)
        yield Option("TCP_KEEPINTVL", tcp, socket.TCP_KEEPINTVL, params.keepalive_s)
        yield Option("TCP_KEEPCNT", tcp, socket.TCP_KEEPCNT, params.keepalive_probes)


def apply(sock: socket.socket, params: TcpParams, dscp: int) -> None:
    """Sets all options and reads them back. HostError names the one that the kernel did not take, OSError: the connection is gone."""
    for option in options(params, dscp):
        sock.setsockopt(option.level, option.number, option.value)
        found = sock.getsockopt(option.level, option.number if option.read is None else option.read)
        if found != option.value and (option.least is None or found < option.least):
            raise HostError(f"{option.name} is {found} after setting it to {option.value}: this kernel limits it, give another value")
    if params.congestion_control:
        _congestion_control(sock, params.congestion_control)


def _congestion_control(sock: socket.socket, name: str) -> None:
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EPERM):
            raise
        known = AVAILABLE.read_text().split()
        raise HostError(f"TCP congestion control {name!r}: {error.strerror}: this kernel has {', '.join(known)}") from error
    if (found := congestion_control(sock)) != name:
        raise HostError(f"TCP congestion control is {found!r} after setting it to {name!r}")


def congestion_control(sock: socket.socket) -> str:
    """The algorithm that the kernel uses on it."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, NAME_BYTES).split(b"\0")[0].decode()


READ_BACK: dict[str, Callable[[socket.socket], object]] = {
    "congestion_control": congestion_control,
    "traffic_class": lambda sock: sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS),
    "send_buffer_bytes": lambda sock: sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
    "receive_buffer_bytes": lambda sock: sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
    "user_timeout_ms": lambda sock: sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
    "keepalive": lambda sock: bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)),
}


def read_back(sock: socket.socket) -> dict[str, object]:
    """What the kernel says of a socket, for agents.json."""
    return {name: read(sock) for name, read in READ_BACK.items()}
