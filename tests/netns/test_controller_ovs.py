"""Real Open vSwitch under a real controller: what each kind of fault does to the tables, and what happens when the controller dies."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from conftest import in_ci
from fabric_lab import ask

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(importlib.util.find_spec("ryu") is None and not in_ci(), reason="Ryu is not installed (TESTBED_WITHOUT_RYU)"),
]

HOLD_S, KEEPALIVE_S = 3.0, 1.0
LOSSES = ("carrier", "mended", "silent", "silent mended", "remote", "remote mended")
STATES = (*LOSSES, "rebooting", "booted", "killed and booted", "controller back", "all mended")


def tell(hold_s: str, keepalive_s: str) -> dict[str, Any]:
    """2 T0s and 2 T1s with a host on each T0: every fault and its end, and the tables that they lead to."""
    import os
    import signal
    import time
    from pathlib import Path

    from testbed.controller import keepalive
    from testbed.errors import HostError
    from testbed.fabric import Fabric, LinkSettings
    from testbed.pathvector import BgpOvsOptions
    from testbed.routing.expected import expected_fibs
    from topologies import build, ecmp, usid
    from topologies.addresses import host_address

    topology = build("multi-plane", planes=1, t0s=2, t1s=2, hosts_per_t0=1)
    options = BgpOvsOptions(hold_s=float(hold_s), keepalive_s=float(keepalive_s), session_min_s=0.05, session_max_s=0.1)
    fabric = Fabric(topology, LinkSettings(rate_bps=50_000_000), "ovs-bgp", Path("/run/testbed/x"), {"bgp_ovs": options})
    near, far, spine = "t0_1_1-t1_1_1", "t0_1_2-t1_1_1", "t1_1_1"
    peer = host_address(topology.nodes["h2"])

    def differences(**down: list[str]) -> list[str]:
        """Tables against those that BGP comes to with these links and switches down."""
        tables = ecmp.tables(topology, expected_fibs(topology, **down), options.ecmp_seed)
        found = {
            switch: usid.differences((*rules, keepalive.RULE), fabric.ask_switch(switch, "dump-flows")) for switch, rules in tables.items()
        }
        return [f"{switch}: {line}" for switch, lines in found.items() for line in lines]

    def comes_to(**down: list[str]) -> list[str]:
        """What still differs after at most 20 s."""
        deadline = time.monotonic() + 20
        while (found := differences(**down)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def first_fib_after(moment: float) -> float:
        return min((event["t"] for event in fabric.routing_events() if event["event"] == "fib" and event["t"] > moment), default=0.0)

    story: dict[str, Any] = {}
    with fabric.deployed():
        story["settled"], story["unsettled"] = differences(), fabric.unsettled()
        story["openflow"] = fabric.manifest()["controller"]["openflow"]["name"]
        story["no events yet"] = fabric.routing_events()

        _, cut = fabric.set_carrier(near, False)
        story["carrier"] = comes_to(down_links=[near])
        story["carrier soon"] = first_fib_after(cut) - cut
        ping = fabric.net["h1"].popen(["ping", "-i", "0.002", "-c", "500", "-q", peer], text=True)
        time.sleep(0.3)
        fabric.set_carrier(near, True)
        story["mended"], story["ping over the mending"] = comes_to(), ping.communicate()[0]

        began = time.monotonic()
        fabric.set_silent(far, True)
        story["silent"] = comes_to(down_links=[far])
        story["silent seen after"] = first_fib_after(began) - began
        fabric.set_silent(far, False)
        story["silent mended"] = comes_to()

        began = time.monotonic()
        fabric.set_remote(near, "t1_1_1", True)
        story["remote"] = comes_to(down_links=[near])
        story["remote reasons"] = {
            event["node"]: event["reason"] for event in fabric.routing_events() if event["event"] == "session" and event["t"] > began
        }
        fabric.set_remote(near, "t1_1_1", False)
        story["remote mended"] = comes_to()

        began = time.monotonic()
        fabric.set_hang("t0_1_2", True)
        story["ping of a hang"] = fabric.net["h1"].cmd(f"ping -c 1 -W 1 {peer}")
        time.sleep(options.hold_s + options.keepalive_s)
        story["hang"] = [differences(), [event for event in fabric.routing_events() if event["t"] > began]]
        fabric.set_hang("t0_1_2", False)

        fabric.stop_switch(spine, orderly=True)
        story["rebooting"] = comes_to(down_switches=[spine])
        fabric.boot_switch(spine)
        story["booted"] = comes_to()
        fabric.stop_switch("t0_1_1", orderly=False)
        fabric.boot_switch("t0_1_1")
        story["killed and booted"] = comes_to()

        fabric.set_controller(False)
        fabric.set_controller(False)
        fabric.set_carrier(near, False)
        time.sleep(1.0)
        story["without a controller"] = differences()
        fabric.set_controller(True)
        story["still without"] = differences()
        back, _ = fabric.set_controller(True)
        story["controller back"] = comes_to(down_links=[near])
        story["written by the new one"] = [event for event in fabric.routing_events() if event["event"] == "fib" and event["t"] > back]
        fabric.set_carrier(near, True)
        story["all mended"] = comes_to()

        fabric.verify_ports()
        os.kill(fabric._switching._controller._process.pid, signal.SIGKILL)
        fabric._switching._controller._process.wait()
        try:
            fabric.verify_ports()
        except HostError as error:
            story["death"] = str(error)
        story["events"] = sorted({f"{event['source']} {event['event']}" for event in fabric.routing_events()})
    return story


def tell_of(library: str) -> dict[str, Any]:
    """The same by another OpenFlow library: settled, rerouted, settled again."""
    import os
    import time
    from pathlib import Path

    os.environ["TESTBED_OPENFLOW"] = library

    from testbed.fabric import Fabric, LinkSettings
    from topologies import build

    topology = build("multi-plane", planes=1, t0s=2, t1s=2, hosts_per_t0=1)
    with Fabric(topology, LinkSettings(rate_bps=50_000_000), "ovs-bgp", Path("/run/testbed/x")).deployed() as fabric:
        story: dict[str, Any] = {"openflow": fabric.manifest()["controller"]["openflow"], "settled": fabric.unsettled()}
        fabric.set_carrier("t0_1_1-t1_1_1", False)
        while not (during := fabric.unsettled()):
            time.sleep(0.02)
        fabric.set_carrier("t0_1_1-t1_1_1", True)
        while fabric.unsettled():
            time.sleep(0.05)
        return {**story, "during": during}


@pytest.mark.skipif(importlib.util.find_spec("os_ken") is None, reason="os-ken is not installed; docs/install.md says how")
def test_os_ken_does_in_the_place_of_ryu() -> None:
    story = ask(tell_of, "os-ken")
    assert [story["openflow"]["name"], story["openflow"]["asked"], story["settled"]] == ["os-ken", "os-ken", []]
    assert any(line.startswith("t0_1_1: missing") for line in story["during"])


@pytest.fixture(scope="module")
def story() -> dict[str, Any]:
    answer: dict[str, Any] = ask(tell, str(HOLD_S), str(KEEPALIVE_S), timeout_s=240)
    return answer


def test_tables_are_exactly_the_settled_ones_as_soon_as_it_is_deployed(story: dict[str, Any]) -> None:
    assert [story["settled"], story["unsettled"], story["no events yet"]] == [[], [], []]
    assert story["openflow"] == "ryu"


@pytest.mark.parametrize("state", STATES)
def test_the_fabric_comes_to_the_tables_that_the_topology_demands(story: dict[str, Any], state: str) -> None:
    assert story[state] == []


def test_a_lost_carrier_is_seen_long_before_the_hold_time(story: dict[str, Any]) -> None:
    assert 0 < story["carrier soon"] < HOLD_S - KEEPALIVE_S


def test_a_silent_loss_is_seen_by_the_hold_time_only(story: dict[str, Any]) -> None:
    assert story["silent seen after"] >= HOLD_S - KEEPALIVE_S


def test_of_a_remote_loss_one_end_sees_the_carrier_and_the_other_one_its_hold_timer(story: dict[str, Any]) -> None:
    assert story["remote reasons"] == {"t1_1_1": "carrier", "t0_1_1": "hold"}


def test_a_route_that_gets_a_next_hop_more_loses_no_packet(story: dict[str, Any]) -> None:
    assert "500 packets transmitted, 500 received" in story["ping over the mending"]


def test_a_switch_that_hangs_keeps_its_sessions(story: dict[str, Any]) -> None:
    assert " 0 received" in story["ping of a hang"]
    assert story["hang"] == [[], []]


def test_without_a_controller_tables_stay_and_nobody_repairs(story: dict[str, Any]) -> None:
    assert story["without a controller"] == []
    assert story["still without"] == []


def test_a_controller_that_comes_back_changes_only_what_is_wrong(story: dict[str, Any]) -> None:
    """The cut link leads t0_1_1 to h2 by one way less, and t1_1_1 has no way to h1 any more: nothing else is written."""
    assert {(event["node"], event["prefix"]) for event in story["written by the new one"]} <= {
        ("t0_1_1", "fd00:0:0:8002::1/128"),
        ("t1_1_1", "fd00:0:0:8001::1/128"),
        ("t0_1_2", "fd00:0:0:8001::1/128"),
    }


def test_a_controller_that_dies_by_itself_is_an_error_that_names_its_log(story: dict[str, Any]) -> None:
    assert "the controller ended by itself (status -9)" in story["death"]
    assert "/run/testbed/x/controller/controller.log" in story["death"]


def test_history_has_messages_sessions_and_confirmed_changes(story: dict[str, Any]) -> None:
    assert story["events"] == ["routing bgp_message", "routing fib", "routing session"]
