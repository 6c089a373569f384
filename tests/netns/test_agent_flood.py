"""A minute of anything at full speed, thrown at an agent by its neighbour while a ring runs through."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from pathlib import Path
from random import Random

import pytest
from forgery import Forger
from fuzzing import seeded, times
from hostile_lab import done, follow_ring, sent_by, sniffer

from benchmarks.agent_lab import Lab, lab
from hosts import wire
from hosts.mrc.channel import flipped
from testbed.fabric.namespaces import entered

pytestmark = pytest.mark.netns

FLOOD_S = 60
POOL = 6000  # different packets, sent again and again
BATCH = 200  # packets between two looks at the agents
MOST_GROWTH_KIB = 64 << 10
REASONS = {"icrc", "truncated", "not_mrc", "wrong_address", "duplicate", "unknown_qp", "nack_unknown", "psn_out_of_window"}


def test_a_minute_of_anything_at_full_speed_does_no_harm() -> None:
    rng = seeded("flood")
    with lab(2) as net, sniffer(net, "h2") as sniffed:
        follow_ring(net, "mrc")
        got = [packet[40:] for packet in sent_by(sniffed, own=False)]
        packets = pool(net, got, rng)
        before_kib = resident_kib(net)
        sent = flood(net, packets, rng)
        grown_kib = resident_kib(net) - before_kib
        report = done(net)["h2"]
    print(f"{sent} packets sent, {grown_kib} KiB grown, {report['drops']}")  # noqa: T201
    assert set(report["drops"]) >= REASONS
    assert sum(report["drops"].values()) > sent / 20  # what the socket's buffer cannot hold the kernel drops
    assert grown_kib < MOST_GROWTH_KIB


def pool(net: Lab, got: list[bytes], rng: Random) -> list[bytes]:
    """Replays, damage, garbage and forgery, for h2."""
    data = [packet for packet in got if wire.is_write(packet[wire.BTH_OFFSET])]
    h1, h2 = net.address("h1"), net.address("h2")
    writer = Forger([], [qp_of(data[0])], rng, a=h1, b=h2)
    answerer = Forger([qp_of(next(packet for packet in got if packet[wire.BTH_OFFSET] == wire.SACK))], [], rng, a=h2, b=h1)
    makers = (
        lambda: rng.choice(got),
        lambda: flipped(rng.choice(got), rng),
        lambda: (packet := rng.choice(got))[: rng.randrange(len(packet))],
        lambda: rng.randbytes(rng.choice((0, 1, 40, 56, 100, 1500, 8900))),
        lambda: wire.trimmed(rng.choice(data)),
        lambda: answerer.anything(("sack", "nack")),
        lambda: writer.anything(("write", "cut", "probe")),
        lambda: writer.to_b(
            rng.choice((wire.ENDPOINT_REQUEST, wire.ENDPOINT_RESPONSE)), {"op": rng.getrandbits(8)}, qp=rng.choice((2, 77))
        ),
    )
    return [rng.choice(makers)() for _ in range(POOL)]


def qp_of(packet: bytes) -> int:
    return wire.BTH.unpack(packet, wire.BTH_OFFSET)["destination_qp"]


def flood(net: Lab, packets: list[bytes], rng: Random) -> int:
    """Throws packets from h1's namespace for `FLOOD_S`, without a pause but to hear the agents out; returns how many went."""
    with entered(net.agents["h1"].pid):
        sock = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_IPV6)
    sent, deadline, target = 0, time.monotonic() + times(FLOOD_S), (net.address("h2"), 0, 0, 0)
    with sock:
        sock.setblocking(False)
        while time.monotonic() < deadline:
            for packet in rng.choices(packets, k=BATCH):
                with contextlib.suppress(BlockingIOError):
                    sock.sendto(packet, target)
                    sent += 1
            for agent in net.agents.values():
                with contextlib.suppress(TimeoutError):
                    agent.wait_for("qp_error", 1e-4)
                    raise AssertionError(f"{agent.name} lost a QP")
    return sent


def resident_kib(net: Lab) -> int:
    """Memory of h2's agent."""
    status = Path(f"/proc/{net.agents['h2'].pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1])
