"""The three-tier fat-tree of k pods. Also a Mininet custom file: `mn --custom topologies/fat_tree.py --topo fat-tree,4`."""

from __future__ import annotations

from typing import Any

from topologies import builder, model, parameters

KIND = "fat-tree"

PARAMETERS = (
    parameters.Parameter(
        "k",
        "pods, and ports of a switch",
        minimum=2,
        complaint=lambda k: None if k % 2 == 0 else f"k must be even, not {k}: half of a switch's ports go up",
    ),
    parameters.Parameter("oversubscription", "hosts of a T0 for each of its uplinks", default=1),
)


def fat_tree(k: int, oversubscription: int = 1) -> model.Topology:
    """k pods of k/2 T0 and k/2 T1, (k/2)^2 T2, and k/2 hosts a T0, times `oversubscription`.

    T1 number j of every pod is linked to the T2s (j-1)*k/2+1 to j*k/2. BadTopology if it cannot be built.
    """
    half, hosts_per_t0 = k // 2, k // 2 * oversubscription
    _size(k, hosts_per_t0).check(KIND)
    made = builder.Builder()
    pairs = [(pod, n) for pod in range(1, k + 1) for n in range(1, half + 1)]
    _add_nodes(made, pairs, half, hosts_per_t0)
    for place, (pod, n) in enumerate(pairs):
        for host in range(place * hosts_per_t0 + 1, (place + 1) * hosts_per_t0 + 1):
            made.link(f"h{host}", f"t0_{pod}_{n}")
    for pod, n in pairs:
        for j in range(1, half + 1):
            made.link(f"t0_{pod}_{n}", f"t1_{pod}_{j}")
    for pod, j in pairs:
        for t2 in range((j - 1) * half + 1, j * half + 1):
            made.link(f"t1_{pod}_{j}", f"t2_{t2}")
    return made.topology(KIND, {"k": k, "oversubscription": oversubscription})


def _add_nodes(made: builder.Builder, pairs: list[tuple[int, int]], half: int, hosts_per_t0: int) -> None:
    for place in range(len(pairs) * hosts_per_t0):
        made.host(f"h{place + 1}", pod=pairs[place // hosts_per_t0][0])
    for tier in (0, 1):
        for pod, n in pairs:
            made.switch(f"t{tier}_{pod}_{n}", tier, pod)
    for n in range(1, half * half + 1):
        made.switch(f"t2_{n}", 2)


def _size(k: int, hosts_per_t0: int) -> builder.Size:
    half = k // 2
    hosts = k * half * hosts_per_t0
    last_ports = (f"h{hosts}-eth0", f"t0_{k}_{half}-eth{hosts_per_t0 + half}", f"t1_{k}_{half}-eth{k}", f"t2_{half * half}-eth{k}")
    return builder.Size({-1: hosts, 0: k * half, 1: k * half, 2: half * half}, hosts + 2 * k * half * half, last_ports)


def _mininet(*args: object, **params: object) -> Any:
    """Makes the Mininet Topo. Mininet is imported only now: the data above is used without it."""
    from topologies.mininet_topo import FatTreeTopo

    return FatTreeTopo(*args, **params)


topos = {KIND: _mininet}
