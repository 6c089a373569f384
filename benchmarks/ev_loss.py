"""What a lossy path of one EV costs: a share of what it carries is lost, again and again, under a stream over all paths.

    sudo python benchmarks/ev_loss.py [--repeats 5] [--loss 0.2] [--rate-mbps 50] [--seed 1]

Prints JSON. Each repeat picks an EV and a T0-T1 or T1-T2 link of its path, and has that link lose a share of the packets of that EV, both
ways. `lost_until_last`: how many of them (data, SACKs, probes) were lost up to the last data packet that was sent on the EV, and a RTT more
to reach the link; `lost_until_bad`: up to when it was called bad. `last_ms` and `decided_ms`: the same as times from the first lost data
packet. An EV leaves use before it is called bad (docs/decisions/0012-late-is-not-lost.md). `goodput_share`: what the receiver's link
carried in the second from that packet on, of the second before the fault (link counters, every millisecond). The target: at least 0.97.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fabric_lab import Streams, crossing_pairs, fabric_of, in_sandbox
from link_watch import LinkWatch, spread

SETTLE_S, LOSS_S, BACK_S = 3.0, 1.5, 2.0
WINDOW_S = 1.0
TARGET_SHARE = 0.97
REASON = "ev_loss"


class LossWatch(LinkWatch):
    """Also packets that lossy EVs have lost on all links, over time."""

    def __init__(self, fabric: Any, receiver: str) -> None:
        super().__init__(fabric, receiver)
        self._lost: list[float] = []

    def _sample(self) -> None:
        super()._sample()
        self._lost.append(float(self._counters["ev_dropped_packets"].sum()))

    def lost(self, begin: float, end: float) -> int:
        """Packets lost between two times."""
        low, high = np.searchsorted(self._times, [begin, end])
        return round(self._lost[min(high, len(self._lost) - 1)] - self._lost[max(low - 1, 0)])


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Loses and heals, then reads counters and history."""
    rng, rate_bps = random.Random(arguments.seed), arguments.rate_mbps * 1_000_000
    params = json.loads(arguments.params)
    with fabric_of(4, rate_bps) as fabric, tempfile.TemporaryDirectory() as folder:
        ((source, target),) = crossing_pairs(fabric.topology, 1)
        paths = fabric.topology.paths(source, target)
        with Streams(fabric, [(source, target)], Path(folder), params) as streams:
            watch = LossWatch(fabric, target)
            watch.until(streams.start() + SETTLE_S)
            faults = [lose(fabric, watch, rng, paths, arguments.loss) for _ in range(arguments.repeats)]
            reports, events = streams.stop(), streams.events()
    changes = [event for event in events if event["event"] == "ev_state" and event["source"] == source]
    rtt_s = reports[source]["idle_rtt_s"][target]
    rows = [judged(watch, fault, changes, rtt_s) for fault in faults]
    out = [row for row in rows if row is not None]
    met = bool(out) and len(out) == len(rows) and spread(out)["goodput_share"]["median"] >= TARGET_SHARE
    return {"repeats": len(rows), "loss": arguments.loss, "rate_mbps": arguments.rate_mbps, "seed": arguments.seed,
            "idle_rtt_ms": round(rtt_s * 1e3, 2), "left_use": len(out), "target_met": met,
            "figures": spread(out)}  # fmt: skip


def lose(fabric: Any, watch: LossWatch, rng: random.Random, paths: Sequence[Any], share: float) -> dict[str, Any]:
    """One lossy path and its healing."""
    ev = rng.randrange(len(paths))
    link = rng.choice(paths[ev].links[1:-1])
    _issued, began = fabric.lose(link, REASON, share, None, [ev])
    watch.until(began + LOSS_S)
    _issued, ended = fabric.stop_losing(link, REASON)
    watch.until(ended + BACK_S)
    return {"ev": ev, "link": link, "began": began, "ended": ended}


def judged(watch: LossWatch, fault: Mapping[str, Any], changes: Sequence[Mapping[str, Any]], rtt_s: float) -> dict[str, float] | None:
    """The figures of one fault; None if the EV was not called bad."""
    during = [each for each in changes if each["ev"] == fault["ev"] and fault["began"] <= each["t"] <= fault["ended"]]
    bad = next((each for each in during if each["to"] == "ASSUMED_BAD" and each["first_lost_tx_s"] is not None), None)
    if bad is None:
        return None
    first_s = bad["first_lost_tx_s"]
    share = watch.rate(first_s, first_s + WINDOW_S) / watch.rate(fault["began"] - WINDOW_S, fault["began"])
    last_s, bad_s, began = bad["last_tx_s"], bad["t"], fault["began"]
    return {"goodput_share": share, "last_ms": (last_s - first_s) * 1e3, "decided_ms": (bad_s - first_s) * 1e3,
            "lost_until_last": watch.lost(began, last_s + rtt_s), "lost_until_bad": watch.lost(began, bad_s)}  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--loss", type=float, default=0.2)
    parser.add_argument("--rate-mbps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--params", default="{}", help="MRC parameters that differ from their defaults, as JSON")
    raise SystemExit(in_sandbox(main, parser))
