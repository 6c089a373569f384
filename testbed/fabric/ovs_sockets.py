"""Room for packets in ovs-vswitchd's packet sockets, so that a link's queue, and not a socket's size, decides what is dropped.

With the userspace datapath all ports of a switch send through one packet socket, which pays for each packet until the link queue lets go
of it: with the kernel default of 212,992 bytes about 24 packets of 4 KiB in *all* queues of the switch together. What exceeds it vanishes,
uncounted. Open vSwitch has no option for it, and the default is one of the whole machine; but root may borrow the sockets.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterator

from testbed.errors import HostError

SOCKET_BYTES = 64 << 20  # a bound, not an allocation
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33  # asm-generic/socket.h
_PIDFD_GETFD = 438  # the same number on all machine types; Linux 5.6
_libc = ctypes.CDLL(None, use_errno=True)


def widen(pid: int) -> int:
    """Gives every packet socket of process `pid` SOCKET_BYTES each way; returns how many there are. HostError when the kernel refuses."""
    found = list(packet_sockets(pid))
    for sock in found:
        with sock:
            sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, SOCKET_BYTES)
            sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, SOCKET_BYTES)
    return len(found)


def packet_sockets(pid: int) -> Iterator[socket.socket]:
    """The packet sockets of a process, borrowed: to be closed."""
    process = os.pidfd_open(pid)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            sock = _borrowed(process, pid, int(name))
            if sock and sock.family == socket.AF_PACKET:
                yield sock
            elif sock:
                sock.close()
    finally:
        os.close(process)


def _borrowed(process: int, pid: int, descriptor: int) -> socket.socket | None:
    """A second descriptor of a process's socket; None when it is no socket, or closed meanwhile."""
    try:
        if not os.readlink(f"/proc/{pid}/fd/{descriptor}").startswith("socket:"):
            return None
    except FileNotFoundError:
        return None
    ours = int(_libc.syscall(_PIDFD_GETFD, process, descriptor, 0))
    if ours < 0:
        raise HostError(f"borrowing a socket of process {pid}: {os.strerror(ctypes.get_errno())} (pidfd_getfd, needs Linux 5.6)")
    return socket.socket(fileno=ours)
