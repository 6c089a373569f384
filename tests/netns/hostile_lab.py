"""A ring of agents, and what can be seen of it from outside: for tests in which somebody attacks it."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from itertools import islice
from typing import Any

from benchmarks.agent_lab import Lab
from testbed.fabric.namespaces import entered

ETH_P_IPV6 = 0x86DD  # linux/if_ether.h
JOB = {"vector_bytes": 128 * 1024, "compute_s": 0.002, "checkpoint_every": 5}


def follow_ring(net: Lab, transport: str) -> None:
    net.connect([net.config(name, transport, {"ranks": len(net.names), **JOB}) for name in net.names])
    net.start()
    steps(net, 3)


def steps(net: Lab, count: int) -> None:
    """Until every agent has told of `count` more steps."""
    for agent in net.agents.values():
        for _ in range(count):
            agent.wait_for("step")


def done(net: Lab) -> dict[str, dict]:
    """The reports, after the backlog of messages and 200 steps more, all with the right sum."""
    net.follow(max(agent.wait_for("step")["step"] for agent in net.agents.values()) + 200)
    reports = net.stop()
    assert all(report["job"]["wrong_sums"] == 0 for report in reports.values())
    return reports


@contextlib.contextmanager
def sniffer(net: Lab, name: str) -> Iterator[socket.socket]:
    """A packet socket on the agent's first interface."""
    with entered(net.agents[name].pid):
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0003))  # ETH_P_ALL: outgoing packets too
    with sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 21)
        sock.bind((f"{name}-eth0", 0x0003))
        sock.setblocking(False)
        yield sock


def sent_by(sock: socket.socket, *, own: bool, most: int | None = 500) -> list[bytes]:
    """IPv6 packets that the sniffed host sent (`own`) or got; None: all that the socket holds."""
    wanted, protocols = socket.PACKET_OUTGOING if own else socket.PACKET_HOST, (socket.IPPROTO_UDP, socket.IPPROTO_IPV6)
    sound = (packet for packet, (_, kind, way, *_) in captured(sock) if (kind, way) == (ETH_P_IPV6, wanted) and packet[6] in protocols)
    packets = list(islice(sound, most))
    assert packets
    return packets


def captured(sock: socket.socket) -> Iterator[tuple[bytes, tuple[Any, ...]]]:
    """What a packet socket holds: packets and their addresses.

    When an agent that was stopped has ended, its namespace and the veth pair go, too: the socket says so once, and still holds its packets.
    """
    while True:
        try:
            yield sock.recvfrom(65536)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ENETDOWN:
                raise
