"""All-to-all and streams with real agent processes in namespaces of their own, joined by plain veth pairs."""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.agent_lab import Lab, lab

pytestmark = pytest.mark.netns

EXCHANGE = {"vector_bytes": 192 * 1024 + 5, "compute_s": 0.002, "checkpoint_every": 5}
FAST_RC = {"timeout_exponent": 13, "retries": 2}  # 34 ms, so the QP fails after 0.1 s
INCAST = [{"from": "h1", "to": "h2"}, {"from": "h3", "to": "h2"}]
PATIENCE_S = 20.0


def exchange(net: Lab, transport: str, **more: Any) -> list[dict[str, Any]]:
    return [net.all_to_all(name, transport, EXCHANGE, **more) for name in net.names]


def recorded(configs: list[dict[str, Any]], **paths: Path) -> list[dict[str, Any]]:
    """The same, but h1 writes these files."""
    files = {kind: str(path) for kind, path in paths.items()}
    return [{**config, "files": files} if config["host"] == "h1" else config for config in configs]


def flow_rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open())) if path.exists() else []


def until_acked(path: Path, peers: set[str], at_least: int = 1) -> None:
    """Until flows.csv tells that each of `peers` has acknowledged so many bytes."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if peers <= {row["peer"] for row in flow_rows(path) if int(row["acked_bytes"] or 0) >= at_least}:
            return
        time.sleep(0.05)
    raise AssertionError(f"{path.name} after {PATIENCE_S} s: {flow_rows(path)[-3:]}")


@pytest.mark.parametrize("transport", ["mrc", "rc"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_all_to_all_finishes_steps_with_the_right_data(transport: str, ranks: int):
    with lab(ranks) as net:
        net.connect(exchange(net, transport))
        net.start()
        net.follow(10)
        reports = net.stop()
    assert all(report["job"]["steps"] > 10 and report["job"]["wrong_sums"] == 0 for report in reports.values())
    assert all(report["base_rtt_s"].keys() == set(net.names) - {name} for name, report in reports.items())


def test_all_to_all_goes_on_from_a_checkpoint_after_a_crash():
    with lab(3) as net:
        configs = exchange(net, "rc", params=FAST_RC)
        net.connect(configs)
        net.start()
        net.follow(3)
        net.restart_after_cut(configs, first_step=5)
        net.follow(8)
        reports = net.stop()
    assert all(report["job"]["wrong_sums"] == 0 for report in reports.values())


@pytest.mark.parametrize("transport", ["mrc", "rc"])
def test_two_streams_into_one_host_are_checked_there(transport: str, tmp_path: Path):
    with lab(3) as net:
        configs = net.streams(transport, INCAST, 64 * 1024)
        net.connect(recorded(configs, flows=tmp_path / "h1.flows", steps=tmp_path / "h1.steps"))
        net.start()
        until_acked(tmp_path / "h1.flows", {"h2"}, 4 * 1024 * 1024)
        reports = net.stop()
    assert reports["h2"]["job"]["received_bytes"] >= sum(reports[name]["job"]["acked_bytes"] for name in ("h1", "h3"))
    assert all(report["job"]["wrong_messages"] == 0 for report in reports.values())
    assert len((tmp_path / "h1.steps").read_text().splitlines()) == 1


@pytest.mark.parametrize("transport", ["mrc", "rc"])
def test_two_streams_of_one_host_share_it(transport: str, tmp_path: Path):
    """Both QPs of h1 leave through one thread: neither may wait behind the other's whole window."""
    flows = [{"from": "h1", "to": "h2"}, {"from": "h1", "to": "h3"}]
    path = tmp_path / "h1.flows"
    with lab(3) as net:
        configs = net.streams(transport, flows, 64 * 1024)
        net.connect(recorded(configs, flows=path))
        net.start()
        until_acked(path, {"h2", "h3"}, 8 * 1024 * 1024)
        net.stop()
    acked = {row["peer"]: int(row["acked_bytes"]) for row in flow_rows(path)}
    assert min(acked.values()) > 0.5 * max(acked.values()), acked


def test_a_stream_stops_at_its_time_and_finishes_what_is_outstanding(tmp_path: Path):
    path = tmp_path / "h1.flows"
    with lab(3) as net:
        configs = net.streams("rc", [{"from": "h1", "to": "h2", "stop_s": 0.3}, {"from": "h1", "to": "h3", "start_s": 0.5}], 64 * 1024)
        net.connect(recorded(configs, flows=path))
        begin = net.start()
        until_acked(path, {"h2", "h3"})
        reports = net.stop()
    rows = flow_rows(path)
    ended = [int(row["acked_bytes"]) for row in rows if row["peer"] == "h2" and float(row["t_s"]) > begin + 0.5]
    early = [int(row["acked_bytes"]) for row in rows if row["peer"] == "h3" and float(row["t_s"]) < begin + 0.5]
    assert len(set(ended)) == 1
    assert set(early) <= {0}
    assert reports["h2"]["job"]["received_bytes"] == ended[-1]


def test_after_a_crash_streams_begin_again_and_times_count_from_the_first_start(tmp_path: Path):
    path = tmp_path / "h1.flows"
    with lab(3) as net:
        flows = [{"from": "h1", "to": "h2"}, {"from": "h1", "to": "h3", "stop_s": 0.01}]
        configs = recorded(net.streams("rc", flows, 65536, params=FAST_RC), flows=path)
        net.connect(configs)
        origin = net.start()
        until_acked(path, {"h2"})
        net.cut("h1", 0)
        assert net.agents["h1"].wait_for("qp_error")["peer"] == "h2"
        net.abort()
        net.cut("h1", 0, up=True)
        crashed_s = time.monotonic()
        net.connect(configs)
        net.tell({"cmd": "start", "at": time.monotonic(), "first_step": 0, "attempt": 2, "origin": origin})
        path.write_text(path.read_text().splitlines()[0] + "\n")
        until_acked(path, {"h2"})
        reports = net.stop()
    again = [row for row in flow_rows(path) if float(row["t_s"]) > crashed_s]
    assert all(int(row["acked_bytes"]) == 0 for row in again if row["peer"] == "h3")
    assert all(report["job"]["wrong_messages"] == 0 for report in reports.values())
