"""Whole fabrics with Open vSwitch: what the agents will rely on. Each fabric tells its story once; each test says one thing about it."""

from __future__ import annotations

from typing import Any

import pytest
from netns.fabric_lab import ask

pytestmark = pytest.mark.fabric


def tell_fat_tree() -> dict[str, Any]:
    """k=4: probes every path of some pairs with IPv6-in-IPv6 packets from raw sockets, then breaks things."""
    import contextlib
    import socket
    import subprocess
    import time
    from pathlib import Path

    from testbed.errors import HostError
    from testbed.fabric import Fabric, LinkSettings
    from testbed.fabric.namespaces import entered
    from topologies import build, usid

    topology = build("fat-tree", k=4)
    fabric = Fabric(topology, LinkSettings(rate_bps=50_000_000), "ovs", Path("/run/testbed/x"), {})
    fabric.deploy()
    fabric.verify()
    story: dict[str, Any] = {"manifest": fabric.manifest(), "unchanged_at_start": fabric.tables_unchanged()}

    sockets: dict[str, socket.socket] = {}

    def raw(host: str) -> socket.socket:
        if host not in sockets:
            with entered(fabric.pid(host)):
                sockets[host] = socket.socket(socket.AF_INET6, socket.SOCK_RAW, 41)
                sockets[host].setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, f"{host}-eth0\0".encode())
        return sockets[host]

    def probe(src: str, dst: str, number: int, path: Any) -> bool:
        """One packet along a path; True when it arrives. A silent second means lost: nothing on the way takes that long."""
        receiver = raw(dst)
        inner = bytes([0x60]) + bytes(39) + number.to_bytes(2, "big") + bytes(500)
        with contextlib.suppress(OSError):  # the own port may be down
            raw(src).sendto(inner, (usid.destination(topology, path), 0))
        deadline = time.monotonic() + 1.0
        while (left := deadline - time.monotonic()) > 0:
            receiver.settimeout(left)
            try:
                data = receiver.recv(9000)
            except TimeoutError:
                return False
            if data[40:42] == inner[40:42]:
                return True
        return False

    def alive(src: str, dst: str) -> list[bool]:
        return [probe(src, dst, number, path) for number, path in enumerate(topology.paths(src, dst))]

    pairs = [("h1", "h2"), ("h1", "h3"), ("h1", "h16"), ("h16", "h1"), ("h6", "h11")]
    story["delivered"] = {f"{src}-{dst}": alive(src, dst) for src, dst in pairs}

    core = [link for link in topology.links.values() if link.tier != "NIC-T0"]
    story["strays"] = []
    for path in topology.paths("h1", "h16"):
        before = fabric.link_counters()["tx_packets"].copy()
        probe("h1", "h16", 900, path)
        grown = fabric.link_counters()["tx_packets"] - before
        used = {link.name for link in core if grown[2 * link.index] + grown[2 * link.index + 1]}
        if used != {name for name in path.links if topology.link(name) in core}:
            story["strays"].append([sorted(used), list(path.links)])

    def ping(src: str, dst: str) -> bool:
        return " 1 received" in fabric.net[src].cmd(f"ping -c 1 -W 5 {fabric.net[dst].IP()}")

    story["ping"] = [ping("h1", "h16"), ping("h16", "h1"), ping("h1", "h2"), ping("h9", "h4")]
    story["ping_seen_by_agent"] = False
    raw("h16").settimeout(0.2)
    ping("h1", "h16")
    with contextlib.suppress(TimeoutError):
        raw("h16").recv(9000)
        story["ping_seen_by_agent"] = True

    def expected(src: str, dst: str, without: str) -> list[bool]:
        return [without not in path.links and without not in path.nodes for path in topology.paths(src, dst)]

    story["faults"] = {}
    for kind, target, begin, end in (
        ("carrier", "t0_1_1-t1_1_2", lambda t: fabric.set_carrier(t, False), lambda t: fabric.set_carrier(t, True)),
        ("silent", "t1_1_1-t2_2", lambda t: fabric.set_silent(t, True), lambda t: fabric.set_silent(t, False)),
        ("switch-kill", "t1_4_1", lambda t: fabric.stop_switch(t, orderly=False), fabric.boot_switch),
        ("switch-reboot", "t2_3", lambda t: fabric.stop_switch(t, orderly=True), fabric.boot_switch),
    ):
        issued, effective = begin(target)
        during = alive("h1", "h16")
        unchanged = fabric.tables_unchanged()
        again = end(target)
        after = alive("h1", "h16")
        story["faults"][kind] = {
            "during": during == expected("h1", "h16", target),
            "some_died": not all(during),
            "after": all(after),
            "ordered": issued <= effective <= again[0] <= again[1],
            "unchanged": unchanged,
        }

    story["unchanged_after_faults"] = fabric.tables_unchanged()
    management = f"unix:{fabric.run_dir}/t1_2_1/t1_2_1.mgmt"
    subprocess.run(["ovs-ofctl", "add-flow", management, "table=1,priority=9,actions=drop"], check=True)
    story["tampered"] = fabric.table_differences()
    try:
        fabric.verify()
    except HostError as error:
        story["tampered_error"] = str(error)

    neighbours = fabric.net["h1"].cmd("ip -6 neigh show")
    story["discovered_neighbours"] = [line for line in neighbours.splitlines() if "lladdr" in line and "PERMANENT" not in line]
    with contextlib.suppress(HostError):
        fabric.boot_switch("t0_1_1")
        story["booted_twice"] = True
    fabric.remove()
    second = Fabric(topology, LinkSettings(rate_bps=50_000_000), "ovs", Path("/run/testbed/y"), {"datapath": "netdev"})
    second.deploy()
    second.verify()
    story["second"] = second.tables_unchanged()
    second.remove()
    return story


def tell_multi_plane() -> dict[str, Any]:
    """2 planes: sockets bound to each port of a host, and the ports' counters."""
    import socket
    from pathlib import Path

    from testbed.fabric import Fabric, LinkSettings
    from testbed.fabric.namespaces import entered
    from topologies import build, usid

    topology = build("multi-plane", planes=2, t0s=2, t1s=2, hosts_per_t0=1)
    fabric = Fabric(topology, LinkSettings(rate_bps=50_000_000), "ovs", Path("/run/testbed/x"), {})
    fabric.deploy()
    fabric.verify()

    def bound(host: str, port: int) -> socket.socket:
        with entered(fabric.pid(host)):
            raw = socket.socket(socket.AF_INET6, socket.SOCK_RAW, 41)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, f"{host}-eth{port}\0".encode())
        raw.settimeout(5)
        return raw

    receivers = [bound("h2", port) for port in (0, 1)]
    arrived, sources = [], set()
    for number, path in enumerate(topology.paths("h1", "h2")):
        bound("h1", path.port).sendto(bytes([0x60]) + bytes(38) + bytes([number]), (usid.destination(topology, path), 0))
        data, source = receivers[path.far_port].recvfrom(9000)
        arrived.append(data[39])
        sources.add(source[0])
    answer = {"arrived": arrived, "paths": len(topology.paths("h1", "h2")), "sources": sorted(sources)}
    fabric.remove()
    return answer


@pytest.fixture(scope="module")
def fat_tree() -> dict[str, Any]:
    answer: dict[str, Any] = ask(tell_fat_tree, timeout_s=240)
    return answer


@pytest.fixture(scope="module")
def multi_plane() -> dict[str, Any]:
    answer: dict[str, Any] = ask(tell_multi_plane)
    return answer


def test_raw_sockets_reach_the_peer_over_every_path(fat_tree: dict[str, Any]) -> None:
    assert {pair: len(paths) for pair, paths in fat_tree["delivered"].items()} == {
        "h1-h2": 1,
        "h1-h3": 2,
        "h1-h16": 4,
        "h16-h1": 4,
        "h6-h11": 4,
    }
    assert all(all(paths) for paths in fat_tree["delivered"].values())


def test_packets_take_exactly_the_links_of_their_path(fat_tree: dict[str, Any]) -> None:
    assert fat_tree["strays"] == []


def test_hosts_can_ping_each_other(fat_tree: dict[str, Any]) -> None:
    assert fat_tree["ping"] == [True] * 4


def test_pings_do_not_reach_the_agents_sockets(fat_tree: dict[str, Any]) -> None:
    assert fat_tree["ping_seen_by_agent"] is False


@pytest.mark.parametrize("kind", ["carrier", "silent", "switch-kill", "switch-reboot"])
class TestFault:
    """A fault of each kind between h1 and h16."""

    def test_kills_exactly_the_paths_through_its_target(self, fat_tree: dict[str, Any], kind: str) -> None:
        assert fat_tree["faults"][kind]["some_died"]
        assert fat_tree["faults"][kind]["during"]

    def test_is_healed_completely(self, fat_tree: dict[str, Any], kind: str) -> None:
        assert fat_tree["faults"][kind]["after"]

    def test_has_times_in_order(self, fat_tree: dict[str, Any], kind: str) -> None:
        assert fat_tree["faults"][kind]["ordered"]


def test_faults_of_links_change_no_table(fat_tree: dict[str, Any]) -> None:
    assert [fat_tree["faults"][kind]["unchanged"] for kind in ("carrier", "silent")] == [True, True]


def test_a_dead_switch_is_not_called_unchanged(fat_tree: dict[str, Any]) -> None:
    assert fat_tree["faults"]["switch-kill"]["unchanged"] is False


def test_tables_are_as_at_boot_at_the_start_and_after_all_faults(fat_tree: dict[str, Any]) -> None:
    assert [fat_tree["unchanged_at_start"], fat_tree["unchanged_after_faults"]] == [True, True]


def test_a_foreign_flow_is_noticed_with_its_switch(fat_tree: dict[str, Any]) -> None:
    assert list(fat_tree["tampered"]) == ["t1_2_1"]
    assert "t1_2_1" in fat_tree["tampered_error"]


def test_a_running_switch_cannot_be_booted(fat_tree: dict[str, Any]) -> None:
    assert "booted_twice" not in fat_tree


def test_hosts_discover_no_neighbours(fat_tree: dict[str, Any]) -> None:
    assert fat_tree["discovered_neighbours"] == []


def test_the_manifest_says_which_datapath_it_was(fat_tree: dict[str, Any]) -> None:
    assert fat_tree["manifest"]["datapath"] in {"system", "netdev"}


def test_a_second_fabric_may_follow_in_the_same_sandbox(fat_tree: dict[str, Any]) -> None:
    assert fat_tree["second"] is True


def test_sockets_bound_to_a_port_use_that_ports_plane(multi_plane: dict[str, Any]) -> None:
    assert multi_plane["paths"] == 4
    assert multi_plane["arrived"] == [0, 1, 2, 3]


def test_the_outer_source_is_the_hosts_usid_address(multi_plane: dict[str, Any]) -> None:
    assert len(multi_plane["sources"]) == 1
    assert multi_plane["sources"][0].startswith("fcbb:bb00:")
