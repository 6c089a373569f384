"""From what a router's daemons wrote to history events (docs/architecture.md, source `routing`). Pure but for `read`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

from testbed.errors import HostError
from testbed.routing import logs, mrt
from topologies import Topology
from topologies.addresses import mac

Event = dict[str, Any]
TOLD = ("update", "notification")


@dataclass(frozen=True)
class Written:
    """What one router's daemons wrote: bgpd's and bfdd's logs, and bgpd's dumps, one a life of the daemon."""

    bgpd_log: str
    bfdd_log: str
    dumps: tuple[bytes, ...]


def link_local(address: str) -> str:
    """The link-local IPv6 address that a kernel makes of a MAC (RFC 4291, appendix A)."""
    raw = bytes(int(part, 16) for part in address.split(":"))
    return str(IPv6Address(b"\xfe\x80" + bytes(6) + bytes([raw[0] ^ 2]) + raw[1:3] + b"\xff\xfe" + raw[3:]))


def router_events(topology: Topology, router: str, written: Written, clock_offset_s: float) -> list[Event]:
    """Messages received and sessions changed. `clock_offset_s`: CLOCK_MONOTONIC less the wall clock, which FRR writes. MrtError."""
    events = [*_messages(topology, router, written.dumps), *_changes(topology, router, written)]
    return [{**event, "t": event["t"] + clock_offset_s} for event in events]


def _messages(topology: Topology, router: str, dumps: Sequence[bytes]) -> Iterator[Event]:
    """A peer is known by its address, whatever index its interface has."""
    peers = {link_local(mac(link.other(router))): link.other(router).node for link in topology.links_of(router)}
    for record in (record for dump in dumps for record in mrt.records(dump)):
        if isinstance(record, mrt.Message) and record.kind in TOLD:
            peer = peers.get(record.peering.peer or "", record.peering.peer)
            counts = {"announced": len(record.announced), "withdrawn": len(record.withdrawn)}
            yield {**_event(record.t_s, "bgp_message", router, peer), "kind": record.kind, **counts}


def _changes(topology: Topology, router: str, written: Written) -> Iterator[Event]:
    peers = {link.end(router).ifname: link.other(router).node for link in topology.links_of(router)}
    told = [("session", change) for change in logs.session_changes(written.bgpd_log)]
    told += [("bfd", change) for change in logs.detection_changes(written.bfdd_log)]
    for kind, change in told:
        event = _event(change.t_s, kind, router, peers.get(change.ifname, change.ifname))
        yield {**event, "up": change.up, "reason": change.reason, "words": change.words}


def _event(t_s: float, event: str, node: str, peer: str | None) -> Event:
    return {"t": t_s, "source": "routing", "event": event, "node": node, "peer": peer}


def clock_offset_s() -> float:
    """CLOCK_MONOTONIC less the wall clock, now. A wall clock that is set while a run goes on moves the run's routing events."""
    return time.monotonic() - time.time()


def read(folder: Path, dumps: Sequence[Path]) -> Written:
    """What the daemons wrote into a router's folder; HostError when a file that must be there cannot be read."""
    try:
        bfdd = folder / "bfdd.log"
        detections = bfdd.read_text(errors="replace") if bfdd.exists() else ""
        return Written((folder / "bgpd.log").read_text(errors="replace"), detections, tuple(path.read_bytes() for path in dumps))
    except OSError as error:
        raise HostError(f"{folder.name}: what its routing daemons recorded cannot be read: {error}") from error
