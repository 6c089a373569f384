"""How long an end point goes on sending into a path that has died: many cuts of T0-T1 and T1-T2 links under a stream of packets.

    sudo python benchmarks/detection.py [--cuts 60] [--pairs 1] [--rate-mbps 100]

Prints JSON: for each EV that a cut hit, the time from the fault's effect to the last data packet sent on the path, in ms and in base
RTTs of that pair (the RTT of the idle fabric): median, 99th percentile, maximum; the same from the first packet that was lost; and
retirements of healthy EVs. Twice: with one message of two packets under way (about three quarters of the link's rate), and with as many
packets as the window allows, where a loaded round trip is two to three idle ones, and no news can come sooner.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fabric_lab import Pair, Streams, crossing_pairs, fabric_of, in_sandbox

CUT_S = 0.6
RECOVERY_S = 1.2  # three answered probes and a margin; checked: a path that did not come back is reported
GRACE_S = 0.05
SETTLE_S = 2.0
LOADS = {"one_message": (8 * 1024, 1), "full": (64 * 1024, 4)}
"""(bytes a message, messages under way)"""


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measures under each load on the same fabric."""
    with fabric_of(4, arguments.rate_mbps * 1_000_000) as fabric:
        pairs = crossing_pairs(fabric.topology, arguments.pairs)
        loads = {name: measure(fabric, pairs, load, arguments) for name, load in LOADS.items()}
    return {"cuts": arguments.cuts, "pairs": pairs, "rate_mbps": arguments.rate_mbps, "seed": arguments.seed, **loads}


def measure(fabric: Any, pairs: Sequence[Pair], load: tuple[int, int], arguments: argparse.Namespace) -> dict[str, Any]:
    """Cuts, heals, and reads the agents' history."""
    rng = random.Random(arguments.seed)
    used = sorted({link for a, b in pairs for path in fabric.topology.paths(a, b) for link in path.links[1:-1]})
    with tempfile.TemporaryDirectory() as folder, Streams(fabric, pairs, Path(folder), json.loads(arguments.params), *load) as streams:
        begin = streams.start()
        time.sleep(SETTLE_S)
        cuts = [cut(fabric, rng.choice(used), rng.choice(("carrier", "silent"))) for _ in range(arguments.cuts)]
        seconds, reports = time.monotonic() - begin, streams.stop()
        events = [event for event in streams.events() if event["event"] == "ev_state"]
    base, idle = ({host: report[key] for host, report in reports.items() if report[key]} for key in ("base_rtt_s", "idle_rtt_s"))
    goodput_mbps = sum(reports[source]["job"]["acked_bytes"] for source, _target in pairs) * 8 / seconds / 1e6
    return {"seconds": round(seconds), "goodput_mbps": round(goodput_mbps, 1), "base_rtt_ms": in_ms(base), "idle_rtt_ms": in_ms(idle),
            **evaluate(cuts, events, idle)}  # fmt: skip


def in_ms(by_pair: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Seconds by host and peer as milliseconds."""
    return {host: {peer: round(value * 1e3, 2) for peer, value in by_peer.items()} for host, by_peer in by_pair.items()}


def cut(fabric: Any, link: str, kind: str) -> dict[str, Any]:
    """One cut and its healing."""
    act = fabric.set_carrier if kind == "carrier" else fabric.set_silent
    off, on = (False, True) if kind == "carrier" else (True, False)
    _issued, began = act(link, off)
    time.sleep(CUT_S)
    _issued, ended = act(link, on)
    time.sleep(RECOVERY_S)
    return {"link": link, "kind": kind, "began": began, "ended": ended}


def evaluate(cuts: Sequence[dict[str, Any]], events: Sequence[dict[str, Any]], idle: dict[str, Any]) -> dict[str, Any]:
    """Every retirement belongs to a cut of its path, or is false."""
    rows, false = [], 0
    for event in events:
        if event["to"] != "ASSUMED_BAD":
            continue
        hit = next((c for c in cuts if c["link"] in event["path"] and c["began"] - GRACE_S <= event["t"] <= c["ended"] + GRACE_S), None)
        if hit is None:
            false += 1
            continue
        rtt_s = idle[event["source"]][event["peer"]]
        last_s = max(0.0, event["last_tx_s"] - hit["began"])
        rows.append({"kind": hit["kind"], "rtt": last_s / rtt_s, "ms": last_s * 1e3, "reason": event["reason"],
                     "after_first_loss_ms": (event["last_tx_s"] - event["first_lost_tx_s"]) * 1e3,
                     "decided_ms": (event["t"] - max(hit["began"], event["first_lost_tx_s"])) * 1e3})  # fmt: skip
    back = sum(event["to"] == "GOOD" for event in events)
    kinds = {kind: _spread([row for row in rows if row["kind"] == kind]) for kind in ("carrier", "silent")}
    return {"retirements": len(rows), "false_retirements": false, "restored": back, "all": _spread(rows), **kinds}


def _spread(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"n": len(rows)}
    for key in ("ms", "rtt", "after_first_loss_ms", "decided_ms"):
        values = sorted(row[key] for row in rows)
        if values:
            p99 = values[min(len(values) - 1, int(0.99 * len(values)))]
            found[key] = {"median": round(statistics.median(values), 2), "p99": round(p99, 2), "max": round(values[-1], 2)}
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=60)
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--rate-mbps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--params", default="{}", help="MRC parameters that differ from their defaults, as JSON")
    raise SystemExit(in_sandbox(main, parser))
