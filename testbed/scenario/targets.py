"""What a fault aims at: names from a file become links of the topology, in the topology's spelling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from testbed.scenario.kinds import KINDS
from testbed.scenario.problems import Place, did_you_mean
from testbed.scenario.schema_faults import BundleFault, ControllerFault, ExplicitFault, HostSlowFault, PortFault, SwitchFault
from topologies import Topology, UnknownLink

CONTROLLER = "controller"
"""Target, type and tier of a fault of the controller: there is one, or none."""


@dataclass(frozen=True)
class Target:
    """A fault's target as its record has it: a name, its type, its tier (of several: all of them), and the links that it stands for."""

    name: str
    type: str
    tier: str
    links: tuple[str, ...] = ()


class UnknownTarget(Exception):
    """There is no such link, port, switch or host; `inside` is the place within the list, where it is a list."""

    def __init__(self, message: str, hint: str, inside: Place = ()) -> None:
        self.message, self.hint, self.inside = message, hint, inside
        super().__init__(message)


def aim(spec: ExplicitFault) -> tuple[str, Any]:
    """The key of the scenario that names the target, and what it says."""
    if isinstance(spec, BundleFault):
        return "links", spec.links
    if isinstance(spec, PortFault):
        return "port", spec.port
    if isinstance(spec, SwitchFault):
        return "switch", spec.switch
    if isinstance(spec, HostSlowFault):
        return "host", spec.host
    if isinstance(spec, ControllerFault):
        return "kind", CONTROLLER  # no key of the scenario names it
    return "link", spec.link


def resolve(topology: Topology, kind: str, named: Any) -> Target:
    """The target of a fault of that kind. UnknownTarget if the topology has no such thing."""
    type_ = KINDS[kind].target
    if type_ == "bundle":
        return _bundle(topology, named)
    if not isinstance(named, str):
        raise UnknownTarget("must be text", "")
    if type_ == "link":
        name = link_name(topology, named)
        return Target(name, type_, topology.links[name].tier, (name,))
    if type_ == CONTROLLER:
        return _controller(named)
    if type_ == "port":
        return _port(topology, named)
    return _node(topology, type_, named)


def _bundle(topology: Topology, named: Any) -> Target:
    if not isinstance(named, (list, tuple)) or not named:
        raise UnknownTarget("must be a list of links", "", ("links",))
    names: list[str] = []
    for index, name in enumerate(named):
        found = link_name(topology, name, ("links", index))
        if found in names:
            raise UnknownTarget(f"link {found!r} is there twice", "name each link once", ("links", index))
        names.append(found)
    tiers = dict.fromkeys(topology.links[name].tier for name in names)
    more = f"+{len(names) - 1}" if len(names) > 1 else ""
    return Target(names[0] + more, "bundle", ", ".join(tiers), tuple(names))


def link_name(topology: Topology, named: Any, inside: Place = ()) -> str:
    """A link in the topology's spelling. UnknownTarget if the topology has no such link."""
    try:
        return topology.link(str(named)).name
    except UnknownLink as error:
        message, _, more = str(error).partition(": ")
        raise UnknownTarget(message, more if "is linked to" in more else did_you_mean(named, topology.links, "links"), inside) from error


def _controller(named: str) -> Target:
    if named != CONTROLLER:
        raise UnknownTarget(f"there is no controller {named!r}", f"it is called `{CONTROLLER}`")
    return Target(CONTROLLER, CONTROLLER, CONTROLLER)


def _port(topology: Topology, named: str) -> Target:
    ports = {link.a.ifname: link for link in topology.links.values() if link.tier == "NIC-T0"}
    if named not in ports:
        raise UnknownTarget(f"there is no NIC port {named!r} in this {topology.kind}", did_you_mean(named, ports, "ports"))
    return Target(named, "port", ports[named].tier, (ports[named].name,))


def _node(topology: Topology, type_: str, named: str) -> Target:
    known: Sequence[str] = topology.switches if type_ == "switch" else topology.hosts
    if named not in known:
        plural = "switches" if type_ == "switch" else "hosts"
        raise UnknownTarget(f"there is no {type_} {named!r} in this {topology.kind}", did_you_mean(named, known, plural))
    if type_ == "host":
        return Target(named, type_, "host")
    return Target(named, type_, f"T{topology.nodes[named].tier}", tuple(link.name for link in topology.links_of(named)))
