"""Planes of T0 and T1, one NIC port on each.

Also a Mininet custom file: `mn --custom topologies/multi_plane.py --topo multi-plane,2,2,2,2`.
"""

from __future__ import annotations

from typing import Any

from topologies import builder, model, parameters

KIND = "multi-plane"

PARAMETERS = (
    parameters.Parameter("planes", "separate fabrics, and ports of a NIC"),
    parameters.Parameter("t0s", "T0 switches a plane"),
    parameters.Parameter("t1s", "T1 switches a plane"),
    parameters.Parameter("hosts_per_t0", "hosts on each T0"),
)


def multi_plane(planes: int, t0s: int, t1s: int, hosts_per_t0: int) -> model.Topology:
    """In each plane every T0 is linked to every T1; host x hangs on T0 number ceil(x / hosts_per_t0) of every plane by port plane-1.

    BadTopology if it cannot be built.
    """
    _size(planes, t0s, t1s, hosts_per_t0).check(KIND)
    made = builder.Builder()
    hosts, every_plane = range(1, t0s * hosts_per_t0 + 1), range(1, planes + 1)
    _add_nodes(made, hosts, every_plane, t0s, t1s)
    for host in hosts:
        for plane in every_plane:
            made.link(f"h{host}", f"t0_{plane}_{(host - 1) // hosts_per_t0 + 1}")
    for plane in every_plane:
        for t0 in range(1, t0s + 1):
            for t1 in range(1, t1s + 1):
                made.link(f"t0_{plane}_{t0}", f"t1_{plane}_{t1}")
    return made.topology(KIND, {"planes": planes, "t0s": t0s, "t1s": t1s, "hosts_per_t0": hosts_per_t0})


def _add_nodes(made: builder.Builder, hosts: range, every_plane: range, t0s: int, t1s: int) -> None:
    for host in hosts:
        made.host(f"h{host}")
    for tier, count in ((0, t0s), (1, t1s)):
        for plane in every_plane:
            for n in range(1, count + 1):
                made.switch(f"t{tier}_{plane}_{n}", tier, plane=plane)


def _size(planes: int, t0s: int, t1s: int, hosts_per_t0: int) -> builder.Size:
    hosts = t0s * hosts_per_t0
    last_ports = (f"h{hosts}-eth{planes - 1}", f"t0_{planes}_{t0s}-eth{hosts_per_t0 + t1s}", f"t1_{planes}_{t1s}-eth{t0s}")
    return builder.Size({-1: hosts, 0: planes * t0s, 1: planes * t1s}, planes * (hosts + t0s * t1s), last_ports)


def _mininet(*args: object, **params: object) -> Any:
    """Makes the Mininet Topo. Mininet is imported only now: the data above is used without it."""
    from topologies.mininet_topo import MultiPlaneTopo

    return MultiPlaneTopo(*args, **params)


topos = {KIND: _mininet}
