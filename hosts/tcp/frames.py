"""What travels on a connection: frames of one fixed header, and the payload of a chunk. Cutting a stream into them. No I/O, no clock.

The format is ours: TCP has no messages. One table, below, is the whole of it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from hosts import wire
from hosts.wire import Header

MAGIC = 0x4D54  # "MT"
VERSION = 1
HELLO, WELCOME, CHUNK, ACKNOWLEDGE = 1, 2, 3, 4

FRAME = Header("FRAME", (
    (("magic", 16), ("version", 8), ("kind", 8)), (("message", 64),), (("remote_offset", 64),), (("total", 32),), (("offset", 32),),
    (("length", 32),), (("immediate", 32),),
))  # fmt: skip
"""`length` bytes of payload follow. By kind:

- HELLO, the first of who dials: `message` is the nonce that the receiver gave to this peer, `offset` the connection's index, `total` how
  many there will be. WELCOME answers with the same.
- CHUNK: bytes `offset` to `offset` + `length` of message number `message` (from 0 between two hosts), which has `total` bytes, belongs at
  `remote_offset` of the receiver's region, and completes with `immediate`.
- ACKNOWLEDGE: messages below number `message` are complete at the receiver. Goes against the direction of the data.
"""
_FAST = wire.fast(FRAME)
_HEAD = MAGIC << 16 | VERSION << 8


class Frame(NamedTuple):
    """A frame's fields."""

    kind: int
    message: int
    remote_offset: int = 0
    total: int = 0
    offset: int = 0
    length: int = 0
    immediate: int = 0


class Refused(Exception):
    """The stream is not what it must be; the text is the reason under which it is counted."""


def pack(frame: Frame) -> bytes:
    """The header's bytes."""
    return _FAST.pack(_HEAD | frame.kind, *frame[1:])


def parse(header: bytes | bytearray) -> Frame:
    """A header's fields; Refused if nobody of ours has written it."""
    head, *fields = _FAST.unpack(header)
    if head >> 8 != _HEAD >> 8:
        raise Refused("bad_magic")
    return Frame(head & 0xFF, *fields)


class Sink(Protocol):
    """Who takes the frames of a connection."""

    def begin(self, frame: Frame) -> memoryview | None:
        """Where its payload belongs, exactly `frame.length` bytes; None without payload. Refused: the connection is over."""

    def end(self, frame: Frame) -> None:
        """Frame and payload are here, whole."""


class Inlet:
    """Cuts a connection's stream into frames, however it arrives. `room` is where its next bytes are to be put: no copy of a payload."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._header = bytearray(FRAME.size_bytes)
        self._frame: Frame | None = None  # whose payload is on its way
        self.room = memoryview(self._header)

    def took(self, size_bytes: int) -> None:
        """So many bytes were put at the beginning of `room`. Refused: the stream is worth nothing any more."""
        self.room = self.room[size_bytes:]
        if self.room:
            return
        frame, place = self._frame, None
        if frame is None:
            frame = parse(self._header)
            place = self._sink.begin(frame)
        if place:
            self._frame, self.room = frame, place
            return
        self._sink.end(frame)
        self._frame, self.room = None, memoryview(self._header)
