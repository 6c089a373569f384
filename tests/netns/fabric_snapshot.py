"""Everything that a fault might change in the kernels of a fabric, as plain data, so that before and after can be compared."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from testbed.command import in_net
from testbed.fabric import Fabric, link_parameters
from testbed.fabric.bpf import row_of

PATIENCE_S = 40.0  # a silent fault costs BGP its hold time (9 s), a reboot its retry time (10 s)
ADDRESS_KEYS = ("family", "local", "address", "prefixlen", "scope", "tentative", "dadfailed", "nodad")
QUESTIONS = ("ip -j addr", "ip -j link", "ip -j -6 route show table all", "ip -j -6 neigh show nud permanent")
KINDS_OF_TRAFFIC = (("qdisc", ""), ("class", ""), ("filter", ""), ("filter", " egress"))
BETWEEN = "-- next --"
LINK_KEYS = ("ifname", "ifindex", "flags", "mtu", "operstate", "address", "qdisc")


def snapshot(fabric: Fabric) -> dict[str, list[str]]:
    """Of each node: interfaces, addresses, routes of all tables, permanent neighbours, qdiscs, classes, filters; BPF parameters; flows."""
    rows = fabric.link_counters()
    return {
        **{
            node: _node(fabric.pid(node), [link.end(node).ifname for link in fabric.topology.links_of(node)])
            for node in fabric.topology.nodes
        },
        "parameters": [
            f"{link.name} from {end.node}: {link_parameters.read(rows[row_of(link, end is link.a)])}"
            for link in fabric.topology.links.values()
            for end in (link.a, link.b)
        ],
        "tables": [str(fabric.table_differences())],
    }


def settles_to(fabric: Fabric, wanted: dict[str, list[str]]) -> list[str]:
    """Waits until a snapshot is as `wanted`; what still differs when patience ends, empty when all is the same."""
    deadline = time.monotonic() + PATIENCE_S
    while wrong := differences(wanted, snapshot(fabric)):
        if time.monotonic() > deadline:
            return wrong
        time.sleep(0.1)
    return []


def differences(before: dict[str, list[str]], after: dict[str, list[str]]) -> list[str]:
    """One text for each thing that is only before or only after."""
    texts = []
    for place, things in before.items():
        old, new = Counter(things), Counter(after[place])
        texts += [f"{place}: lost {thing}" for thing in old - new] + [f"{place}: new {thing}" for thing in new - old]
    return texts


def _node(pid: int, ports: Sequence[str]) -> list[str]:
    """All commands in one shell: a process of its own for each would take most of the time of the tests."""
    answers = [*QUESTIONS, *(f"tc {show}" for show in _shows(ports))]
    script = f"; echo '{BETWEEN}'; ".join(answers)
    said = subprocess.run(in_net(pid, ["sh", "-ec", script]), capture_output=True, text=True, check=True).stdout.split(f"{BETWEEN}\n")
    addresses, links, routes, neighbours = (json.loads(text or "[]") for text in said[: len(QUESTIONS)])
    # Open vSwitch's own interfaces get another address at each boot.
    interfaces = [found for found in addresses if found["ifname"] == "lo" or "-eth" in found["ifname"]]
    things = [*map(_link, interfaces), *_addresses(interfaces), *map(_route, routes)]
    things += [("mode", found["ifname"], found["linkmode"]) for found in links if found["ifname"] in ports]
    things += [("neighbour", found["dst"], found["dev"], found["lladdr"]) for found in neighbours]
    traffic = zip(_shows(ports), said[len(QUESTIONS) :], strict=True)
    return [*map(str, things), *(f"{show}: {line}" for show, text in traffic for line in text.splitlines())]


def _shows(ports: Iterable[str]) -> list[str]:
    """What tc is asked; each of its lines is told with the port that it is about (tc has no JSON for HTB's classes)."""
    return [f"{kind} show dev {port}{more}" for port in ports for kind, more in KINDS_OF_TRAFFIC]


def _link(found: dict[str, Any]) -> tuple[Any, ...]:
    return ("link", *(sorted(found[key]) if key == "flags" else found.get(key) for key in LINK_KEYS))


def _addresses(interfaces: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [("address", link["ifname"], *(found.get(key) for key in ADDRESS_KEYS)) for link in interfaces for found in link["addr_info"]]


def _route(found: dict[str, Any]) -> tuple[Any, ...]:
    """The order of next hops has no meaning."""
    hops = sorted(str(sorted(map(str, hop.items()))) for hop in found.pop("nexthops", []))
    return ("route", *sorted(map(str, found.items())), *hops)
