"""One real link in one namespace: a veth pair shaped and programmed as in a fabric, raw frames in at end a, out at end b.

For use inside a sandbox. The map row that `send` meets is `row`; the other direction's is `other_row`.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

from hosts import wire
from testbed.command import run
from testbed.fabric import link_parameters
from testbed.fabric.bpf import LinkProgram, build_bpf, row_of
from testbed.fabric.links import ifindex, shaping_batch, veth_batch
from testbed.fabric.namespaces import switch_offloads_off
from testbed.fabric.netlink import Netlink
from testbed.link_settings import LinkSettings
from topologies import build

SOURCE, DESTINATION = bytes.fromhex("fd00" + "00" * 13 + "01"), bytes.fromhex("fd00" + "00" * 13 + "02")
ETHERNET = bytes.fromhex("0200000000020200000000 0186dd".replace(" ", ""))
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
FAST_BPS = 1_000_000_000


class Lab:
    """The link, up, with a program that only counts."""

    def __init__(self, rate_bps: int = FAST_BPS) -> None:
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")  # the kernel must not talk on the link
        self.link = build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1).links_of("h1")[0]
        self.settings = LinkSettings(rate_bps, queue_bytes=4_000_000)
        self.program = LinkProgram()
        self.program.load(build_bpf())
        run(["ip", "-batch", "-"], "link", input_text=veth_batch([self.link], lambda _node: os.getpid(), self.settings))
        kernel = Netlink(os.getpid())
        self.kernels = {self.link.a.node: kernel, self.link.b.node: kernel}
        for end, at_a in ((self.link.a, True), (self.link.b, False)):
            switch_offloads_off(os.getpid(), [end.ifname])
            run(["tc", "-batch", "-"], "port", input_text=shaping_batch(end.ifname, row_of(self.link, at_a), self.settings))
            kernel.set_up(ifindex(self.link, at_a), True)
        self.number = row_of(self.link, True)
        self.row, self.other_row = self.program.rows[self.number], self.program.rows[row_of(self.link, False)]
        self.a, self.b = (_opened(end.ifname) for end in (self.link.a, self.link.b))

    def fresh(self, seed: int = 0, **parameters: Any) -> None:
        """Counters and virtual queue empty, these parameters, these seeds."""
        self.row["tx_packets"] = 0
        for field in self.row.dtype.names:
            if field.endswith(("_packets", "_bytes", "_ns")) and self.row.dtype[field].itemsize == 8:
                self.row[field] = 0
        link_parameters.reseed(self.row, self.number, seed)
        link_parameters.write(self.row, link_parameters.LinkParameters(**parameters))

    def send(self, *frames: bytes) -> list[bytes]:
        """Sends from end a and returns all that comes out at end b, by what the program says it let through."""
        before = int(self.row["tx_packets"])
        for frame in frames:
            self.a.send(frame)
        return [self.b.recv(9000) for _ in range(int(self.row["tx_packets"]) - before)]

    def counts(self) -> dict[str, int]:
        """The counters that are not zero."""
        return {name: value for name, value in link_parameters.counts(self.row).items() if value}

    def class_packets(self) -> dict[str, int]:
        """Packets that each class of end a sent."""
        return {class_: packets for class_, (_, packets) in self._classes().items()}

    def class_bytes(self) -> dict[str, int]:
        """Bytes that each class of end a was charged for."""
        return {class_: charged for class_, (charged, _) in self._classes().items()}

    def _classes(self) -> dict[str, tuple[int, int]]:
        text = subprocess.run(["tc", "-s", "class", "show", "dev", self.link.a.ifname], capture_output=True, text=True, check=True).stdout
        found = re.finditer(r"class htb 1:(\w+) .*?Sent (\d+) bytes (\d+) pkt", text, re.DOTALL)
        return {match[1]: (int(match[2]), int(match[3])) for match in found}

    def tc_state(self) -> str:
        """Qdiscs, classes and filters of end a, without statistics."""
        name = self.link.a.ifname
        shows = (["qdisc", "show"], ["class", "show"], ["filter", "show"], ["filter", "show", "egress"])
        texts = [
            subprocess.run(["tc", *show[:2], "dev", name, *show[2:]], capture_output=True, text=True, check=True).stdout for show in shows
        ]
        return "".join(texts)


def _opened(ifname: str) -> socket.socket:
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    raw.bind((ifname, 3))
    raw.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 1 << 25)
    raw.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 25)
    raw.settimeout(10)
    return raw


def mrc(
    payload: int = 1024, opcode: int = wire.WRITE_MIDDLE, dscp: int = 4, ecn: int = 0, ev: int = 0x00020001, stamped: bool = True
) -> bytes:
    """A frame of MRC over SRv6: outer and inner IPv6, whole and sealed."""
    extensions = [(header, {}) for header in wire.headers_of(opcode, stamped)]
    content = wire.BTH.size_bytes + sum(header.size_bytes for header, _ in extensions) + payload + wire.ICRC_BYTES
    bth = {"opcode": opcode, "ts": int(stamped), "psn": 7, "destination_qp": 9}
    inner = wire.build(wire.addresses(SOURCE, DESTINATION, ev, content), bth, extensions, bytes(range(256)) * (payload // 256 + 1))
    return _frame(41, dscp, ecn, _cut(inner, content))


def roce(payload: int = 1024, opcode: int = 0x06, dscp: int = 4, ecn: int = 0, ev: int = 0x00020001) -> bytes:
    """A frame of RoCEv2 RC straight on IPv6, with a UDP checksum."""
    extra = {0x06: 16, 0x09: 4, 0x0A: 16, 0x0B: 20}.get(opcode, 0)
    port, label = wire.ports_of(ev)
    body = wire.BTH.pack(opcode=opcode, psn=3, pkey=0xFFFF) + bytes(range(extra)) + bytes(payload) + b"icrc"
    udp = wire.UDP.pack(source_port=port, destination_port=4791, length=8 + len(body), checksum=0) + body
    checksum = ones_complement(SOURCE + DESTINATION + len(udp).to_bytes(4, "big") + (17).to_bytes(4, "big") + udp)
    return _frame(17, dscp, ecn, udp[:6] + (checksum or 0xFFFF).to_bytes(2, "big") + udp[8:], label)


def plain(next_header: int, dscp: int = 0, body: bytes = bytes(200)) -> bytes:
    """An IPv6 frame of something else."""
    return _frame(next_header, dscp, 0, body)


def ones_complement(data: bytes) -> int:
    """The Internet checksum (RFC 1071) of `data`; 0 over data that holds its own right checksum."""
    data += bytes(len(data) % 2)
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _cut(inner: bytes, content: int) -> bytes:
    """`wire.build` was given too much payload on purpose; the test's size, and the ICRC over that."""
    whole = inner[: wire.BTH_OFFSET + content - wire.ICRC_BYTES]
    return whole + wire.icrc(whole)


def _frame(next_header: int, dscp: int, ecn: int, body: bytes, label: int = 0) -> bytes:
    return ETHERNET + wire.IPV6.pack(
        version=6, traffic_class=dscp << 2 | ecn, flow_label=label, payload_length=len(body), next_header=next_header, hop_limit=64,
        source=int.from_bytes(SOURCE, "big"), destination=int.from_bytes(DESTINATION, "big"),
    ) + body  # fmt: skip
