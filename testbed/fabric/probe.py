"""Raw frames into one end of a link and out of the other: how the self-test and the trial see what a link does."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hosts import wire
from testbed.fabric import link_parameters
from testbed.fabric.bpf import row_of
from testbed.fabric.fabric import Fabric
from testbed.fabric.link_parameters import LinkParameters
from testbed.fabric.namespaces import entered
from testbed.link_settings import LinkSettings
from topologies import End, Link

ETHERNET_BYTES = 14
TIMEOUT_S = 5.0
_IPV6_TYPE = 0x86DD
_ETH_P_ALL = 3  # linux/if_ether.h
_SOL_PACKET, _PACKET_IGNORE_OUTGOING = 263, 23  # linux/if_packet.h
_NO_ADDRESSES = bytes(12)  # both MACs of our frames, so that no kernel takes them
_CHUNK = 100
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 32, 33, 35  # asm-generic/socket.h
_BUFFER_BYTES = 1 << 25


class Wire:
    """One link direction: raw frames in at one end (`from_a`: end a), what comes out at the other with the kernel's time of arrival."""

    def __init__(self, fabric: Fabric, link: Link, from_a: bool = True) -> None:
        self.settings = fabric.settings
        self.number = row_of(link, from_a)
        self.row: Any = fabric.link_counters()[self.number]
        near, far = (link.a, link.b) if from_a else (link.b, link.a)
        self._near, self._far = _opened_in(fabric, near), _opened_in(fabric, far)
        self._before = link_parameters.read(self.row)
        self._fabric, self._key = fabric, (link.name, near.node)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        link_parameters.write(self.row, self._before)
        self._near.close()
        self._far.close()

    @contextmanager
    def using(self, parameters: LinkParameters) -> Iterator[None]:
        """The row has these parameters meanwhile, and the virtual queue starts empty."""
        link_parameters.write(self.row, parameters)
        self.row["free_at_ns"] = 0
        try:
            yield
        finally:
            link_parameters.write(self.row, self._before)

    def qdisc_drops(self) -> int:
        """Packets that the real queues of this direction dropped."""
        return self._fabric.qdisc_drops()[self._key]

    def send(self, frames: list[bytes]) -> None:
        """All at once. A packet socket is told of a full queue: that packet is lost, and so missing at the other end."""
        for frame in frames:
            try:
                self._near.send(frame)
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise

    def receive(self, count: int) -> list[tuple[bytes, float]]:
        """The next `count` of our frames with their CLOCK_REALTIME seconds of arrival; fewer when none comes for TIMEOUT_S."""
        found: list[tuple[bytes, float]] = []
        while len(found) < count:
            try:
                frame, ancillary, _flags, _address = self._far.recvmsg(1 << 14, 64)
            except TimeoutError:
                break
            if is_ours(frame):  # the kernels of the ends talk too
                found.append((frame, arrival_s(ancillary)))
        return found

    def pass_on(self, frames: list[bytes]) -> list[bytes]:
        """Sends in portions that the queues can hold, each when the one before is out; returns what came out."""
        out: list[bytes] = []
        for start in range(0, len(frames), _CHUNK):
            before = self._passed()
            self.send(frames[start : start + _CHUNK])
            out += [frame for frame, _ in self.receive(self._passed() - before)]
        return out

    def _passed(self) -> int:
        """Packets of RoCE and MRC, which are ours alone on an idle fabric."""
        return int(self.row["tx_packets"]) - int(self.row["other_packets"])


def data_frame(payload_bytes: int, dscp: int, ecn: int = 0, entropy: int = 0x00030003) -> bytes:
    """A whole Write of MRC over SRv6 between addresses that no table knows, so that it ends behind the link."""
    extensions: list[tuple[wire.Header, dict[str, int]]] = [(header, {}) for header in wire.headers_of(wire.WRITE_MIDDLE, timestamped=True)]
    address = bytes.fromhex("fd00" + "00" * 13 + "fe")
    inner = wire.build_between(address, address, entropy, {"opcode": wire.WRITE_MIDDLE, "ts": 1}, extensions, bytes(payload_bytes))
    number = int.from_bytes(address, "big")
    outer = wire.IPV6.pack(
        version=6, traffic_class=dscp << 2 | ecn, payload_length=len(inner), next_header=wire.PROTOCOL_IPV6, hop_limit=1,
        source=number, destination=number,
    )  # fmt: skip
    return _NO_ADDRESSES + _IPV6_TYPE.to_bytes(2, "big") + outer + inner


def full_payload(settings: LinkSettings) -> int:
    """The payload of a data packet as large as a link carries, but no more than MRC's 4096 bytes."""
    headers = len(data_frame(0, 0)) - ETHERNET_BYTES
    return min(4096, settings.mtu_bytes - headers) & ~3


def traffic_class(frame: bytes) -> tuple[int, int]:
    """(DSCP, ECN) of a frame's outer IPv6 header."""
    value = (frame[ETHERNET_BYTES] << 8 | frame[ETHERNET_BYTES + 1]) >> 4 & 0xFF
    return value >> 2, value & 3


def is_ours(frame: bytes) -> bool:
    """Whether it came from `data_frame`."""
    return frame[: len(_NO_ADDRESSES)] == _NO_ADDRESSES


def opened(ifname: str) -> socket.socket:
    """A packet socket on an interface of the present namespace; it hears what comes in, and tells the kernel's time of arrival.

    It asks for packets of every type: a switch in the kernel takes them from its ports before those who ask for one type get any.
    """
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    raw.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    raw.bind((ifname, _ETH_P_ALL))
    for option, value in ((_SO_SNDBUFFORCE, _BUFFER_BYTES), (_SO_RCVBUFFORCE, _BUFFER_BYTES), (_SO_TIMESTAMPNS, 1)):
        raw.setsockopt(socket.SOL_SOCKET, option, value)
    raw.settimeout(TIMEOUT_S)
    return raw


def _opened_in(fabric: Fabric, end: End) -> socket.socket:
    with entered(fabric.pid(end.node)):
        return opened(end.ifname)


def arrival_s(ancillary: list[tuple[int, int, bytes]]) -> float:
    """The kernel's time of arrival (CLOCK_REALTIME) that came with a packet."""
    seconds, nanoseconds = next(struct.unpack("=qq", data) for _level, kind, data in ancillary if kind == _SO_TIMESTAMPNS)
    return float(seconds + nanoseconds * 1e-9)
