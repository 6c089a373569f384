"""What each agent is told, as pure data: the ring, the paths to its neighbours, the job. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hosts.mrc.params import MrcParams
from hosts.rc.params import RcParams
from testbed.scenario.derived_links import TRANSPORT_OF_ARM
from topologies import Topology, addresses, usid

SWITCHING_OF_ARM: Mapping[str, str] = {"mrc": "ovs", "mrc-no-trim": "ovs", "rc-bgp": "frr"}


@dataclass(frozen=True)
class JobPlan:
    """The job as every rank sees it."""

    vector_bytes: int
    compute_s: float
    checkpoint_every: int
    restart_s: float


def transport_parameters(arm: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every parameter of the arm's transport, defaults included: what its side of the comparison was allowed."""
    kind = MrcParams if TRANSPORT_OF_ARM[arm] == "mrc" else RcParams
    return asdict(kind.from_mapping(given))


def ring_order(hosts: Sequence[str], placement: str, hosts_a_group: int) -> tuple[str, ...]:
    """The ring's ranks. `adjacent` keeps neighbours close, as a scheduler places a job; `strided` sends every hop to another group.

    A group is what hangs under one pod (fat-tree) or one T0 (multi-plane): `hosts_a_group` hosts in a row.
    """
    if placement == "adjacent":
        return tuple(hosts)
    return tuple(sorted(hosts, key=lambda host: (hosts.index(host) % hosts_a_group, hosts.index(host) // hosts_a_group)))


def peer(topology: Topology, source: str, target: str) -> dict[str, Any]:
    """How `source` reaches `target`: an entry of the agent protocol's `send_to` and `receive_from`."""
    return {
        "name": target,
        "address": str(addresses.host_address(topology.nodes[target])),
        "paths": [
            {
                "ev": number,
                "port": path.port,
                "destination": str(usid.destination(topology, path)),
                "plane": path.plane,
                "links": list(path.links),
            }
            for number, path in enumerate(topology.paths(source, target))
        ],
    }


def agent_config(
    topology: Topology, ring: Sequence[str], rank: int, *, arm: str, params: Mapping[str, Any], job: JobPlan, seed: int, folder: Path,
    send_buffer_bytes: int,
) -> dict[str, Any]:
    """The `config` command of the agent of ring[rank]; its files go to `folder`.

    A socket that holds less than the link's own queue makes the agent wait when its link is full, as a NIC does, instead of losing packets.
    """
    host = ring[rank]
    node = topology.nodes[host]
    files = {"events": "events.jsonl", "steps": "steps.csv", "flows": "flows.csv", "paths": "paths.csv"}
    return {
        "cmd": "config",
        "host": host,
        "rank": rank,
        "transport": TRANSPORT_OF_ARM[arm],
        "params": dict(params),
        "job": {
            "ranks": len(ring),
            "vector_bytes": job.vector_bytes,
            "compute_s": job.compute_s,
            "checkpoint_every": job.checkpoint_every,
        },
        "addresses": {"outer": str(addresses.usid_address(node)), "inner": str(addresses.host_address(node))},
        "send_to": [peer(topology, host, ring[(rank + 1) % len(ring)])],
        "receive_from": [peer(topology, host, ring[(rank - 1) % len(ring)])],
        "files": {kind: str(folder / f"{host}.{suffix}") for kind, suffix in files.items()},
        "seed": seed,
        "sockets": {"send_buffer_bytes": send_buffer_bytes},
    }


def restart_step(completed: Mapping[str, int], ranks: int, first_step: int, checkpoint_every: int) -> int:
    """The step at which a crashed job goes on: the last checkpoint that every rank had reached.

    `completed` maps each host to the last step it finished in this attempt; steps count from 0, a checkpoint is written before
    each step that is a multiple of `checkpoint_every`.
    """
    done = min(completed.values()) + 1 if len(completed) == ranks else first_step
    return max(first_step, done) // checkpoint_every * checkpoint_every
