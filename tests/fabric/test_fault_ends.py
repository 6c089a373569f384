"""What each end of a fault sees, for the kinds that not everybody sees alike: interfaces, Open vSwitch, BGP, and what the links count."""

from __future__ import annotations

from typing import Any

import pytest
from netns.fabric_lab import ask

pytestmark = pytest.mark.fabric
LOWER = "t0_1_1-t1_1_1"


def tell(switching: str) -> dict[str, Any]:
    """One plane, one path: h1 - t0_1_1 - t1_1_1 - t0_2_1 - h2. Each fault in turn, with pings both ways while it is on."""
    import subprocess
    import sys
    import time
    from collections.abc import Callable
    from pathlib import Path

    from testbed.fabric import Fabric, LinkSettings
    from testbed.routing.options import BgpOptions
    from topologies import build

    options = {"bgp": BgpOptions(keepalive_s=1, hold_s=5, connect_retry_s=1)} if switching == "frr" else {}
    topology = build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1)
    fabric = Fabric(topology, LinkSettings(rate_bps=50_000_000), switching, Path("/run/testbed/x"), options)
    fabric.deploy()
    fabric.verify()
    nic, lower = "h1-t0_1_1", "t0_1_1-t1_1_1"
    columns = ("tx_packets", "dropped_packets", "lost_packets")

    def eventually(condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + 60
        while not (found := condition()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return found

    def flags(link: str) -> list[list[bool]]:
        """Of end a and end b: set up, running (what daemons go by), carrier."""
        found = topology.link(link)
        shown = [fabric.net[end.node].cmd(f"ip link show {end.ifname}") for end in (found.a, found.b)]
        return [[",UP" in text, "NO-CARRIER" not in text and ",UP" in text, "LOWER_UP" in text] for text in shown]

    def counted(link: str, act: Callable[[], object]) -> list[dict[str, int]]:
        """How the counters of both directions grow meanwhile."""
        rows = fabric.link_counters()[2 * topology.link(link).index : 2 * topology.link(link).index + 2]
        before = rows.copy()
        act()
        return [{name: int(rows[name][way] - before[name][way]) for name in columns} for way in (0, 1)]

    def ping(source: str, count: int = 3, options: str = "-i 0.05 -W 0.3") -> int:
        peer = fabric.net["h2" if source == "h1" else "h1"].IP()
        text = fabric.net[source].cmd(f"ping -c {count} {options} {peer}")
        return int(text.partition(" received")[0].split()[-1]) if " received" in text else 0  # no route: nothing is sent

    def both_ways() -> None:
        ping("h1")
        ping("h2")

    def reaches() -> bool:
        return ping("h1", 1, "-W 1") == 1

    def daemon(node: str, port: str) -> str:
        """What the switch's daemon says of a port: Open vSwitch's link state, or zebra's."""
        if switching == "ovs":
            state = fabric.ask_switch(node, "show").partition(f"({port})")[2].partition("state:")[2].split()[0]
            return "down" if state == "LINK_DOWN" else "up"
        return "down" if "line protocol is down" in fabric.ask_switch(node, f"show interface {port}") else "up"

    def session(node: str, link: str) -> Any:
        port = topology.link(link).end(node).ifname
        return fabric.routers._routers[node].sessions()[port]

    def established(node: str, link: str) -> bool:
        return bool(session(node, link)["bgpState"] == "Established")

    def healed() -> bool:
        return bool(eventually(reaches))

    story: dict[str, Any] = {"at_start": reaches()}

    fabric.set_remote(lower, "t1_1_1", True)
    story["remote"] = {"flags": flags(lower)}
    eventually(lambda: daemon("t1_1_1", topology.link(lower).b.ifname) == "down")
    if switching == "frr":
        eventually(lambda: not established("t1_1_1", lower))
        story["remote"]["other session"] = established("t0_1_1", lower)
    story["remote"]["daemons"] = [daemon(end.node, end.ifname) for end in (topology.link(lower).a, topology.link(lower).b)]
    story["remote"]["pings"] = [ping("h1"), ping("h2")]
    if switching == "frr":
        eventually(lambda: not established("t0_1_1", lower))
    fabric.set_remote(lower, "t1_1_1", False)
    story["remote"] |= {"flags after": flags(lower), "healed": healed()}
    eventually(lambda: daemon("t1_1_1", topology.link(lower).b.ifname) == "up")

    fabric.set_remote(nic, "h1", True)
    story["remote at a host"] = {"flags": flags(nic), "counted": counted(nic, both_ways)}
    fabric.set_remote(nic, "h1", False)
    healed()

    fabric.set_one_way(lower, "t0_1_1", True)
    story["one-way"] = {"flags": flags(lower), "counted": counted(lower, both_ways), "pings": ping("h1")}
    fabric.set_one_way(lower, "t0_1_1", False)
    story["one-way"]["healed"] = healed()
    if switching == "frr":
        eventually(lambda: established("t1_1_1", lower) and established("t0_1_1", lower))

    fabric.lose(nic, "f1", 0.3, "t0_1_1")
    story["loss"] = {"flags": flags(nic), "counted": counted(nic, lambda: ping("h2", 300, "-i 0.005 -W 0.3"))}
    fabric.stop_losing(nic, "f1")
    story["loss"]["after"] = counted(nic, both_ways)

    fabric.slow_link(lower, "f1", 200_000)
    # 60 kB each way: 2.4 s at 200 kbit/s, 10 ms at 50 Mbit/s. ping does not wait for the last of them.
    said = fabric.net["h1"].cmd(f"ping -c 40 -s 1400 -i 0.002 -W 5 {fabric.net['h2'].IP()}")
    story["rate"] = {"flags": flags(lower), "longest_ms": float(said.partition("min/avg/max")[2].split("/")[3])}
    fabric.restore_rate(lower, "f1")

    fabric.set_port("h1-eth0", False)
    story["port"] = {"flags": flags(nic), "pings": ping("h2", 1, "-W 0.3")}
    eventually(lambda: daemon("t0_1_1", topology.link(nic).b.ifname) == "down")
    fabric.set_port("h1-eth0", True)
    story["port"] |= {"flags after": flags(nic), "healed": healed()}

    fabric.set_hang("t1_1_1", True)
    story["hang"] = {"flags": flags(lower), "counted": counted(lower, both_ways), "pings": [ping("h1"), ping("h2")]}
    if switching == "frr":
        before = session("t0_1_1", lower)["messageStats"]["keepalivesRecv"]
        # One a second: after so many the hold time of 5 s is long over.
        eventually(lambda: session("t0_1_1", lower)["messageStats"]["keepalivesRecv"] >= before + 8)
        story["hang"]["established"] = [established("t0_1_1", lower), established("t1_1_1", lower)]
        story["hang"]["still no pings"] = ping("h1")
    fabric.set_hang("t1_1_1", False)
    story["hang"]["healed"] = healed()

    links = [nic, lower]
    fabric.set_carriers(links, False)
    story["bundle"] = {"flags": [flags(link) for link in links]}
    fabric.set_carriers(links, True)
    story["bundle"]["healed"] = healed()

    worker = fabric.popen("h1", [sys.executable, "-c", "while True: print('x' * 99, flush=True)"], stdout=subprocess.DEVNULL)

    def state() -> str:
        return Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0]

    fabric.slow_host("h1", "f1", 0.01, 0.2)
    eventually(lambda: state() == "T")
    eventually(lambda: state() != "T")
    fabric.restore_host("h1", "f1")
    story["host-slow"] = state() != "T"
    fabric.slow_host("h1", "f2", 0.001, 60.0)
    eventually(lambda: state() == "T")
    fabric.verify()
    fabric.remove()
    story["removed while slow"] = state() != "T"
    worker.kill()
    worker.wait()
    return story


@pytest.fixture(scope="module", params=["ovs", "frr"])
def story(request: pytest.FixtureRequest) -> dict[str, Any]:
    answer: dict[str, Any] = ask(tell, request.param, timeout_s=300)
    return {**answer, "switching": request.param}


HEALTHY = [[True, True, True], [True, True, True]]


def test_hosts_reach_each_other_before(story: dict[str, Any]) -> None:
    assert story["at_start"] is True


@pytest.mark.parametrize("kind", ["remote", "one-way", "port", "hang", "bundle"])
def test_hosts_reach_each_other_after(story: dict[str, Any], kind: str) -> None:
    assert story[kind]["healed"] is True


def test_a_remote_fault_stops_the_running_of_one_end_only(story: dict[str, Any]) -> None:
    """Its carrier stays: the other end has the same."""
    assert story["remote"]["flags"] == [[True, True, True], [True, False, True]]
    assert story["remote"]["flags after"] == HEALTHY


def test_the_daemon_of_that_end_sees_the_link_down_and_the_other_one_does_not(story: dict[str, Any]) -> None:
    assert story["remote"]["daemons"][1] == "down"
    assert story["remote"]["daemons"][0] == "up"


def test_bgp_ends_its_session_at_that_end_while_the_other_end_still_believes_in_it(story: dict[str, Any]) -> None:
    assert story["remote"].get("other session", True) is True


def test_no_packet_passes_a_remote_fault(story: dict[str, Any]) -> None:
    assert story["remote"]["pings"] == [0, 0]


def test_a_host_may_be_the_end_that_sees_it(story: dict[str, Any]) -> None:
    found = story["remote at a host"]
    assert found["flags"] == [[True, False, True], [True, True, True]]
    assert [way["tx_packets"] for way in found["counted"]] == [0, 0]


def test_of_a_one_way_fault_one_direction_is_lost_and_nobody_sees_it(story: dict[str, Any]) -> None:
    there, back = story["one-way"]["counted"]
    assert story["one-way"]["flags"] == HEALTHY
    assert there["dropped_packets"] > 0
    assert there["tx_packets"] == 0
    assert back["dropped_packets"] == 0
    assert back["tx_packets"] > 0
    assert story["one-way"]["pings"] == 0


def test_loss_is_by_chance_in_the_asked_direction(story: dict[str, Any]) -> None:
    """300 packets at 30 %: within 5 standard deviations."""
    to_switch, to_host = story["loss"]["counted"]
    offered = to_host["lost_packets"] + to_host["tx_packets"]
    assert story["loss"]["flags"] == HEALTHY
    assert to_switch["lost_packets"] == to_host["dropped_packets"] == 0
    assert to_host["lost_packets"] == pytest.approx(0.3 * offered, abs=5 * (0.21 * offered) ** 0.5)
    assert offered >= 300


def test_nothing_is_lost_after_it(story: dict[str, Any]) -> None:
    assert [way["lost_packets"] for way in story["loss"]["after"]] == [0, 0]


def test_a_slow_link_is_slow_and_nobody_sees_it(story: dict[str, Any]) -> None:
    assert story["rate"]["flags"] == HEALTHY
    assert story["rate"]["longest_ms"] > 200


def test_a_port_is_down_at_its_host_and_without_carrier_at_its_switch(story: dict[str, Any]) -> None:
    assert story["port"]["flags"] == [[False, False, False], [True, False, False]]
    assert story["port"]["flags after"] == HEALTHY
    assert story["port"]["pings"] == 0


def test_a_hung_switch_keeps_its_links_and_forwards_nothing(story: dict[str, Any]) -> None:
    assert story["hang"]["flags"] == HEALTHY
    assert story["hang"]["pings"] == [0, 0]
    assert story["hang"]["counted"][1]["dropped_packets"] > 0


def test_what_others_send_to_a_hung_switch_still_leaves_them(story: dict[str, Any]) -> None:
    assert story["hang"]["counted"][0]["dropped_packets"] == 0
    assert story["hang"]["counted"][0]["tx_packets"] > 0


def test_bgp_sessions_of_a_hung_switch_outlive_their_hold_time(story: dict[str, Any]) -> None:
    assert story["hang"].get("established", [True, True]) == [True, True]
    assert story["hang"].get("still no pings", 0) == 0


def test_all_fibres_of_a_bundle_are_cut(story: dict[str, Any]) -> None:
    assert story["bundle"]["flags"] == [[[True, False, False], [False, False, False]]] * 2


def test_a_program_of_a_slow_host_stops_and_goes_on(story: dict[str, Any]) -> None:
    assert story["host-slow"] is True


def test_no_program_stays_stopped_when_the_fabric_goes(story: dict[str, Any]) -> None:
    assert story["removed while slow"] is True
