"""What NICs tell each other as wholes: which of their ports can be reached, and whether a path carries (ERTH and EETH, to QP 2).

Nothing here is retransmitted, and nothing proves that a packet is the peer's. So the newest news wins, as far as an order can be told, and
at worst EVs are out of use until their probes are answered: a port that is said to be down is up for those that reach it.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from random import Random
from typing import Protocol

from hosts import wire
from hosts.core import Event, PeerSpec, Transmit
from hosts.mrc.evs import EvSet
from hosts.mrc.frames import EndpointFields, Framer, Head, Malformed, SackFields, parse_endpoint
from hosts.mrc.params import MrcParams
from hosts.mrc.reverse import NEVER, Alarm, ReversePaths
from hosts.wire import ALL_PORTS, ENDPOINT_REQUEST, ENDPOINT_RESPONSE, EV_PROBE, PORT_STATUS_UPDATE, PSN_MASK

# The PSN of an Endpoint Request is not published. Ours numbers all that a host sends, from a number of the out-of-band exchange; a
# response repeats it. An update whose number is farther from the newest than this is none of this connection.
WINDOW = 1 << 16
MOST_READY = 1024  # requests and responses that wait to be sent
MOST_OPEN = 256  # updates whose answer may still come
# Updates that are obeyed: forged ones could else move the EVs, and fill the history, as often as packets come. What is left out SACKs tell.
UPDATES_A_S, UPDATES_AT_ONCE = 10.0, 64.0
SOURCE = slice(wire.IPV6.byte_offset("source"), wire.IPV6.byte_offset("destination"))


class Sender(Protocol):
    """A send QP, as far as it matters here."""

    tx_packets: int


class Peer:
    """Another host: the way back to it, and what it has said about its ports. `down`: mask of those that are down."""

    def __init__(self, spec: PeerSpec, reverse: ReversePaths) -> None:
        self.name, self.paths, self.reverse = spec.name, spec.paths, reverse
        self.address = ipaddress.IPv6Address(spec.address).packed
        self.ports = 0  # mask of its ports that a path uses
        for path in spec.paths:
            self.ports |= 1 << path.peer_port
        self.down = 0
        self.framer: Framer | None = None  # None before `connect`
        self.newest = self.newest_update = 0  # numbers of its requests, endless
        self._updates_left, self._updates_at = UPDATES_AT_ONCE, 0.0  # how many may be obeyed, and when that was worked out
        self.said: dict[int, int] = {}  # by send QP, the mask in the newest SACK
        self.senders: list[Sender] = []  # this host's send QPs to it
        self.sent_packets = 0  # by them, up to the last look

    def connect(self, framer: Framer, first_number: int, ports_down: int) -> None:
        """What the peer told out of band."""
        self.newest = self.newest_update = first_number - 1
        self.down, self.framer = ports_down & self.ports, framer

    def may_update(self, now: float) -> bool:
        """Whether one more update is obeyed."""
        left = min(self._updates_left + (now - self._updates_at) * UPDATES_A_S, UPDATES_AT_ONCE)
        self._updates_at, self._updates_left = now, left - 1.0 if left >= 1.0 else left
        return left >= 1.0

    def has_sent(self) -> bool:
        """Whether data went out to the peer since the last look."""
        before, self.sent_packets = self.sent_packets, sum(qp.tx_packets for qp in self.senders)
        return self.sent_packets != before

    def port_of(self, entropy: int) -> int:
        """Mask of the peer's port on the path of `entropy`."""
        return 1 << self.paths[entropy % len(self.paths)].peer_port


class Endpoint:
    """One host's end. `news`: peers whose QPs must hear that ports changed; `wary`: whether any peer is thought to have a dead port."""

    def __init__(self, address: str, specs: Mapping[str, PeerSpec], params: MrcParams, rng: Random, events: list[Event]) -> None:
        self.alarm = Alarm()
        self.peers = {name: Peer(spec, ReversePaths(spec.paths, params, rng, self.alarm)) for name, spec in specs.items()}
        self.local_down = 0
        self.news: set[str] = set()
        self.wary = False
        self.counters: Counter[str] = Counter()
        self.ready: deque[Transmit] = deque(maxlen=MOST_READY)
        self._params, self._rng, self._events = params, rng, events
        self._by_address = {peer.address: peer for peer in self.peers.values()}
        self._next = self._first = rng.randrange(1 << wire.PSN_BITS)
        self._updates: deque[int] = deque(maxlen=MOST_OPEN)
        self._untold: set[str] = set()  # peers that do not know of a change here
        self._told_down = 0

    # Out of band

    def attributes(self) -> dict[str, int]:
        """For the peers: the number of the first request, and the ports that are down."""
        self._told_down = self.local_down
        return {"endpoint_psn": self._first, "ports_down": self.local_down}

    def connect(self, name: str, framer: Framer, first_number: int, ports_down: int) -> None:
        """Takes what a peer told; `framer` makes packets to its endpoint."""
        peer = self.peers[name]
        peer.connect(framer, first_number, ports_down)
        self.news.add(name)
        self.wary = self.wary or peer.down != 0
        if self.local_down != self._told_down:
            self._untold.add(name)

    def add_sender(self, name: str, qp: Sender, evs: EvSet) -> None:
        """A send QP of this host to peer `name`, with its EVs: what it knows of the paths holds for answers too."""
        self.peers[name].senders.append(qp)
        self.peers[name].reverse.forward.append(evs)

    # Ports

    @property
    def all_down(self) -> bool:
        """Whether no port is left that any path uses."""
        paths = [path for peer in self.peers.values() for path in peer.paths]
        return bool(paths) and all(self.local_down >> path.port & 1 for path in paths)

    def on_port(self, port: int, up: bool) -> None:
        """A port of this host came up or went down: every peer is told, over ports that are up."""
        bit = 1 << port
        self.local_down = self.local_down & ~bit if up else self.local_down | bit
        self.news.update(self.peers)
        self._untold.update(peer.name for peer in self.peers.values() if peer.framer is not None)

    def take_news(self, now: float) -> list[Peer]:
        """Peers whose QPs must hear of changed ports; those peers that do not know yet are sent an update."""
        for name in sorted(self._untold):
            self._tell(now, self.peers[name])
        found = [self.peers[name] for name in sorted(self.news)]
        self._untold.clear()
        self.news.clear()
        for peer in found:
            peer.reverse.on_ports(self.local_down, peer.down)
        return found

    def _tell(self, now: float, peer: Peer) -> None:
        """PORT_STATUS_UPDATE over a few EVs, none of them denied, of different ports as far as there are: none is sent a second time."""
        paths = list(enumerate(peer.paths))
        self._rng.shuffle(paths)
        up = [(at, path) for at, path in paths if not self.local_down >> path.port & 1 and not peer.down >> path.peer_port & 1]
        usable = [(at, path) for at, path in up if not peer.reverse.is_denied(at)]
        by_port: dict[int, list[int]] = {}
        for at, path in usable:
            by_port.setdefault(path.port, []).append(at)
        in_turn = sorted((turn, at) for group in by_port.values() for turn, at in enumerate(group))
        number = self._number()
        for _, at in in_turn[: self._params.port_update_evs]:
            self._request(now, peer, peer.paths[at].ev, PORT_STATUS_UPDATE, number)
            self.counters["port_updates_sent"] += 1
        self._updates.append(number)

    def _set_down(self, now: float, peer: Peer, down: int) -> None:
        changed, peer.down = down != peer.down, down
        self.wary = any(each.down or any(each.said.values()) for each in self.peers.values())
        if changed:
            self.news.add(peer.name)
            ports = [port for port in range(down.bit_length()) if down >> port & 1]
            self._events.append(Event(now, "peer_port", {"peer": peer.name, "down": ports}))

    def on_sack(self, now: float, name: str, qp: int, entropy: int, say: SackFields, newest: bool) -> str | None:
        """What a SACK to send QP `qp`, which came with `entropy`, tells of the peer's ports. Returns the reason if that cannot be.

        An answered probe proves that the peer's port on that path is up. Of others only the newest counts, and only what differs from the
        one before: an update may have come meanwhile.
        """
        peer = self.peers[name]
        if say.probe_reply:
            self._set_down(now, peer, peer.down & ~peer.port_of(say.entropy))
            return None
        mask = say.down_ports & peer.ports
        if mask & peer.port_of(entropy):
            return "port_mask"
        changed = mask ^ peer.said.get(qp, 0) if newest else 0
        if changed:
            peer.said[qp] = mask
            self._set_down(now, peer, peer.down & ~changed | mask & changed)
        return None

    def deny(self, links: Collection[str], on: bool) -> None:
        """Links that the administrator denies, or allows again."""
        for peer in self.peers.values():
            peer.reverse.deny(links, on)

    # Packets

    def take(self, now: float, head: Head, datagram: memoryview) -> None:
        """Takes an endpoint packet.

        Raises:
            Malformed: with the reason to count; nothing has changed.
        """
        say = parse_endpoint(datagram, head.opcode == ENDPOINT_RESPONSE)
        peer = self._by_address.get(bytes(datagram[SOURCE]))
        if peer is None:
            raise Malformed("unknown_peer")
        if peer.framer is None:
            raise Malformed("not_connected")
        if say.op not in wire.ENDPOINT_OPS:
            raise Malformed("endpoint_op")
        if head.opcode == ENDPOINT_REQUEST:
            self._on_request(now, peer, head.entropy, say)
        else:
            self._on_response(now, peer, say)

    def _on_request(self, now: float, peer: Peer, entropy: int, say: EndpointFields) -> None:
        """Answers it, with what it said; on the path that it came on, unless that is known to be bad. Only of updates the order matters."""
        number = wire.unwrap(say.number, peer.newest)
        is_near = abs(number - peer.newest) <= WINDOW
        if say.op == PORT_STATUS_UPDATE:
            if not is_near:
                raise Malformed("endpoint_number")
            self._on_update(now, peer, entropy, number, say.port_mask)
        if is_near:
            peer.newest = max(peer.newest, number)
        self._send(peer, peer.reverse.way(entropy), ENDPOINT_RESPONSE, say._replace(entropy=entropy))

    def _on_update(self, now: float, peer: Peer, entropy: int, number: int, mask: int) -> None:
        """Copies of the newest are only answered."""
        if not mask & peer.port_of(entropy):
            raise Malformed("port_mask")  # it came through a port that it says is down
        if number < peer.newest_update:
            raise Malformed("port_status_stale")
        if number > peer.newest_update:
            if not peer.may_update(now):
                raise Malformed("port_status_flood")
            peer.newest_update = number
            self._set_down(now, peer, peer.ports & ~mask)

    def _on_response(self, now: float, peer: Peer, say: EndpointFields) -> None:
        if say.op == PORT_STATUS_UPDATE and say.number in self._updates:
            self.counters["port_updates_answered"] += 1
            return
        path = peer.reverse.answered(now, say.number) if say.op == EV_PROBE else None
        if path is None:
            raise Malformed("unexpected_endpoint_reply")
        self.counters["ev_probes_answered"] += 1
        self._set_down(now, peer, peer.down & ~peer.port_of(path))

    def _number(self) -> int:
        number = self._next
        self._next = number + 1 & PSN_MASK
        return number

    def _request(self, now: float, peer: Peer, ev: int, op: int, number: int) -> None:
        say = EndpointFields(number, op, ALL_PORTS & ~self.local_down, wire.timestamp(now))
        self._send(peer, ev, ENDPOINT_REQUEST, say)

    def _send(self, peer: Peer, ev: int, opcode: int, say: EndpointFields) -> None:
        """Queues a packet in the control class."""
        assert peer.framer is not None
        header, trailer = peer.framer.endpoint(ev, opcode, say)
        path = peer.paths[ev % len(peer.paths)]
        self.ready.append(Transmit(path.port, path.destination, header, b"", trailer, True))

    def transmit(self, now: float) -> Iterator[Transmit]:
        """The requests and responses that are ready; what the caller does not take stays."""
        while self.ready:
            yield self.ready.popleft()

    # Probes of the way back

    def on_timer(self, now: float) -> None:
        """Sends the EV_PROBEs that are due."""
        if now < self.alarm.due_at:
            return
        for peer in self.peers.values():
            if peer.reverse.asked and now >= peer.reverse.due_at:
                self._look(now, peer)
        self.alarm.due_at = min((peer.reverse.due_at for peer in self.peers.values() if peer.reverse.asked), default=NEVER)

    def _look(self, now: float, peer: Peer) -> None:
        before = peer.reverse.dead
        if peer.has_sent() and not before:
            peer.reverse.postpone(now)
            return
        number = self._next
        at = peer.reverse.due(now, number)
        if at is not None:
            self._request(now, peer, peer.paths[at].ev, EV_PROBE, self._number())
            self.counters["ev_probes_sent"] += 1
        self.counters["ev_probes_missed"] += len(peer.reverse.dead - before)

    def report(self) -> dict[str, int]:
        """Counters for agents.json."""
        return dict(self.counters)
