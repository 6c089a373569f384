"""What each kind of fault does to a fabric when it begins and when it ends: the whole vocabulary."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from testbed.link_settings import LinkSettings
from testbed.scenario.faults import Fault
from testbed.scenario.kinds import slowed_bps
from testbed.scenario.targets import CONTROLLER

Times = tuple[float, float]


class FaultyFabric(Protocol):
    """What a fabric must be able to do to its links, switches and hosts. Each returns (issued, effective) in CLOCK_MONOTONIC seconds.

    A `reason` names what is on, so that each of several losses or rates of a link can be taken away.
    """

    settings: LinkSettings
    """Of its healthy links."""
    has_controller: bool
    """Whether a controller programs its switches."""

    def set_carriers(self, links: Iterable[str], up: bool) -> Times:
        """Cuts or mends fibres, all at once; both ends see it."""
        ...

    def set_silent(self, link: str, on: bool) -> Times:
        """Loses everything on the link, both ways, or stops doing so; nobody sees it."""
        ...

    def set_remote(self, link: str, seen_by: str, on: bool) -> Times:
        """The same, but one end sees it."""
        ...

    def set_one_way(self, link: str, sender: str, on: bool) -> Times:
        """Loses everything that one end sends; nobody sees it."""
        ...

    def set_port(self, port: str, up: bool) -> Times:
        """Sets a host's NIC port down or up; both ends see it."""
        ...

    def set_hang(self, switch: str, on: bool) -> Times:
        """A switch forwards nothing while its links and sessions stay up."""
        ...

    def stop_switch(self, node: str, orderly: bool) -> Times:
        """Takes a switch out: with a goodbye to its neighbours, or as if power went."""
        ...

    def boot_switch(self, node: str) -> Times:
        """Boots it from its boot-time configuration; effective when it forwards again."""
        ...

    def lose(self, link: str, reason: str, share: float, sender: str | None = None, evs: Sequence[int] = ()) -> Times:
        """Loses a share by chance, of both directions or of one, of all packets or of those with some entropy values."""
        ...

    def stop_losing(self, link: str, reason: str) -> Times:
        """Ends that."""
        ...

    def slow_link(self, link: str, reason: str, rate_bps: float, sender: str | None = None) -> Times:
        """Gives both directions or one another rate."""
        ...

    def restore_rate(self, link: str, reason: str) -> Times:
        """Ends that."""
        ...

    def slow_host(self, host: str, reason: str, share: float, period_s: float) -> Times:
        """The programs of a host run for a share of each period."""
        ...

    def restore_host(self, host: str, reason: str) -> Times:
        """Ends that."""
        ...

    def set_controller(self, up: bool) -> Times:
        """The controller dies (SIGKILL), or is started again; effective when it is gone, or answers."""
        ...


Act = Callable[[FaultyFabric, Fault], Times]


@dataclass(frozen=True)
class Action:
    """How a fault begins and ends. `changes`: (seconds of the run, whether the links are up then), between begin and end."""

    begin: Act
    end: Act
    changes: Callable[[Fault], Iterator[tuple[float, bool]]] = lambda _fault: iter(())


def flap_changes(fault: Fault) -> Iterator[tuple[float, bool]]:
    """When a flapping link comes up and goes down again, from the end of its first down time until before the fault's end."""
    at_s, up = fault.at_s, False
    while True:
        at_s, up = at_s + fault.params["up_s" if up else "down_s"], not up
        if round(at_s, 6) >= fault.end_s:
            return
        yield round(at_s, 6), up


def _cut(fabric: FaultyFabric, fault: Fault) -> Times:
    return _set_links(fabric, fault, up=False)


def _mend(fabric: FaultyFabric, fault: Fault) -> Times:
    return _set_links(fabric, fault, up=True)


def _set_links(fabric: FaultyFabric, fault: Fault, up: bool) -> Times:
    """As the fault's `of` says, else its kind."""
    if fault.params.get("of", fault.kind) == "carrier":
        return fabric.set_carriers(fault.links, up)
    times = [fabric.set_silent(link, not up) for link in fault.links]
    return times[0][0], times[-1][1]


def _lose(fabric: FaultyFabric, fault: Fault) -> Times:
    return fabric.lose(fault.target, fault.id, fault.params["share"], fault.params.get("from"), fault.params.get("evs", ()))


def _slow_link(fabric: FaultyFabric, fault: Fault) -> Times:
    rate_bps = slowed_bps(fault.params.get("rate_bps"), fault.params.get("share"), fabric.settings.rate_bps)
    return fabric.slow_link(fault.target, fault.id, rate_bps, fault.params.get("from"))


def nothing(_fabric: FaultyFabric, _fault: Fault) -> Times:
    """For an end that has come already."""
    now = time.monotonic()
    return now, now


def applies(fabric: FaultyFabric, fault: Fault) -> bool:
    """Whether a fabric has what the fault is about. All arms get one list, but not all have a controller."""
    return fault.target_type != CONTROLLER or fabric.has_controller


NO_ACTION = Action(nothing, nothing)
ACTIONS: Mapping[str, Action] = {
    "carrier": Action(_cut, _mend),
    "silent": Action(_cut, _mend),
    "bundle": Action(_cut, _mend),
    "flap": Action(_cut, _mend, flap_changes),
    "remote": Action(
        lambda fabric, fault: fabric.set_remote(fault.target, fault.params["seen_by"], True),
        lambda fabric, fault: fabric.set_remote(fault.target, fault.params["seen_by"], False),
    ),
    "one-way": Action(
        lambda fabric, fault: fabric.set_one_way(fault.target, fault.params["from"], True),
        lambda fabric, fault: fabric.set_one_way(fault.target, fault.params["from"], False),
    ),
    "loss": Action(_lose, lambda fabric, fault: fabric.stop_losing(fault.target, fault.id)),
    "rate": Action(_slow_link, lambda fabric, fault: fabric.restore_rate(fault.target, fault.id)),
    "port": Action(lambda fabric, fault: fabric.set_port(fault.target, False), lambda fabric, fault: fabric.set_port(fault.target, True)),
    "switch-kill": Action(
        lambda fabric, fault: fabric.stop_switch(fault.target, orderly=False), lambda fabric, fault: fabric.boot_switch(fault.target)
    ),
    "switch-reboot": Action(
        lambda fabric, fault: fabric.stop_switch(fault.target, orderly=True), lambda fabric, fault: fabric.boot_switch(fault.target)
    ),
    "switch-hang": Action(
        lambda fabric, fault: fabric.set_hang(fault.target, True), lambda fabric, fault: fabric.set_hang(fault.target, False)
    ),
    "controller-kill": Action(lambda fabric, _: fabric.set_controller(False), lambda fabric, _: fabric.set_controller(True)),
    "host-slow": Action(
        lambda fabric, fault: fabric.slow_host(fault.target, fault.id, fault.params["share"], fault.params["period_s"]),
        lambda fabric, fault: fabric.restore_host(fault.target, fault.id),
    ),
}
