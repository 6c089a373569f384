"""What a BGP fabric costs: seconds until all FIBs are exact, and memory, for fat-trees of growing k and any profile.

    sudo python benchmarks/frr_scale.py [--k 6] [--profile datacenter]

Hypothesis: k=4 is converged within 10 s of its daemons' start, and k=6 (45 routers, 108 sessions) fits into the memory of a small
machine. Prints one JSON object. The fabric is the one that runs use (links, queues, link program, routers), and all of it is verified.
What this is not: a measurement of reconvergence, which is `testbed converge`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fabric_lab import in_sandbox

from testbed.errors import UsageError
from testbed.fabric import Fabric, LinkSettings
from testbed.routing.frr import Routers
from testbed.routing.options import BgpOptions
from topologies import Topology, build

RATE_BPS = 20_000_000


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Brings a fat-tree up, verifies it, and tells what it took."""
    k, profile = arguments.k, arguments.profile
    topology = build("fat-tree", k=k)
    options = {"bgp": BgpOptions.from_mapping({"profile": profile}), "converge_timeout_s": 300.0}
    fabric = Fabric(topology, LinkSettings(rate_bps=RATE_BPS), "frr", Path("/run/testbed/scale"), options)
    began = time.monotonic()
    fabric.deploy()
    up_s = time.monotonic() - began
    try:
        fabric.verify()
        told = fabric.manifest()["routing"]
        return {
            "k": k, "profile": profile, "frr_version": told["frr_version"], "routers": len(topology.switches),
            "sessions": sum(link.tier != "NIC-T0" for link in topology.links.values()), "hosts": len(topology.hosts),
            "fabric_up_s": round(up_s, 2), "verify_s": round(time.monotonic() - began - up_s, 2),
            "start_s": told["start_s"], "converge_s": told["converge_s"],
            "rss_mb": {name: round(size / 1e6, 1) for name, size in told["rss_bytes"].items()},
            "rss_mb_total": round(sum(told["rss_bytes"].values()) / 1e6),
            "pss_mb_total": round(sum(pss_bytes(process.pid) for process in daemons(fabric.routers, topology)) / 1e6),
            "load_average": os.getloadavg()[0],
        }  # fmt: skip
    finally:
        fabric.remove()


def daemons(routers: Routers, topology: Topology) -> Iterator[subprocess.Popen[bytes]]:
    """All processes of all routers."""
    for name in topology.switches:
        for kind in ("mgmtd", "zebra", "bfdd", "bgpd"):
            with contextlib.suppress(UsageError):  # not in this FRR, or not with this profile
                if (process := routers.daemon(name, kind).process) is not None:
                    yield process


def pss_bytes(pid: int) -> int:
    """Memory of a process, pages that it shares counted by its share (proc(5), smaps_rollup)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("Pss:")).split()[1])


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--k", type=int, default=6)
    found.add_argument("--profile", default="datacenter")
    return found


if __name__ == "__main__":
    raise SystemExit(in_sandbox(main, parser()))
