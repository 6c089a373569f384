"""Equal-cost tables in real Open vSwitch: flows of UDP and TCP spread over every path, on both tiers, and tables stay as they are."""

from __future__ import annotations

from typing import Any

import pytest
from fabric_lab import ask

pytestmark = pytest.mark.netns


def tell() -> dict[str, Any]:
    """A static fabric: where the switches would send many flows of a pair, whether they come, and what a cut changes."""
    import re
    from pathlib import Path

    from testbed.fabric import Fabric, LinkSettings
    from topologies import build
    from topologies.addresses import host_address

    topology = build("fat-tree", k=4)
    fabric = Fabric(topology, LinkSettings(rate_bps=50_000_000), "ovs-ecmp", Path("/run/testbed/x"))
    fabric.deploy()
    fabric.verify()
    src, dst = "h1", "h16"
    address = host_address(topology.nodes[dst])

    def hop(switch: str, protocol: str, port: int) -> str:
        """The interface by which a switch sends a flow; Open vSwitch itself says so."""
        from testbed.command import run

        source = host_address(topology.nodes[src])
        flow = f"in_port=1,{protocol},ipv6_src={source},ipv6_dst={address},nw_ttl=64,{protocol[:3]}_src={port},{protocol[:3]}_dst=4791"
        control = f"/run/testbed/x/{switch}/ovs-vswitchd.ctl"
        said = run(["ovs-appctl", "-t", control, "ofproto/trace", switch, flow], "tracing a flow")
        return next(link.other(switch).node for link in topology.links_of(switch) if f"output:{link.end(switch).port}\n" in said)

    def ways(protocol: str) -> list[str]:
        """T1 and T2 of each flow."""
        found = []
        for port in range(50000, 50024):
            t1 = hop("t0_1_1", protocol, port)
            found.append(f"{t1} {hop(t1, protocol, port)}")
        return found

    story: dict[str, Any] = {"udp": ways("udp6"), "tcp": ways("tcp6"), "paths": len(topology.paths(src, dst))}
    ping = lambda: re.search(r" (\d) received", fabric.net[src].cmd(f"ping -c 1 -W 1 {address}")).group(1)  # noqa: E731
    story["ping"] = ping()
    link = "h16-t0_4_2"
    fabric.set_carrier(link, False)
    story["cut"], story["tables during the cut"] = ping(), fabric.table_differences()
    fabric.set_carrier(link, True)
    fabric.stop_switch("t1_1_1", orderly=False)
    fabric.boot_switch("t1_1_1")
    story["healed"], story["unchanged"] = ping(), fabric.tables_unchanged()
    story["hop limit"] = fabric.net[src].cmd(f"ping -t 5 -c 1 -W 1 {address}")
    story["enough hops"] = fabric.net[src].cmd(f"ping -t 6 -c 1 -W 1 {address}")
    fabric.remove()
    return story


@pytest.fixture(scope="module")
def story() -> dict[str, Any]:
    answer: dict[str, Any] = ask(tell)
    return answer


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_flows_of_a_pair_spread_over_every_path_of_both_tiers(story: dict[str, Any], protocol: str) -> None:
    """24 flows over 4 paths, always the same flows and bases; all on 2 paths is what polarisation looks like."""
    used = {way: story[protocol].count(way) for way in story[protocol]}
    assert len(used) == story["paths"]
    assert min(used.values()) >= 2


def test_a_static_fabric_does_not_get_around_a_cut_and_keeps_its_tables(story: dict[str, Any]) -> None:
    assert [story["ping"], story["cut"], story["healed"]] == ["1", "0", "1"]
    assert [story["tables during the cut"], story["unchanged"]] == [{}, True]


def test_every_switch_takes_one_hop(story: dict[str, Any]) -> None:
    assert " 0 received" in story["hop limit"]
    assert " 1 received" in story["enough hops"]
