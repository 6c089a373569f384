"""Trimming and marking through a whole fabric of Open vSwitch: two senders at full rate into one link, inside and at the last hop."""

from __future__ import annotations

from typing import Any

import pytest
from netns.fabric_lab import ask

pytestmark = pytest.mark.fabric
COUNT = 120


def tell() -> dict[str, Any]:
    """Raw sockets of protocol 41, as the agents have."""
    import socket
    import struct
    from pathlib import Path

    from hosts import wire
    from testbed.fabric import Fabric, LinkSettings, link_parameters
    from testbed.fabric.namespaces import entered
    from topologies import build, usid

    topology = build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=2)
    settings = LinkSettings(20_000_000, queue_bytes=1_000_000, ecn=True, trimming=True, base_rtt_s=0.002)
    fabric = Fabric(topology, settings, "ovs", Path("/run/testbed/t"))
    fabric.deploy()
    fabric.verify()

    def change_all(**changes: Any) -> None:
        for row in fabric.link_counters()[2 : 2 * len(topology.links) + 2]:
            link_parameters.change(row, **changes)

    def opened(host: str) -> socket.socket:
        with entered(fabric.pid(host)):
            raw = socket.socket(socket.AF_INET6, socket.SOCK_RAW, 41)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, f"{host}-eth0\0".encode())
        for option in (32, 33):  # SO_SNDBUFFORCE, SO_RCVBUFFORCE
            raw.setsockopt(socket.SOL_SOCKET, option, 1 << 24)
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 4 << 2 | 2)
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        raw.settimeout(3)
        return raw

    def packet(psn: int) -> bytes:
        content = 12 + 4 + 4 + 16 + 4096 + 4
        head = wire.addresses(bytes(16), bytes(16), 7, content)
        return wire.build(head, {"opcode": 0xC7, "ts": 1, "psn": psn}, [(h, {}) for h in wire.headers_of(0xC7, True)], bytes(4096))

    sockets = {host: opened(host) for host in topology.hosts}

    def incast(senders: list[str], receiver: str) -> dict[str, Any]:
        before = fabric.link_counters().copy()
        for number in range(60):
            for place, host in enumerate(senders):
                destination = usid.destination(topology, topology.paths(host, receiver)[0])
                sockets[host].sendto(packet(2 * number + place), (destination, 0))
        got = []
        try:
            while len(got) < 120:
                data, ancillary, _flags, _address = sockets[receiver].recvmsg(9000, 64)
                (outer,) = struct.unpack("=i", ancillary[0][2])
                inner = data[0] << 4 & 0xFF | data[1] >> 4
                got.append([len(data), wire.BTH.unpack(data, 48)["psn"], outer, inner, int.from_bytes(data[4:6], "big")])
        except TimeoutError:
            pass
        rows = fabric.link_counters()
        names = [name for name in rows.dtype.names if name.endswith("_packets")]
        last = 2 * topology.links_of(receiver)[0].index + 1
        return {
            "got": got,
            "counted": {name: int((rows[name] - before[name]).sum()) for name in names},
            "marked_at_last_hop": int(rows[last]["marked_packets"] - before[last]["marked_packets"]),
        }

    said = {"inside": incast(["h1", "h2"], "h3"), "last_hop": incast(["h2", "h3"], "h1")}
    change_all(rate_bps=0)  # neither marks nor trims: the real queues, of 1 MB, take all
    said["without_trimming"] = incast(["h1", "h2"], "h3")
    said["qdisc_drops"] = sum(fabric.qdisc_drops().values())
    said["manifest"] = fabric.manifest()["link_program"]
    said["asked"] = link_parameters.manifest(settings)
    said["unchanged"] = fabric.tables_unchanged()
    fabric.remove()
    return said


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    answer: dict[str, Any] = ask(tell)
    return answer


@pytest.mark.parametrize("where", ["inside", "last_hop", "without_trimming"])
def test_every_packet_arrives_whole_or_trimmed(said: dict[str, Any], where: str) -> None:
    assert sorted(entry[1] for entry in said[where]["got"]) == list(range(COUNT))


@pytest.mark.parametrize(("where", "dscp"), [("inside", 12), ("last_hop", 16)])
def test_a_trimmed_packet_says_where_in_both_headers(said: dict[str, Any], where: str, dscp: int) -> None:
    trimmed = [entry for entry in said[where]["got"] if entry[0] < 1000]
    assert trimmed
    assert {(outer >> 2, inner >> 2) for _size, _psn, outer, inner, _length in trimmed} == {(dscp, dscp)}


@pytest.mark.parametrize("where", ["inside", "last_hop"])
def test_trimmed_packets_are_counted_and_have_right_lengths(said: dict[str, Any], where: str) -> None:
    got = said[where]["got"]
    assert said[where]["counted"]["trimmed_packets"] == sum(entry[0] < 1000 for entry in got)
    assert all(size == 40 + length for size, _psn, _outer, _inner, length in got)


def test_inside_the_fabric_packets_are_marked_in_both_headers(said: dict[str, Any]) -> None:
    whole = [(outer & 3, inner & 3) for size, _psn, outer, inner, _length in said["inside"]["got"] if size > 1000]
    assert (3, 3) in whole
    assert set(whole) <= {(3, 3), (2, 0)}


def test_at_the_last_hop_nothing_is_marked(said: dict[str, Any]) -> None:
    assert said["last_hop"]["marked_at_last_hop"] == 0


def test_without_trimming_a_long_queue_holds_what_comes(said: dict[str, Any]) -> None:
    assert {size for size, *_ in said["without_trimming"]["got"]} == {4184}


def test_no_queue_dropped_anything(said: dict[str, Any]) -> None:
    assert said["qdisc_drops"] == 0
    assert said["inside"]["counted"]["queue_dropped_packets"] == 0


def test_the_manifest_has_the_parameters_of_each_role(said: dict[str, Any]) -> None:
    assert said["manifest"] == {**said["asked"], **{role: {**said["asked"][role], "evs": []} for role in ("host", "fabric", "last_hop")}}
