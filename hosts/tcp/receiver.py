"""What one peer writes here: chunks from all of its connections, put together to messages that complete in order. No I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from hosts.core import Completion
from hosts.tcp.frames import Frame, Refused
from hosts.tcp.params import MOST_CONNECTIONS

MOST_OPEN = 4096  # messages that a peer may have begun before the oldest is complete: far above what a job has outstanding


@dataclass
class _Incoming:
    """A message of which something has come; `pieces` are the spans (first byte, byte after) that have come or are coming."""

    total: int
    remote_offset: int
    immediate: int
    pieces: list[tuple[int, int]] = field(default_factory=list)
    arrived: int = 0

    def book(self, frame: Frame) -> None:
        """Makes room for a chunk; Refused if it is not of this message, or part of it has been sent already."""
        first, after = frame.offset, frame.offset + frame.length
        if (self.total, self.remote_offset, self.immediate) != (frame.total, frame.remote_offset, frame.immediate):
            raise Refused("inconsistent")
        if after > self.total or (first == after and self.total):
            raise Refused("chunk_out_of_message")
        if any(first < end and begin < after for begin, end in self.pieces) or (self.pieces and not self.total):
            raise Refused("overlap")
        if len(self.pieces) >= MOST_CONNECTIONS:
            raise Refused("too_many_chunks")
        self.pieces.append((first, after))


class ReceivePeer:
    """Messages of one peer into `region`. `complete`: messages that are complete, with all before them."""

    def __init__(self, name: str, nonce: int, region: memoryview) -> None:
        self.name, self.nonce, self._region = name, nonce, region
        self.connections: dict[int, int] = {}  # number by index
        self.wanted: int | None = None  # how many there will be, as the first of them said
        self.error: str | None = None
        self.complete = 0
        self.completions: list[Completion] = []
        self.acknowledge_on: int | None = None  # the connection that owes an acknowledgement
        self._open: dict[int, _Incoming] = {}
        self._done: dict[int, int] = {}  # immediate of complete messages that wait for an earlier one

    @property
    def joined(self) -> bool:
        """Whether all connections are there."""
        return len(self.connections) == self.wanted

    def join(self, frame: Frame, number: int) -> None:
        """Takes a connection whose HELLO had the right nonce; Refused if there can be no such connection."""
        wanted = frame.total if self.wanted is None else self.wanted
        if not 1 <= frame.total == wanted <= MOST_CONNECTIONS or frame.offset >= wanted or frame.length:
            raise Refused("bad_hello")
        if frame.offset in self.connections:
            raise Refused("joined_twice")
        self.wanted, self.connections[frame.offset] = wanted, number

    def begin(self, frame: Frame) -> memoryview | None:
        """The part of the region that a chunk goes to. Refused if it is outside, or no chunk that may come now."""
        if frame.message in self._done or not self.complete <= frame.message < self.complete + MOST_OPEN:
            raise Refused("unexpected_message")
        message = self._open.get(frame.message)
        if message is None:
            if frame.remote_offset + frame.total > len(self._region):
                raise Refused("out_of_region")
            message = self._open[frame.message] = _Incoming(frame.total, frame.remote_offset, frame.immediate)
        message.book(frame)
        at = frame.remote_offset + frame.offset
        return self._region[at : at + frame.length] if frame.length else None

    def end(self, frame: Frame, number: int) -> None:
        """A chunk has come, whole, on connection `number`: on the one that ends a message goes the acknowledgement, as its path works."""
        message = self._open[frame.message]
        message.arrived += frame.length
        if message.arrived < message.total:
            return
        self._done[frame.message] = message.immediate
        del self._open[frame.message]
        while self.complete in self._done:
            self.completions.append(Completion(self.name, self._done.pop(self.complete)))
            self.complete += 1
            self.acknowledge_on = number

    def fail(self, reason: str) -> None:
        """Nothing more comes from this peer."""
        self.error = self.error or reason
