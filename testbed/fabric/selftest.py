"""Do links do what they are asked to? Measured on real packets of a small fabric, each figure beside what it should be.

    checks = run(runtime_dir() / "selftest")       # inside a sandbox, about 5 s
    checks = check_fabric(fabric)                  # on a fabric that is up and idle

A statistical check fails by chance once in 15,000 times (4 standard deviations). Nothing here changes queues; the parameters of the row
that is used for the checks are put back.
"""

from __future__ import annotations

import errno
import math
import socket
import statistics
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hosts import wire
from testbed.command import in_net
from testbed.command import run as run_command
from testbed.fabric import link_parameters
from testbed.fabric.bpf import row_of
from testbed.fabric.fabric import Fabric
from testbed.fabric.link_parameters import DSCP_CONTROL, DSCP_NO_TRIM, DSCP_TRIMMABLE, LinkParameters
from testbed.fabric.namespaces import entered
from testbed.link_settings import LinkSettings
from topologies import End, Link, build

RATE_BPS, BASE_RTT_S = 50_000_000, 0.002
RATE_TOLERANCE = 0.03
RATE_PROBE_S = 0.5
STANDARD_DEVIATIONS = 4.0
SCHEDULING_S = 0.002
"""What a busy machine may add to a delay; the queue that control must overtake takes twenty times that."""
_PACKETS = 2000
_CHUNK = 100
_LEAST_TRIMMED = 500
_PAYLOAD_BYTES = 4096
_ECT0, _CE = 2, 3
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 32, 33, 35  # asm-generic/socket.h
_TIMEOUT_S = 5.0
_OUTER_BYTES = 14


@dataclass(frozen=True)
class Check:
    """One figure: what was measured, what it should be (in words with units), and whether it is."""

    name: str
    measured: str
    expected: str
    good: bool


def run(run_dir: Path) -> list[Check]:
    """Brings up two hosts on two T0s with ECN and trimming, checks, and takes it down. Inside a sandbox only; HostError otherwise."""
    topology = build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1)
    settings = LinkSettings(rate_bps=RATE_BPS, ecn=True, trimming=True, base_rtt_s=BASE_RTT_S)
    with Fabric(topology, settings, "ovs", run_dir).deployed() as fabric:
        return check_fabric(fabric)


def check_fabric(fabric: Fabric) -> list[Check]:
    """Rates of one link a tier, and everything else on the first host's link, upwards. Needs an idle fabric with no faults."""
    host_link = fabric.topology.links_of(fabric.topology.hosts[0])[0]
    checks = [check_rate(fabric, link) for link in sample(fabric)]
    with Wire(fabric, host_link) as link:
        checks += [check(link) for check in (check_trimming, check_marking, check_loss, check_priority)]
    return checks


def sample(fabric: Fabric) -> list[Link]:
    """The first link of each tier."""
    first: dict[str, Link] = {}
    for link in fabric.topology.links.values():
        first.setdefault(link.tier, link)
    return list(first.values())


def check_rate(fabric: Fabric, link: Link) -> Check:
    """What leaves end a in half a second of saturation."""
    settings, end = fabric.settings, link.a
    probe = [sys.executable, "-m", "testbed.collect.rate_probe", end.ifname, str(settings.mtu_bytes), str(RATE_PROBE_S)]
    achieved_bps = float(run_command(in_net(fabric.pid(end.node), probe), f"measuring the rate of {link.name}"))
    share = achieved_bps / settings.rate_bps
    good = abs(share - 1) <= RATE_TOLERANCE
    return Check(f"rate of {link.name}", f"{share:.1%} of the asked rate", f"100% +- {RATE_TOLERANCE:.0%}", good)


class Wire:
    """One link direction, from end a: raw frames in, what comes out at end b with the kernel's time of arrival."""

    def __init__(self, fabric: Fabric, link: Link) -> None:
        self.settings = fabric.settings
        self.number = row_of(link, True)
        self.row: Any = fabric.link_counters()[self.number]
        self._ends = [_opened(fabric, end) for end in (link.a, link.b)]
        self._before = link_parameters.read(self.row)
        self._fabric, self._key = fabric, (link.name, link.a.node)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        link_parameters.write(self.row, self._before)
        for sock in self._ends:
            sock.close()

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
                self._ends[0].send(frame)
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise

    def receive(self, count: int) -> list[tuple[bytes, float]]:
        """The next `count` of our frames with their CLOCK_REALTIME seconds of arrival; fewer when none comes for 5 s."""
        found: list[tuple[bytes, float]] = []
        while len(found) < count:
            try:
                frame, ancillary, _flags, _address = self._ends[1].recvmsg(16384, 64)
            except TimeoutError:
                break
            if frame[:12] == bytes(12):  # the kernels of the ends talk too
                found.append((frame, _arrival_s(ancillary)))
        return found

    def pass_on(self, frames: list[bytes]) -> list[bytes]:
        """Sends in portions that the queues can hold, each when the one before is out; returns what came out."""
        out: list[bytes] = []
        for start in range(0, len(frames), _CHUNK):
            before = int(self.row["tx_packets"])
            self.send(frames[start : start + _CHUNK])
            out += [frame for frame, _ in self.receive(int(self.row["tx_packets"]) - before)]
        return out


def check_trimming(link: Wire) -> Check:
    """Far more than the queue may hold, at once: every packet comes out whole or trimmed."""
    parameters = link_parameters.of_settings(link.settings, "fabric")
    if not parameters.trim_bytes:
        return Check("trimming", "switched off", "switched off", good=True)
    frame = data_frame(_PAYLOAD_BYTES, DSCP_TRIMMABLE)
    count = max(_LEAST_TRIMMED, 3 * parameters.trim_bytes // len(frame))
    drops = link.qdisc_drops()
    with link.using(parameters):
        link.send([frame] * count)
        sizes = [len(found) for found, _ in link.receive(count)]
    whole, drops = sizes.count(len(frame)), link.qdisc_drops() - drops
    good = len(sizes) == count and drops == 0 and 0 < whole < count and len(set(sizes)) == 2
    measured = f"{count} sent, {whole} whole, {len(sizes) - whole} trimmed, {drops} dropped by queues"
    return Check("trimming", measured, f"whole + trimmed = {count}, both present, none dropped", good)


def check_marking(link: Wire) -> Check:
    """The virtual queue stands at half the ramp: half of the packets are marked."""
    second_bytes, seconds = 1_000_000, 30  # so long that what is sent and what drains meanwhile hardly changes it
    ramp = LinkParameters(rate_bps=8 * second_bytes, ecn_max_bytes=2 * second_bytes * seconds)
    with link.using(ramp):
        link.row["free_at_ns"] = time.monotonic_ns() + seconds * 10**9
        before = int(link.row["free_at_ns"]) - time.monotonic_ns()
        frames = link.pass_on([data_frame(0, DSCP_TRIMMABLE, _ECT0)] * _PACKETS)
        after = int(link.row["free_at_ns"]) - time.monotonic_ns()
    theory = (before + after) / 2 / (2 * seconds * 10**9)
    marked = sum(frame[_OUTER_BYTES + 1] >> 4 & 3 == _CE for frame in frames)
    return _share_check("marked share", marked, len(frames), theory)


def check_loss(link: Wire, share: float = 0.05) -> Check:
    """The share that is missing, of packets of every class."""
    link_parameters.reseed(link.row, link.number, link.settings.seed, ("loss",))
    with link.using(LinkParameters(loss=share)):
        frames = link.pass_on([data_frame(0, DSCP_NO_TRIM)] * _PACKETS)
    return _share_check("lost share", _PACKETS - len(frames), _PACKETS, share)


def check_priority(link: Wire, rounds: int = 8) -> Check:
    """A control packet behind a full queue of data overtakes all of it but what HTB has already let go."""
    frame, control = data_frame(_PAYLOAD_BYTES, DSCP_NO_TRIM), data_frame(0, DSCP_CONTROL)
    queued = link.settings.queue_bytes * 9 // 10 // len(frame)
    with link.using(LinkParameters()):
        idle_s = statistics.median(_control_delay_s(link, control, []) for _ in range(5 * rounds))
        loaded_s = statistics.median(_control_delay_s(link, control, [frame] * queued) for _ in range(rounds))
    in_front_s = (link.settings.burst_bytes + 2 * link.settings.frame_bytes) / link.settings.rate_bytes_per_s
    bound_s = idle_s + in_front_s + SCHEDULING_S
    queue_s = queued * len(frame) / link.settings.rate_bytes_per_s
    measured = f"median {1e6 * loaded_s:.0f} us behind {1e3 * queue_s:.0f} ms of data, {1e6 * idle_s:.0f} us idle"
    return Check("control under load", measured, f"at most {1e6 * bound_s:.0f} us", loaded_s <= bound_s)


def _control_delay_s(link: Wire, control: bytes, load: list[bytes]) -> float:
    link.send(load)
    sent_s = time.time()
    link.send([control])
    arrivals = link.receive(len(load) + 1)
    return next((arrival_s - sent_s for frame, arrival_s in arrivals if frame == control), math.inf)


def _share_check(name: str, hits: int, count: int, theory: float) -> Check:
    """Whether `hits` of `count` lie within the interval of a binomial distribution (normal approximation)."""
    margin = STANDARD_DEVIATIONS * math.sqrt(theory * (1 - theory) / max(count, 1))
    share = hits / max(count, 1)
    return Check(name, f"{share:.2%} of {count}", f"{theory:.2%} +- {margin:.2%}", count > 0 and abs(share - theory) <= margin)


def data_frame(payload_bytes: int, dscp: int, ecn: int = 0, entropy: int = 0x00030003) -> bytes:
    """A whole Write of MRC over SRv6 between addresses that no table knows, so that it ends behind the link."""
    extensions: list[tuple[wire.Header, dict[str, int]]] = [(header, {}) for header in wire.headers_of(wire.WRITE_MIDDLE, timestamped=True)]
    content = wire.BTH.size_bytes + sum(header.size_bytes for header, _ in extensions) + payload_bytes + wire.ICRC_BYTES
    address = bytes.fromhex("fd00" + "00" * 13 + "fe")
    head = wire.addresses(address, address, entropy, content)
    inner = wire.build(head, {"opcode": wire.WRITE_MIDDLE, "ts": 1}, extensions, bytes(payload_bytes))
    number = int.from_bytes(address, "big")
    outer = wire.IPV6.pack(
        version=6, traffic_class=dscp << 2 | ecn, payload_length=len(inner), next_header=41, hop_limit=1, source=number, destination=number
    )
    return bytes(12) + bytes.fromhex("86dd") + outer + inner


def _opened(fabric: Fabric, end: End) -> socket.socket:
    with entered(fabric.pid(end.node)):
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x86DD))
        raw.bind((end.ifname, 0x86DD))
    for option, value in ((_SO_SNDBUFFORCE, 1 << 25), (_SO_RCVBUFFORCE, 1 << 25), (_SO_TIMESTAMPNS, 1)):
        raw.setsockopt(socket.SOL_SOCKET, option, value)
    raw.settimeout(_TIMEOUT_S)
    return raw


def _arrival_s(ancillary: list[tuple[int, int, bytes]]) -> float:
    seconds, nanoseconds = next(struct.unpack("=qq", data) for _level, kind, data in ancillary if kind == _SO_TIMESTAMPNS)
    return float(seconds + nanoseconds * 1e-9)
