"""How long an end point goes on sending into a path that has died: many cuts of T0-T1 and T1-T2 links under a stream of packets.

    sudo python benchmarks/detection.py [--cuts 20] [--loads half] [--pairs 1] [--rate-mbps 100] [--healthy-s 0] [--keep FILE]

Prints JSON. For each EV that a cut hit: the time from the first packet that was lost on it to the last data packet sent on it (`last`),
and to the verdict (`decided`), in ms, in idle RTTs of that pair and in its smoothed RTTs of that moment (the last sample, at most 0.1 s
old): median, 99th percentile, maximum. Beside it `last` from the cut itself, which holds the wait for the first packet. Retirements of EVs
that no cut hit are false. The target at half load: `last` within 1.5 idle RTTs in the median and 3 in the 99th percentile.

Loads of a pair: `half` sends 8 KiB at fixed times, so that half of the links' rate is used, headers included; `one_message` keeps one
message of two packets under way; `full` sends what the window allows. `--healthy-s` adds so many seconds of full load without any fault, in
which each retirement is false. `--keep` appends the measured rows to a file (below the current folder) and counts those that are there
already: a long series can be made in parts.
"""

from __future__ import annotations

import argparse
import bisect
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fabric_lab import Pair, Streams, crossing_pairs, fabric_of, in_sandbox

from testbed.link_settings import ETHERNET_HEADER_BYTES
from testbed.scenario.fit import HEADER_BYTES

CUT_S = 0.6
RECOVERY_S = 1.2  # three answered probes and a margin; checked: a path that did not come back is reported
GRACE_S = 0.05
SETTLE_S = 2.0
PAYLOAD_BYTES = 4096
WIRE_BYTES = PAYLOAD_BYTES + HEADER_BYTES["mrc"] + ETHERNET_HEADER_BYTES
BITS_PER_BYTE = 8
LOADS = {"half": (8 * 1024, 4, 0.5), "one_message": (8 * 1024, 1, 0.0), "full": (64 * 1024, 4, 0.0)}
"""(bytes a message, messages under way at most, share of the link's rate; 0 = what goes)"""
TARGET_RTTS = {"median": 1.5, "p99": 3.0}
FIGURES = ("last_ms", "last_idle_rtt", "last_srtt", "decided_ms", "decided_idle_rtt", "decided_srtt", "last_after_cut_ms")


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measures under each load on the same fabric."""
    loads = arguments.loads.split(",") if arguments.cuts else []
    with fabric_of(4, arguments.rate_mbps * 1_000_000) as fabric:
        pairs = crossing_pairs(fabric.topology, arguments.pairs)
        found = {load: measure(fabric, pairs, load, arguments) for load in loads}
        if arguments.healthy_s:
            found["healthy"] = healthy(fabric, pairs, arguments)
    return {"cuts": arguments.cuts, "pairs": pairs, "rate_mbps": arguments.rate_mbps, "seed": arguments.seed, **found}


def streams_of(fabric: Any, pairs: Sequence[Pair], folder: str, load: str, arguments: argparse.Namespace) -> Streams:
    """The agents under that load."""
    message_bytes, outstanding, share = LOADS[load]
    every_s = message_bytes / PAYLOAD_BYTES * WIRE_BYTES * BITS_PER_BYTE / (share * arguments.rate_mbps * 1e6) if share else 0.0
    return Streams(fabric, pairs, Path(folder), json.loads(arguments.params), message_bytes, outstanding, every_s)


def offered_mbps(streams: Streams) -> float | None:
    """What the pairs are asked to carry together; None = what goes. A busy machine carries less: then it is not that load."""
    if not streams.every_s:
        return None
    return round(len(streams.pairs) * streams.message_bytes * BITS_PER_BYTE / streams.every_s / 1e6, 1)


def measure(fabric: Any, pairs: Sequence[Pair], load: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Cuts, heals, and reads the agents' history."""
    rng = random.Random(arguments.seed)
    used = sorted({link for a, b in pairs for path in fabric.topology.paths(a, b) for link in path.links[1:-1]})
    with tempfile.TemporaryDirectory() as folder, streams_of(fabric, pairs, folder, load, arguments) as streams:
        begin = streams.start()
        time.sleep(SETTLE_S)
        cuts = [cut(fabric, rng.choice(used), rng.choice(("carrier", "silent"))) for _ in range(arguments.cuts)]
        seconds, reports = time.monotonic() - begin, streams.stop()
        events, samples = [event for event in streams.events() if event["event"] == "ev_state"], smoothed(streams.flow_rows())
    idle = {host: report["idle_rtt_s"] for host, report in reports.items() if report["idle_rtt_s"]}
    hits, false = matched(cuts, events)
    rows = kept(arguments.keep, load, [row_of(event, hit, idle, samples) for event, hit in hits])
    goodput_mbps = sum(reports[source]["job"]["acked_bytes"] for source, _target in pairs) * 8 / seconds / 1e6
    back = sum(event["to"] == "GOOD" for event in events)
    kinds = {kind: spread([row for row in rows if row["kind"] == kind]) for kind in ("carrier", "silent")}
    return {"seconds": round(seconds), "offered_mbps": offered_mbps(streams), "goodput_mbps": round(goodput_mbps, 1),
            "idle_rtt_ms": in_ms(idle), "retirements": len(hits),
            "false_retirements": false, "restored": back, "target_met": target_met(rows), "all": spread(rows), **kinds}  # fmt: skip


def healthy(fabric: Any, pairs: Sequence[Pair], arguments: argparse.Namespace) -> dict[str, Any]:
    """Full load without any fault: every retirement is false."""
    with tempfile.TemporaryDirectory() as folder, streams_of(fabric, pairs, folder, "full", arguments) as streams:
        streams.start()
        time.sleep(arguments.healthy_s)
        reports = streams.stop()
        events = [event for event in streams.events() if event["event"] == "ev_state"]
    bad = [event for event in events if event["to"] == "ASSUMED_BAD"]
    goodput_mbps = sum(reports[source]["job"]["acked_bytes"] for source, _target in pairs) * 8 / arguments.healthy_s / 1e6
    late_s = max(report["lateness_max_s"] for report in reports.values())
    return {"seconds": arguments.healthy_s, "goodput_mbps": round(goodput_mbps, 1), "false_retirements": len(bad),
            "reasons": {reason: sum(event["reason"] == reason for event in bad) for reason in {event["reason"] for event in bad}},
            "taken_back": sum(event["reason"] == "spurious" for event in events), "agents_late_max_ms": round(late_s * 1e3, 1)}  # fmt: skip


def in_ms(by_pair: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
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


def smoothed(rows: Iterable[Mapping[str, str]]) -> dict[tuple[str, str], tuple[list[float], list[float]]]:
    """Times and smoothed RTTs by host and peer."""
    found: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    for row in rows:
        times, values = found.setdefault((row["host"], row["peer"]), ([], []))
        times.append(float(row["t_s"]))
        values.append(float(row["srtt_s"]))
    return found


def matched(cuts: Sequence[dict[str, Any]], events: Sequence[dict[str, Any]]) -> tuple[list[tuple[dict[str, Any], dict[str, Any]]], int]:
    """Each retirement with the cut of its path; and how many have none: they are false."""
    hits, false = [], 0
    for event in events:
        if event["to"] == "ASSUMED_BAD":
            hit = next((c for c in cuts if c["link"] in event["path"] and c["began"] - GRACE_S <= event["t"] <= c["ended"] + GRACE_S), None)
            hits += [(event, hit)] if hit is not None and event["first_lost_tx_s"] is not None else []
            false += hit is None
    return hits, false


def row_of(event: Mapping[str, Any], hit: Mapping[str, Any], idle: Mapping[str, Any], samples: Mapping[Any, Any]) -> dict[str, Any]:
    """The figures of one retirement."""
    first_s, rtt_s = event["first_lost_tx_s"], idle[event["source"]][event["peer"]]
    times, values = samples[event["source"], event["peer"]]
    srtt_s = values[max(0, bisect.bisect_right(times, first_s) - 1)]
    last_s, decided_s = event["last_tx_s"] - first_s, event["t"] - first_s
    return {"kind": hit["kind"], "reason": event["reason"],
            "last_ms": last_s * 1e3, "last_idle_rtt": last_s / rtt_s, "last_srtt": last_s / srtt_s,
            "decided_ms": decided_s * 1e3, "decided_idle_rtt": decided_s / rtt_s, "decided_srtt": decided_s / srtt_s,
            "last_after_cut_ms": max(0.0, event["last_tx_s"] - hit["began"]) * 1e3}  # fmt: skip


def kept(file: str | None, load: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """These rows and, with a file, those of earlier parts of the series; it gets the new ones."""
    if file is None:
        return rows
    with Path(file).open("a+", encoding="utf-8") as lines:
        lines.seek(0)
        before = [row for line in lines if (row := json.loads(line)).pop("load") == load]
        lines.writelines(json.dumps({"load": load, **row}) + "\n" for row in rows)
    return before + rows


def target_met(rows: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether EVs were out of use in time, in idle RTTs; None without any row."""
    found = spread(rows).get("last_idle_rtt")
    return all(found[key] <= limit for key, limit in TARGET_RTTS.items()) if found else None


def spread(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Number of rows; median, 99th percentile and maximum of each figure."""
    found: dict[str, Any] = {"n": len(rows)}
    for key in FIGURES if rows else ():
        values = sorted(row[key] for row in rows)
        p99 = values[min(len(values) - 1, int(0.99 * len(values)))]
        found[key] = {"median": round(statistics.median(values), 2), "p99": round(p99, 2), "max": round(values[-1], 2)}
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--loads", default="half", help=f"some of {', '.join(LOADS)}")
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--rate-mbps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--healthy-s", type=float, default=0.0)
    parser.add_argument("--keep", help="a file of rows, JSON lines")
    parser.add_argument("--params", default="{}", help="MRC parameters that differ from their defaults, as JSON")
    raise SystemExit(in_sandbox(main, parser))
