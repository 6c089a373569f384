"""Saturates one interface for a moment with frames that nobody takes, and prints the rate that left it, in bit/s.

Run inside a node's namespace: `python -m testbed.collect.rate_probe IFNAME MTU_BYTES SECONDS`. The transmit counter of a veth counts
behind the queueing discipline, so this is what HTB lets through. EtherType 0x88B5 is IEEE's for local experiments.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from pathlib import Path

WARM_UP_S = 0.1  # the token bucket's first burst must be gone before counting starts
FRAME_TYPE = 0x88B5


def transmitted_bytes(ifname: str, table: str) -> int:
    """The tx_bytes column of one interface in the text of /proc/net/dev."""
    for line in table.splitlines():
        name, _, fields = line.partition(":")
        if name.strip() == ifname:
            return int(fields.split()[8])
    raise ValueError(f"no interface {ifname} in this namespace")


def probe(ifname: str, mtu_bytes: int, seconds: float) -> float:
    """Achieved bit/s over `seconds`, after the warm-up."""
    frame = b"\x02\x00\x00\x00\x00\x01" + b"\x02\x00\x00\x00\x00\x02" + FRAME_TYPE.to_bytes(2, "big") + bytes(mtu_bytes)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        sock.bind((ifname, 0))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * len(frame))
        sock.setblocking(False)
        _saturate(sock, frame, time.monotonic() + WARM_UP_S)
        begin_s, begin_bytes = time.monotonic(), _read(ifname)
        _saturate(sock, frame, begin_s + seconds)
        end_s, end_bytes = time.monotonic(), _read(ifname)
    return (end_bytes - begin_bytes) * 8 / (end_s - begin_s)


def _read(ifname: str) -> int:
    return transmitted_bytes(ifname, Path("/proc/self/net/dev").read_text())


def _saturate(sock: socket.socket, frame: bytes, until_s: float) -> None:
    while (now := time.monotonic()) < until_s:
        try:
            sock.send(frame)
        except (BlockingIOError, OSError):
            select.select([], [sock], [], min(0.01, until_s - now))


def main(argv: list[str]) -> None:
    """Prints the achieved rate of argv's interface."""
    sys.stdout.write(f"{probe(argv[0], int(argv[1]), float(argv[2])):.0f}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
