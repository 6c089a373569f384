"""Two hosts and the paths between them in virtual time: drives transport cores without sockets, for tests, benchmarks and experiments.

Every path is FIFO in each direction (delay never lets a packet overtake one on the same path) and has a rate; faults are intervals of
death, random loss, duplication, reordering, damage and replay. Switches may mark and trim data, by chance or by the queue of a path or of
a bottleneck that all paths share; what they trim overtakes data, and no later data of its path overtakes it. A host can be stalled, as a
process that gets no CPU: packets wait for it in order of arrival.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

from hosts import wire
from hosts.core import Core, PathSpec, PeerSpec, Transmit
from hosts.wire import OUTER_BYTES

BITS_PER_BYTE = 8
SHARED = -1  # in place of a path: the bottleneck
MOST_FLIPS = 8  # bits of one corrupted packet
REPLAYABLE = 4096  # packets of each host that are remembered


@dataclass(frozen=True)
class Queue:
    """The data queue of each path, or of one bottleneck of all, in bytes; the same one in each direction. 0 = not at all."""

    ecn_min_bytes: int = 0  # marks begin
    ecn_max_bytes: int = 0  # everything is marked
    trim_bytes: int = 0  # what would exceed it is trimmed
    limit_bytes: int = 0  # what would exceed it is dropped, unless it is trimmed
    last_hop: bool = False  # no marks, and the other reason
    shared: bool = False  # one link of `rate_bps` for all paths

    def is_marked(self, backlog_bytes: float, chance: float) -> bool:
        """Whether a packet that meets this backlog is marked; `chance` is a draw from 0 to 1."""
        if not self.ecn_max_bytes or self.last_hop:
            return False
        return backlog_bytes - self.ecn_min_bytes > chance * (self.ecn_max_bytes - self.ecn_min_bytes)


@dataclass
class Conditions:
    """What the network does to packets; seconds, bits per second, probabilities a packet."""

    delay_s: float = 0.001
    jitter_s: float = 0.0
    rate_bps: float = 200e6
    loss: float = 0.0
    duplication: float = 0.0
    extra_delay_s: Mapping[int, float] = field(default_factory=dict)  # by path
    path_loss: Mapping[int, float] = field(default_factory=dict)  # by path
    dead: tuple[tuple[int, float, float], ...] = ()  # (path, from, until), both directions
    trimming: float = 0.0  # of data, whatever the queue
    marking: float = 0.0  # likewise
    queue: Queue = Queue()
    dead_one_way: tuple[tuple[str, int, float, float], ...] = ()  # (host, path, from, until): what that host sends there is lost
    ports: int = 1  # of each host's NIC; path i is on port i % ports at both ends
    port_down: tuple[tuple[str, int, float, float], ...] = ()  # (host, port, from, until): nothing goes out or comes in there
    port_news_s: float = 0.001  # after which that host is told of it
    reorder: float = 0.0  # held back behind later packets of the same path
    reorder_s: float = 0.002  # for so long at most
    corruption: float = 0.0  # some bits flipped
    truncation: float = 0.0  # the end cut off, wherever
    replay: float = 0.0  # an old packet of the same host comes along once more

    def is_dead(self, host: str, path: int, now: float) -> bool:
        """Whether what `host` sends on `path` at `now` is lost."""
        return any(which == path and start <= now < end for which, start, end in self.dead) or any(
            who == host and which == path and start <= now < end for who, which, start, end in self.dead_one_way
        )

    def is_port_down(self, path: int, now: float) -> bool:
        """Whether the NIC port of `path` is down at either end at `now`."""
        return any(port == path % self.ports and start <= now < end for _, port, start, end in self.port_down)

    def ports_down(self, host: str, now: float) -> set[int]:
        """The ports that `host` knows to be down at `now`."""
        then = now - self.port_news_s
        return {port for who, port, start, end in self.port_down if who == host and start <= then < end}

    def port_news(self, now: float) -> Iterator[float]:
        """When a host will be told of a port, after `now`."""
        edges = (at + self.port_news_s for _, _, start, end in self.port_down for at in (start, end))
        return (at for at in edges if at > now)


def peer_spec(name: str, address: str, paths: int, ports: int = 1) -> PeerSpec:
    """A peer over `paths` paths; the destination of path i is "i", its port and plane are i % ports (planes count from 1)."""
    return PeerSpec(
        name, address, tuple(PathSpec(i, i % ports, str(i), 1 + i % ports, (f"{name}-path{i}",), i % ports) for i in range(paths))
    )


class Host:
    """A core, its socket queue, and until when it gets no CPU."""

    def __init__(self, name: str, core: Core) -> None:
        self.name, self.core = name, core
        self.inbox: deque[tuple[int, bytes]] = deque()  # (port, packet)
        self.stalls: list[tuple[float, float]] = []
        self.ports_down: set[int] = set()  # as far as it was told

    def runs_at(self, now: float) -> float:
        """The first time from `now` on at which the host has the CPU."""
        for start, end in self.stalls:
            if start <= now < end:
                return end
        return now

    def tell_ports(self, now: float, down: set[int]) -> None:
        """Tells the core which ports are down, as far as it does not know."""
        for port in sorted(down ^ self.ports_down):
            self.core.on_port(now, port, port not in down)
        self.ports_down = down

    def step(self, now: float) -> list[Transmit]:
        """One turn of an agent's loop."""
        if self.inbox:
            while self.inbox:
                port, packet = self.inbox.popleft()
                self.core.on_datagram(now, port, memoryview(packet))
            self.core.on_receive_done(now)
        deadline = self.core.next_deadline()
        if deadline is not None and deadline <= now:
            self.core.on_timer(now)
        return list(self.core.transmit(now))


class Channel:
    """Joins two hosts.

    `log` counts packets: sent, delivered, dead, port_down, lost, duplicated, marked, trimmed, queue_dropped, reordered, corrupted,
    truncated, replayed.
    """

    def __init__(self, first: Host, second: Host, conditions: Conditions, seed: int = 0, start_s: float = 100.0) -> None:
        self.now = start_s
        self.log: Counter[str] = Counter()
        self.on_send: Callable[[float, str, int, Transmit], None] | None = None
        self.on_loss: Callable[[float, str, int], None] | None = None  # when it was sent, by which host, on which path
        self._hosts = (first, second)
        self._conditions, self._rng = conditions, Random(f"channel {seed}")
        self._flying: list[tuple[float, int, int, int, bytes]] = []  # (arrival, tie breaker, host index, path, packet)
        self._free_at: dict[tuple[int, int, bool], float] = {}  # when (host, path, class) may send or deliver next
        self._count = 0
        self._history: tuple[deque[bytes], deque[bytes]] = (deque(maxlen=REPLAYABLE), deque(maxlen=REPLAYABLE))  # sent by each host

    def run(self, until: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Runs to `until`, or to the first moment at which `stop()` is true."""
        while True:
            self._deliver()
            for index, host in enumerate(self._hosts):
                if host.runs_at(self.now) <= self.now:
                    host.tell_ports(self.now, self._conditions.ports_down(host.name, self.now))
                    self._put(index, host.step(self.now))
            following = self._next_moment()
            if stop():
                return
            if following is None or following > until:
                self.now = until
                return
            self.now = max(following, self.now + 1e-7)

    def occupy(self, host: str, path: int, seconds: float) -> None:
        """Foreign traffic fills the data queue of what `host` sends on `path`, and takes so long to leave it."""
        key = next(index for index, each in enumerate(self._hosts) if each.name == host), self._queue_of(path), False
        self._free_at[key] = max(self.now, self._free_at.get(key, 0.0)) + seconds

    def _next_moment(self) -> float | None:
        moments = [self._flying[0][0]] if self._flying else []
        moments.extend(self._conditions.port_news(self.now))
        for host in self._hosts:
            deadline = host.core.next_deadline()
            if host.inbox:
                deadline = self.now
            if deadline is not None:
                moments.append(host.runs_at(max(deadline, self.now)))
            if (woken := host.runs_at(self.now)) > self.now:
                moments.append(woken)  # a process goes on where it was stopped, with a deadline or without
        return min(moments, default=None)

    def _deliver(self) -> None:
        while self._flying and self._flying[0][0] <= self.now:
            _, _, index, path, packet = heappop(self._flying)
            if self._conditions.is_port_down(path, self.now):
                self.log["port_down"] += 1
                continue
            self._hosts[index].inbox.append((path % self._conditions.ports, packet))
            self.log["delivered"] += 1

    def _put(self, index: int, transmits: list[Transmit]) -> None:
        for transmit in transmits:
            path = int(transmit.destination)
            if self.on_send is not None:
                self.on_send(self.now, self._hosts[index].name, path, transmit)
            packet = bytes(transmit.header) + bytes(transmit.payload) + transmit.trailer
            copies = self._copies(index, path)
            if not copies and self.on_loss is not None:
                self.on_loss(self.now, self._hosts[index].name, path)
            for _ in range(copies):
                switched = packet if transmit.control else self._switched(index, path, packet)
                if switched is not None:
                    self._fly(index, path, transmit.control, self._damaged(switched), len(switched) < len(packet))
            self._replay(index, path, packet)

    def _copies(self, index: int, path: int) -> int:
        conditions, rng = self._conditions, self._rng
        self.log["sent"] += 1
        if conditions.is_dead(self._hosts[index].name, path, self.now):
            self.log["dead"] += 1
            return 0
        if conditions.is_port_down(path, self.now):
            self.log["port_down"] += 1
            return 0
        if rng.random() < max(conditions.loss, conditions.path_loss.get(path, 0.0)):
            self.log["lost"] += 1
            return 0
        if rng.random() < conditions.duplication:
            self.log["duplicated"] += 1
            return 2
        return 1

    def _switched(self, index: int, path: int, packet: bytes) -> bytes | None:
        """What the switches make of a data packet: the same, marked or trimmed; None = dropped."""
        conditions, queue, rng = self._conditions, self._conditions.queue, self._rng
        if not wire.is_write(packet[wire.BTH_OFFSET]):
            return packet
        waits_s = max(0.0, self._free_at.get((index, self._queue_of(path), False), 0.0) - self.now)
        backlog = waits_s * conditions.rate_bps / BITS_PER_BYTE
        length = len(packet) + OUTER_BYTES
        if (queue.trim_bytes and backlog + length > queue.trim_bytes) or rng.random() < conditions.trimming:
            self.log["trimmed"] += 1
            return wire.trimmed(packet, wire.TRIMMED_LASTHOP if queue.last_hop else wire.TRIMMED)
        if queue.limit_bytes and backlog + length > queue.limit_bytes:
            self.log["queue_dropped"] += 1
            return None
        if queue.is_marked(backlog, rng.random()) or rng.random() < conditions.marking:
            self.log["marked"] += 1
            return wire.marked(packet)
        return packet

    def _damaged(self, packet: bytes) -> bytes:
        """What arrives of `packet`: most often all of it."""
        conditions, rng = self._conditions, self._rng
        if conditions.corruption and rng.random() < conditions.corruption:
            self.log["corrupted"] += 1
            packet = flipped(packet, rng)
        if conditions.truncation and rng.random() < conditions.truncation:
            self.log["truncated"] += 1
            packet = packet[: rng.randrange(len(packet))]
        return packet

    def _replay(self, index: int, path: int, packet: bytes) -> None:
        """Perhaps an old packet of the same host goes along, over the same path, as its host had sent it."""
        conditions, rng, history = self._conditions, self._rng, self._history[index]
        if not conditions.replay:
            return
        if history and rng.random() < conditions.replay and not conditions.is_dead(self._hosts[index].name, path, self.now):
            self.log["replayed"] += 1
            self._fly(index, path, False, history[rng.randrange(len(history))], False)
        history.append(packet)

    def _queue_of(self, path: int) -> int:
        return SHARED if self._conditions.queue.shared else path

    def _fly(self, index: int, path: int, control: bool, packet: bytes, trimmed: bool) -> None:
        conditions, urgent = self._conditions, control or trimmed
        key = (index, path if control else self._queue_of(path), urgent)
        sent_at = max(self.now, self._free_at.get(key, 0.0)) + (len(packet) + OUTER_BYTES) * BITS_PER_BYTE / conditions.rate_bps
        self._free_at[key] = sent_at
        late = conditions.delay_s + conditions.extra_delay_s.get(path, 0.0) + self._rng.random() * conditions.jitter_s
        arrival_key = (index + 2, path, urgent)
        arrival = max(sent_at + late, self._free_at.get(arrival_key, 0.0))
        if conditions.reorder and self._rng.random() < conditions.reorder:
            self.log["reordered"] += 1
            arrival += self._rng.random() * conditions.reorder_s  # and nobody waits for it
        else:
            self._free_at[arrival_key] = arrival
        if trimmed:
            data_key = (index + 2, path, False)
            self._free_at[data_key] = max(arrival, self._free_at.get(data_key, 0.0))
        self._count += 1
        heappush(self._flying, (arrival, self._count, 1 - index, path, packet))


def flipped(packet: bytes, rng: Random) -> bytes:
    """`packet` with 1 to `MOST_FLIPS` bits flipped."""
    changed = bytearray(packet)
    for bit in rng.sample(range(len(packet) * 8), rng.randint(1, MOST_FLIPS)):
        changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)
