"""Real agent processes in namespaces of their own, joined by plain veth pairs."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_lab import sent_by, sniffer

from benchmarks.agent_lab import AgentProcess, Lab, Message, ip, lab
from hosts import wire

pytestmark = pytest.mark.netns

JOB = {"vector_bytes": 256 * 1024, "compute_s": 0.002, "checkpoint_every": 5}
FAST_RC = {"timeout_exponent": 13, "retries": 2}  # 34 ms, so the QP fails after 0.1 s


def ring(net: Lab, transport: str, **more: object) -> None:
    net.connect([net.config(name, transport, {"ranks": len(net.names), **JOB}, **more) for name in net.names])


def files(folder: Path, host: str) -> dict[str, str]:
    return {kind: str(folder / f"{host}.{kind}") for kind in ("events", "steps", "flows", "paths")}


@pytest.fixture
def agent() -> Iterator[AgentProcess]:
    it = AgentProcess("h1")
    yield it
    it.close()


@pytest.mark.parametrize("transport", ["mrc", "rc", "tcp"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_steps_finish_with_the_right_sum(transport: str, ranks: int):
    with lab(ranks) as net:
        ring(net, transport)
        net.start()
        net.follow(10)
        reports = net.stop()
    assert all(report["job"]["steps"] > 10 and report["job"]["wrong_sums"] == 0 for report in reports.values())


@pytest.mark.parametrize("transport", ["mrc", "rc", "tcp"])
def test_report_has_what_agents_json_needs(transport: str):
    with lab(2) as net:
        ring(net, transport)
        net.start()
        net.follow(3)
        report = net.stop()["h1"]
    assert report["cpu_s"] > 0
    assert report["data_packets_sent"] > 0
    assert report["base_rtt_s"]["h2"] > 0
    assert report["socket_drops"] == 0
    assert report["lateness_max_s"] >= report["lateness_p99_s"] >= 0


def test_mrc_uses_every_port():
    with lab(2, links_a_hop=3) as net:
        ring(net, "mrc")
        net.start()
        net.follow(5)
        sent = _tx_packets(net, "h1", 3)
        net.stop()
    assert min(sent) > 0.5 * max(sent), sent


def test_mrc_goes_on_when_one_of_two_ports_is_down():
    with lab(2, links_a_hop=2) as net:
        ring(net, "mrc")
        net.start()
        net.follow(5)
        net.cut("h1", 1)
        net.follow(30)
        reports = net.stop()
    assert all(report["job"]["wrong_sums"] == 0 for report in reports.values())


def test_rc_qp_fails_when_its_link_is_cut_and_a_new_config_goes_on(tmp_path: Path):
    with lab(2) as net:
        configs = [net.config(name, "rc", {"ranks": 2, **JOB}, params=FAST_RC, files=files(tmp_path, name)) for name in net.names]
        net.connect(configs)
        net.start()
        net.follow(3)
        failed, message = net.restart_after_cut(configs)
        net.follow(3)
        reports = net.stop()
    events = [json.loads(line)["event"] for line in (tmp_path / f"{failed}.events").read_text().splitlines()]
    steps = list(csv.DictReader((tmp_path / f"{failed}.steps").open()))
    assert message["reason"] == "retry counter exceeded"
    assert (events.count("rc_timeout"), events.count("qp_error")) == (3, 1)
    assert [step["attempt"] for step in steps if not step["end_s"]] == ["1", "2"]
    assert all(report["job"]["wrong_sums"] == 0 for report in reports.values())


def test_port_that_is_down_is_counted_not_raised():
    with lab(2) as net:
        net.connect(net.streams("rc", [{"from": "h1", "to": "h2"}], 64 * 1024, params=FAST_RC))
        net.start()
        time.sleep(0.3)
        net.cut("h1", 0)
        net.agents["h1"].wait_for("qp_error")
        counted = net.stop()["h1"]["sockets"]
    assert any(reason.startswith("send_E") for reason in counted), counted


def test_new_qps_have_other_numbers_and_ports():
    with lab(2) as net:
        config, agent = net.config("h1", "rc", {"ranks": 2, **JOB}), net.agents["h1"]
        seen = []
        for _ in range(2):
            agent.send(config)
            seen.append(agent.wait_for("ready")["attributes"]["send"]["h2"][0])
            agent.send({"cmd": "abort"})
            agent.wait_for("aborted")
    assert seen[0]["qpn"] != seen[1]["qpn"]
    assert seen[0]["source_port"] != seen[1]["source_port"]


@pytest.mark.parametrize(("transport", "data", "control"), [("mrc", 4, 46), ("rc", 0, 46)])
def test_data_and_control_have_their_classes(transport: str, data: int, control: int):
    with lab(2) as net, sniffer(net, "h2") as packets:
        ring(net, transport)
        net.start()
        net.follow(3)
        net.stop()
        got = sent_by(packets, own=False, most=None)
    again = {packet for packet in got if transport == "mrc" and is_again(packet)}
    assert {_dscp(packet) for packet in got if packet not in again} == {data, control}
    assert {_dscp(packet) for packet in again} <= {wire.DSCP_TRIMMABLE_RETX}


def test_scapy_agrees_with_the_icrc_of_rc_packets_on_the_wire():
    from scapy.contrib import roce
    from scapy.layers.inet6 import IPv6

    with lab(2) as net, sniffer(net, "h2") as packets:
        ring(net, "rc")
        net.start()
        net.follow(1)
        net.stop()
        seen = sent_by(packets, own=False)[:40]
    assert len(seen) == 40
    for packet in seen:
        bth = IPv6(packet)[roce.BTH]
        assert bth.compute_icrc(bytes(bth)) == packet[-4:]


def test_sigterm_loses_no_line(tmp_path: Path):
    with lab(2) as net:
        net.connect([net.config(name, "mrc", {"ranks": 2, **JOB}, files=files(tmp_path, name)) for name in net.names])
        net.start()
        agent, told = net.agents["h1"], -1
        while told < 5:
            told = agent.wait_for("step")["step"]
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(10) == 128 + signal.SIGTERM
    steps = list(csv.DictReader((tmp_path / "h1.steps").open()))
    assert [int(step["step"]) for step in steps] == list(range(len(steps)))
    assert len(steps) > told
    assert not steps[-1]["end_s"]


def test_end_of_input_ends_the_agent_in_order(tmp_path: Path):
    with lab(2) as net:
        net.connect([net.config(name, "rc", {"ranks": 2, **JOB}, files=files(tmp_path, name)) for name in net.names])
        net.start()
        net.follow(2)
        assert net.agents["h1"].close() == 0
    assert len((tmp_path / "h1.steps").read_text().splitlines()) > 3


def test_interrupt_is_left_to_whoever_runs_the_agents(agent: AgentProcess):
    agent.send({"cmd": "abort"})
    agent.wait_for("aborted")
    agent.process.send_signal(signal.SIGINT)
    agent.send({"cmd": "stop"})
    assert "cpu_s" in agent.wait_for("stopped")["report"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"garbage\n", "not JSON"),
        (b'{"cmd":"fly"}\n', r"$.cmd is 'fly'"),
        (b'{"cmd":"start","at":1,"first_step":0,"attempt":1}\n', "without a `config`"),
        (b'{"cmd":"config"}\n', "$.transport is missing"),
    ],
)
def test_hostile_command_is_an_error_message_and_status_2(agent: AgentProcess, line: bytes, text: str):
    agent.send(line)
    assert text in agent.wait_for("error")["text"]
    assert agent.process.wait(10) == 2


@pytest.mark.parametrize(("changes", "status", "text"), [
    ({"params": {"colour": 1}}, 2, "colour"),
    ({"job": {"ranks": 2, "vector_bytes": 3, "compute_s": 0}}, 2, "vector_bytes"),
    ({"send_to": []}, 2, "a ring of 2 needs 1 peer in each"),
    ({"files": {"steps": "/nowhere/steps"}}, 3, "/nowhere/steps"),
    ({"addresses": {"inner": "fd00::99"}}, 3, "[fd00::99]:4791"),
])  # fmt: skip
def test_config_that_cannot_be_is_an_error_message(changes: dict, status: int, text: str):
    with lab(2) as net:
        agent = net.agents["h1"]
        agent.send({**net.config("h1", "rc", {"ranks": 2, **JOB}), **changes})
        assert text in agent.wait_for("error")["text"]
        assert agent.process.wait(10) == status


@pytest.mark.parametrize(
    ("transport", "params"),
    [("rc", {"window_packets": 256}), ("mrc", {"cwnd_max_packets": 256, "cwnd_initial_packets": 200, "target_delay_min_s": 1.0})],
)
def test_full_link_makes_the_agent_wait_and_drops_nothing(transport: str, params: dict):
    with lab(2) as net:
        tc(net, "h1", "qdisc add dev h1-eth0 root handle 1: htb default 20")
        tc(net, "h1", "class add dev h1-eth0 parent 1: classid 1:20 htb rate 50mbit")
        tc(net, "h1", "qdisc add dev h1-eth0 parent 1:20 handle 20: bfifo limit 275000")
        net.connect(net.streams(transport, [{"from": "h1", "to": "h2"}], 640 * 1024, 8, params=params))
        net.start()
        time.sleep(1.0)
        (queue,) = json.loads(tc(net, "h1", "-s -j qdisc show dev h1-eth0 parent 1:20"))
        report = net.stop()["h1"]
    assert sum(report["sockets"].get(reason, 0) for reason in ("send_blocked", "send_no_buffer")) > 0
    assert queue["drops"] == 0


def test_packet_larger_than_the_mtu_is_an_error_not_a_fragment():
    with lab(2) as net:
        for name in net.names:
            ip(net.agents[name].pid, f"link set {name}-eth0 mtu 1500")
        ring(net, "rc")
        net.start()
        assert "MTU" in net.agents["h1"].wait_for("error")["text"]


def test_idle_agent_sleeps():
    with lab(2) as net:
        job = {"ranks": 2, "vector_bytes": 4096, "compute_s": 60.0}
        net.connect([net.config(name, "rc", job) for name in net.names])
        net.start()
        time.sleep(0.5)
        used_s = [report["cpu_s"] for report in net.stop().values()]
    assert max(used_s) < 0.25, used_s


def _tx_packets(net: Lab, name: str, ports: int) -> list[int]:
    counters = [
        Path(f"/proc/{net.agents[name].pid}/net/dev").read_text().split(f"{name}-eth{port}:")[1].split()[9] for port in range(ports)
    ]
    return [int(counter) for counter in counters]


def tc(net: Lab, name: str, arguments: str) -> str:
    argv = ["nsenter", "-t", str(net.agents[name].pid), "--net", "tc", *arguments.split()]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def is_again(packet: bytes) -> bool:
    """Whether an MRC packet with its outer header is data that was sent before."""
    bth = wire.BTH.unpack(packet, wire.IPV6.size_bytes + wire.BTH_OFFSET)
    return wire.is_write(bth["opcode"]) and bth["rtx"] == 1


def _dscp(packet: bytes) -> int:
    return (int.from_bytes(packet[:2], "big") >> 4 & 0xFF) >> 2


def test_mrc_goes_on_as_soon_as_its_only_port_is_back():
    """The probe timeout has doubled to half a second and more by then; the first answered probe ends the wait."""
    with lab(2) as net:
        ring(net, "mrc", params={"ports_down_s": 60.0})
        net.start()
        net.follow(5)
        net.cut("h1", 0)
        time.sleep(1.6)
        net.cut("h1", 0, up=True)
        net.follow(30)
        reports = net.stop()
    assert all(report["job"]["wrong_sums"] == 0 for report in reports.values())


def deny(net: Lab, name: str, on: bool, **what: object) -> Message:
    agent = net.agents[name]
    agent.send({"cmd": "deny", "deny": on, **what})
    return agent.wait_for("denied")


def states(net: Lab, name: str) -> list[str]:
    net.agents[name].send({"cmd": "evs"})
    return [row["state"] for row in net.agents[name].wait_for("evs")["evs"]]


def test_denied_evs_carry_no_data_until_they_are_allowed(tmp_path: Path):
    with lab(2, links_a_hop=2) as net:
        net.connect([net.config(name, "mrc", {"ranks": 2, **JOB}, files=files(tmp_path, name)) for name in net.names])
        net.start()
        net.follow(3)
        assert deny(net, "h1", True, evs={"h2": [1]})["evs"] == {"h2": [1]}
        assert states(net, "h1")[1] == "DENIED"
        before = _tx_packets(net, "h1", 2)
        net.follow(20)
        after = _tx_packets(net, "h1", 2)
        deny(net, "h1", False, evs={"h2": [1]})
        net.follow(30)
        assert states(net, "h1")[1] != "DENIED"
        reports = net.stop()
    assert all(report["job"]["wrong_sums"] == 0 for report in reports.values())
    events = [json.loads(line) for line in (tmp_path / "h1.events").read_text().splitlines()]
    assert [event["reason"] for event in events if event["event"] == "ev_state" and event["ev"] == 1][:2] == ["denied", "allowed"]
    assert after[1] - before[1] < after[0] - before[0], (before, after)  # acknowledgements still go there


def test_a_config_denies_from_the_first_packet(tmp_path: Path):
    with lab(2, links_a_hop=2) as net:
        more = {"h1": {"deny": {"links": [], "evs": {"h2": [0]}}}, "h2": {}}
        net.connect([net.config(name, "mrc", {"ranks": 2, **JOB}, files=files(tmp_path, name), **more[name]) for name in net.names])
        net.start()
        net.follow(5)
        net.stop()
    rows = [row for row in csv.DictReader((tmp_path / "h1.paths").open()) if row["ev"] == "0"]
    assert rows
    assert {(row["state"], row["tx_packets"], row["probes_sent"]) for row in rows} == {("DENIED", "0", "0")}


@pytest.mark.parametrize("transport", ["mrc", "rc", "tcp"])
def test_a_slip_of_the_administrator_does_not_end_an_agent(transport: str, agent: AgentProcess):
    agent.send({"cmd": "deny", "deny": True, "evs": {"h2": [0]}})
    assert "without a `config`" in agent.wait_for("refused")["text"]
    with lab(2) as net:
        ring(net, transport)
        net.start()
        for what in ({"evs": {"h9": [0]}}, {"evs": {"h2": [99]}}, {"evs": {"h2": [0]}}, {"evs": 7}, {"links": [1]}):
            net.agents["h1"].send({"cmd": "deny", "deny": True, **what})
            assert net.agents["h1"].wait_for("refused")["text"]
        net.follow(3)
        net.stop()
