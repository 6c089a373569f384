"""What a dead NIC port costs: ports of the sender and of the receiver are cut in turn under a stream over several planes, and come back.

    sudo python benchmarks/nic_port.py [--cuts 10] [--planes 4] [--rate-mbps 10]

Prints JSON. Goodput is what the receiver's links carried (link counters, every millisecond), as a share of the second before the cut:
`first_rtts` in the first 10 RTTs, `within_rtts` from when on ten RTTs in a row had 70 % of it, `rest` in all the cut, `after` in the
second after every EV was GOOD again, and `back_s`: how long that took. RTT is the median of the idle fabric; a loaded one is longer.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fabric_lab import Streams, fabric_over, in_sandbox
from link_watch import LinkWatch, spread

import topologies

SETTLE_S, CUT_S, BACK_S = 3.0, 1.5, 3.0
BEFORE_S = 1.0
RTTS = 10
ENOUGH = 0.7
SENDER, RECEIVER = "h1", "h2"


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Cuts and heals, then reads counters and history."""
    rate_bps = arguments.rate_mbps * 1_000_000
    params = json.loads(arguments.params)
    topology = topologies.build("multi-plane", planes=arguments.planes, t0s=2, t1s=2, hosts_per_t0=1)
    with (
        fabric_over(topology, rate_bps) as fabric,
        tempfile.TemporaryDirectory() as folder,
        Streams(fabric, [(SENDER, RECEIVER)], Path(folder), params) as streams,
    ):
        watch = LinkWatch(fabric, RECEIVER)
        watch.until(streams.start() + SETTLE_S)
        cuts = [cut(fabric, watch, number, arguments.planes) for number in range(arguments.cuts)]
        reports, events = streams.stop(), streams.events()
    rtt_s = reports[SENDER]["idle_rtt_s"][RECEIVER]
    rows = list(judged(watch, cuts, events, rtt_s))
    errors = [event for event in events if event["event"] == "qp_error"]
    found = {end: spread([row for cut_at, row in rows if cut_at == host]) for end, host in (("sender", SENDER), ("receiver", RECEIVER))}
    ideal = 1 - 1 / arguments.planes
    return {"cuts": len(cuts), "rate_mbps": arguments.rate_mbps, "idle_rtt_ms": round(rtt_s * 1e3, 2), "ideal_share": ideal,
            "qp_errors": len(errors), "endpoint": {host: report["endpoint"] for host, report in reports.items()}, **found}  # fmt: skip


def cut(fabric: Any, watch: LinkWatch, number: int, planes: int) -> dict[str, Any]:
    """One port down and up again, the ends and planes in turn."""
    host, port = (SENDER, RECEIVER)[number % 2], number // 2 % planes
    issued, _effective = fabric.set_port(f"{host}-eth{port}", False)
    watch.until(issued + CUT_S)
    mended, _effective = fabric.set_port(f"{host}-eth{port}", True)
    watch.until(mended + BACK_S)
    return {"host": host, "plane": port + 1, "began": issued, "mended": mended}


def judged(
    watch: LinkWatch, cuts: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]], rtt_s: float
) -> Iterator[tuple[str, dict[str, float]]]:
    """(host whose port it was, figures) of each cut."""
    for each in cuts:
        began, mended, plane = each["began"], each["mended"], each["plane"]
        before, window_s = watch.rate(began - BEFORE_S, began), RTTS * rtt_s
        first = watch.rate(began, began + window_s, plane) / before
        starts = np.arange(began, mended - window_s, rtt_s / 4)
        enough = (start for start in starts if watch.rate(start, start + window_s, plane) >= ENOUGH * before)
        back = [
            event["t"] for event in events
            if event["event"] == "ev_state" and event["reason"] == "port_up" and mended <= event["t"] < mended + BACK_S
        ]  # fmt: skip
        whole = max(back, default=mended + BACK_S)
        yield each["host"], {
            "first_rtts": first, "within_rtts": (next(enough, mended) - began) / rtt_s,
            "rest": watch.rate(began, mended, plane) / before, "back_s": whole - mended,
            "after": watch.rate(whole, min(whole + 1.0, mended + BACK_S)) / before if back else 0.0,
        }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=10)
    parser.add_argument("--planes", type=int, default=4)
    parser.add_argument("--rate-mbps", type=int, default=10)
    parser.add_argument("--params", default="{}", help="MRC parameters that differ from their defaults, as JSON")
    raise SystemExit(in_sandbox(main, parser))
