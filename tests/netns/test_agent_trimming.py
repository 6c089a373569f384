"""What a real agent puts on the wire for switches to act on: data, new or sent again, control and probes, each in its class."""

from __future__ import annotations

import socket
import subprocess

import pytest

from benchmarks.agent_lab import lab
from hosts import wire
from testbed.fabric.namespaces import entered

pytestmark = pytest.mark.netns

ETH_P_ALL, IPV6_OFFSET = 3, 14
JOB = {"vector_bytes": 64 * 1024, "compute_s": 0.001, "checkpoint_every": 5}
WANTED = {wire.SACK, wire.PROBE, wire.WRITE_FIRST, wire.WRITE_MIDDLE}


AGAIN = -1  # in place of an opcode: data whose RTX flag is set


def classes_seen(pid: int, device: str, wanted: set[int], start) -> dict[int, set[int]]:
    """Outer traffic classes by opcode of what passes `device` after `start()`, once each opcode of `wanted` was seen."""
    with entered(pid):
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        raw.bind((device, ETH_P_ALL))
    raw.settimeout(10)
    found: dict[int, set[int]] = {}
    with raw:
        start()
        while not found.keys() >= wanted:
            frame = raw.recv(9000)
            outer = wire.IPV6.unpack(frame, IPV6_OFFSET)
            if outer["next_header"] == 41:
                bth = wire.BTH.unpack(frame, IPV6_OFFSET + wire.IPV6.size_bytes + wire.BTH_OFFSET)
                kind = AGAIN if wire.is_write(bth["opcode"]) and bth["rtx"] else bth["opcode"]
                found.setdefault(kind, set()).add(outer["traffic_class"])
    return found


def test_data_is_ecn_capable_and_control_and_probes_are_not() -> None:
    with lab(2) as net:

        def start() -> None:
            net.connect([net.config(name, "mrc", {"ranks": 2, **JOB}) for name in net.names])
            net.start()

        seen = classes_seen(net.agents["h1"].pid, "h1-eth0", WANTED, start)
        net.stop()
    assert seen[wire.WRITE_FIRST] == seen[wire.WRITE_MIDDLE] == {4 << 2 | wire.ECT0}
    assert seen[wire.PROBE] == {4 << 2}
    assert seen[wire.SACK] == {46 << 2}


def test_data_that_is_sent_again_has_a_class_of_its_own() -> None:
    with lab(2, links_a_hop=2) as net:

        def start() -> None:
            net.connect([net.config(name, "mrc", {"ranks": 2, **JOB}) for name in net.names])
            net.start()
            net.follow(3)
            drop_all(net.agents["h1"].pid, "h1-eth1")

        seen = classes_seen(net.agents["h1"].pid, "h1-eth0", {AGAIN}, start)
        net.stop()
    assert seen[AGAIN] == {8 << 2 | wire.ECT0}


def drop_all(pid: int, device: str) -> None:
    """Loses everything that the device sends, with its carrier up: its queue takes one byte."""
    commands = ["nsenter", "-t", str(pid), "--net", "tc", "qdisc", "add", "dev", device, "root", "bfifo", "limit", "1"]
    subprocess.run(commands, check=True)
