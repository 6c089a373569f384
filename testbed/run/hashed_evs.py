"""The EVs of MRC where routers hash them (`mrc-bgp`): how many, which numbers, out of which NIC port. Pure."""

from __future__ import annotations

from random import Random
from typing import Any

from hosts.mrc.params import MOST_EVS
from hosts.wire import DYNAMIC_PORTS
from topologies import Topology, addresses

EVS_A_PATH = 4
"""EVs for each shortest path of the pair, where `transport.mrc.evs` is 0 (ours; MRC has 128 to 256 a QP at any size of fabric). Of n
paths a hash leaves a given one out with (1 - 1/n)^4n, about 2 %; more EVs cost more: each loses a packet of its own to be called bad."""


def paths(topology: Topology, source: str, target: str, evs: int, qps: int, seed: int) -> list[dict[str, Any]]:
    """The `paths` of the agent protocol, one an EV of the pair's first QP: to the peer's address, over links that nobody knows.

    `evs` is MRC's parameter, rounded up to the same number on every plane. Packets stay in the plane of the port that they left by.
    """
    ports = sorted({(path.plane, path.port, path.far_port) for path in topology.paths(source, target)})
    count = _count(evs or EVS_A_PATH * len(topology.paths(source, target)), len(ports))
    first, address = _first(source, target, count, count * qps, seed), str(addresses.host_address(topology.nodes[target]))
    return [
        {"ev": first + at, "port": port, "destination": address, "plane": plane, "links": [], "peer_port": far_port}
        for at in range(count)
        for plane, port, far_port in (ports[at % len(ports)],)
    ]


def _count(wanted: int, planes: int) -> int:
    return min(-(-wanted // planes), MOST_EVS // planes) * planes


def _first(source: str, target: str, step: int, taken: int, seed: int) -> int:
    """The number of the pair's first EV, a multiple of `step`; `taken` numbers are used from there on.

    Drawn, so that a repeat is not as lucky as the one before: the routers' hash itself never changes. The same in both directions:
    answers go out with the EV of what they answer, so they go where the host's own data with that EV goes, and its verdicts hold for them.
    """
    low, high = -(-DYNAMIC_PORTS.start // step), (DYNAMIC_PORTS.stop - taken) // step
    return step * Random(f"evs {seed} {' '.join(sorted((source, target)))}").randint(low, high)
