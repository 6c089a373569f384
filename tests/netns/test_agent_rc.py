"""RoCE RC as operators run it, between real agents: several QPs a pair on sockets of their own, and DCQCN's marks and CNPs."""

from __future__ import annotations

import socket

import pytest
from hostile_lab import sent_by, sniffer

from benchmarks.agent_lab import Lab, lab
from hosts import wire
from hosts.commands import SocketSettings
from hosts.rc import wire as rc
from hosts.sockets import RcNetwork, receive_marked
from testbed.fabric.namespaces import entered

pytestmark = pytest.mark.netns

JOB = {"vector_bytes": 256 * 1024, "compute_s": 0.002, "checkpoint_every": 5}
BTH_AT = wire.IPV6.size_bytes + wire.UDP.size_bytes
DCQCN = {"dcqcn": True, "link_rate_bps": 1e9}


def ring(net: Lab, **params: object) -> None:
    net.connect([net.config(name, "rc", {"ranks": len(net.names), **JOB}, params=params) for name in net.names])


def source_port(packet: bytes) -> int:
    return wire.UDP.unpack(packet, wire.IPV6.size_bytes)["source_port"]


def opcode(packet: bytes) -> int:
    return packet[BTH_AT]


@pytest.mark.parametrize("split", [False, True])
def test_data_comes_from_a_source_port_a_qp_and_every_sum_is_right(split: bool):
    with lab(2) as net, sniffer(net, "h2") as packets:
        ring(net, qps=4, split_data=split)
        net.start()
        net.follow(20)
        reports = net.stop()
        got = sent_by(packets, own=False, most=None)
    ports = {source_port(packet) for packet in got if opcode(packet) in rc.WRITES}
    assert len(ports) == 4
    assert not ports & {source_port(packet) for packet in got if opcode(packet) == rc.ACK}
    assert all(report["job"]["steps"] > 20 and report["job"]["wrong_sums"] == 0 for report in reports.values())


def test_cut_link_fails_the_pair_once_and_new_qps_go_on():
    with lab(2) as net:
        configs = [
            net.config(name, "rc", {"ranks": 2, **JOB}, params={"qps": 4, "timeout_exponent": 13, "retries": 2}) for name in net.names
        ]
        net.connect(configs)
        net.start()
        net.follow(3)
        _, message = net.restart_after_cut(configs)
        net.follow(3)
        reports = net.stop()
    assert message["reason"] == "retry counter exceeded"
    assert all(report["job"]["wrong_sums"] == 0 for report in reports.values())


@pytest.mark.parametrize(("params", "ecn"), [({}, wire.NOT_ECT), (DCQCN, wire.ECT0)])
def test_only_data_is_ecn_capable_and_only_with_dcqcn(params: dict, ecn: int):
    with lab(2) as net, sniffer(net, "h2") as packets:
        ring(net, **params)
        net.start()
        net.follow(5)
        net.stop()
        got = sent_by(packets, own=False, most=None)
    found = {(opcode(packet) == rc.ACK, wire.IPV6.unpack(packet)["traffic_class"] & wire.CE) for packet in got}
    assert found == {(False, ecn), (True, wire.NOT_ECT)}


def test_marks_of_the_ip_header_reach_the_receiver():
    told: list[str] = []
    with lab(2) as net:
        settings = SocketSettings(data_dscp=0)
        with entered(net.agents["h1"].pid):
            network = RcNetwork(net.address("h1"), settings, lambda: told.append("marked"))
            sender = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        (reader,) = network.readers.values()
        reader.socket.settimeout(10)
        buffer = memoryview(bytearray(100))
        for ecn in (wire.CE, wire.ECT0, wire.NOT_ECT, wire.CE):
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, ecn)
            sender.sendto(b"packet", (net.address("h1"), wire.UDP_PORT))
            assert receive_marked(reader.socket, buffer, lambda: told.append("marked")) == 6
            told.append("received")
        network.close()
        sender.close()
    assert told == ["marked", "received", "received", "received", "marked", "received"]
