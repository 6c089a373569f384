"""Hostile packets against real agents: a third process in the neighbour's namespace throws them while a ring runs."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable
from random import Random

import pytest
from hostile_lab import done, follow_ring, sent_by, sniffer

from benchmarks.agent_lab import Lab, lab
from hosts import wire
from hosts.mrc.frames import Framer, NackFields, SackFields
from hosts.wire import UDP_PORT
from testbed.fabric.namespaces import entered

pytestmark = pytest.mark.netns

PACKET_TOO_BIG, UNREACHABLE = 2, 1  # RFC 4443
PACKETS = 3000


def test_garbage_and_giants_do_no_harm_to_mrc():
    rng = Random(1)
    sizes = (0, 1, 39, 40, 47, 48, 56, 59, 60, 100, 1500, 8900)
    report = attacked("mrc", lambda net, seen: [rng.randbytes(rng.choice(sizes)) for _ in range(PACKETS)])
    assert sum(report["drops"].values()) >= PACKETS // 2  # what the kernel takes for no packet of ours does not get here


def test_garbage_and_giants_do_no_harm_to_rc():
    rng = Random(1)
    report = attacked("rc", lambda net, seen: [rng.randbytes(rng.choice((0, 1, 11, 15, 16, 40, 1500, 8900))) for _ in range(PACKETS)])
    assert sum(report["drops"].values()) >= PACKETS // 2


@pytest.mark.parametrize("transport", ["mrc", "rc"])
def test_replayed_packets_do_no_harm(transport: str):
    report = attacked(transport, lambda net, seen: [*seen] * max(1, PACKETS // max(1, len(seen))))
    assert sum(report["drops"].values()) > 0


def test_a_flood_of_replayed_headers_that_claim_to_be_trimmed_does_no_harm():
    """Nothing protects a trimmed header; those of old data are answered as duplicates, and the ring goes on."""

    def cut(packet: bytes) -> bytes:
        return wire.trimmed(packet, wire.TRIMMED)

    report = attacked("mrc", lambda net, seen: [cut(packet) for packet in seen if wire.is_write(packet[wire.BTH_OFFSET])] * 50)
    assert report["drops"]["duplicate"] > 0


def test_nacks_and_sacks_of_anything_do_no_harm():
    """Sealed by one who knows the addresses and guesses all else."""
    rng = Random(3)

    def forged(net: Lab) -> list[bytes]:
        framer = Framer(net.address("h1"), net.address("h2"), rng.randrange(1 << 16), rng.randrange(1 << 24), UDP_PORT)
        nack = framer.nack(rng.randrange(4), NackFields(1, rng.randrange(4), rng.getrandbits(24), rng.getrandbits(16)))
        sack = framer.sack(
            1, SackFields(rng.getrandbits(24), False, 0, 1, rng.getrandbits(24), 0, 0, 1, rng.getrandbits(64), 0, 0, 0, 1, 127)
        )
        return [bytes(header) + trailer for header, trailer in (nack, sack)]

    report = attacked("mrc", lambda net, seen: [packet for _ in range(PACKETS // 2) for packet in forged(net)])
    assert report["drops"]["unknown_qp"] >= PACKETS // 2


@pytest.mark.parametrize("transport", ["mrc", "rc"])
def test_flipped_bits_do_no_harm(transport: str):
    rng = Random(2)

    def flipped(packet: bytes) -> bytes:
        changed, bit = bytearray(packet), rng.randrange(len(packet) * 8)
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)

    report = attacked(transport, lambda net, seen: [flipped(rng.choice(seen)) for _ in range(PACKETS)])
    assert sum(report["drops"].values()) > 0


@pytest.mark.parametrize("transport", ["mrc", "rc"])
@pytest.mark.parametrize(("kind", "argument"), [(PACKET_TOO_BIG, 1280), (UNREACHABLE, 0)])
def test_icmp_errors_do_not_stop_an_agent(transport: str, kind: int, argument: int):
    with lab(2) as net, sniffer(net, "h2") as sniffed:
        follow_ring(net, transport)
        ours = sent_by(sniffed, own=True)
        with entered(net.agents["h1"].pid):
            sock = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
        with sock:
            for packet in ours[:50]:
                sock.sendto(struct.pack(">BBHI", kind, 0, 0, argument) + packet[:1200], (net.address("h2"), 0, 0, 0))
        done(net)


def attacked(transport: str, make: Callable[[Lab, list[bytes]], list[bytes]]) -> dict:
    """The report of h2 after its neighbour's namespace threw what `make` says; the ring has gone on with right sums."""
    with lab(2) as net, sniffer(net, "h2") as sniffed:
        follow_ring(net, transport)
        seen = [packet[40:] if transport == "mrc" else packet[48:] for packet in sent_by(sniffed, own=False)]
        protocol = socket.IPPROTO_IPV6 if transport == "mrc" else socket.IPPROTO_UDP
        with entered(net.agents["h1"].pid):
            sock = socket.socket(socket.AF_INET6, socket.SOCK_RAW if transport == "mrc" else socket.SOCK_DGRAM, protocol)
        with sock:
            for index, packet in enumerate(make(net, seen)):
                with contextlib.suppress(BlockingIOError):
                    sock.sendto(packet, (net.address("h2"), UDP_PORT if transport == "rc" else 0, 0, 0))
                if index % 100 == 99:
                    time.sleep(0.005)  # bounded: the machine has other work
        return done(net)["h2"]
