"""Agents over the kernel's TCP in namespaces of their own: jobs, broken paths, ends, foreign connections."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.agent_lab import Lab, lab

pytestmark = pytest.mark.netns

JOB = {"vector_bytes": 256 * 1024, "compute_s": 0.002, "checkpoint_every": 5}
IMPATIENT = {"user_timeout_s": 0.3}


def ring(net: Lab, **more: object) -> list[dict]:
    return [net.config(name, "tcp", {"ranks": len(net.names), **JOB}, **more) for name in net.names]


def test_an_all_to_all_has_right_results_on_every_step():
    with lab(3) as net:
        net.connect([net.all_to_all(name, "tcp", JOB) for name in net.names])
        net.start()
        net.follow(10)
        reports = net.stop()
    assert all(report["job"]["steps"] > 10 and report["job"]["wrong_sums"] == 0 for report in reports.values())


def test_streams_drain_with_everything_acknowledged():
    with lab(2) as net:
        net.connect(net.streams("tcp", [{"from": "h1", "to": "h2"}], 1 << 20))
        net.start()
        rows: list[dict] = []
        while sum(row["tx_packets"] for row in rows) < 1000:
            net.agents["h1"].send({"cmd": "evs"})
            rows = net.agents["h1"].wait_for("evs")["evs"]
        closed = net.drain()
        reports = net.stop()
    assert closed["h1"] == {"h2": True}
    assert reports["h2"]["job"]["received_bytes"] >= reports["h1"]["job"]["acked_bytes"] > 0
    assert reports["h2"]["job"]["wrong_messages"] == 0
    assert {row["ev"] for row in rows} == {0, 1, 2, 3}


def test_a_dead_path_fails_the_job_after_the_user_timeout_and_a_new_config_goes_on(tmp_path: Path):
    files = {name: {kind: str(tmp_path / f"{name}.{kind}") for kind in ("events", "steps", "flows", "paths")} for name in ("h1", "h2")}
    with lab(2) as net:
        configs = [{**config, "files": files[config["host"]]} for config in ring(net, params=IMPATIENT)]
        net.connect(configs)
        net.start()
        net.follow(3)
        failed, message = net.restart_after_cut(configs)
        net.follow(3)
        net.drain()
        reports = net.stop()
    assert message["reason"].startswith(("ETIMEDOUT", "ENETUNREACH")), message  # the latter where the route went with the link
    events = [json.loads(line) for line in (tmp_path / f"{failed}.events").read_text().splitlines()]
    assert [event["reason"] for event in events if event["event"] == "qp_error"] == [message["reason"]]
    assert all(report["job"]["wrong_sums"] == 0 for report in reports.values())
    assert {row["ev"] for row in csv.DictReader((tmp_path / f"{failed}.paths").open())} == {"0", "1", "2", "3"}


def test_without_a_user_timeout_the_job_waits_for_the_path():
    with lab(2) as net:
        net.connect(ring(net))
        net.start()
        net.follow(3)
        net.cut("h1", 0)
        with pytest.raises(TimeoutError):
            net.first("qp_error", 1.0)
        net.cut("h1", 0, up=True)
        net.follow(20)
        reports = net.stop()
    assert all(report["job"]["wrong_sums"] == 0 for report in reports.values())


def test_connections_that_do_not_come_are_told_after_the_start(tmp_path: Path):
    with lab(2) as net:
        for config in ring(net, params={"connect_timeout_s": 0.5}):
            net.agents[config["host"]].send(config)
        ready = {name: agent.wait_for("ready")["attributes"] for name, agent in net.agents.items()}
        net.cut("h2", 0)
        net.tell({"cmd": "connect", "peers": ready})
        for agent in net.agents.values():
            agent.wait_for("connected")
        net.start()
        reasons = {name: agent.wait_for("qp_error")["reason"] for name, agent in net.agents.items()}
    assert all(reason == "not connected within 0.5 s" or "ENETUNREACH" in reason for reason in reasons.values()), reasons


def test_a_foreign_connection_is_refused_and_the_job_goes_on():
    knock = "import socket,sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); s.sendall(b'A' * 100); print(s.recv(1))"
    with lab(2) as net:
        for config in (configs := ring(net)):
            net.agents[config["host"]].send(config)
        ready = {name: agent.wait_for("ready")["attributes"] for name, agent in net.agents.items()}
        net.tell({"cmd": "connect", "peers": ready})
        for agent in net.agents.values():
            agent.wait_for("connected")
        net.start()
        enter = ["nsenter", "-t", str(net.agents["h1"].pid), "--net", "python3", "-c", knock]
        answer = subprocess.run([*enter, net.address("h2"), str(ready["h2"]["port"])], capture_output=True, text=True, check=False)
        net.follow(10)
        reports = net.stop()
    assert answer.stdout.strip() == "b''" or "ConnectionResetError" in answer.stderr
    assert reports["h2"]["drops"] == {"bad_magic": 1}
    assert len(configs) == 2
    assert all(report["job"]["wrong_sums"] == 0 for report in reports.values())


def test_a_congestion_control_that_is_not_there_ends_the_agent_with_a_reason():
    with lab(2) as net:
        net.agents["h1"].send(net.config("h1", "tcp", {"ranks": 2, **JOB}, params={"congestion_control": "nonesuch"}))
        assert "this kernel has" in net.agents["h1"].wait_for("error")["text"]
