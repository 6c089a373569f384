"""A million packets through a bad network, or hours through a healthy one, in virtual time: every byte is checked.

    python benchmarks/million.py [--packets 1000000] [--payload-bytes 256] [--evs 32] [--seed 1]
    python benchmarks/million.py --healthy-hours 1 [--rate-mbps 5]

Prints one JSON object. Exit code 1, with the reason on stderr, when a byte was wrong, a message was lost or doubled, the transport hung or
the QP failed.

The bad network: 1 % of the packets lost, 1 % doubled, 5 % held back behind later ones of their path, 1 % of the data trimmed and 1 %
marked, in both directions; besides, one path after another is dead for a while, both ways or one way. The payload is small, for speed:
what is tested depends on the number of packets.

The healthy network: four paths under full load (the window, not the job, limits the sender), each with a queue that marks, trims and never
drops, jitter, and bursts of foreign traffic that fill the queues. Nothing is lost in it, so that each EV that is called bad is a false
retirement.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.soak_lab import Broken, Soak
from hosts.core import Event
from hosts.mrc import MrcParams
from hosts.mrc.channel import Conditions, Queue
from hosts.wire import OUTER_BYTES

PATHS, EVS = 4, 32
LOSS, DUPLICATION, REORDER, TRIMMING, MARKING = 0.01, 0.01, 0.05, 0.01, 0.01
DEATH_S, BETWEEN_S = (0.02, 1.0), (0.2, 2.0)  # how long a path is dead, and how long none is
MOST_PACKETS = 40  # of a message
HOUR_S = 3600.0
FRAME_BYTES = 4096 + 104 + OUTER_BYTES  # a full packet of the healthy network: payload, headers, outer header
MARK_PACKETS, MARK_ALL_PACKETS, TRIM_PACKETS = 2, 8, 10  # about the links' thresholds at a small bandwidth-delay product (docs/links.md)
BURST_EVERY_S = 0.5
MOST_REMEMBERED, LONG_AGO_S = 20_000, 30.0  # losses; no verdict is about older ones


class Truth:
    """What really happened to the data packets of host a, to judge its verdicts by."""

    def __init__(self, soak: Soak) -> None:
        self.false: Counter[str] = Counter()  # verdicts against a packet that was not lost, by reason
        self._paths, self._lost = PATHS, set[tuple[int, float]]()
        soak.channel.on_loss = self._on_loss
        soak.on_event = self._on_event

    def _on_loss(self, now: float, host: str, path: int) -> None:
        if host == "a":
            self._lost.add((path, now))

    def _on_event(self, event: Event) -> None:
        fields = event.fields
        if event.event != "ev_state" or fields["to"] != "ASSUMED_BAD":
            return
        if (fields["ev"] % self._paths, fields["first_lost_tx_s"]) not in self._lost:
            self.false[fields["reason"]] += 1
        if len(self._lost) > MOST_REMEMBERED:
            self._lost = {(path, at) for path, at in self._lost if at > event.t - LONG_AGO_S}


def random_sizes(packets: int, payload_bytes: int, rng: Random) -> Iterator[int]:
    """Sizes of messages of so many packets together, at least."""
    while packets > 0:
        size_bytes = rng.choice((0, 1, payload_bytes - 1, payload_bytes, payload_bytes + 1, rng.randrange(MOST_PACKETS * payload_bytes)))
        packets -= max(1, -(-size_bytes // payload_bytes))
        yield size_bytes


def bad(packets: int, payload_bytes: int, evs: int, seed: int) -> dict[str, Any]:
    """Figures of a run through the bad network."""
    rng = Random(f"million {seed}")
    conditions = Conditions(
        jitter_s=0.0005, loss=LOSS, duplication=DUPLICATION, trimming=TRIMMING, marking=MARKING, reorder=REORDER, reorder_s=0.002
    )
    params = MrcParams(payload_bytes=payload_bytes, evs=evs, cwnd_initial_packets=0, initial_psn=(1 << 24) - packets // 2)
    sizes = random_sizes(packets, payload_bytes, rng)
    soak = Soak(conditions, params, sizes, MOST_PACKETS * payload_bytes, PATHS, seed)
    truth, deaths = Truth(soak), 0
    while not soak.done:
        start = soak.channel.now + rng.uniform(*BETWEEN_S)
        end, path, way = start + rng.uniform(*DEATH_S), rng.randrange(PATHS), rng.choice(("both", "a", "b"))
        conditions.dead = ((path, start, end),) if way == "both" else ()
        conditions.dead_one_way = ((way, path, start, end),) if way != "both" else ()
        soak.run(end)
        deaths += soak.channel.now >= end
    return figures(soak, truth) | {"path_deaths": deaths}


def healthy(hours: float, rate_bps: float, seed: int) -> dict[str, Any]:
    """Figures of full load on the healthy network."""
    rng = Random(f"healthy {seed}")
    queue = Queue(MARK_PACKETS * FRAME_BYTES, MARK_ALL_PACKETS * FRAME_BYTES, TRIM_PACKETS * FRAME_BYTES)
    conditions = Conditions(jitter_s=0.001, rate_bps=rate_bps, queue=queue)
    params = MrcParams(evs=EVS, link_rate_bps=rate_bps, trimming=True)
    endless = iter(lambda: MOST_PACKETS * params.payload_bytes, 0)
    soak = Soak(conditions, params, endless, MOST_PACKETS * params.payload_bytes, PATHS, seed)
    truth, end = Truth(soak), soak.channel.now + hours * HOUR_S
    while soak.channel.now < end and not soak.errors:
        soak.run(min(end, soak.channel.now + rng.expovariate(1 / BURST_EVERY_S)))
        burst_s = rng.uniform(0, TRIM_PACKETS) * FRAME_BYTES * 8 / rate_bps
        soak.channel.occupy("a", rng.randrange(PATHS), burst_s)
    load = soak.a.acked_bytes() * 8 / (hours * HOUR_S * rate_bps * PATHS)
    return figures(soak, truth) | {"goodput_share": round(load, 3)}


def figures(soak: Soak, truth: Truth) -> dict[str, Any]:
    """What both runs report. Raises `Broken`."""
    if soak.errors:
        raise Broken(f"the QP failed: {soak.errors[0].reason}")
    if soak.done:
        soak.check()
    sender, receiver = soak.a.report(), soak.b.report()
    return {
        "messages": soak.completed,
        "packets": receiver["data_packets_received"],
        "retransmissions": sender["data_packets_retransmitted"],
        "retirements": dict(soak.retired),
        "false_retirements": dict(truth.false),
        "restored_as_spurious": sender["spurious_verdicts"],
        "trimmed": sender["trimmed_packets"],
        "marked": sender["marked_packets"],
        "drops": {"a": sender["drops"], "b": receiver["drops"]},
        "channel": dict(soak.channel.log),
        "virtual_s": round(soak.channel.now - soak.start_s, 3),
    }


def main() -> int:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packets", type=int, default=1_000_000)
    parser.add_argument("--payload-bytes", type=int, default=256)
    parser.add_argument("--evs", type=int, default=EVS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--healthy-hours", type=float, default=0.0, help="the healthy network instead")
    parser.add_argument("--rate-mbps", type=float, default=5.0, help="of each path of the healthy network")
    arguments = parser.parse_args()
    start = time.perf_counter()
    try:
        if arguments.healthy_hours:
            asked = {"healthy_hours": arguments.healthy_hours, "rate_mbps": arguments.rate_mbps, "payload_bytes": MrcParams.payload_bytes}
            found = healthy(arguments.healthy_hours, arguments.rate_mbps * 1e6, arguments.seed)
        else:
            asked = {"payload_bytes": arguments.payload_bytes, "evs": arguments.evs}
            found = bad(arguments.packets, arguments.payload_bytes, arguments.evs, arguments.seed)
    except Broken as problem:
        print(f"million: {problem}", file=sys.stderr)
        return 1
    print(json.dumps({"seed": arguments.seed} | asked | found | {"seconds": round(time.perf_counter() - start, 1)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
