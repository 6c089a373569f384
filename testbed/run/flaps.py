"""Sessions of BGP and BFD that fell although no fault explains it: then it was this machine that was late, not the fabric. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from testbed.pathvector.options import BgpOvsOptions
from testbed.routing.options import BgpOptions
from testbed.scenario.faults import Fault
from topologies import Topology

Event = Mapping[str, Any]
Routing = BgpOptions | BgpOvsOptions
EARLY_S = 0.1  # the routers' wall clock and ours are compared once, at the end of a run
ONE_FLAP_S = 2.0  # BFD, then BGP, at both ends: one flap


@dataclass(frozen=True)
class Window:
    """When a fault explains that sessions of its links fall: seconds since the job's start."""

    begin_s: float
    end_s: float
    links: frozenset[str]


def grace_s(routing: Routing) -> float:
    """How long after its end a fault still explains what falls.

    Keepalives that were lost may come too late for the hold time, whose count goes on; and a session that comes back, after at most one
    connect retry, may fall once more before it stays (seen with FRR 8.4, when both ends connect at the same time). The model's sessions
    take at most `session_max_s` instead.
    """
    return routing.hold_s + (routing.connect_retry_s if isinstance(routing, BgpOptions) else routing.session_max_s)


def fabric_flaps(
    options: Mapping[str, Any], events: Collection[Event], faults: Iterable[Fault], topology: Topology, *, start: float, ended: float
) -> tuple[str, ...]:
    """`session_flaps` of a fabric with these options (`plan.fabric_options`): real routers' sessions and the model's; () without routing.

    The model's sessions live by real packets too: a controller that is late loses them, and that is no fault of BGP's.
    """
    routing: Routing | None = options.get("bgp") or options.get("bgp_ovs")
    if routing is None:
        return ()
    return session_flaps(events, faults, topology, start=start, ended=ended, grace_s=grace_s(routing))


def session_flaps(
    events: Collection[Event], faults: Iterable[Fault], topology: Topology, *, start: float, ended: float, grace_s: float
) -> tuple[str, ...]:
    """A sentence for each time that a session fell for no fault: its link, when, and why in the routers' words.

    `events` are an arm's history events with `t` in CLOCK_MONOTONIC seconds, as `start` and `ended` are: what fell before the job started
    or after it ended does not count.
    """
    windows = list(_windows(events, faults, grace_s))
    fell = sorted(_fallen(events, topology, start, ended))
    unexplained = [found for found in fell if not any(_explains(window, found[0], found[1]) for window in windows)]
    return tuple(_flaps(unexplained))


def _windows(events: Collection[Event], faults: Iterable[Fault], grace_s: float) -> Iterator[Window]:
    """From the moment at which each fault was really begun to that at which it was really over; one without an end lasts."""
    begun = {event["fault"]: float(event["issued_s"]) for event in events if event.get("event") == "fault_begin"}
    over = {event["fault"]: float(event["effective_s"]) for event in events if event.get("event") == "fault_end"}
    for fault in faults:
        if fault.id in begun:
            yield Window(begun[fault.id] - EARLY_S, over.get(fault.id, float("inf")) + grace_s, frozenset(fault.links))


def _fallen(events: Iterable[Event], topology: Topology, start: float, ended: float) -> Iterator[tuple[str, float, str]]:
    """(link, seconds since the job's start, reason) of each end that a BGP or BFD session had while the job ran."""
    for event in events:
        if event.get("event") in ("session", "bfd") and event.get("up") is False and start <= event["t"] <= ended:
            yield topology.link(f"{event['node']}-{event['peer']}").name, event["t"] - start, str(event.get("reason"))


def _explains(window: Window, link: str, at_s: float) -> bool:
    return link in window.links and window.begin_s <= at_s <= window.end_s


def _flaps(fallen: Iterable[tuple[str, float, str]]) -> Iterator[str]:
    """What both ends and both protocols tell of one flap is put together."""
    for link, found in groupby(fallen, key=lambda entry: entry[0]):
        last_s, reasons, since_s = -float("inf"), list[str](), 0.0
        for _, at_s, reason in found:
            if at_s - last_s > ONE_FLAP_S and reasons:
                yield _sentence(link, since_s, reasons)
                reasons = []
            since_s, last_s = (since_s if reasons else at_s), at_s
            reasons += [reason] if reason not in reasons else []
        yield _sentence(link, since_s, reasons)


def _sentence(link: str, at_s: float, reasons: Iterable[str]) -> str:
    return f"{link} at {at_s:.1f} s ({', '.join(reasons)})"
