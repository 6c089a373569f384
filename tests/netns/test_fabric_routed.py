"""The same fabric API with FRR as switches: hosts reach each other, and faults of all kinds are healed completely."""

from __future__ import annotations

from typing import Any

import pytest
from fabric_lab import ask

pytestmark = pytest.mark.netns


def tell() -> dict[str, Any]:
    """2 hosts on 2 T0s and one T1: every fault cuts the pair, every healing brings it back."""
    import time
    from pathlib import Path

    from testbed.fabric import Fabric, LinkSettings
    from topologies import build

    topology = build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1)
    fabric = Fabric(topology, LinkSettings(rate_bps=50_000_000), "frr", Path("/run/testbed/x"), {})
    fabric.deploy()
    fabric.verify()

    def reaches(patience: int) -> bool:
        """Until a ping is answered, at most `patience` times."""
        for _ in range(patience):
            if " 1 received" in fabric.net["h1"].cmd(f"ping -c 1 -W 1 {fabric.net['h2'].IP()}"):
                return True
            time.sleep(0.2)
        return False

    story: dict[str, Any] = {"at_start": reaches(1), "tables": fabric.tables_unchanged(), "switching": fabric.manifest()["switching"]}
    host_link, core_link = topology.links_of("h1")[0].name, topology.links_of("t1_1_1")[0].name
    for name, begin, end in (
        ("carrier of a host link", lambda: fabric.set_carrier(host_link, False), lambda: fabric.set_carrier(host_link, True)),
        ("carrier of a core link", lambda: fabric.set_carrier(core_link, False), lambda: fabric.set_carrier(core_link, True)),
        ("silent core link", lambda: fabric.set_silent(core_link, True), lambda: fabric.set_silent(core_link, False)),
        ("killed T0", lambda: fabric.stop_switch("t0_1_1", orderly=False), lambda: fabric.boot_switch("t0_1_1")),
        ("rebooted T1", lambda: fabric.stop_switch("t1_1_1", orderly=True), lambda: fabric.boot_switch("t1_1_1")),
    ):
        begin()
        during = reaches(1)
        end()
        story[name] = {"during": during, "after": reaches(60)}

    fabric.set_carrier(host_link, False)
    fabric.stop_switch("t0_1_1", orderly=False)
    fabric.boot_switch("t0_1_1")
    before_mending = reaches(1)
    fabric.set_carrier(host_link, True)
    story["killed T0 with a cut host link"] = {"during": before_mending, "after": reaches(60)}
    fabric.remove()
    return story


def tell_planes() -> dict[str, list[str]]:
    """The ports that 32 flows of a host with two NIC ports would take: whole, with one port's link cut, and mended."""
    from pathlib import Path

    from testbed.fabric import Fabric, LinkSettings
    from topologies import build

    fabric = Fabric(
        build("multi-plane", planes=2, t0s=2, t1s=1, hosts_per_t0=1), LinkSettings(rate_bps=50_000_000), "frr", Path("/run/testbed/x")
    )
    fabric.deploy()
    to, link = fabric.net["h2"].IP(), fabric.topology.links_of("h1")[0].name

    def used() -> list[str]:
        flows = [f"ip -color=never -6 route get {to} ipproto 17 sport {port} dport 4791" for port in range(50000, 50032)]
        answers = [fabric.net["h1"].cmd(flow) for flow in flows]
        return sorted({answer.partition(" dev ")[2].split()[0] for answer in answers})

    story = {"whole": used()}
    fabric.set_carrier(link, False)
    story["cut"] = used()
    fabric.set_carrier(link, True)
    story["mended"] = used()
    fabric.remove()
    return story


@pytest.fixture(scope="module")
def planes() -> dict[str, list[str]]:
    answer: dict[str, list[str]] = ask(tell_planes)
    return answer


def test_a_host_spreads_its_flows_over_its_ports(planes: dict[str, list[str]]) -> None:
    assert planes["whole"] == ["h1-eth0", "h1-eth1"]


def test_a_host_sends_nothing_to_a_port_without_carrier(planes: dict[str, list[str]]) -> None:
    assert [planes["cut"], planes["mended"]] == [["h1-eth1"], ["h1-eth0", "h1-eth1"]]


@pytest.fixture(scope="module")
def story() -> dict[str, Any]:
    answer: dict[str, Any] = ask(tell, timeout_s=240)
    return answer


def test_hosts_reach_each_other_as_soon_as_it_is_deployed(story: dict[str, Any]) -> None:
    assert story["at_start"] is True


def test_tables_may_change_by_design(story: dict[str, Any]) -> None:
    assert story["tables"] is None


@pytest.mark.parametrize(
    "fault",
    ["carrier of a host link", "carrier of a core link", "silent core link", "killed T0", "rebooted T1", "killed T0 with a cut host link"],
)
def test_a_fault_cuts_and_healing_reconnects(story: dict[str, Any], fault: str) -> None:
    assert story[fault] == {"during": False, "after": True}
