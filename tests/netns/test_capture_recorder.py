"""Recording on a veth pair: both directions once, on a port that a kernel's switch owns too, over a cut, empty, full, and broken off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPO_ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.netns
LAB = '''
import json, os, subprocess, sys, time
from pathlib import Path
from testbed.capture.plan import CapturePlan
from testbed.capture.reading import Capture
from testbed.capture.session import Captures
from testbed.errors import HostError
from testbed.fabric.probe import data_frame, is_ours, opened
from topologies import build

NEAR, FAR = "h1-eth0", "t0_1_1-eth1"
TOPOLOGY = build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1)

class Told:
    def __init__(self): self.notes, self.warnings = [], []
    def note(self, text): self.notes.append(text)
    def warn(self, text): self.warnings.append(text)

def ip(*arguments): subprocess.run(["ip", *arguments], check=True)

def recorded(names, act, folder, **options):
    """What a capture of `names` holds after `act`: by file (direction, size) of our frames; what was told; the records."""
    captures, told = Captures(CapturePlan(names, **options), TOPOLOGY, lambda node: os.getpid(), Path(folder)), Told()
    captures.start()
    captures.zero(time.monotonic())
    act(captures)
    captures.stop()
    if (broken := captures.explain(told)) is not None:
        told.warnings.append(str(broken))
    found = {}
    for path in Path(folder).glob("*.pcapng"):
        with path.open("rb") as stream:
            records = list(Capture(stream, "").records())
        ours = [record for record in records if is_ours(record.data)]
        found[path.stem] = {
            "seen": [(record.interface, record.direction, len(record.data), record.original_bytes) for record in ours],
            "ordered": [record.time_ns for record in records] == sorted(record.time_ns for record in records),
        }
    return {"found": found, "warnings": told.warnings, "notes": told.notes, "records": captures.records()}

def send(ifname, count, payload=100):
    with opened(ifname) as raw:
        for _ in range(count):
            raw.send(data_frame(payload, 4))

def both_ways(captures):
    send(NEAR, 5)
    send(FAR, 3)

def over_a_cut(captures):
    send(FAR, 2)
    ip("link", "set", NEAR, "down")
    ip("link", "set", NEAR, "up")
    send(FAR, 4)

def killed(captures):
    subprocess.run(["kill", "-9", str(captures._running[0].process.pid)], check=True)
    captures._running[0].process.wait()
    try:
        captures.check()
    except HostError as error:
        print("CHECK", error, file=sys.stderr)

for scope in ("all", "default"):
    Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6").write_text("1")  # the kernel shall say nothing of its own
ip("link", "add", NEAR, "type", "veth", "peer", "name", FAR)
for name in (NEAR, FAR, "lo"):
    ip("link", "set", name, "up")
base = Path(sys.argv[1])
said = {
    "both": recorded(("h1-t0_1_1",), both_ways, base / "both"),
    "node": recorded(("h1", "t0_1_1"), both_ways, base / "node"),
    "cut": recorded(("h1-t0_1_1",), over_a_cut, base / "cut"),
    "empty": recorded(("h1-t0_1_1",), lambda captures: None, base / "empty"),
    "snaplen": recorded(("h1-t0_1_1",), both_ways, base / "snaplen", snaplen=64),
    "full": recorded(("h1-t0_1_1",), lambda captures: send(NEAR, 200, 1000), base / "full", limit_bytes=1 << 17),
    "killed": recorded(("h1-t0_1_1", "t0_1_1:1"), killed, base / "killed"),
}
ip("link", "add", "br0", "type", "bridge")
ip("link", "set", FAR, "master", "br0")
ip("link", "set", "br0", "up")
said["bridge"] = recorded(("t0_1_1:1",), both_ways, base / "bridge")
with opened(FAR) as raw:
    send(NEAR, 1)
    while not is_ours(raw.recv(9000)):
        pass
said["probe hears behind a bridge"] = True
print(json.dumps(said))
'''


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    argv = ["unshare", "--net", sys.executable, "-c", LAB, str(tmp_path_factory.mktemp("captures"))]
    environment = {**os.environ, "PYTHONPATH": str(REPO_ROOT)}
    done = subprocess.run(argv, cwd=REPO_ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    answer["stderr"] = done.stderr
    return answer


def ways(said: dict[str, Any], case: str, name: str) -> list[list[str]]:
    return [entry[:2] for entry in said[case]["found"][name]["seen"]]


def test_both_directions_are_seen_once(said: dict[str, Any]) -> None:
    assert ways(said, "both", "h1-t0_1_1") == [["h1-eth0", "out"]] * 5 + [["h1-eth0", "in"]] * 3
    assert said["both"]["records"][0]["dropped"] == 0


def test_a_node_is_heard_at_its_own_ports_only(said: dict[str, Any]) -> None:
    """Both nodes of this lab live in one namespace."""
    assert ways(said, "node", "h1") == [["h1-eth0", "out"]] * 5 + [["h1-eth0", "in"]] * 3
    assert ways(said, "node", "t0_1_1") == [["t0_1_1-eth1", "in"]] * 5 + [["t0_1_1-eth1", "out"]] * 3
    assert all(found["ordered"] for found in said["node"]["found"].values())


def test_a_port_of_a_switch_in_the_kernel_is_heard_in_both_directions(said: dict[str, Any]) -> None:
    assert ways(said, "bridge", "t0_1_1-eth1") == [["t0_1_1-eth1", "in"]] * 5 + [["t0_1_1-eth1", "out"]] * 3


def test_the_probes_of_the_self_test_hear_such_a_port_too(said: dict[str, Any]) -> None:
    assert said["probe hears behind a bridge"]


def test_a_capture_goes_on_after_its_port_was_down(said: dict[str, Any]) -> None:
    assert len(ways(said, "cut", "h1-t0_1_1")) == 6


def test_an_empty_capture_is_warned_of(said: dict[str, Any]) -> None:
    assert said["empty"]["warnings"] == ["capture h1-t0_1_1: it is empty: no packet passed while the job ran"]


def test_no_more_than_the_snaplen_is_kept(said: dict[str, Any]) -> None:
    assert {entry[2] for entry in said["snaplen"]["found"]["h1-t0_1_1"]["seen"]} == {64}
    assert all(entry[3] > 200 for entry in said["snaplen"]["found"]["h1-t0_1_1"]["seen"])


def test_the_limit_ends_a_file_and_is_told(said: dict[str, Any]) -> None:
    (told,) = said["full"]["records"]
    assert told["bytes"] <= 1 << 17
    assert 90 < len(said["full"]["found"]["h1-t0_1_1"]["seen"]) < 130
    assert told["limit_reached_s"] >= 0
    assert "its limit of 128 KiB was reached" in said["full"]["warnings"][0]


def test_a_capture_that_breaks_off_is_told_and_leaves_the_others_alone(said: dict[str, Any]) -> None:
    assert "CHECK the capture h1-t0_1_1 broke off: its process was killed by signal 9" in said["stderr"]
    assert said["killed"]["warnings"][-1] == "the capture h1-t0_1_1 broke off: its process was killed by signal 9"
    assert "t0_1_1-eth1" in said["killed"]["found"]
