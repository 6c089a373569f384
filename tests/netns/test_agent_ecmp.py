"""Real agents that send MRC without an outer header: what is on the wire, what the kernel makes of it, what they survive."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
from pathlib import Path

import pytest
from hostile_lab import captured, sniffer
from waiting import eventually

from benchmarks.agent_lab import Lab, lab
from hosts import wire
from testbed.fabric.namespaces import entered

pytestmark = pytest.mark.netns

JOB = {"vector_bytes": 64 * 1024, "compute_s": 0.001, "checkpoint_every": 5}
AGAIN = -1  # in place of an opcode: data whose RTX flag is set
FIRST = 49152


def connect(net: Lab, folder: Path | None = None) -> None:
    """A ring whose pairs have two EVs a link, numbered as `mrc-bgp` numbers them."""
    configs = [net.config(name, "mrc", {"ranks": len(net.names), **JOB}, forwarding="ecmp") for name in net.names]
    for config in configs:
        for peer in (*config["send_to"], *config["receive_from"]):
            paths = peer["paths"] * 2
            peer["paths"] = [{**path, "ev": FIRST + at, "links": []} for at, path in enumerate(paths)]
        config["files"] = {"events": str(folder / f"{config['host']}.events")} if folder else {}
    net.connect(configs)


def icmp_errors_sent(pid: int) -> int:
    """ICMPv6 errors that the kernel of a namespace has sent."""
    lines = dict(line.split() for line in Path(f"/proc/{pid}/net/snmp6").read_text().splitlines())
    return sum(int(lines[f"Icmp6Out{kind}"]) for kind in ("DestUnreachs", "PktTooBigs", "ParmProblems", "TimeExcds"))


def seen(net: Lab, sock: socket.socket, wanted: set[int]) -> dict[int, list[bytes]]:
    """IPv6 packets of MRC by opcode (or AGAIN) that the sniffed host sent, once each of `wanted` was seen."""
    found: dict[int, list[bytes]] = {}

    def look() -> bool:
        for packet, (_, kind, way, *_) in captured(sock):
            if kind == 0x86DD and way == socket.PACKET_OUTGOING and packet[6] == wire.PROTOCOL_UDP:
                bth = wire.BTH.unpack(packet, wire.BTH_OFFSET)
                again = wire.is_write(bth["opcode"]) and bth["rtx"]
                found.setdefault(AGAIN if again else bth["opcode"], []).append(packet)
        return found.keys() >= wanted

    eventually(look)
    return found


def classes(packets: list[bytes]) -> set[int]:
    return {wire.IPV6.unpack(packet)["traffic_class"] for packet in packets}


def test_a_ring_has_right_sums_over_every_port_and_the_kernel_says_nothing() -> None:
    with lab(2, links_a_hop=2) as net:
        connect(net)
        net.start()
        net.follow(10)
        sent = [_tx_packets(net, port) for port in (0, 1)]  # while its process is there to be asked by
        errors = {icmp_errors_sent(agent.pid) for agent in net.agents.values()}
        reports = net.stop()
    assert errors == {0}
    assert all(report["job"]["wrong_sums"] == 0 and not report["sockets"] and not report["socket_drops"] for report in reports.values())
    assert min(sent) > 0.5 * max(sent), sent


def test_each_packet_has_its_class_and_its_ev_and_a_right_icrc() -> None:
    wanted = {wire.WRITE_FIRST, wire.WRITE_MIDDLE, wire.SACK, wire.PROBE}
    with lab(2) as net, sniffer(net, "h1") as sock:
        connect(net)
        net.start()
        found = seen(net, sock, wanted)
        net.stop()
    data = found[wire.WRITE_FIRST] + found[wire.WRITE_MIDDLE]
    assert classes(data) == {wire.DSCP_TRIMMABLE << 2 | wire.ECT0}
    assert classes(found[wire.PROBE]) == {wire.DSCP_TRIMMABLE << 2}
    assert classes(found[wire.SACK]) == {wire.DSCP_CONTROL << 2}
    assert {wire.UDP.unpack(packet, 40)["source_port"] for packet in data} == {FIRST, FIRST + 1}
    assert {wire.UDP.unpack(packet, 40)["checksum"] for packet in data} == {0}
    assert all(packet[-4:] == wire.icrc(packet[:-4]) for packet in data)


def test_data_that_is_sent_again_has_a_class_of_its_own_and_dead_evs_are_left(tmp_path: Path) -> None:
    with lab(2, links_a_hop=2) as net, sniffer(net, "h1") as sock:
        connect(net, tmp_path)
        net.start()
        net.follow(3)
        drop_all(net, "h1", "h1-eth1")
        found = seen(net, sock, {AGAIN})
        eventually(lambda: retired(tmp_path) == {FIRST + 1, FIRST + 3})
        reports = net.stop()
    assert classes(found[AGAIN]) == {wire.DSCP_TRIMMABLE_RETX << 2 | wire.ECT0}
    assert [report["job"]["wrong_sums"] for report in reports.values()] == [0, 0]


def test_a_port_goes_down_and_comes_back(tmp_path: Path) -> None:
    with lab(2, links_a_hop=2) as net:
        connect(net, tmp_path)
        net.start()
        net.follow(3)
        net.cut("h1", 1)
        eventually(lambda: retired(tmp_path) == {FIRST + 1, FIRST + 3})
        net.cut("h1", 1, up=True)
        net.cut("h2", 1, up=True)  # its route and neighbour went with the carrier
        eventually(lambda: retired(tmp_path) == set())
        reports = net.stop()
    assert all(report["job"]["wrong_sums"] == 0 for report in reports.values())


def drop_all(net: Lab, host: str, device: str) -> None:
    """Loses everything that the device sends, with its carrier up: its queue takes one byte."""
    enter = ["nsenter", "-t", str(net.agents[host].pid), "--net", "tc"]
    subprocess.run([*enter, "qdisc", "add", "dev", device, "root", "bfifo", "limit", "1"], check=True)


def retired(folder: Path) -> set[int]:
    """h1's EVs that are ASSUMED_BAD."""
    events = [json.loads(line) for line in (folder / "h1.events").read_text().splitlines()]
    states = {event["ev"]: event["to"] for event in events if event["event"] == "ev_state"}
    return {ev for ev, state in states.items() if state == "ASSUMED_BAD"}


def _tx_packets(net: Lab, port: int) -> int:
    lines = Path(f"/proc/{net.agents['h1'].pid}/net/dev").read_text().splitlines()
    return int(next(line for line in lines if f"h1-eth{port}:" in line).split(":")[1].split()[9])


def test_a_stranger_on_the_port_gets_no_answer() -> None:
    """UDP with a right checksum to MRC's port, of which the kernel would say that nobody listens there."""
    with lab(2) as net:
        connect(net)
        net.start()
        net.follow(3)
        with entered(net.agents["h1"].pid):
            sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        with sock:
            for port in wire.UDP_PORTS:
                sock.sendto(struct.pack(">QQ", 1, 2), (net.address("h2"), port))
        net.follow(20)
        errors = icmp_errors_sent(net.agents["h2"].pid)
        reports = net.stop()
    assert errors == 0
    assert sum(reports["h2"]["drops"].values()) >= len(wire.UDP_PORTS)
