"""`run --pcap`: what crosses a link is in the file, once a direction, every packet sound, explained as `decode` explains it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from netns.fabric_lab import children, traces
from run_lab import RAN, SMALL, assert_nothing_left, eventually, found, run, start

from hosts.decode import decode
from testbed.capture.explain import Tally, explained
from testbed.capture.reading import Capture, Record
from testbed.cli import main

pytestmark = pytest.mark.fabric
LINK, SWITCH, PORT = "h1-t0_1_1", "t0_1_1", "h2-eth0"
BOTH_ARMS = {**SMALL, "name": "recorded", "arms": ["mrc", "rc-bgp"]}
INCAST = {
    "name": "trimmed",
    "topology": {"kind": "multi-plane", "planes": 2, "t0s": 2, "t1s": 1, "hosts_per_t0": 2},
    "job": {"kind": "streams", "pattern": "incast", "to": "h4", "from": ["h1", "h2", "h3"], "at": "500ms", "for": "3s"},
    "run": {"duration": "4s", "warmup": "200ms", "settle": "500ms"},
    "arms": ["mrc"],
}


Outcome = tuple[int, dict[str, Any], Path]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run(tmp_path_factory.mktemp("recorded"), BOTH_ARMS, "--pcap", LINK, "--pcap", SWITCH, "--pcap", "h2:0")


def captures(outcome: Outcome, arm: str = "mrc") -> Path:
    return outcome[2] / arm / "1" / "captures"


def records(path: Path) -> list[Record]:
    with path.open("rb") as stream:
        capture = Capture(stream, path.name)
        found = list(capture.records())
    assert capture.damage == ""
    return found


def tally(path: Path) -> Tally:
    with path.open("rb") as stream:
        told = Tally()
        for _ in explained(Capture(stream, path.name), told):
            pass
    return told


def test_the_run_says_what_it_recorded(recorded: Outcome) -> None:
    assert recorded[0] in RAN
    manifest = json.loads((recorded[2] / "manifest.json").read_text())
    assert manifest["captures"] == {"targets": [LINK, SWITCH, "h2:0"], "limit_bytes": 20_000_000, "snaplen": 65536}
    told = json.loads((recorded[2] / "mrc" / "1" / "arm.json").read_text())["captures"]
    assert [(entry["target"], entry["dropped"], entry["limit_reached_s"]) for entry in told] == [(n, 0, None) for n in (LINK, SWITCH, PORT)]
    assert [entry["packets"] for entry in told] == [len(records(captures(recorded) / f"{name}.pcapng")) for name in (LINK, SWITCH, PORT)]
    assert "Packets were recorded meanwhile" in (recorded[2] / "report.html").read_text()


def test_data_sacks_and_probes_of_mrc_are_there_and_every_icrc_is_right(recorded: Outcome) -> None:
    told = tally(captures(recorded) / f"{LINK}.pcapng")
    assert {"data", "sack", "probe", "probe-reply"} <= set(told.kinds)
    assert (told.malformed, told.cut) == (0, 0), told.reasons


def test_data_and_acks_of_rc_and_routing_are_there_and_every_icrc_is_right(recorded: Outcome) -> None:
    told = tally(captures(recorded, "rc-bgp") / f"{SWITCH}.pcapng")
    assert {"rc-data", "rc-ack", "bgp"} <= set(told.kinds)
    assert (told.malformed, told.cut) == (0, 0), told.reasons


@pytest.mark.parametrize("arm", ["mrc", "rc-bgp"])
def test_decode_agrees_with_the_text_beside_the_capture(recorded: Outcome, arm: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (LINK, SWITCH, PORT):
        assert main(["decode", str(captures(recorded, arm) / f"{name}.pcapng")]) == 0
        assert capsys.readouterr().out == (captures(recorded, arm) / f"{name}.txt").read_text()


def test_nodes_and_ways_have_their_names(recorded: Outcome) -> None:
    line = next(line for line in (captures(recorded) / f"{LINK}.txt").read_text().splitlines() if "h1-eth0 out  h1 > h2" in line)
    assert "  6 left: t0_1_1 t1_1_1 t2_1 t1_2_1 t0_2_1 h2  EV " in line


@pytest.mark.parametrize(("arm", "kinds"), [("mrc", {"data", "sack"}), ("rc-bgp", {"rc-data", "rc-ack"})])
@pytest.mark.parametrize("name", [LINK, SWITCH])
def test_both_directions_are_seen_and_no_packet_twice(recorded: Outcome, arm: str, kinds: set[str], name: str) -> None:
    seen: Counter[tuple[str, str, bytes]] = Counter()
    ways: Counter[str] = Counter()
    for record in records(captures(recorded, arm) / f"{name}.pcapng"):
        packet = decode(record.data)
        if packet.kind in kinds and not packet.layer("BTH")["rtx"]:
            ways[record.direction] += 1
            if packet.kind in ("data", "sack"):  # each has a number or a time of its own; RC sends the same bytes again
                seen[record.interface, record.direction, record.data] += 1
    assert ways["in"] > 10
    assert ways["out"] > 10
    assert [key for key, times in seen.items() if times > 1] == []


def test_a_switch_passes_on_what_comes_in(recorded: Outcome) -> None:
    """Both ports of a T0 with one host: as much comes in as goes out, but for what is on its way at the ends."""
    ways = Counter(record.direction for record in records(captures(recorded) / f"{SWITCH}.pcapng"))
    assert abs(ways["in"] - ways["out"]) <= 0.1 * ways["in"]


def test_time_counts_from_the_start_of_the_job(recorded: Outcome) -> None:
    times = [float(line.split()[0]) for line in (captures(recorded) / f"{LINK}.txt").read_text().splitlines() if " Write " in line]
    duration_s = json.loads((recorded[2] / "mrc" / "1" / "arm.json").read_text())["duration_s"]
    assert min(times) > 0
    assert max(times) < duration_s + 1
    latest = accumulate(times, max)
    assert all(time_s > before_s - 0.1 for time_s, before_s in zip(times, latest, strict=True)), "see docs/decode.md"


@pytest.mark.skipif(shutil.which("tcpdump") is None, reason="no tcpdump on this machine")
def test_tcpdump_reads_the_capture(recorded: Outcome) -> None:
    path = captures(recorded) / f"{SWITCH}.pcapng"
    done = subprocess.run(["tcpdump", "-nn", "-r", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(records(path))


def test_a_trimming_fabric_shows_trimmed_packets_and_their_nacks(tmp_path: Path) -> None:
    outcome = run(tmp_path, INCAST, "--pcap", "h4", "--pcap-limit", "50MB")
    told = tally(captures(outcome) / "h4.pcapng")
    assert told.kinds["trimmed"] > 0
    assert told.kinds["nack"] > 0
    assert told.malformed == 0, told.reasons
    text = (captures(outcome) / "h4.txt").read_text()
    assert "TRIMMED_LASTHOP: 4096 B cut off" in text
    assert "  NACK TRIMMED" in text


def test_an_interrupt_ends_a_capture_that_is_full_like_any_other(tmp_path: Path) -> None:
    before = traces()
    long = {**SMALL, "run": {"duration": "1h", "warmup": "500ms", "settle": "500ms"}, "faults": []}
    process = start(tmp_path, long, "--json", "--pcap", LINK, "--pcap-limit", "128KiB", "--pcap-snaplen", "256", "--pcap", SWITCH)
    eventually(lambda: found(tmp_path, "*/*/mrc/1/agents/h1.steps.csv", 20), process)
    path = eventually(lambda: found(tmp_path, f"*/*/mrc/1/captures/{LINK}.pcapng"), process)
    eventually(lambda: path.stat().st_size > 100_000, process)
    keepers = children(process.pid)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(120) == 130
    told = json.loads((path.parents[1] / "arm.json").read_text())["captures"]
    assert 0 < told[0]["bytes"] <= 128 * 1024
    assert told[0]["limit_reached_s"] > 0
    assert told[0]["bytes"] == path.stat().st_size
    assert all(len(record.data) <= 256 for record in records(path))
    assert any(record.original_bytes > 4096 for record in records(path))
    assert path.with_suffix(".txt").read_text().count("\n") == told[0]["packets"]
    assert "its limit of 128 KiB was reached" in (tmp_path / "err").read_text()
    assert_nothing_left(process.pid, keepers, before, tmp_path)


def test_a_target_that_is_not_in_the_topology_ends_a_run_before_it_starts(tmp_path: Path) -> None:
    process = start(tmp_path, SMALL, "--pcap", "h1-t0_1_2")
    assert process.wait(60) == 2
    assert "h1 is linked to t0_1_1" in (tmp_path / "err").read_text() or "did you mean" in (tmp_path / "err").read_text()
    assert not (tmp_path / "results").exists()
