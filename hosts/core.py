"""The contract between a transport core (no I/O, no clock) and whatever drives it: the agent's loop, or a test's channel.

Times are CLOCK_MONOTONIC seconds, passed in. A core never blocks, never reads a clock, never draws from a random source of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

Item = TypeVar("Item")


class Transmit(NamedTuple):
    """One packet to send: ``header + payload + trailer`` to `destination` out of NIC port `port`.

    For MRC the bytes are the inner IPv6 packet (the kernel writes the outer header, next header 41) and `destination` is the uSID list, or
    they are all that is sent, and `destination` is the peer's address (hosts/ecmp_network.py);
    for RoCE RC they are the UDP payload and `destination` is the peer's address. `source_port` matters to RC only, `again` to MRC: data
    that was sent before has a DSCP of its own.
    """

    port: int
    destination: str
    header: bytes | bytearray | memoryview
    payload: memoryview | bytes
    trailer: bytes
    control: bool
    source_port: int = 0
    again: bool = False


class Completion(NamedTuple):
    """A Write-with-Immediate from `peer` completed here, in order; its data lies in the region."""

    peer: str
    imm: int


class QpError(NamedTuple):
    """The QP to or from `peer` failed for good."""

    peer: str
    reason: str


@dataclass(frozen=True)
class PathSpec:
    """One path towards a peer, as the topology gives it: `port` is the NIC port here, `peer_port` the one at the peer.

    `ev`: the number of its first EV. A peer's paths are numbered on from a multiple of their number, so that path i has all EVs that are i
    modulo that. Where routers hash EVs nobody knows where one leads: each is a path of its own then, without links.
    """

    ev: int
    port: int
    destination: str
    plane: int
    links: tuple[str, ...]
    peer_port: int = 0


@dataclass(frozen=True)
class PeerSpec:
    """A peer of the job: its name, its own address, and every path to it (for RC only the address counts)."""

    name: str
    address: str
    paths: tuple[PathSpec, ...]


@dataclass
class Event:
    """One line of the history; `fields` as in docs/architecture.md."""

    t: float
    event: str
    fields: Mapping[str, Any] = field(default_factory=dict)


class Core(Protocol):
    """One host's transport: a send QP to each peer it writes to, a receive QP from each peer that writes to it."""

    def attributes(self) -> dict[str, Any]:
        """Out-of-band attributes for the peers, JSON-able: QP numbers by peer, rkey, base address, first PSN."""

    def connect(self, peers: Mapping[str, Mapping[str, Any]]) -> None:
        """Takes the attributes of each peer; after it QPs carry data."""

    def post_write(self, now: float, peer: str, data: memoryview, remote_offset: int, imm: int | None) -> None:
        """Queues a Write of `data` to byte `remote_offset` of the peer's region; data must not change until acknowledged.

        With an Immediate it completes at the peer, after all that was posted before it; without (None) nobody there is told.
        """

    def on_datagram(self, now: float, port: int, datagram: memoryview) -> None:
        """Takes one received packet (valid during the call only); anything malformed or foreign is counted by reason, never raised."""

    def on_port(self, now: float, port: int, up: bool) -> None:
        """NIC port `port` of this host came up or went down."""

    def deny(self, now: float, links: Collection[str], evs: Mapping[str, Collection[int]], on: bool) -> dict[str, list[int]]:
        """An administrator takes EVs out of use (`on`), or allows them again: those over `links`, and those numbered in `evs`, by peer.

        Returns the EVs concerned, by peer. UsageError: it cannot be done, and nothing has changed.
        """

    def deny_ways_back(self, links: Collection[str], on: bool) -> None:
        """Denies (`on`) or allows paths over these links to answers, as `deny` does, and leaves EVs alone."""

    def close(self, now: float) -> None:
        """The send QPs take no new writes; what was posted is still sent, repaired and answered."""

    @property
    def closed(self) -> bool:
        """Whether `close` was called and every send QP has all that was posted acknowledged, or has failed."""

    def on_receive_done(self, now: float) -> None:
        """Called when the socket has no more packets for now: the moment to decide about coalesced acknowledgements."""

    def transmit(self, now: float) -> Iterable[Transmit]:
        """Everything that may be sent now, control first; each yielded packet counts as sent."""

    def next_deadline(self) -> float | None:
        """When on_timer must be called at the latest, or None."""

    def on_timer(self, now: float) -> None:
        """Runs the timers that are due."""

    def take_completions(self) -> list[Completion]:
        """Completions since the last call, in order for each peer."""

    def take_errors(self) -> list[QpError]:
        """QPs that failed since the last call."""

    def take_events(self) -> list[Event]:
        """History events since the last call."""

    def outstanding_messages(self, peer: str) -> int:
        """Messages posted to `peer` that it has not wholly acknowledged, in order: their data must not change."""

    def acked_bytes(self) -> int:
        """Bytes that peers have acknowledged, over all send QPs."""

    def flow_rows(self) -> list[tuple[Any, ...]]:
        """One row a peer that this host sends to, for flows.csv; counters of several QPs to it are summed.

        (peer, tx_packets, rtx_packets, acked_bytes, cwnd_packets, srtt_s, trimmed_packets, marked_packets)
        """

    def path_rows(self) -> list[tuple[Any, ...]]:
        """One row an EV for paths.csv; EVs are numbered on over the QPs to a peer.

        (peer, ev, state, tx_packets, lost_packets, probes_sent, trimmed_packets, marked_packets)
        """

    def report(self) -> dict[str, Any]:
        """Counters for agents.json: data_packets_sent, data_packets_received, base_rtt_s and closed by peer, drops by reason."""


class Sending(Protocol):
    """A QP or another source of packets, as far as taking turns goes."""

    @property
    def ready(self) -> object:
        """True (as a queue that is not empty is) if `transmit` may have something to send."""

    def transmit(self, now: float) -> Iterator[Transmit]:
        """What may be sent now; each yielded packet counts as sent."""


class Turns:
    """Round robin among a host's send QPs, a packet each: none waits behind another's whole window.

    Where a call was left (the caller takes only so many packets at once), the next one goes on with the QP after.
    """

    def __init__(self) -> None:
        self._first = 0

    def packets(self, now: float, senders: Sequence[Sending]) -> Iterator[Transmit]:
        """Everything that the QPs may send now."""
        count, first = len(senders), self._first
        order = [index for at in range(count) if senders[index := (first + at) % count].ready]
        if len(order) == 1:
            self._first = order[0] + 1
            yield from senders[order[0]].transmit(now)
            return
        waiting = deque((index, senders[index].transmit(now)) for index in order)
        while waiting:
            index, packets = waiting.popleft()
            packet = next(packets, None)
            if packet is not None:
                self._first = index + 1
                waiting.append((index, packets))
                yield packet


def taken(items: list[Item]) -> list[Item]:
    """What `items` holds; it is empty afterwards."""
    if not items:
        return []
    found = items.copy()
    items.clear()
    return found
