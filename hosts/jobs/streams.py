"""Streams: back-to-back messages on each of a host's flows, from a start to an end time, every message checked by its receiver."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hosts.commands import Start
from hosts.core import taken
from hosts.jobs.common import JobError, Outstanding, StepRecord, Write, Wrong
from testbed.errors import UsageError

MAX_WINDOW_BYTES = 1 << 26  # of one flow: its receive slots are memory of the receiver
ROTATIONS = 251  # a prime above any number of slots: two messages in the same slot one after the other differ


@dataclass(frozen=True)
class Outgoing:
    """A flow from this host: on from `start_s` to `stop_s` after the job's start; `place` is its index among the receiver's flows.

    `every_s`: a message at most so often; 0 = as soon as fewer than `outstanding` are unacknowledged.
    """

    peer: str
    start_s: float = 0.0
    stop_s: float = math.inf
    place: int = 0
    every_s: float = 0.0


class Payloads:
    """Messages that a receiver can check: windows on one table of random bytes, placed by flow and message number."""

    def __init__(self, message_bytes: int, seed: int) -> None:
        self._size, self._seed = message_bytes, seed
        self._table = np.random.default_rng(seed % 2**32).bytes(message_bytes + ROTATIONS)

    def of(self, source: str, target: str, number: int) -> memoryview:
        """Message `number` of a flow: a view of memory that never changes."""
        offset = (zlib.crc32(f"{self._seed} {source} {target}".encode()) + number) % ROTATIONS
        return memoryview(self._table)[offset : offset + self._size]


@dataclass
class _Sending:
    """A flow while it runs: when it begins and ends (CLOCK_MONOTONIC seconds), and the messages that were posted and acknowledged."""

    flow: Outgoing
    begin: float = math.inf
    end: float = math.inf
    next_at: float = 0.0  # of a paced flow
    room: int = 0
    posted: int = 0
    acked: int = 0
    failed: bool = False

    @property
    def due(self) -> float | None:
        """When it begins, or a paced flow may post its next message; None if only acknowledgements, or nothing, move it on."""
        if self.failed or self.begin >= self.end:
            return None
        if not self.posted:
            return self.begin
        return self.next_at if self.flow.every_s and self.room and self.next_at < self.end else None

    def allowed(self, now: float, room: int) -> int:
        """How many messages may be posted now that `room` fit. A paced flow that was held up does not catch up: it would be a burst."""
        every_s, count = self.flow.every_s, room
        if every_s:
            count = min(room, 1) if now >= self.next_at else 0
        if count and every_s:
            self.next_at = (self.next_at if now - self.next_at < every_s else now) + every_s
        self.room = room - count
        return count


class StreamsJob:
    """All flows of one host. At most `outstanding` messages of a flow are unacknowledged; they go to as many slots in turn.

    Why a slot is free again when it is used anew: message n goes to the slot of message n - outstanding only when the peer has wholly
    acknowledged that one and all before it. The peer's transport acknowledges a message after it completed, and the peer's loop hands every
    completion to the job, which compares it at once, before it sends an acknowledgement. A late duplicate of an old packet is dropped by
    the transport, by its PSN.
    """

    def __init__(
        self, host: str, message_bytes: int, outstanding: int, outgoing: Sequence[Outgoing], incoming: Sequence[str], seed: int
    ) -> None:
        if any(flow.every_s < 0 for flow in outgoing):
            raise UsageError("streams: a flow's every_s (seconds between its messages) must be at least 0")
        if message_bytes < 1 or not 1 <= outstanding < ROTATIONS or message_bytes * outstanding > MAX_WINDOW_BYTES:
            raise UsageError(
                f"streams of {outstanding} outstanding messages (job.outstanding) of {message_bytes} bytes (job.message_bytes): give 1 to "
                f"{ROTATIONS - 1} messages of 1 byte or more, in all at most {MAX_WINDOW_BYTES} bytes"
            )
        self._host, self._message_bytes, self._outstanding = host, message_bytes, outstanding
        self.region = memoryview(bytearray(message_bytes * outstanding * len(incoming)))
        self._payloads = Payloads(message_bytes, seed)
        self._sending = {flow.peer: _Sending(flow) for flow in outgoing}
        self._received = dict.fromkeys(incoming, 0)
        self._places = {peer: place for place, peer in enumerate(incoming)}
        self._at: float | None = None
        self._last = 0.0
        self._writes: list[Write] = []
        self._wrong: list[Wrong] = []
        self._wrong_messages = 0

    @property
    def moves_on_acknowledgements(self) -> bool:
        """A host that sends posts more when the peer has acknowledged."""
        return bool(self._sending)

    def start(self, start: Start) -> None:
        """The flows' times count from `start.origin`, the job's first start; after a restart a flow that should be on begins at once."""
        self._at = start.at
        for sending in self._sending.values():
            sending.begin = max(start.at, start.origin + sending.flow.start_s)
            sending.end = start.origin + sending.flow.stop_s

    def on_completion(self, peer: str, imm: int) -> None:
        """Compares a message, every byte; JobError if one is missing or came twice."""
        number = self._received[peer]
        if imm != number % 2**32:
            raise JobError(f"stream from {peer}: message {imm} completed where {number} was due: the transport is at fault")
        expected, at = bytes(self._payloads.of(peer, self._host, number)), self._slot(self._places[peer], number)
        if bytes(self.region[at : at + len(expected)]) != expected:
            self._wrong.append(Wrong(number, peer))
            self._wrong_messages += 1
        self._received[peer] += 1

    def _slot(self, place: int, number: int) -> int:
        """Byte offset in the receiver's region."""
        return (place * self._outstanding + number % self._outstanding) * self._message_bytes

    def on_error(self, peer: str) -> None:
        """The flow to `peer` ends here."""
        if peer in self._sending:
            self._sending[peer].failed = True

    def next_deadline(self) -> float | None:
        """The next beginning of a flow, or message of a paced one; acknowledgements move the others on."""
        return min((due for sending in self._sending.values() if (due := sending.due) is not None), default=None)

    def advance(self, now: float, outstanding: Outstanding) -> None:
        """Posts messages on every flow that is on, until `outstanding` of them are unacknowledged."""
        if self._at is None or now < self._at:
            return
        self._last = now
        for peer, sending in self._sending.items():
            if not sending.failed:
                unacknowledged = outstanding(peer)
                sending.acked = sending.posted - unacknowledged
                if sending.begin <= now < sending.end:
                    self._post(sending, sending.allowed(now, self._outstanding - unacknowledged))

    def _post(self, sending: _Sending, count: int) -> None:
        flow = sending.flow
        for number in range(sending.posted, sending.posted + count):
            data = self._payloads.of(self._host, flow.peer, number)
            self._writes.append(Write(flow.peer, data, self._slot(flow.place, number), number % 2**32))
        sending.posted += count

    def take_writes(self) -> list[Write]:
        """Writes to post since the last call, in order a flow."""
        return taken(self._writes)

    def take_records(self) -> list[StepRecord]:
        """Streams have no steps."""
        return []

    def take_wrong(self) -> list[Wrong]:
        """Wrong messages since the last call."""
        return taken(self._wrong)

    def unfinished(self) -> StepRecord | None:
        """Streams have no steps."""
        return None

    def report(self) -> dict[str, Any]:
        """Bytes of whole messages that were acknowledged and received, messages with wrong content, and the seconds since the start."""
        elapsed_s = max(0.0, self._last - self._at) if self._at is not None else 0.0
        return {
            "acked_bytes": sum(sending.acked for sending in self._sending.values()) * self._message_bytes,
            "received_bytes": sum(self._received.values()) * self._message_bytes,
            "wrong_messages": self._wrong_messages,
            "elapsed_s": round(elapsed_s, 6),
        }
