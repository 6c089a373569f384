"""What the link program costs: packets a second through one link with and without it, in turn on the same veth pair.

    sudo python benchmarks/link_program.py [--rounds 31] [--packets 20000]

Prints one JSON object. The port has everything that a fabric's port has (HTB with two classes and rules, at a rate that never limits). The
sender is a packet socket with sendmmsg(2), so that the kernel's path and not Python is measured. A round measures every variant once, in
an order that changes from round to round; a ratio is packets a second of a variant by those without the program in the same round, and
its median, lowest and highest value over the rounds are told.

- `counting`: a healthy link without ECN and trimming;
- `full`: virtual queue, ECN and trimming on, no loss: what a link of the MRC arm has. This is the target's ratio (at least 0.9);
- `faults`: that, and loss by chance and the rule for 8 EVs.

No threshold is ever reached: marking and trimming change packets, so they would compare different things. `ratio` is by wall clock,
`ratio_cpu` by the sender's CPU time, which runs nearly the whole path into the peer and does not see what else the machine does.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hosts.wire import DSCP_TRIMMABLE, ECT1  # noqa: E402 - found through the line above
from testbed import sandbox  # noqa: E402
from testbed.command import run  # noqa: E402
from testbed.fabric.bpf import PROGRAM_PIN, LinkProgram, build_bpf, row_of  # noqa: E402
from testbed.fabric.link_parameters import LinkParameters, write  # noqa: E402
from testbed.fabric.links import ifindex, shaping_batch, veth_batch  # noqa: E402
from testbed.fabric.namespaces import switch_offloads_off  # noqa: E402
from testbed.fabric.netlink import Netlink  # noqa: E402
from testbed.fabric.probe import data_frame  # noqa: E402
from testbed.link_settings import MAX_RATE_BPS, LinkSettings  # noqa: E402
from topologies import Link, build  # noqa: E402

BATCH = 64
FAR_BYTES = 1 << 30
FULL = LinkParameters(
    MAX_RATE_BPS, room_bytes=FAR_BYTES, ecn_min_bytes=FAR_BYTES // 2, ecn_max_bytes=FAR_BYTES, trim_bytes=FAR_BYTES, limit_bytes=FAR_BYTES
)
VARIANTS = {
    "without": None,
    "counting": LinkParameters(),
    "full": FULL,
    "faults": replace(FULL, loss=1e-9, evs=(1, 2, 3, 4, 5, 6, 7, 8), ev_loss=0.5),
}
PAYLOADS = (64, 4096)


class IoVector(ctypes.Structure):
    """struct iovec."""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Message(ctypes.Structure):
    """struct mmsghdr."""

    _fields_ = [
        ("name", ctypes.c_void_p), ("name_length", ctypes.c_uint32), ("vectors", ctypes.POINTER(IoVector)),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t), ("flags", ctypes.c_int), ("sent", ctypes.c_uint32),
    ]  # fmt: skip


def main() -> int:
    """Outside: starts itself in a sandbox. Inside: measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--packets", type=int, default=20_000)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inside:
        return sandbox.run_inside([sys.executable, str(Path(__file__).resolve()), *sys.argv[1:], "--inside"])
    sandbox.prepare()
    print(json.dumps(measure(arguments.rounds, arguments.packets), indent=1))
    return 0


def measure(rounds: int, packets: int) -> dict[str, Any]:
    """Packets per second of each variant and size; variants alternate within a round."""
    port = Port()
    found: dict[str, Any] = {"load_average": os.getloadavg()[0]}
    for payload in PAYLOADS:
        speeds: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
        frame, names = data_frame(payload, DSCP_TRIMMABLE, ECT1), list(VARIANTS)
        for number in range(rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                port.use(VARIANTS[name])
                speeds[name].append(port.flood(frame, packets))
        found[f"payload_{payload}"] = summary(speeds)
    return found


def summary(speeds: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    """Median speeds, and how each variant compares with `without` in the same round."""
    said: dict[str, Any] = {}
    for name, pairs in speeds.items():
        cpu, wall = zip(*pairs, strict=True)
        bare_cpu, bare_wall = zip(*speeds["without"], strict=True)
        said[name] = {"packets_per_s": round(statistics.median(wall)), "packets_per_cpu_s": round(statistics.median(cpu))}
        if name != "without":
            said[name] |= {"ratio": spread(wall, bare_wall), "ratio_cpu": spread(cpu, bare_cpu)}
    return said


def spread(mine: Sequence[float], bare: Sequence[float]) -> dict[str, float]:
    """Median, quartiles and extremes of the ratios within a round."""
    ratios = [one / other for one, other in zip(mine, bare, strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    values = {"median": median, "quartile_1": low, "quartile_3": high, "lowest": min(ratios), "highest": max(ratios)}
    return {name: round(value, 3) for name, value in values.items()}


class Port:
    """End a of a link, set up as a fabric does it."""

    def __init__(self) -> None:
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
        self.link: Link = build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1).links_of("h1")[0]
        self.name, self.number = self.link.a.ifname, row_of(self.link, True)
        self.program = LinkProgram()
        self.program.load(build_bpf())
        settings = LinkSettings(MAX_RATE_BPS, queue_bytes=1 << 28)
        run(["ip", "-batch", "-"], "making a link", input_text=veth_batch([self.link], lambda _node: os.getpid(), settings))
        run(["tc", "-batch", "-"], "shaping", input_text=shaping_batch(self.name, self.number, settings))
        switch_offloads_off(os.getpid(), [self.link.a.ifname, self.link.b.ifname])
        kernel = Netlink(os.getpid())
        for at_a in (True, False):
            kernel.set_up(ifindex(self.link, at_a), True)
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.bind((self.name, 0x86DD))
        self.socket.setsockopt(socket.SOL_SOCKET, 32, 1 << 26)  # SO_SNDBUFFORCE

    def use(self, parameters: LinkParameters | None) -> None:
        """Attaches the program with these parameters, or takes it off."""
        subprocess.run(["tc", "filter", "del", "dev", self.name, "egress"], check=True)
        if parameters is None:
            return
        write(self.program.rows[self.number], parameters)
        rule = ["bpf", "da", "pinned", str(PROGRAM_PIN), "classid", f"1:{self.number:x}"]
        run(["tc", "filter", "add", "dev", self.name, "egress", *rule], "attaching the program")

    def flood(self, frame: bytes, packets: int) -> tuple[float, float]:
        """(packets per second of CPU time, of wall clock) of sending `frame` again and again."""
        buffer = ctypes.create_string_buffer(frame, len(frame))
        vector = IoVector(ctypes.addressof(buffer), len(frame))
        messages = (Message * BATCH)(*[Message(vectors=ctypes.pointer(vector), vector_count=1) for _ in range(BATCH)])
        send, descriptor = ctypes.CDLL(None, use_errno=True).sendmmsg, self.socket.fileno()
        cpu, wall, sent = time.thread_time(), time.monotonic(), 0
        while sent < packets:
            count = send(descriptor, messages, BATCH, 0)
            if count < 0:
                raise OSError(ctypes.get_errno(), "sendmmsg")
            sent += count
        return sent / (time.thread_time() - cpu), sent / (time.monotonic() - wall)


if __name__ == "__main__":
    sys.exit(main())
