"""What the fabric's faults cost in time, what its links carry, and how fast BGP follows: the figures of docs/fabric.md and docs/bgp.md.

    sudo python benchmarks/faults.py [--part faults,rates,bgp] [--rounds 10]

Prints one JSON object; about two minutes. `faults`: from the call to the effect that the fabric itself observed, k=4, Open vSwitch.
`rates`: what arrives behind one link under overload, as a share of the rate asked for. `bgp`: start and convergence of FRR, k=4, and from
a fault to the kernels' last FIB change at the switches it touches and anywhere, as netlink reports them. `sizes` (not among the default
parts): seconds and memory of fabrics of several sizes.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from fabric_lab import in_sandbox, run_in
from goodput import wait_for_server

import topologies
from testbed.collect.netlink import NetlinkWatch
from testbed.fabric import Fabric, LinkSettings
from topologies import Link, Topology, addresses

RATES_MBPS = (5, 20, 100, 400)
RATE_S = 2.0
DAEMONS = ("mgmtd", "zebra", "bgpd")
SIZES: Sequence[tuple[str, dict[str, int]]] = (
    ("fat-tree", {"k": 2}),
    ("fat-tree", {"k": 4}),
    ("multi-plane", {"planes": 4, "t0s": 4, "t1s": 2, "hosts_per_t0": 2}),
    ("fat-tree", {"k": 6}),
)
OVERLOAD = 1.3
SETTLE_S = 0.3
IDLE_S = 5.0
CONVERGE_S = 60.0
MOST_BGP_ROUNDS = 5
SILENT_ROUNDS = 2  # each costs BGP's hold time


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """The parts that were asked for."""
    rng = random.Random(arguments.seed)
    parts: dict[str, Callable[[], Any]] = {
        "faults": lambda: faults(arguments.rounds, rng),
        "rates": lambda: {f"{rate}_mbps": achieved_share(rate * 1_000_000) for rate in RATES_MBPS},
        "bgp": lambda: bgp(min(arguments.rounds, MOST_BGP_ROUNDS), rng),
        "sizes": sizes,
    }
    answer = {part: parts[part]() for part in arguments.part.split(",")}
    return {**answer, "rounds": arguments.rounds, "seed": arguments.seed, "load_average": os.getloadavg()[0]}


def deployed(topology: Topology, switching: str, rate_bps: int = 50_000_000) -> AbstractContextManager[Fabric]:
    """A verified fabric."""
    return Fabric(topology, LinkSettings(rate_bps), switching, Path("/run/testbed/bench")).deployed()


def faults(rounds: int, rng: random.Random) -> dict[str, Any]:
    """Each kind of fault begins and ends on a random link or switch."""
    with deployed(topologies.build("fat-tree", k=4), "ovs") as fabric:
        links, switches = list(fabric.topology.links), fabric.topology.switches
        times: dict[str, list[float]] = {}
        for _ in range(rounds):
            link, switch = rng.choice(links), rng.choice(switches)
            clock(times, "carrier cut", partial(fabric.set_carrier, link, False))
            clock(times, "carrier mended", partial(fabric.set_carrier, link, True))
            clock(times, "silent on", partial(fabric.set_silent, link, True))
            clock(times, "silent off", partial(fabric.set_silent, link, False))
            end = fabric.topology.link(link).b.node
            clock(times, "remote on", partial(fabric.set_remote, link, end, True))
            clock(times, "remote off", partial(fabric.set_remote, link, end, False))
            clock(times, "loss on", partial(fabric.lose, link, "bench", 0.05))
            clock(times, "loss off", partial(fabric.stop_losing, link, "bench"))
            clock(times, "rate down", partial(fabric.slow_link, link, "bench", 1_000_000))
            clock(times, "rate restored", partial(fabric.restore_rate, link, "bench"))
            clock(times, "port down", partial(fabric.set_port, "h1-eth0", False))
            clock(times, "port up", partial(fabric.set_port, "h1-eth0", True))
            clock(times, "hang on", partial(fabric.set_hang, switch, True))
            clock(times, "hang off", partial(fabric.set_hang, switch, False))
            clock(times, "switch killed", partial(fabric.stop_switch, switch, orderly=False))
            clock(times, "switch booted", partial(fabric.boot_switch, switch))
        fabric.verify()
    return {name: spread_ms(values) for name, values in times.items()}


def clock(times: dict[str, list[float]], name: str, act: Callable[[], tuple[float, float]]) -> None:
    """Adds the seconds from an action's issue to its effect."""
    issued, effective = act()
    times.setdefault(name, []).append(effective - issued)
    time.sleep(0.05)


def spread_ms(seconds: Sequence[float]) -> dict[str, float]:
    """Median and extremes in milliseconds."""
    return {
        name: round(value * 1e3, 3)
        for name, value in (("median", statistics.median(seconds)), ("min", min(seconds)), ("max", max(seconds)))
    }


def achieved_share(rate_bps: int) -> float:
    """Bytes of frames that arrive behind h1's link while iperf3 sends more than fits, over what the rate allows."""
    with deployed(topologies.build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1), "ovs", rate_bps) as fabric:
        link, to = fabric.topology.links_of("h1")[0], addresses.host_address(fabric.topology.nodes["h2"])
        server = run_in(fabric, "h2", ["iperf3", "-s", "-1"])
        wait_for_server(fabric, "h2")
        length = ["-t", str(RATE_S + 4 * SETTLE_S), "-l", "4096", "-b", str(int(OVERLOAD * rate_bps))]
        client = run_in(fabric, "h1", ["iperf3", "-u", "-6", "-c", to, *length])
        time.sleep(3 * SETTLE_S)
        began, before = time.monotonic(), received_bytes(fabric, link)
        time.sleep(RATE_S)
        share = (received_bytes(fabric, link) - before) * 8 / (time.monotonic() - began) / rate_bps
        for program in (client, server):
            program.kill()
            program.communicate()
    return round(share, 3)


def received_bytes(fabric: Fabric, link: Link) -> int:
    """What the upper end's interface has received."""
    lines = Path(f"/proc/{fabric.pid(link.b.node)}/net/dev").read_text().splitlines()
    return int(next(line for line in lines if line.strip().startswith(f"{link.b.ifname}:")).partition(":")[2].split()[0])


def bgp(rounds: int, rng: random.Random) -> dict[str, Any]:
    """Start, idle cost, and what the FIBs do after each kind of fault."""
    with deployed(topologies.build("fat-tree", k=4), "frr") as fabric:
        started = {**fabric.routers.manifest(), "cpu_s": daemons_cpu_s()}
        idle = daemons_cpu_s(IDLE_S)
        figures: dict[str, Any] = {name: started[name] for name in ("frr_version", "start_s", "converge_s", "rss_bytes", "cpu_s")}
        figures["idle_share_of_a_core"] = round(idle / IDLE_S, 4)
        history = History(fabric)
        for tier in ("T0-T1", "T1-T2"):
            names = [link.name for link in fabric.topology.links.values() if link.tier == tier]
            figures[f"{tier} carrier"] = history.link_faults([rng.choice(names) for _ in range(rounds)], "carrier")
        figures["T0-T1 silent"] = history.link_faults(["t0_1_1-t1_1_1", "t0_3_2-t1_3_1"][:SILENT_ROUNDS], "silent")
        figures["switch killed and booted"] = history.boots([rng.choice(fabric.topology.switches) for _ in range(rounds)])
        history.watch.stop()
        figures["missed_events"] = history.watch.overruns
    return figures


def sizes() -> dict[str, Any]:
    """Seconds to deploy and to verify, and the proportional set size of all processes of the sandbox, this one too."""
    found = {}
    for kind, params in SIZES:
        for switching in ("ovs", "frr"):
            began = time.monotonic()
            with deployed(topologies.build(kind, **params), switching) as fabric:
                verify_s = fabric.timings_s["verify_ports"] + fabric.timings_s["verify_switches"]
                seconds = {"deploy_s": round(time.monotonic() - began - verify_s, 2), "verify_s": round(verify_s, 2)}
                found[f"{kind} {params} {switching}"] = {**seconds, "memory_mb": round(memory_bytes() / 1e6)}
    return found


def memory_bytes() -> int:
    """Proportional set sizes, which count shared pages once (proc(5), smaps_rollup)."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            lines = (entry / "smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return total


def daemons_cpu_s(during_s: float = 0.0) -> float:
    """CPU seconds of all daemons of FRR so far, or during that many seconds from now on."""
    before = _cpu_s() if during_s else 0.0
    time.sleep(during_s)
    return round(_cpu_s() - before, 3)


def _cpu_s() -> float:
    """The sandbox has a process namespace of its own: only our daemons are in it."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
            total += sum(map(int, rest.split()[11:13])) if name in DAEMONS else 0
    return total / os.sysconf("SC_CLK_TCK")


class History:
    """FIB changes of all switches, and what a fault does to them."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.events: list[dict[str, Any]] = []
        self.watch = NetlinkWatch({node: fabric.pid(node) for node in fabric.topology.switches}, self.events.append)
        self.watch.start()

    def link_faults(self, links: Sequence[str], kind: str) -> dict[str, Any]:
        """Each link fails and comes back, and every FIB is exact in between and afterwards."""
        act = self.fabric.set_carrier if kind == "carrier" else self.fabric.set_silent
        fail, heal = (False, True) if kind == "carrier" else (True, False)
        rows: dict[str, list[float]] = {}
        for link in links:
            nodes = {end.node for end in (self.fabric.topology.link(link).a, self.fabric.topology.link(link).b)}
            self._settle(rows, "failed", partial(act, link, fail), nodes, [link])
            self._settle(rows, "healed", partial(act, link, heal), nodes, [])
        return {name: spread_ms(values) for name, values in rows.items()}

    def boots(self, switches: Sequence[str]) -> dict[str, Any]:
        """Each switch is killed and boots; every FIB is exact in between and afterwards."""
        rows: dict[str, list[float]] = {}
        for switch in switches:
            neighbours = {link.other(switch).node for link in self.fabric.topology.links_of(switch)}
            self._settle(rows, "killed", partial(self.fabric.stop_switch, switch, orderly=False), neighbours, [])
            self._settle(rows, "booted", partial(self.fabric.boot_switch, switch), neighbours, [])
        return {name: spread_ms(values) for name, values in rows.items()}

    def _settle(self, rows: dict[str, list[float]], what: str, act: Callable[[], Any], nodes: set[str], down: list[str]) -> None:
        """Times from the action's issue to the last FIB change at `nodes` and anywhere, once the FIBs are as the topology demands."""
        first = len(self.events)
        issued = act()[0]
        self.fabric.routers.wait_converged(CONVERGE_S, down_links=down)
        time.sleep(SETTLE_S)
        changes = [event for event in self.events[first:] if event["event"] == "fib" and event["t"] >= issued]
        for name, found in (("at its ends", [e for e in changes if e["node"] in nodes]), ("anywhere", changes)):
            if found:
                rows.setdefault(f"{what}, last change {name}", []).append(found[-1]["t"] - issued)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--part", default="faults,rates,bgp")
    made.add_argument("--rounds", type=int, default=10)
    made.add_argument("--seed", type=int, default=1)
    return made


if __name__ == "__main__":
    raise SystemExit(in_sandbox(main, parser()))
