"""Streams between pairs of hosts over a whole MRC fabric: what the fabric benchmarks share. Runs inside a sandbox of its own."""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import topologies  # noqa: E402 - found through the line above
from testbed import sandbox  # noqa: E402
from testbed.fabric import Fabric  # noqa: E402
from testbed.run.agents import AgentPool  # noqa: E402
from testbed.run.plan import implied_parameters, peer  # noqa: E402
from testbed.scenario.derived_links import link_settings  # noqa: E402
from testbed.scenario.schema import Links  # noqa: E402
from topologies import Topology, addresses  # noqa: E402

ANSWER_S = 60.0
START_MARGIN_S = 0.5
Pair = tuple[str, str]


def in_sandbox(main: Callable[[argparse.Namespace], Any], parser: argparse.ArgumentParser) -> int:
    """Runs `main` inside a new sandbox and prints what it returns as JSON; the same command line is used again inside."""
    arguments = parser.parse_args()
    if not sandbox.inside():
        return sandbox.run_inside([sys.executable, *sys.argv])
    sandbox.prepare(keep=[ROOT])
    json.dump(main(arguments), sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


def fabric_of(k: int, rate_bps: int) -> AbstractContextManager[Fabric]:
    """A verified fat-tree of Open vSwitch instances."""
    return fabric_over(topologies.build("fat-tree", k=k), rate_bps)


def fabric_over(topology: Topology, rate_bps: int) -> AbstractContextManager[Fabric]:
    """Any topology, likewise. Its links mark and trim as those of a run's MRC arm do by default."""
    settings = link_settings(Links.model_validate({"rate": f"{rate_bps} bps"}), "mrc", seed=1)
    return Fabric(topology, settings, switching="ovs", run_dir=Path("/run/testbed/bench")).deployed()


@dataclass
class Streams:
    """Agents that stream from the first to the second host of each pair."""

    fabric: Fabric
    pairs: Sequence[Pair]
    folder: Path
    params: Mapping[str, Any]
    message_bytes: int = 64 * 1024
    outstanding: int = 4
    every_s: float = 0.0  # between two messages of a stream; 0 = as fast as it goes

    def __enter__(self) -> Streams:
        """Starts and connects the agents."""
        self._source_of = {target: source for source, target in self.pairs}
        self._target_of = dict(self.pairs)
        self.hosts = tuple(dict.fromkeys(host for pair in self.pairs for host in pair))
        self.pool = AgentPool(self.hosts, self.fabric.popen, self.folder)
        self.pool.start()
        for rank, host in enumerate(self.hosts):
            self.pool.send(host, self._config(host, rank))
        ready = self.pool.gather("ready", ANSWER_S)
        self.pool.send_all({"cmd": "connect", "peers": {host: answer["attributes"] for host, answer in ready.items()}})
        self.pool.gather("connected", ANSWER_S)
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the agents."""
        self.pool.close()

    def _config(self, host: str, rank: int) -> dict[str, Any]:
        topology, node = self.fabric.topology, self.fabric.topology.nodes[host]
        target, source = self._target_of.get(host), self._source_of.get(host)
        outgoing = [{"to": target, "start_s": 0.0, "every_s": self.every_s}] if target else []
        files = {"events": str(self.folder / f"{host}.events.jsonl"), "flows": str(self.folder / f"{host}.flows.csv")}
        return {
            "cmd": "config", "host": host, "rank": rank, "transport": "mrc", "seed": 1,
            "params": {**implied_parameters(self.fabric.settings, "mrc"), **self.params},
            "job": {
                "kind": "streams", "message_bytes": self.message_bytes, "outstanding": self.outstanding,
                "outgoing": outgoing, "incoming": [{"from": source}] if source else [],
            },
            "addresses": {"outer": addresses.usid_address(node), "inner": addresses.host_address(node)},
            "send_to": [peer(topology, host, target)] if target else [],
            "receive_from": [peer(topology, host, source)] if source else [],
            "files": files,
        }  # fmt: skip

    def start(self) -> float:
        """Starts the streams; returns when they begin (CLOCK_MONOTONIC)."""
        begin = time.monotonic() + START_MARGIN_S
        self.pool.send_all({"cmd": "start", "at": begin, "first_step": 0, "attempt": 1})
        return begin

    def stop(self) -> dict[str, dict[str, Any]]:
        """Stops the streams; the agents' reports."""
        self.pool.send_all({"cmd": "stop"})
        return {host: answer["report"] for host, answer in self.pool.gather("stopped", ANSWER_S).items()}

    def events(self) -> list[dict[str, Any]]:
        """All history events of all agents so far, with the host's name, in order."""
        found = [
            {"source": host, **json.loads(line)}
            for host in self.hosts
            for line in (self.folder / f"{host}.events.jsonl").read_text().splitlines()
        ]
        return sorted(found, key=lambda event: float(event["t"]))

    def flow_rows(self) -> list[dict[str, str]]:
        """The agents' samples of their QPs so far, ten a second, in order a host (docs/architecture.md, flows.csv)."""
        return [row for host in self.hosts for row in csv.DictReader((self.folder / f"{host}.flows.csv").open())]


def crossing_pairs(topology: Topology, count: int) -> list[Pair]:
    """`count` pairs of hosts in different pods: host i to host i + half."""
    hosts, half = topology.hosts, len(topology.hosts) // 2
    return [(hosts[i], hosts[(i + half) % len(hosts)]) for i in range(count)]


def run_in(fabric: Fabric, node: str, argv: Sequence[str]) -> subprocess.Popen[bytes]:
    """Starts a program in a node, its output piped."""
    return fabric.popen(node, argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
