"""FRR and the `frr` preset of the controller's BGP, on the same faults: how far apart are they? The figures of docs/bgp-ovs.md.

    sudo python benchmarks/rival_presets.py [--rounds 7] [--k 4]

Prints one JSON object, after about three minutes: for each kind of fault and each figure the medians of both, their difference and ratio.
Times are from the fault's system call to the last change of a table, at the ends of the link and anywhere: as netlink reports the
kernel's FIBs, and as Open vSwitch confirms what it was told. After each fault and each healing all tables are compared with what the
topology demands.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from fabric_lab import in_sandbox

import topologies
from testbed.collect.netlink import NetlinkWatch
from testbed.controller import keepalive
from testbed.errors import TestbedError
from testbed.fabric import Fabric, LinkSettings
from testbed.pathvector import BgpOvsOptions
from testbed.routing.expected import expected_fibs
from topologies import Topology, ecmp, usid

RATE_BPS = 50_000_000
CONVERGE_S = 60.0
POLL_S = 0.05
QUIET_S = 0.3  # what comes after the tables are right: a table may be written twice
RESPITE_S = 3.5  # between faults, at random up to so long: keepalives (3 s) must not be in step with faults
Event = Mapping[str, Any]
Times = dict[str, list[float]]


class Rival(Protocol):
    """A fabric whose tables change: how it tells of changes, and whether they are over."""

    fabric: Fabric

    def changes(self) -> Sequence[Event]:
        """All `fib` events so far."""
        ...

    def wrong(self, down: Sequence[str]) -> list[str]:
        """What is not as the topology demands with these links down."""
        ...


class FrrRival:
    """Kernels' FIBs, by netlink."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric, self._events = fabric, list[Event]()
        self._watch = NetlinkWatch({node: fabric.pid(node) for node in fabric.topology.switches}, self._events.append)
        self._watch.start()

    def changes(self) -> Sequence[Event]:
        """See Rival."""
        return [event for event in self._events if event["event"] == "fib"]

    def wrong(self, down: Sequence[str]) -> list[str]:
        """See Rival."""
        return [str(found) for found in self.fabric.routers.fib_differences(down_links=down)]


class OvsRival:
    """Open vSwitch's tables, by its own words; changes as it confirmed them."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric

    def changes(self) -> Sequence[Event]:
        """See Rival."""
        return [event for event in self.fabric.routing_events() if event["event"] == "fib"]

    def wrong(self, down: Sequence[str]) -> list[str]:
        """See Rival."""
        topology = self.fabric.topology
        fibs = {switch: {a: tuple(sorted(p)) for a, p in fib.items()} for switch, fib in expected_fibs(topology, down).items()}
        tables = ecmp.tables(topology, fibs, BgpOvsOptions().ecmp_seed)
        return [
            f"{switch}: {line}"
            for switch, rules in tables.items()
            for line in usid.differences((*rules, keepalive.RULE), self.fabric.ask_switch(switch, "dump-flows"))
        ]


@contextmanager
def rival(topology: Topology, switching: str) -> Iterator[Rival]:
    """A verified fabric of the one or the other kind."""
    with Fabric(topology, LinkSettings(RATE_BPS), switching, Path(f"/run/testbed/{switching}"), {"seed": 1}).deployed() as fabric:
        yield FrrRival(fabric) if switching == "frr" else OvsRival(fabric)


def settle(found: Rival, act: Callable[[], Any], link: str, down: Sequence[str], times: Times, name: str) -> None:
    """Acts, waits until all tables are as the topology demands, and notes when the last of them changed."""
    before = len(found.changes())
    issued = act()[0]
    deadline = time.monotonic() + CONVERGE_S
    while wrong := found.wrong(down):
        if time.monotonic() > deadline:
            raise TestbedError(f"{name} {link}: tables are not right after {CONVERGE_S:g} s: {'; '.join(wrong[:3])}")
        time.sleep(POLL_S)
    time.sleep(QUIET_S)
    ends = {end.node for end in (found.fabric.topology.link(link).a, found.fabric.topology.link(link).b)}
    changes = [event for event in found.changes()[before:] if event["t"] >= issued]
    for where, of in (("at its ends", [event for event in changes if event["node"] in ends]), ("anywhere", changes)):
        if of:
            times.setdefault(f"{name}, {where}", []).append(max(event["t"] for event in of) - issued)


def measure(found: Rival, tiers: Sequence[str], rounds: int, silent_rounds: int, seed: int) -> Times:
    """The same faults for the same seed: carrier cuts and healings on each tier, silent ones on the lowest."""
    rng, times, fabric = random.Random(f"faults/{seed}"), Times(), found.fabric
    for tier in tiers:
        links = [link.name for link in fabric.topology.links.values() if link.tier == tier]
        for link in [rng.choice(links) for _ in range(rounds)]:
            settle(found, lambda link=link: fabric.set_carrier(link, False), link, [link], times, f"{tier} cut")  # type: ignore[misc]
            settle(found, lambda link=link: fabric.set_carrier(link, True), link, [], times, f"{tier} mended")  # type: ignore[misc]
        for link in [rng.choice(links) for _ in range(silent_rounds if tier == tiers[0] else 0)]:
            time.sleep(rng.uniform(0, RESPITE_S))
            settle(found, lambda link=link: fabric.set_silent(link, True), link, [link], times, f"{tier} silent")  # type: ignore[misc]
            settle(found, lambda link=link: fabric.set_silent(link, False), link, [], times, f"{tier} silence ended")  # type: ignore[misc]
    return times


def compared(frr: Times, ovs: Times) -> dict[str, dict[str, float]]:
    """Medians in milliseconds, their difference and their ratio."""
    rows = {}
    for name in frr:
        one, other = statistics.median(frr[name]), statistics.median(ovs.get(name, [float("nan")]))
        rows[name] = {
            "frr_ms": round(one * 1000, 1),
            "ovs_ms": round(other * 1000, 1),
            "difference_ms": round((other - one) * 1000, 1),
            "ratio": round(other / one, 2),
            "frr_range_ms": [round(1000 * edge(frr[name]), 1) for edge in (min, max)],  # type: ignore[operator]
            "ovs_range_ms": [round(1000 * edge(ovs[name]), 1) for edge in (min, max)] if name in ovs else [],  # type: ignore[operator]
        }
    return rows


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Both, one after the other."""
    topology, times = topologies.build("fat-tree", k=arguments.k), {}
    for switching in ("frr", "ovs-bgp"):
        with rival(topology, switching) as found:
            times[switching] = measure(found, ("T0-T1", "T1-T2"), arguments.rounds, arguments.silent_rounds, arguments.seed)
    facts = {"rounds": arguments.rounds, "silent_rounds": arguments.silent_rounds, "seed": arguments.seed}
    return {"figures": compared(times["frr"], times["ovs-bgp"]), **facts, "load_average": os.getloadavg()[0]}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=7)
    made.add_argument("--silent-rounds", type=int, default=5)
    made.add_argument("--k", type=int, default=4)
    made.add_argument("--seed", type=int, default=1)
    return made


if __name__ == "__main__":
    raise SystemExit(in_sandbox(main, parser()))
