"""Real agents whose real NIC ports go down and come back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from waiting import eventually

from benchmarks.agent_lab import Lab, ip, lab

pytestmark = pytest.mark.netns

STREAM = [{"from": "h1", "to": "h2"}]


def streaming(net: Lab, folder: Path, **more: Any) -> None:
    """h1 streams to h2; both write their history."""
    configs = net.streams("mrc", STREAM, 64 * 1024, **more)
    net.connect([{**config, "files": {"events": str(folder / f"{config['host']}.events")}} for config in configs])
    net.start()


def events(folder: Path, host: str, kind: str) -> list[dict[str, Any]]:
    """A host's events of one kind, as far as they are written."""
    lines = (folder / f"{host}.events").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def told(folder: Path, host: str) -> list[tuple[int, bool]]:
    return [(event["port"], event["up"]) for event in events(folder, host, "port")]


PORT_FAULTS = {
    "set down": ("h1", "link set h1-eth1 down", "link set h1-eth1 up"),
    "no carrier": ("h2", "link set h2-eth1 down", "link set h2-eth1 up"),
    "dormant": ("h1", "link set h1-eth1 mode dormant state dormant", "link set h1-eth1 mode default state up"),
}


@pytest.mark.parametrize("fault", PORT_FAULTS)
def test_an_agent_sees_its_port_go_and_come_back(fault: str, tmp_path: Path):
    where, begin, end = PORT_FAULTS[fault]
    with lab(2, links_a_hop=2) as net:
        streaming(net, tmp_path)
        ip(net.agents[where].pid, begin)
        eventually(lambda: told(tmp_path, "h1") == [(1, False)])
        ip(net.agents[where].pid, end)
        eventually(lambda: told(tmp_path, "h1") == [(1, False), (1, True)])
        net.stop()


def test_a_port_that_is_dead_at_the_start_is_seen_at_once(tmp_path: Path):
    with lab(2, links_a_hop=2) as net:
        net.cut("h1", 1)
        streaming(net, tmp_path)
        net.stop()
    assert told(tmp_path, "h1") == told(tmp_path, "h2") == [(1, False)]


def states(folder: Path, host: str) -> list[tuple[int, str, str]]:
    """(EV, to, reason) of each change."""
    return [(event["ev"], event["to"], event["reason"]) for event in events(folder, host, "ev_state")]


def last_state(folder: Path, host: str, ev: int) -> str | None:
    """What the EV came to be, whatever other EVs did since; None without any change."""
    return next((to for number, to, _ in reversed(states(folder, host)) if number == ev), None)


@pytest.mark.parametrize(("host", "reason"), [("h1", "port_down"), ("h2", "peer_port_down")], ids=["sender's port", "receiver's port"])
def test_a_qp_lives_on_without_a_port_and_takes_it_back(host: str, reason: str, tmp_path: Path):
    with lab(2, links_a_hop=3) as net:
        streaming(net, tmp_path)
        ip(net.agents[host].pid, f"link set {host}-eth2 mode dormant state dormant")  # nothing but this host sees it
        eventually(lambda: (2, "ASSUMED_BAD", reason) in states(tmp_path, "h1"))
        ip(net.agents[host].pid, f"link set {host}-eth2 mode default state up")
        eventually(lambda: (2, "GOOD", "port_up") in states(tmp_path, "h1"))
        reports = net.stop()
    assert events(tmp_path, "h1", "qp_error") == events(tmp_path, "h2", "qp_error") == []
    assert reports[host]["endpoint"]["port_updates_answered"] > 0
    assert all(report["job"].get("wrong_messages", 0) == 0 for report in reports.values())


def test_the_last_port_takes_the_qp_with_it_at_once(tmp_path: Path):
    with lab(2) as net:
        streaming(net, tmp_path)
        net.cut("h1", 0)
        error = net.agents["h1"].wait_for("qp_error")
        net.stop()
    assert (error["peer"], error["reason"]) == ("h2", "all NIC ports are down")


def test_a_host_that_only_receives_loses_its_qps_too(tmp_path: Path):
    with lab(2, links_a_hop=2) as net:
        streaming(net, tmp_path)
        net.cut("h2", 0)
        net.cut("h2", 1)
        error = net.agents["h2"].wait_for("qp_error")
        net.stop()
    assert (error["peer"], error["reason"]) == ("h1", "all NIC ports are down")


def test_a_job_begins_without_any_port_and_goes_on_when_one_comes(tmp_path: Path):
    with lab(2, links_a_hop=2) as net:
        net.cut("h1", 0)
        net.cut("h1", 1)
        streaming(net, tmp_path)
        net.cut("h1", 1, up=True)
        eventually(lambda: (1, "GOOD", "port_up") in states(tmp_path, "h1"))
        report = net.stop()["h1"]
    assert report["job"]["acked_bytes"] > 0


def test_a_port_that_comes_and_goes_a_hundred_times_costs_no_qp(tmp_path: Path):
    with lab(2, links_a_hop=2) as net:
        streaming(net, tmp_path)
        for _ in range(100):
            ip(net.agents["h1"].pid, "link set h1-eth1 mode dormant state dormant", "link set h1-eth1 mode default state up")
        eventually(lambda: last_state(tmp_path, "h1", 1) == "GOOD")
        net.stop()
    assert events(tmp_path, "h1", "qp_error") == []
