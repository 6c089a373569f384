"""A small discrete-event network with real transport cores: hosts that send to hosts over rows of links that queue, mark, trim or drop.

For the congestion window: many hosts may share a link, which the two hosts of `hosts.mrc.channel` cannot. Data crosses the links of its
path; what a host answers (SACKs, NACKs, probe replies) takes the same time without a queue. Everything follows from the seed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

from mrc_lab import on_wire

from hosts import wire
from hosts.core import PathSpec, PeerSpec, Transmit
from hosts.mrc import MrcCore, MrcParams
from hosts.wire import OUTER_BYTES

BITS_PER_BYTE = 8
RATE_BPS = 20e6
PAYLOAD_BYTES, FRAME_BYTES = 4096, 4242  # a data packet, without and with all its headers
FRAME_S = FRAME_BYTES * BITS_PER_BYTE / RATE_BPS
MESSAGE_BYTES, OUTSTANDING = 65_536, 4
IDLE_S = 0.25  # for idle probes, before data
PATHS = 4
BDP_FRAMES = 10  # the least that the links' thresholds are shares of (docs/links.md)
MARK_FRAMES = (0.2 * BDP_FRAMES, 0.8 * BDP_FRAMES)
CORE_FRAMES, LAST_HOP_FRAMES = 1.0 * BDP_FRAMES, 1.5 * BDP_FRAMES  # queue above which a switch trims or drops


class Clock:
    """Virtual time."""

    def __init__(self, seed: int) -> None:
        self.now, self.rng = 100.0, Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Calls `what` at `when`, but not before now."""
        self._count += 1
        heappush(self._events, (max(when, self.now), self._count, what))

    def run(self, until: float) -> None:
        """Lets time pass."""
        while self._events and self._events[0][0] <= until:
            self.now, _, what = heappop(self._events)
            what()
        self.now = until


@dataclass(eq=False)
class Link:
    """A token bucket, as HTB is: two frames may leave at once after a pause. Thresholds in frames of queue; 0 = none.

    What is trimmed passes at once, but takes its time of the link. `seen` has the queue that each whole packet met, with its time.
    """

    clock: Clock
    delay_s: float
    jitter_s: float = 0.001
    mark_frames: tuple[float, float] = (0.0, 0.0)
    trim_frames: float = 0.0
    drop_frames: float = 0.0
    last_hop: bool = False
    loss: float = 0.0
    rate_bps: float = RATE_BPS
    dead: tuple[float, float] = (0.0, 0.0)
    seen: list[tuple[float, float]] = field(default_factory=list)
    trimmed: int = 0
    _free_s: float = 0.0
    _last_s: float = 0.0

    def take(self, packet: bytes, then: Callable[[bytes], None]) -> None:
        """Carries `packet` to `then`, marked or trimmed perhaps, or loses it."""
        now, whole = self.clock.now, len(packet) > FRAME_BYTES / 2
        frame_s = FRAME_BYTES * BITS_PER_BYTE / self.rate_bps
        queue = max(0.0, self._free_s - now) / frame_s
        if self.dead[0] <= now < self.dead[1] or (whole and self.drop_frames and queue + 1 > self.drop_frames) or self._loses():
            return
        if whole and self.trim_frames and queue + 1 > self.trim_frames:
            self.trimmed += 1
            packet, whole = wire.trimmed(packet, wire.TRIMMED_LASTHOP if self.last_hop else wire.TRIMMED), False
        self._free_s = max(self._free_s, now) + (len(packet) + OUTER_BYTES) * BITS_PER_BYTE / self.rate_bps
        if not whole:
            self.clock.at(now + self.delay_s, lambda: then(packet))
            return
        self.seen.append((now, queue))
        packet = self._mark(packet, queue)
        leaves_s = max(now, self._free_s - 2 * frame_s)
        self._last_s = max(self._last_s, leaves_s + self.delay_s + self.clock.rng.random() * self.jitter_s)
        self.clock.at(self._last_s, lambda: then(packet))

    def _loses(self) -> bool:
        return self.loss > 0.0 and self.clock.rng.random() < self.loss

    def _mark(self, packet: bytes, queue: float) -> bytes:
        low, high = self.mark_frames
        if not high or self.clock.rng.random() * (high - low) >= queue - low:
            return packet
        return wire.marked(packet)

    def mean_queue(self, since_s: float) -> float:
        """What whole packets met on average from `since_s` on, in frames."""
        queues = [queue for at, queue in self.seen if at > since_s]
        return sum(queues) / len(queues)


class Host:
    """A core, driven without sockets; `routes` has the links to each destination."""

    def __init__(self, clock: Clock, core: MrcCore) -> None:
        self.clock, self.core = clock, core
        self.routes: dict[str, tuple[Sequence[Link], float, Host]] = {}  # destination: links, seconds without queues, host
        self._wakes = float("inf")

    def receive(self, packet: bytes) -> None:
        """A packet arrives."""
        self.core.on_datagram(self.clock.now, 0, memoryview(packet))
        self.core.on_receive_done(self.clock.now)
        self.turn()

    def turn(self) -> None:
        """Sends what may be sent, and sees to the next deadline."""
        for transmit in self.core.transmit(self.clock.now):
            self._send(transmit)
        deadline = self.core.next_deadline()
        if deadline is not None and deadline < self._wakes:
            self._wakes = deadline
            self.clock.at(deadline, self._wake)

    def _wake(self) -> None:
        if self.clock.now >= self._wakes:
            self._wakes = float("inf")
            self.core.on_timer(self.clock.now)
            self.turn()

    def _send(self, transmit: Transmit) -> None:
        links, quiet_s, target = self.routes[transmit.destination]
        packet = on_wire(transmit)
        if transmit.control or not links:
            self.clock.at(self.clock.now + quiet_s, lambda: target.receive(packet))
        else:
            _forward(packet, links, target)


def _forward(packet: bytes, links: Sequence[Link], target: Host) -> None:
    if links:
        links[0].take(packet, lambda carried: _forward(carried, links[1:], target))
    else:
        target.receive(packet)


class Flow:
    """Messages back to back from a host of its own to a host of its own, over `paths`."""

    def __init__(self, clock: Clock, name: str, paths: Sequence[Sequence[Link]], params: MrcParams, start_s: float = 0.0) -> None:
        self.clock, self.idle, self._told = clock, False, list[tuple[float, int]]()
        self._data, quiet_s, seed = memoryview(bytes(MESSAGE_BYTES)), sum(link.delay_s for link in paths[0]), clock.rng.randrange(1 << 30)
        here, there = (_peer(f"{name}-{end}", f"fd00::{end}", len(paths)) for end in "ab")
        self.core = MrcCore(here.name, here.address, params, {there.name: there}, {}, memoryview(bytearray(0)), seed)
        peer = MrcCore(there.name, there.address, params, {}, {here.name: here}, memoryview(bytearray(MESSAGE_BYTES)), seed)
        self.core.connect({there.name: peer.attributes()})
        peer.connect({here.name: self.core.attributes()})
        self.source, target, self.to = Host(clock, self.core), Host(clock, peer), there.name
        for i, links in enumerate(paths):
            self.source.routes[f"{there.name}/{i}"] = (links, quiet_s, target)
            target.routes[f"{here.name}/{i}"] = ((), quiet_s, self.source)
        self.source.turn()
        clock.at(clock.now + IDLE_S + start_s, self._feed)

    def _feed(self) -> None:
        now = self.clock.now
        self._told.append((now, self.core.acked_bytes()))
        while not self.idle and self.core.outstanding_messages(self.to) < OUTSTANDING:
            self.core.post_write(now, self.to, self._data, 0, 0)
        self.source.turn()
        self.clock.at(now + FRAME_S, self._feed)

    def share(self, start_s: float, end_s: float) -> float:
        """Of a link's rate: what was acknowledged from `start_s` to `end_s`, in frames of whole packets."""
        first, last = (self._told[min(bisect_left(self._told, (at, 0)), len(self._told) - 1)][1] for at in (start_s, end_s))
        return (last - first) / PAYLOAD_BYTES * FRAME_S / (end_s - start_s)

    def count(self, name: str) -> int:
        """A counter of the sender's report."""
        return int(self.core.report()[name])


def _peer(name: str, address: str, paths: int) -> PeerSpec:
    return PeerSpec(name, address, tuple(PathSpec(i, 0, f"{name}/{i}", 1, (f"{name}-path{i}",)) for i in range(paths)))


def parameters(trimming: bool = True, **given: float) -> MrcParams:
    """What a run tells the transport, and `given`."""
    return MrcParams.from_mapping({"link_rate_bps": RATE_BPS, "trimming": trimming, **given})


class Network:
    """Flows, the first of which sends from `start_s`."""

    def __init__(self, seed: int = 1) -> None:
        self.clock = Clock(seed)
        self.start_s = self.clock.now + IDLE_S
        self.flows: list[Flow] = []

    def run(self, until_s: float) -> None:
        """To `until_s` after the start of the first flow."""
        self.clock.run(self.start_s + until_s)

    def shares(self, start_s: float, end_s: float) -> list[float]:
        """What each flow got of a link's rate."""
        return [flow.share(self.start_s + start_s, self.start_s + end_s) for flow in self.flows]


class Incast(Network):
    """Hosts that send over a link of their own, one of `PATHS` links of the core and one last hop that all share."""

    def __init__(
        self, senders: int, trimming: bool = True, wire_s: float = 0.0002, seed: int = 1, every_s: float = 0.0, **given: float
    ) -> None:
        super().__init__(seed)
        depth, last_depth = (
            {"trim_frames" if trimming else "drop_frames": frames} for frames in (CORE_FRAMES, LAST_HOP_FRAMES)
        )  # fmt: skip
        self.core = [Link(self.clock, wire_s, mark_frames=MARK_FRAMES, **depth) for _ in range(PATHS)]
        self.last = Link(self.clock, wire_s, last_hop=True, **last_depth)
        self.own = [Link(self.clock, wire_s) for _ in range(senders)]
        for i, own in enumerate(self.own):
            paths = [(own, link, self.last) for link in self.core]
            self.flows.append(Flow(self.clock, f"h{i}", paths, parameters(trimming, **given), i * every_s))

    @property
    def trimmed(self) -> int:
        """Packets that switches trimmed."""
        return sum(link.trimmed for link in (*self.core, self.last))

    @property
    def lost_packets(self) -> int:
        """Packets that senders took for lost: in a fabric that trims, a wrong verdict each."""
        return sum(row[4] for flow in self.flows for row in flow.core.path_rows())

    def count(self, name: str) -> int:
        """A counter over all senders."""
        return sum(flow.count(name) for flow in self.flows)


class Permutation(Network):
    """As many flows as the core has links, each over a link of its own, `PATHS` of the core's in turn, and a last hop of its own."""

    def __init__(self, flows: int, wire_s: float = 0.0005, seed: int = 1, **given: float) -> None:
        super().__init__(seed)
        core = [Link(self.clock, wire_s, mark_frames=MARK_FRAMES, trim_frames=CORE_FRAMES) for _ in range(flows)]
        for i in range(flows):
            own, last = Link(self.clock, wire_s), Link(self.clock, wire_s, trim_frames=LAST_HOP_FRAMES, last_hop=True)
            paths = [(own, core[(i + j) % flows], last) for j in range(PATHS)]
            self.flows.append(Flow(self.clock, f"h{i}", paths, parameters(**given)))

    def retired(self) -> int:
        """How often a path left use: each time wrongly, since all are whole."""
        events = [event for flow in self.flows for event in flow.core.take_events() if event.event == "ev_state"]
        return sum(event.fields["to"] == "ASSUMED_BAD" for event in events)


def jain(shares: Sequence[float]) -> float:
    """Jain's index of fairness: 1 = all alike, 1/n = one has everything."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))
