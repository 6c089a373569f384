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
