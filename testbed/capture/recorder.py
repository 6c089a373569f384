"""Records the packets of some interfaces of its network namespace into a pcapng file: `python -m testbed.capture.recorder`.

Told on standard input, a line each: first an `Order` as JSON, then `zero NANOSECONDS`, the wall clock at time 0 of the run. Its end is that
of the capture, so that none outlives whoever asked for it. It answers `ready` when it listens, and at the end one JSON object: what was
recorded, what the kernel dropped, when the limit was reached.

Time stamps are the kernel's. A packet is seen once a direction: what comes in before any qdisc or bridge takes it, what goes out behind the
qdisc, when a shaper lets it go; what a queue or the link program drops on its way out is not seen.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from testbed.capture import pcapng

ETH_P_ALL = 3  # linux/if_ether.h
SOL_PACKET, PACKET_STATISTICS, PACKET_OUTGOING = 263, 6, 4  # linux/if_packet.h
SO_RCVBUFFORCE, SO_TIMESTAMPNS = 33, 35  # asm-generic/socket.h
BUFFER_BYTES = 1 << 25
FRAME_BYTES = 1 << 16
TURN = 256  # packets before the orders are looked at again
READY = "ready"
LAST_TURNS = 1000  # what waits in the socket at the end, but not for ever what still comes
STATISTICS_BYTES = 64  # kept free for the last block


@dataclass(frozen=True)
class Order:
    """What to record. `names`: of addresses, for whoever reads the file."""

    path: str
    interfaces: list[str]
    limit_bytes: int
    snaplen: int
    names: dict[str, str]


@dataclass
class Told:
    """What became of it. `limit_ns`: the wall clock when the file was full."""

    packets: int = 0
    bytes: int = 0
    dropped: int = 0
    limit_ns: int | None = None


class Recorder:
    """One file and the socket that fills it."""

    def __init__(self, order: Order, sock: socket.socket, file: BinaryIO) -> None:
        self.told = Told()
        self._order, self._sock, self._file = order, sock, file
        self._numbers = {name: number for number, name in enumerate(order.interfaces)}
        self._frame = memoryview(bytearray(min(order.snaplen, FRAME_BYTES)))
        self._write(pcapng.head(order.interfaces, order.snaplen, order.names))
        file.flush()  # what is killed leaves a capture, if a damaged one

    def turn(self) -> bool:
        """Takes what has come, up to a bound; whether there may be more. At the limit the socket is closed."""
        return all(not self.full and self._take() for _ in range(TURN))

    @property
    def full(self) -> bool:
        """Whether the limit was reached."""
        return self.told.limit_ns is not None

    def _take(self) -> bool:
        """Whether there was a packet."""
        try:
            size, ancillary, _flags, address = self._sock.recvmsg_into([self._frame], 64, socket.MSG_TRUNC)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.ENETDOWN:  # told once when an interface is set down; the capture goes on when it is up again
                return True
            raise
        number = self._numbers.get(address[0])
        if number is not None:
            self._record(number, arrival_ns(ancillary), address[2] == PACKET_OUTGOING, size)
        return True

    def _record(self, number: int, wall_ns: int, outgoing: bool, size: int) -> None:
        data = self._frame[: min(size, len(self._frame))]
        before, behind = pcapng.packet(number, wall_ns, outgoing, data, size)
        if self.told.bytes + len(before) + len(data) + len(behind) + STATISTICS_BYTES > self._order.limit_bytes:
            self.told.limit_ns = wall_ns
            self._stop_hearing()
            return
        for part in (before, data, behind):
            self._write(part)
        self.told.packets += 1

    def _write(self, part: bytes | memoryview) -> None:
        self._file.write(part)
        self.told.bytes += len(part)

    def zero(self, wall_ns: int) -> None:
        """Fills in what the first block says of time 0."""
        end = self._file.tell()
        self._file.seek(0)
        self._file.write(pcapng.section(wall_ns))
        self._file.seek(end)

    def _stop_hearing(self) -> None:
        _received, self.told.dropped = struct.unpack("=II", self._sock.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        self._sock.close()

    def finish(self) -> Told:
        """The last block."""
        if not self.full:
            self._stop_hearing()
        self._write(pcapng.statistics(time.time_ns(), self.told.packets, self.told.dropped))
        return self.told


def arrival_ns(ancillary: list[tuple[int, int, bytes]]) -> int:
    """The kernel's time stamp that came with a packet."""
    for _level, kind, data in ancillary:
        if kind == SO_TIMESTAMPNS:
            seconds, nanoseconds = struct.unpack("=qq", data)
            return int(seconds * 10**9 + nanoseconds)
    return time.time_ns()


def listening(interfaces: list[str]) -> socket.socket:
    """A packet socket that hears one interface, or all of the namespace, so that the packets of several keep their order."""
    one = len(interfaces) == 1
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0 if one else socket.htons(ETH_P_ALL))
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    if one:
        sock.bind((interfaces[0], ETH_P_ALL))
    sock.setblocking(False)
    return sock


def record(recorder: Recorder, sock: socket.socket) -> None:
    """Until standard input ends; from the limit on nothing is heard any more."""
    poll, orders, ears = select.poll(), sys.stdin.fileno(), sock.fileno()
    poll.register(ears, select.POLLIN)
    poll.register(orders, select.POLLIN | select.POLLHUP)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if orders in ready and not _obeyed(recorder, os.read(orders, 1 << 12).decode()):
            break
        if ears in ready:
            recorder.turn()
            if recorder.full:
                poll.unregister(ears)
    for _ in range(LAST_TURNS):
        if not recorder.turn():
            return


def _obeyed(recorder: Recorder, text: str) -> bool:
    """Whether there was an order, and not the end."""
    for line in text.splitlines():
        recorder.zero(int(line.removeprefix("zero ")))
    return bool(text)


def main() -> None:
    """One capture from order to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end of standard input is the only end
    order = Order(**json.loads(_first_line()))
    with listening(order.interfaces) as sock, Path(order.path).open("wb") as file:
        recorder = Recorder(order, sock, file)
        print_line(READY)
        record(recorder, sock)
        told = recorder.finish()
    print_line(json.dumps(asdict(told)))


def _first_line() -> bytes:
    """Byte by byte, so that nothing of what follows is swallowed."""
    line = b""
    while (byte := os.read(sys.stdin.fileno(), 1)) not in (b"", b"\n"):
        line += byte
    return line


def print_line(text: str) -> None:
    """An answer."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
