"""Real agents over a real fabric that trims and marks: twice the load that the links between switches carry."""

from __future__ import annotations

from typing import Any

import pytest
from netns.fabric_lab import ask

pytestmark = pytest.mark.fabric


def tell() -> dict[str, Any]:
    """Two streams, each at the rate of two NIC ports, share one uplink a plane until plenty was trimmed."""
    import tempfile
    import time
    from pathlib import Path

    from benchmarks.fabric_lab import Streams
    from testbed.fabric import Fabric, LinkSettings
    from topologies import build

    topology = build("multi-plane", planes=2, t0s=2, t1s=1, hosts_per_t0=2)
    rate_bps, wanted, patience_s = 20_000_000, 50, 60.0
    settings = LinkSettings(rate_bps, queue_bytes=1_000_000, ecn=True, trimming=True, base_rtt_s=0.004)
    fabric = Fabric(topology, settings, "ovs", Path("/run/testbed/t"))
    fabric.deploy()
    fabric.verify()
    folder = Path(tempfile.mkdtemp(dir="/run/testbed"))
    with Streams(fabric, [("h1", "h3"), ("h2", "h4")], folder, {}) as streams:
        deadline = streams.start() + patience_s
        while time.monotonic() < deadline and int(fabric.link_counters()["trimmed_packets"].sum()) < wanted:
            time.sleep(0.2)
        reports, events = streams.stop(), streams.events()
        rows = fabric.link_counters()
        counted = {name: int(rows[name].sum()) for name in rows.dtype.names if name.endswith("_packets")}
    drops = sum(fabric.qdisc_drops().values())
    fabric.remove()
    return {"reports": reports, "events": events, "counted": counted, "qdisc_drops": drops}


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    answer: dict[str, Any] = ask(tell)
    return answer


def total(said: dict[str, Any], counter: str) -> int:
    return sum(report[counter] for report in said["reports"].values())


def test_the_load_was_trimmed_and_marked(said: dict[str, Any]) -> None:
    assert said["counted"]["trimmed_packets"] >= 50
    assert said["counted"]["marked_packets"] > 0


def test_nothing_was_lost(said: dict[str, Any]) -> None:
    lost = {name: said["counted"][name] for name in ("lost_packets", "dropped_packets", "ev_dropped_packets", "queue_dropped_packets")}
    assert set(lost.values()) == {0}
    assert said["qdisc_drops"] == 0


def test_each_trimmed_packet_was_nacked_and_sent_again(said: dict[str, Any]) -> None:
    trimmed = said["counted"]["trimmed_packets"]
    assert abs(total(said, "nacks_sent") - trimmed) <= 64  # what was under way at the end
    assert abs(total(said, "trimmed_packets") - trimmed) <= 64
    assert total(said, "trimmed_packets") <= total(said, "nacks_sent") <= trimmed


def test_each_mark_was_echoed(said: dict[str, Any]) -> None:
    assert 0 < total(said, "marked_packets") <= said["counted"]["marked_packets"]


def test_no_path_was_taken_for_dead(said: dict[str, Any]) -> None:
    assert [event for event in said["events"] if event["event"] in ("ev_state", "qp_error")] == []


def test_all_data_was_right(said: dict[str, Any]) -> None:
    jobs = {host: report["job"] for host, report in said["reports"].items()}
    assert {job["wrong_messages"] for job in jobs.values()} == {0}
    assert min(jobs["h3"]["received_bytes"], jobs["h4"]["received_bytes"]) > 0


def test_what_was_trimmed_came_again_within_two_smoothed_rtts(said: dict[str, Any]) -> None:
    medians = [report["recoveries"]["trimmed"]["median_srtt"] for report in said["reports"].values() if report["recoveries"]]
    assert medians
    assert max(medians) < 2
