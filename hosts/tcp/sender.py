"""What this host writes to one peer: messages cut into chunks, dealt to the connections in turn. No I/O, no clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from hosts.core import Transmit
from hosts.tcp.frames import ACKNOWLEDGE, CHUNK, Frame, Refused, pack
from hosts.tcp.params import TcpParams
from testbed.errors import UsageError


@dataclass
class _Message:
    """A Write-with-Immediate that the peer has not acknowledged; `unsent` of its chunks are still here."""

    data: memoryview
    remote_offset: int
    immediate: int
    unsent: int


class Lane:
    """One connection to the peer: `number` as the sockets know it, `index` as the peer does, and the chunks that wait for it."""

    def __init__(self, number: int, index: int) -> None:
        self.number, self.index = number, index
        self.joined = False
        self.waiting: deque[tuple[int, int, int]] = deque()  # message number, offset, length


class SendPeer:
    """Messages to one peer; a chunk goes on the connection whose turn it is and on no other, as NCCL deals them (net_socket.cc)."""

    def __init__(self, name: str, params: TcpParams, region_bytes: int) -> None:
        self.name, self._params, self._region_bytes = name, params, region_bytes
        self.lanes: list[Lane] = []
        self.posted = self.acked = self.acked_bytes = 0
        self.error: str | None = None
        self.closed = False
        self._messages: deque[_Message] = deque()  # from number `acked` on
        self._turn = 0

    @property
    def joined(self) -> bool:
        """Whether the peer has welcomed every connection."""
        return all(lane.joined for lane in self.lanes)

    def post(self, data: memoryview, remote_offset: int, immediate: int) -> None:
        """Cuts a message and deals its chunks; an empty one is one chunk without payload. UsageError: it is outside the peer's region."""
        size, lanes = len(data), self.lanes
        if not 0 <= remote_offset <= self._region_bytes - size:
            raise UsageError(f"{size} bytes at {remote_offset} of {self.name}'s region, which has {self._region_bytes} bytes")
        step = max(self._params.chunk_bytes, -(-size // len(lanes)))
        offsets = range(0, size, step) if size else (0,)
        for offset in offsets:
            lanes[self._turn].waiting.append((self.posted, offset, min(step, size - offset)))
            self._turn = (self._turn + 1) % len(lanes)
        self._messages.append(_Message(data, remote_offset, immediate, len(offsets)))
        self.posted += 1

    def chunk(self, lane: Lane) -> Transmit | None:
        """The next chunk for a connection; it counts as sent. None if nothing may be sent there."""
        if not lane.waiting or not lane.joined or self.error is not None:
            return None
        number, offset, length = lane.waiting.popleft()
        message = self._messages[number - self.acked]
        message.unsent -= 1
        header = pack(Frame(CHUNK, number, message.remote_offset, len(message.data), offset, length, message.immediate))
        return Transmit(lane.number, "", header, message.data[offset : offset + length], b"", False)

    def on_frame(self, frame: Frame, lane: Lane) -> None:
        """An acknowledgement; Refused for anything else. One that another connection has overtaken says nothing new."""
        if frame.kind != ACKNOWLEDGE or frame.length or not lane.joined:
            raise Refused("unexpected_frame")
        if frame.message > self.posted:
            raise Refused("acknowledges_unsent")
        while self.acked < frame.message:
            if self._messages[0].unsent:
                raise Refused("acknowledges_unsent")
            self.acked_bytes += len(self._messages.popleft().data)
            self.acked += 1

    def fail(self, reason: str) -> None:
        """Nothing more goes to this peer."""
        self.error = self.error or reason
