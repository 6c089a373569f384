"""How real agents end: what is outstanding is acknowledged first, but nothing dead is waited for longer than `CLOSE_S`."""

from __future__ import annotations

import csv
import json
import time
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.agent_lab import lab
from hosts.session import CLOSE_S

pytestmark = pytest.mark.netns

BOTH_WAYS = [{"from": "h1", "to": "h2"}, {"from": "h2", "to": "h1"}]
MESSAGE_BYTES = 64 * 1024
SEVERAL = {"qps": 3, "write_bytes": 20_000}


@pytest.mark.parametrize("transport", ["mrc", "rc"])
def test_agents_that_drain_together_close_every_qp_cleanly(transport: str, tmp_path: Path):
    with lab(2) as net:
        files = {"events": str(tmp_path / "events"), "flows": str(tmp_path / "flows")}
        net.connect(net.streams(transport, BOTH_WAYS, MESSAGE_BYTES, files=files))
        net.start()
        time.sleep(0.5)
        drained = net.drain()
        reports = net.stop()
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert drained == {"h1": {"h2": True}, "h2": {"h1": True}} == {host: report["closed"] for host, report in reports.items()}
    assert sorted((event["source"], event["peer"]) for event in events if event["event"] == "qp_closed") == [("h1", "h2"), ("h2", "h1")]
    assert all(report["job"]["acked_bytes"] > 0 == report["job"]["wrong_messages"] for report in reports.values())


@pytest.mark.parametrize("transport", ["mrc", "rc"])
def test_a_dead_link_holds_the_end_up_no_longer_than_its_bound(transport: str):
    with lab(2) as net:
        net.connect(net.streams(transport, BOTH_WAYS[:1], MESSAGE_BYTES))
        net.start()
        time.sleep(0.3)
        net.cut("h2", 0)
        time.sleep(0.2)
        began = time.monotonic()
        drained = net.drain()
        took_s = time.monotonic() - began
        reports = net.stop()
    assert drained == {"h1": {"h2": False}, "h2": {}}
    assert reports["h1"]["closed"] == {"h2": False}
    assert took_s < CLOSE_S + 5.0


def test_an_agent_without_a_job_has_nothing_to_drain():
    with lab(2) as net:
        assert net.drain() == {"h1": {}, "h2": {}}


def test_several_qps_of_a_pair_carry_a_job_and_are_one_row_of_flows(tmp_path: Path):
    with lab(2, links_a_hop=2) as net:
        files = {kind: str(tmp_path / kind) for kind in ("flows", "paths")}
        job = {"ranks": 2, "vector_bytes": 256 * 1024, "compute_s": 0.002, "checkpoint_every": 5}
        net.connect([net.config(name, "mrc", job, params=SEVERAL, files=files) for name in net.names])
        net.start()
        net.follow(10)
        closed = net.drain()
        reports = net.stop()
    flows = Counter((row["t_s"], row["host"], row["peer"]) for row in csv.DictReader((tmp_path / "flows").open()) if row["t_s"] != "t_s")
    paths = [row for row in csv.DictReader((tmp_path / "paths").open()) if row["t_s"] != "t_s"]
    used = {int(row["ev"]) for row in paths if row["host"] == "h1" and int(row["tx_packets"]) > 0}
    assert closed == {"h1": {"h2": True}, "h2": {"h1": True}}
    assert all(report["job"]["steps"] > 10 and report["job"]["wrong_sums"] == 0 for report in reports.values())
    assert set(flows.values()) == {1}
    assert used == set(range(6))
