"""The base RTT of an emulated fabric: does a full frame cost its own time on every link? Idle pings, and frames that follow each other.

    sudo python benchmarks/base_rtt.py [--rates 5 10 20 100] [--frames 40]

Prints one JSON object a rate (Mbit/s). The fabric is a k=2 fat-tree of Open vSwitch instances: 6 links from h1 to h2, one path.

- `ping_<bytes>_ms`: median round trip of pings with so many bytes of payload, on an idle fabric;
- `train_ms`: `--frames` full packets at once, so that they leave h1 at its link's rate: median and longest time from the first switch to h2
  over the other 5 links, by the kernels' time stamps of the same machine;
- `frame_ms`: what one full frame takes at the rate. A network that stores and forwards would make `train_ms` 5 times that.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import sys
from typing import Any

from fabric_lab import fabric_of, in_sandbox

from testbed.fabric import Fabric
from testbed.fabric.namespaces import entered
from testbed.fabric.probe import arrival_s
from topologies import End, addresses

PAYLOAD_BYTES = 4100
PORT = 9
MARK = b"base-rtt"
_ETH_P_ALL, _SO_TIMESTAMPNS = 0x0003, 35
_ROUNDS, _PINGS, _QUIET_S = 5, 20, 2.0


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything, by rate."""
    return {f"{rate:g} Mbit/s": measured(round(rate * 1e6), arguments.frames) for rate in arguments.rates}


def measured(rate_bps: int, frames: int) -> dict[str, Any]:
    """One fabric."""
    with fabric_of(2, rate_bps) as fabric:
        pings = {f"ping_{size}_ms": ping_ms(fabric, size) for size in (56, PAYLOAD_BYTES)}
        delays = [delay for _ in range(_ROUNDS) for delay in train_s(fabric, frames)]
        frame_ms = 8e3 * fabric.settings.frame_bytes / rate_bps
    train_ms = [round(1e3 * figure, 2) for figure in (statistics.median(delays), max(delays))]
    return {**pings, "train_ms": train_ms, "frame_ms": round(frame_ms, 2), "frames": len(delays)}


def ping_ms(fabric: Fabric, size_bytes: int) -> float:
    """Median over pings one after the other."""
    said = fabric.net["h1"].cmd(f"ping -c {_PINGS} -i 0.1 -s {size_bytes} {fabric.net['h2'].IP()}")
    return round(statistics.median(float(line.rpartition("time=")[2].split()[0]) for line in said.splitlines() if "time=" in line), 2)


def train_s(fabric: Fabric, frames: int) -> list[float]:
    """How long each packet of a train takes from the first switch's port to h2's."""
    first, last = fabric.topology.links_of("h1")[0].b, fabric.topology.links_of("h2")[0].a
    with opened(fabric, first) as near, opened(fabric, last) as far:
        with entered(fabric.pid("h1")):
            sender = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        with sender:
            target = (str(addresses.host_address(fabric.topology.nodes["h2"])), PORT)
            for number in range(frames):
                sender.sendto((MARK + number.to_bytes(4, "big")).ljust(PAYLOAD_BYTES, b"."), target)
        left, came = stamps(near, frames), stamps(far, frames)
    if left.keys() != came.keys() or len(came) != frames:
        raise SystemExit(f"of {frames} packets {len(left)} left h1 and {len(came)} came to h2")
    return [came[number] - left[number] for number in came]


def opened(fabric: Fabric, end: End) -> socket.socket:
    """A packet socket that sees all that comes in at that port."""
    with entered(fabric.pid(end.node)):
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        raw.bind((end.ifname, _ETH_P_ALL))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    raw.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    raw.settimeout(_QUIET_S)
    return raw


def stamps(raw: socket.socket, count: int) -> dict[int, float]:
    """Number of each packet of the train -> when it came in."""
    found: dict[int, float] = {}
    while len(found) < count:
        try:
            frame, ancillary, _flags, address = raw.recvmsg(1 << 14, 64)
        except TimeoutError:
            break
        at = frame.find(MARK)
        if at >= 0 and address[2] != socket.PACKET_OUTGOING:
            found[int.from_bytes(frame[at + len(MARK) : at + len(MARK) + 4], "big")] = arrival_s(ancillary)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=float, nargs="+", default=[5, 10, 20, 100], help="Mbit/s")
    parser.add_argument("--frames", type=int, default=40, choices=range(2, 100), metavar="N")
    sys.exit(in_sandbox(main, parser))
