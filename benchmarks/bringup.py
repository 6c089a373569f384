"""Bring-up of a fat-tree: our fabric (all verified) against plain Mininet with OVSSwitch and TCLink on the same graph, in turn.

    sudo python benchmarks/bringup.py [--k 4] [--rounds 3]

Prints one JSON object: seconds of every round, medians, their ratio, and where our time goes. Each measurement has a sandbox of its own.
Plain Mininet's one pair of Open vSwitch daemons starts before its clock does; our two daemons a switch, and reading everything back, are
inside ours. Mininet turns no offloads off, installs no rules and gives no priority classes, so it does less.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from testbed import sandbox  # noqa: E402 - found through the line above
from testbed.command import run  # noqa: E402

RATE_BPS = 20_000_000


def main() -> int:
    """Measures in the role that the command line gives."""
    arguments = parse()
    if arguments.inside:
        sandbox.prepare()
        measure = ours if arguments.inside == "ours" else mininet
        print(json.dumps(measure(arguments.k)))
        return 0
    sandbox.require_root()
    print(json.dumps(compare(arguments.k, arguments.rounds), indent=1))
    return 0


def parse() -> argparse.Namespace:
    """The command line; `--inside` is for the runs in the sandbox."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--inside", choices=("ours", "mininet"), help=argparse.SUPPRESS)
    return parser.parse_args()


def compare(k: int, rounds: int) -> dict[str, Any]:
    """Alternates, so that both meet the same machine."""
    results: dict[str, list[dict[str, Any]]] = {"ours": [], "mininet": []}
    for _ in range(rounds):
        for kind, found in results.items():
            found.append(in_sandbox(kind, k))
    median = {kind: statistics.median(entry["bring_up_s"] for entry in found) for kind, found in results.items()}
    return {
        "k": k,
        "ours_s": [entry["bring_up_s"] for entry in results["ours"]],
        "mininet_s": [entry["bring_up_s"] for entry in results["mininet"]],
        "median_s": median,
        "ours_to_mininet": round(median["ours"] / median["mininet"], 3),
        "ours_split_s": results["ours"][-1]["timings_s"],
        "load_average": os.getloadavg()[0],
    }


def in_sandbox(kind: str, k: int) -> dict[str, Any]:
    """One measurement; the program's own error is shown when it fails."""
    again = [sys.executable, str(Path(__file__).resolve()), "--inside", kind, "--k", str(k)]
    code = "import sys; from testbed import sandbox; sys.exit(sandbox.run_inside(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", code, *again], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def ours(k: int) -> dict[str, Any]:
    """Deploys and verifies."""
    from testbed.fabric import Fabric, LinkSettings
    from topologies import build

    fabric = Fabric(build("fat-tree", k=k), LinkSettings(rate_bps=RATE_BPS), "ovs", sandbox.runtime_dir() / "bench", {"datapath": "netdev"})
    began = time.monotonic()
    fabric.deploy()
    fabric.verify()
    answer = {"bring_up_s": round(time.monotonic() - began, 3), "timings_s": fabric.manifest()["timings_s"]}
    fabric.remove()
    return answer


def mininet(k: int) -> dict[str, Any]:
    """Builds and starts the same graph as `mn --switch ovs,datapath=user --link tc,bw=20` would."""
    from mininet.link import TCLink
    from mininet.log import setLogLevel
    from mininet.net import Mininet
    from mininet.node import OVSSwitch

    setLogLevel("critical")  # it warns of HTB's default quantum at every port
    start_open_vswitch()
    began = time.monotonic()
    net = Mininet(topo=None, controller=None, link=TCLink, build=False)
    add_graph(net, k, OVSSwitch)
    net.start()
    answer = {"bring_up_s": round(time.monotonic() - began, 3)}
    net.stop()
    return answer


def add_graph(net: Any, k: int, switch: Any) -> None:
    """The nodes and links of our fat-tree, with Mininet's own means."""
    from topologies import build

    topology = build("fat-tree", k=k)
    for name in topology.hosts:
        net.addHost(name)
    for name in topology.switches:
        net.addSwitch(name, cls=switch, dpid=f"{topology.nodes[name].usid:016x}", datapath="user", failMode="secure")
    for link in topology.links.values():
        net.addLink(link.a.node, link.b.node, port1=link.a.port, port2=link.b.port, bw=RATE_BPS // 1_000_000)


def start_open_vswitch() -> None:
    """One ovsdb-server and ovs-vswitchd with the default places, which are private here."""
    database = "/run/openvswitch/conf.db"
    run(["ovsdb-tool", "create", database, "/usr/share/openvswitch/vswitch.ovsschema"], "making a database")
    common = ["--pidfile", "--detach", "--no-chdir", "-vconsole:off", "-vsyslog:off"]
    run(["ovsdb-server", database, "--remote=punix:/run/openvswitch/db.sock", *common], "starting ovsdb-server")
    run(["ovs-vsctl", "--no-wait", "init"], "preparing the database")
    run(["ovs-vswitchd", "unix:/run/openvswitch/db.sock", *common], "starting ovs-vswitchd")


if __name__ == "__main__":
    sys.exit(main())
