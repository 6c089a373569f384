"""One host's TCP transport: who is joined to whom, whose turn it is, what failed (hosts/core.py's Core). The sockets are passed in.

Connections are numbered by whoever has the sockets (`Streams`). From a host to each peer that it sends to lead `connections` of them, which
it dials; data goes that way, acknowledgements come back on them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Protocol

from hosts.core import Completion, Event, PeerSpec, QpError, Transmit, taken
from hosts.tcp.frames import ACKNOWLEDGE, CHUNK, HELLO, WELCOME, Frame, Inlet, Refused, pack
from hosts.tcp.info import TcpInfo
from hosts.tcp.params import MOST_CONNECTIONS, TcpParams
from hosts.tcp.receiver import ReceivePeer
from hosts.tcp.rows import flow_row, path_row, totals
from hosts.tcp.sender import Lane, SendPeer
from testbed.errors import UsageError

MOST_STRANGERS = 64  # connections that have not said who they are, beyond those that the job's own peers may have on their way
HELLO_S = 10.0  # ... for so long: a HELLO that is lost comes again after 0.2 to 3 s
GONE = "closed by the peer"


class DialFailed(Exception):
    """A connection cannot even be begun; the text says why."""


class Streams(Protocol):
    """The sockets, as the core sees them."""

    @property
    def full(self) -> Collection[int]:
        """Connections that take no more now."""

    def dial(self, address: str, port: int) -> int:
        """Begins a connection and returns its number; DialFailed."""

    def close_connection(self, number: int, known: bool) -> None:
        """Ends a connection, of a peer (`known`) or of a stranger."""

    def options(self) -> Mapping[str, object]:
        """What the kernel said of the sockets' options."""

    def info(self, number: int) -> TcpInfo:
        """What the kernel says of a connection, or last said of one that has ended."""


class Connection:
    """A connection's stream, by frames. `peer` is None until it is known who dialled."""

    def __init__(self, core: TcpCore, number: int, peer: SendPeer | ReceivePeer | None, lane: Lane | None = None) -> None:
        self._core, self.number, self.peer, self.lane = core, number, peer, lane
        self.inlet = Inlet(self)

    def begin(self, frame: Frame) -> memoryview | None:
        """Chunks go straight into the region."""
        if frame.kind == CHUNK and isinstance(self.peer, ReceivePeer):
            return self.peer.begin(frame)
        if frame.length:
            raise Refused("unexpected_frame" if self.peer else "foreign")
        return None

    def end(self, frame: Frame) -> None:
        """Books a whole frame."""
        peer = self.peer
        if peer is None:
            self._core.on_hello(self, frame)
        elif isinstance(peer, ReceivePeer):
            if frame.kind != CHUNK:
                raise Refused("unexpected_frame")
            peer.end(frame, self.number)
        elif self.lane is not None:
            self._take_answer(peer, self.lane, frame)

    def _take_answer(self, peer: SendPeer, lane: Lane, frame: Frame) -> None:
        if frame.kind != WELCOME:
            peer.on_frame(frame, lane)
        elif lane.joined or frame.offset != lane.index:
            raise Refused("bad_welcome")
        else:
            lane.joined = True


class TcpCore:
    """Implements hosts.core.Core; `port` is where this host listens, `seed` draws the nonces that peers must show."""

    def __init__(
        self,
        name: str,
        params: TcpParams,
        send_to: Mapping[str, PeerSpec],
        receive_from: Mapping[str, PeerSpec],
        region: memoryview,
        seed: int,
        streams: Streams,
        port: int,
    ) -> None:
        self._name, self._params, self._region, self._streams, self._port = name, params, region, streams, port
        self._send_to = send_to
        draw = random.Random(f"tcp {seed} {name}")
        self._receivers = {peer: ReceivePeer(peer, draw.getrandbits(64), region) for peer in receive_from}
        self._by_nonce = {receiver.nonce: receiver for receiver in self._receivers.values()}
        self._senders: dict[str, SendPeer] = {}
        self._nonces: dict[str, int] = {}  # to show to each peer
        self._connections: dict[int, Connection] = {}
        self._strangers: dict[int, float] = {}  # the latest time for their HELLO, by number
        self._most_strangers = MOST_STRANGERS + MOST_CONNECTIONS * len(self._receivers)
        self._order: list[tuple[SendPeer, Lane]] = []
        self._first = 0  # whose turn it is
        self._letters: list[tuple[int, bytes]] = []  # HELLOs and WELCOMEs to send
        self._drops: Counter[str] = Counter()
        self._events: list[Event] = []
        self._failed: set[str] = set()  # peers whose failure has to be told, and those of whom it was told
        self._told: set[str] = set()
        self._join_by: float | None = None
        self._joining = self._closing = False

    # --- joining -----------------------------------------------------------------------------------------------------------------

    def attributes(self) -> dict[str, Any]:
        """Where this host listens, the nonce that each peer must show, and how much may be written."""
        nonces = {peer: receiver.nonce for peer, receiver in self._receivers.items()}
        return {"port": self._port, "region_bytes": len(self._region), "receive": nonces}

    def connect(self, peers: Mapping[str, Mapping[str, Any]]) -> None:
        """Dials every connection to the peers that are sent to; UsageError if a peer's attributes lack something."""
        try:
            told = {peer: (int(peers[peer]["port"]), int(peers[peer]["region_bytes"])) for peer in self._send_to}
            self._nonces = {peer: int(peers[peer]["receive"][self._name]) for peer in self._send_to}
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise UsageError(
                f"{self._name}: unusable attributes of a peer ({error!r}): send `connect` with what each `ready` said"
            ) from error
        if wrong := [peer for peer, (port, _) in told.items() if not 0 < port < 1 << 16 or not 0 <= self._nonces[peer] < 1 << 64]:
            raise UsageError(f"{self._name}: port or nonce of {', '.join(wrong)} is out of range: send what each `ready` said")
        for peer, (port, region_bytes) in told.items():
            self._dial(self._senders.setdefault(peer, SendPeer(peer, self._params, region_bytes)), port)
        self._joining = True

    def _dial(self, sender: SendPeer, port: int) -> None:
        try:
            for index in range(self._params.connections):
                lane = Lane(self._streams.dial(self._send_to[sender.name].address, port), index)
                sender.lanes.append(lane)
                self._order.append((sender, lane))
                self._connections[lane.number] = Connection(self, lane.number, sender, lane)
        except DialFailed as error:
            self._fail(sender, f"connecting: {error}")

    @property
    def joined(self) -> bool:
        """Whether every connection, there and back, is joined, or its peer has failed."""
        return not self._joining or all(peer.joined or peer.error is not None for peer in self._peers())

    def _peers(self) -> Iterator[SendPeer | ReceivePeer]:
        yield from self._senders.values()
        yield from self._receivers.values()

    def on_connected(self, number: int) -> None:
        """A connection that was dialled is there: says who we are."""
        connection = self._connections[number]
        if isinstance(connection.peer, SendPeer) and connection.lane is not None:
            hello = Frame(HELLO, self._nonces[connection.peer.name], 0, self._params.connections, connection.lane.index)
            self._letters.append((number, pack(hello)))

    def on_accepted(self, now: float, number: int) -> None:
        """Somebody has connected. Of too many who do not say who they are, the oldest goes."""
        if len(self._strangers) >= self._most_strangers:
            self._drop(next(iter(self._strangers)), "too_many_strangers")
        self._strangers[number] = now + HELLO_S
        self._connections[number] = Connection(self, number, None)

    def on_hello(self, connection: Connection, frame: Frame) -> None:
        """The first frame of a connection that was accepted; Refused if it is nobody whom we expect."""
        receiver = self._by_nonce.get(frame.message)
        if frame.kind != HELLO or receiver is None:
            raise Refused("foreign")
        receiver.join(frame, connection.number)
        connection.peer = receiver
        del self._strangers[connection.number]
        self._letters.append((connection.number, pack(frame._replace(kind=WELCOME))))

    # --- the stream --------------------------------------------------------------------------------------------------------------

    def room(self, number: int) -> memoryview:
        """Where the next bytes of a connection are to be put."""
        return self._connections[number].inlet.room

    def received(self, number: int, size_bytes: int) -> bool:
        """So many bytes were put there. False if the connection is over: what came was refused, and counted by reason."""
        connection = self._connections[number]
        try:
            connection.inlet.took(size_bytes)
        except Refused as refused:
            self._drop(number, str(refused))
            if connection.peer is not None:
                self._fail(connection.peer, f"what came on a connection is not ours to take ({refused})")
            return False
        return True

    def _drop(self, number: int, reason: str) -> None:
        self._drops[reason] += 1
        known = self._strangers.pop(number, None) is None
        self._connections.pop(number, None)
        self._letters = [letter for letter in self._letters if letter[0] != number]
        self._streams.close_connection(number, known)

    def on_closed(self, number: int, reason: str) -> bool:
        """A connection has ended by itself; whether it was a peer's. Without an outstanding message that is no error of a closing job.

        The others to that peer stay until the session ends: closing them now would tell the peer an error that is not the first one.
        """
        connection = self._connections.pop(number, None)
        self._letters = [letter for letter in self._letters if letter[0] != number]
        if self._strangers.pop(number, None) is not None:
            self._drops["stranger_left"] += 1
            return False
        peer = connection.peer if connection is not None else None
        if peer is not None and not (self._closing and (isinstance(peer, ReceivePeer) or peer.acked == peer.posted)):
            self._fail(peer, reason)
        return True

    def on_datagram(self, now: float, port: int, datagram: memoryview) -> None:
        """There are none."""

    def on_receive_done(self, now: float) -> None:
        """Nothing to decide about acknowledgements, as whole messages get them at once; at the end, who has acknowledged everything."""
        if self._closing:
            self._close_done(now)

    def on_port(self, now: float, port: int, up: bool) -> None:
        """Nothing: the kernel routes around a dead port, or sends again."""

    # --- sending -----------------------------------------------------------------------------------------------------------------

    def post_write(self, now: float, peer: str, data: memoryview, remote_offset: int, imm: int | None) -> None:
        """Queues a Write-with-Immediate; UsageError if there is nobody to take it, it does not fit, or `imm` is None."""
        if imm is None:
            raise UsageError("TCP is used here for Writes with Immediate only: give an immediate")
        if self._closing:
            raise UsageError(f"{self._name} has closed its connections to {peer}: post before `close`")
        if peer not in self._senders:
            raise UsageError(f"{self._name} is not connected to {peer}: connect first, to one of {sorted(self._send_to)}")
        if self._senders[peer].error is None:
            self._senders[peer].post(data, remote_offset, imm)

    def outstanding_messages(self, peer: str) -> int:
        """Messages to `peer` not yet acknowledged; 0 before `connect`."""
        return self._senders[peer].posted - self._senders[peer].acked if peer in self._senders else 0

    def transmit(self, now: float) -> Iterator[Transmit]:
        """Letters and acknowledgements first, then chunks, the connections in turn; nothing for a connection that is full."""
        full = self._streams.full
        while self._letters:
            number, letter = self._letters.pop(0)
            yield Transmit(number, "", letter, b"", b"", True)
        for receiver in self._receivers.values():
            owing = receiver.acknowledge_on
            if owing is not None and owing not in full:
                receiver.acknowledge_on = None
                yield Transmit(owing, "", pack(Frame(ACKNOWLEDGE, receiver.complete)), b"", b"", True)
        yield from self._chunks(full)

    def _chunks(self, full: Collection[int]) -> Iterator[Transmit]:
        order, idle = self._order, 0
        while idle < len(order):
            sender, lane = order[self._first % len(order)]
            self._first = (self._first + 1) % len(order)
            packet = sender.chunk(lane) if lane.waiting and lane.number not in full else None
            if packet is None:
                idle += 1
            else:
                idle = 0
                yield packet

    # --- time, news, the end -----------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """By when all must be joined (at once, to find out when that is), or a stranger must have said who it is."""
        due = list(self._strangers.values())[:1]
        if self._joining and not self.joined:
            due.append(float("-inf") if self._join_by is None else self._join_by)
        return min(due, default=None)

    def on_timer(self, now: float) -> None:
        """Gives up on what was not joined in time."""
        if self._joining and self._join_by is None:
            self._join_by = now + self._params.connect_timeout_s
        if self._join_by is not None and now >= self._join_by and not self.joined:
            for peer in self._peers():
                if not peer.joined:
                    self._fail(peer, f"not connected within {self._params.connect_timeout_s:g} s")
        for number in [number for number, until in self._strangers.items() if now >= until]:
            self._drop(number, "silent_stranger")

    def deny(self, now: float, links: Collection[str], evs: Mapping[str, Collection[int]], on: bool) -> dict[str, list[int]]:
        """UsageError: TCP has no EVs; the network chooses the path."""
        raise UsageError("TCP has no EVs to deny: the network chooses the paths; deny EVs in an arm of MRC")

    def deny_ways_back(self, links: Collection[str], on: bool) -> None:
        """Nothing: the network chooses the path of acknowledgements, too."""

    def close(self, now: float) -> None:
        """The job posts no more."""
        self._closing = True
        self._close_done(now)

    def _close_done(self, now: float) -> None:
        """Notes which peers have acknowledged everything."""
        for sender in self._senders.values():
            if not sender.closed and sender.error is None and sender.acked == sender.posted:
                sender.closed = True
                self._events.append(Event(now, "qp_closed", {"peer": sender.name, "qp": 0}))

    @property
    def closed(self) -> bool:
        """Whether `close` was called and everything is acknowledged, or has failed."""
        return self._closing and all(sender.closed or sender.error is not None for sender in self._senders.values())

    def take_completions(self) -> list[Completion]:
        """Completions since the last call, in order a peer."""
        return [completion for receiver in self._receivers.values() if receiver.completions for completion in taken(receiver.completions)]

    def take_errors(self) -> list[QpError]:
        """Peers that failed since the last call: once for each, in whichever direction it was noticed first."""
        if not self._failed:
            return []
        errors = {peer.name: peer.error or "" for peer in self._peers() if peer.name in self._failed and peer.error is not None}
        self._told |= self._failed
        self._failed.clear()
        return [QpError(*error) for error in errors.items()]

    def _fail(self, peer: SendPeer | ReceivePeer, reason: str) -> None:
        peer.fail(reason)
        if peer.name not in self._told:
            self._failed.add(peer.name)

    def take_events(self) -> list[Event]:
        """`qp_closed` since the last call."""
        return taken(self._events)

    # --- counters ----------------------------------------------------------------------------------------------------------------

    def acked_bytes(self) -> int:
        """Bytes of whole messages that peers have acknowledged."""
        return sum(sender.acked_bytes for sender in self._senders.values())

    def flow_rows(self) -> list[tuple[Any, ...]]:
        """A row a peer: what the kernel counts, over all connections; bytes of whole messages."""
        return [flow_row(sender, self._infos(sender)) for sender in self._senders.values()]

    def path_rows(self) -> list[tuple[Any, ...]]:
        """A row a connection, by its index as EV."""
        return [path_row(sender, lane, self._streams.info(lane.number)) for sender in self._senders.values() for lane in sender.lanes]

    def _infos(self, sender: SendPeer) -> list[TcpInfo]:
        return [self._streams.info(lane.number) for lane in sender.lanes]

    def report(self) -> dict[str, Any]:
        """Counters of this core's life."""
        incoming = [self._streams.info(number) for receiver in self._receivers.values() for number in receiver.connections.values()]
        return {
            **totals({sender.name: self._infos(sender) for sender in self._senders.values()}, incoming),
            "closed": {sender.name: sender.closed for sender in self._senders.values()},
            "drops": dict(self._drops),
            "options": dict(self._streams.options()),
        }
