"""What the link program costs: packets a second into one port with and without it, in turn on the same veth pair.

    sudo python benchmarks/link_program.py [--rounds 7] [--packets 100000]

Prints one JSON object. A port has everything that a fabric's port has (HTB with two classes and rules, at a rate that never limits). The
sender is a packet socket with sendmmsg(2), so that the kernel's path and not Python is measured. `counting` is the program of a healthy
link without ECN and trimming; `full` has virtual queue, ECN, trimming, loss and EV rule switched on, with thresholds that nothing reaches.
Ratios are medians over rounds of packets per second of *CPU time* of the sender (which runs the whole path into the peer), because the
machine may be busy; those by wall clock stand beside them.
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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hosts import wire  # noqa: E402 - found through the line above
from testbed import sandbox  # noqa: E402
from testbed.command import run  # noqa: E402
from testbed.fabric.bpf import PROGRAM_PIN, LinkProgram, build_bpf, row_of  # noqa: E402
from testbed.fabric.link_parameters import LinkParameters, write  # noqa: E402
from testbed.fabric.links import ifindex, shaping_batch, veth_batch  # noqa: E402
from testbed.fabric.namespaces import switch_offloads_off  # noqa: E402
from testbed.fabric.netlink import Netlink  # noqa: E402
from testbed.link_settings import MAX_RATE_BPS, LinkSettings  # noqa: E402
from topologies import Link, build  # noqa: E402

BATCH = 64
VARIANTS = {
    "without": None,
    "counting": LinkParameters(),
    "full": LinkParameters(MAX_RATE_BPS, 1 << 30, 1 << 29, 1 << 30, 1 << 30, 1 << 30, False, 1e-9, (1, 2, 3, 4, 5, 6, 7, 8), 0.5),
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
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--packets", type=int, default=100_000)
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
        for _ in range(rounds):
            for name, parameters in VARIANTS.items():
                port.use(parameters)
                speeds[name].append(port.flood(data_frame(payload), packets))
        found[f"payload_{payload}"] = summary(speeds)
    return found


def summary(speeds: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    """Medians, and the median of the ratios within a round."""
    said: dict[str, Any] = {}
    for name, pairs in speeds.items():
        cpu, wall = zip(*pairs, strict=True)
        ratios = [[mine / bare for mine, bare in zip(column, reference, strict=True)]
                  for column, reference in zip((cpu, wall), zip(*speeds["without"], strict=True), strict=True)]  # fmt: skip
        said[name] = {
            "packets_per_cpu_s": round(statistics.median(cpu)),
            "packets_per_s": round(statistics.median(wall)),
            "ratio_cpu": round(statistics.median(ratios[0]), 3),
            "ratio_wall": round(statistics.median(ratios[1]), 3),
        }
    return said


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


def data_frame(payload: int) -> bytes:
    """A Write of MRC over SRv6 in the trimmable class."""
    extensions = [(header, {}) for header in wire.headers_of(wire.WRITE_MIDDLE, True)]
    content = wire.BTH.size_bytes + sum(header.size_bytes for header, _ in extensions) + payload + wire.ICRC_BYTES
    address = bytes.fromhex("fd00" + "00" * 13 + "01")
    head = wire.addresses(address, address, 0x30003, content)
    inner = wire.build(head, {"opcode": wire.WRITE_MIDDLE, "ts": 1}, extensions, bytes(payload))
    outer = wire.IPV6.pack(version=6, traffic_class=4 << 2 | 1, payload_length=len(inner), next_header=41, hop_limit=64)
    return bytes(12) + bytes.fromhex("86dd") + outer + inner


if __name__ == "__main__":
    sys.exit(main())
