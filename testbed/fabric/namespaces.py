"""What is done inside a node's network namespace without starting a program: entering it, kernel settings, offloads."""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import HostError

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_SIOCETHTOOL = 0x8946  # linux/sockios.h
_IFREQ = struct.Struct("16sP")  # name, pointer to the ethtool structure (linux/if.h); the kernel reads no more of it here
# (get, set) commands of linux/ethtool.h; all of them make packets larger or leave checksums open, which no real wire does.
OFFLOADS: Mapping[str, tuple[int, int]] = {
    "tx-checksum": (0x16, 0x17),
    "tso": (0x1E, 0x1F),
    "gso": (0x23, 0x24),
    "gro": (0x2B, 0x2C),
}
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def entered(pid: int) -> Iterator[None]:
    """The calling thread is meanwhile in the network namespace of `pid`; sockets opened here stay in it. HostError if it cannot enter."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _enter(_open_namespace(pid), f"the network namespace of process {pid}")
        try:
            yield
        finally:
            _enter(os.dup(home), "the thread's own network namespace")
    finally:
        os.close(home)


def write_sysctls(pid: int, settings: Mapping[str, str]) -> None:
    """Writes kernel settings (`net/ipv6/conf/all/forwarding` style names) in the namespace of `pid` and reads each back."""
    with entered(pid):
        for name, value in settings.items():
            _write_sysctl(name, value)


def switch_offloads_off(pid: int, ifnames: Iterable[str]) -> None:
    """Switches every offload of `OFFLOADS` off; `offloads_on` tells whether the kernel did."""
    with entered(pid), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for ifname in ifnames:
            for _get, put in OFFLOADS.values():
                _ethtool(control, ifname, put, 0)


def offloads_on(pid: int, ifnames: Iterable[str]) -> dict[str, list[str]]:
    """The offloads that are on, by interface; packets of such an interface do not have their real sizes. Empty when all are off."""
    with entered(pid), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        found = {ifname: [name for name, (get, _put) in OFFLOADS.items() if _ethtool(control, ifname, get)] for ifname in ifnames}
    return {ifname: names for ifname, names in found.items() if names}


def _open_namespace(pid: int) -> int:
    try:
        return os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    except OSError as error:
        raise HostError(f"the network namespace of process {pid}: {error}; is the node still running?") from error


def _enter(descriptor: int, what: str) -> None:
    try:
        if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
            raise HostError(f"{what}: cannot enter it: {os.strerror(ctypes.get_errno())}; run as root")
    finally:
        os.close(descriptor)


def _write_sysctl(name: str, value: str) -> None:
    path = Path("/proc/sys") / name
    try:
        path.write_text(value)
        found = path.read_text().strip()
    except OSError as error:
        raise HostError(f"kernel setting {name}={value}: {error.strerror}; this kernel lacks what the fabric needs") from error
    if found != value:
        raise HostError(f"kernel setting {name} is {found} after writing {value}")


def _ethtool(control: socket.socket, ifname: str, command: int, value: int = 0) -> int:
    """One `struct ethtool_value` request; returns the value that the kernel leaves in it."""
    data = array.array("I", [command, value])
    request = _IFREQ.pack(ifname.encode(), data.buffer_info()[0])
    try:
        fcntl.ioctl(control, _SIOCETHTOOL, request)
    except OSError as error:
        raise HostError(f"{ifname}: offload request {command:#x}: {error.strerror}") from error
    return data[1]
