"""How long BGP's model takes with the preset `large-fabric`, in virtual time: the figures of docs/bgp-ovs.md. Needs no root.

    python benchmarks/large_fabric.py [--rounds 10] [--k 4,6,8]

Prints one JSON object, after some minutes: for each size and kind of fault, median and longest time in seconds from the fault to the last
change of a table anywhere. Links and moments are drawn from the round's number; a packet takes a millisecond over a link.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "unit")]

from pathvector_lab import World  # noqa: E402 - found through the line above

import topologies  # noqa: E402
from topologies import Topology  # noqa: E402

Act = Callable[[World, random.Random], None]
CALM_S = 30.0
LONGEST_S = 90.0


def link_of(topology: Topology, tier: str, rng: random.Random) -> str:
    """Any link of the tier."""
    return rng.choice([link.name for link in topology.links.values() if link.tier == tier])


def switch_of(topology: Topology, tier: int, rng: random.Random) -> str:
    """Any switch of the tier."""
    return rng.choice([name for name in topology.switches if topology.nodes[name].tier == tier])


def boot(tier: int) -> Act:
    """A switch was away long enough for all to have settled, and comes back."""

    def act(world: World, rng: random.Random) -> None:
        switch = switch_of(world.topology, tier, rng)
        world.kill(switch)
        world.run(CALM_S)
        world.boot(switch)

    return act


FAULTS: Mapping[str, Act] = {
    "T0-T1 cut": lambda world, rng: world.carrier(link_of(world.topology, "T0-T1", rng), False),
    "T1-T2 cut": lambda world, rng: world.carrier(link_of(world.topology, "T1-T2", rng), False),
    "T0-T1 silent": lambda world, rng: world.silent(link_of(world.topology, "T0-T1", rng), True),
    "T1 killed": lambda world, rng: world.kill(switch_of(world.topology, 1, rng)),
    "T0 booted": boot(0),
    "T1 booted": boot(1),
    "T2 booted": boot(2),
}


def seconds(k: int, act: Act, seed: int, preset: str = "large-fabric") -> float:
    """From the fault to the last change."""
    world, rng = World(topologies.build("fat-tree", k=k), seed, preset=preset), random.Random(f"large/{k}/{seed}")
    world.run(rng.uniform(3, 10))
    act(world, rng)
    began = world.now
    world.run(LONGEST_S)
    return max(t for t, _ in world.installs) - began


def main() -> int:
    """Prints the table."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=10)
    made.add_argument("--k", default="4,6,8")
    asked = made.parse_args()
    found = {}
    for k in map(int, asked.k.split(",")):
        for name, act in FAULTS.items():
            times = [seconds(k, act, seed) for seed in range(asked.rounds)]
            found[f"k={k} {name}"] = {"median_s": round(statistics.median(times), 1), "longest_s": round(max(times), 1)}
    json.dump(found, sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
