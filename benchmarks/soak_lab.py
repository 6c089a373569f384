"""Messages without end through a bad network in virtual time, each checked byte by byte: what `million.py` and the property tests drive.

Each message goes to a slot of the receiver's region, between guards that nothing may touch; a slot is used again once its message was
completed and checked. Who violates a promise raises `Broken`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from random import Random

from hosts.core import Event, QpError
from hosts.mrc import MrcCore, MrcParams
from hosts.mrc.channel import Channel, Conditions, Host, peer_spec

START_S = 100.0
GUARD_BYTES = 64
SLOTS = 16


class Broken(AssertionError):
    """The transport did not keep a promise."""


class Slots:
    """A region of slots between guards, what should be in it, and which slots are free."""

    def __init__(self, count: int, slot_bytes: int, rng: Random) -> None:
        self._pitch, self._rng = slot_bytes + GUARD_BYTES, rng
        self.expected = bytearray(rng.randbytes(GUARD_BYTES + count * self._pitch))
        self.region = bytearray(self.expected)
        self.free = list(range(count))

    def offset(self, slot: int) -> int:
        """The first byte of a slot in the region."""
        return GUARD_BYTES + slot * self._pitch

    def fill(self, size_bytes: int) -> tuple[int, int, bytes]:
        """(slot, its offset, what is to be written there) of a new message."""
        slot, data = self.free.pop(0), self._rng.randbytes(size_bytes)
        offset = self.offset(slot)
        self.expected[offset : offset + size_bytes] = data
        return slot, offset, data

    def check(self, slot: int, offset: int, size_bytes: int) -> None:
        """The message has arrived, and both its guards are whole."""
        start, end = offset - GUARD_BYTES, offset + size_bytes
        if self.region[start:end] != self.expected[start:end]:
            raise Broken(f"slot {slot}: wrong bytes")
        after = offset - GUARD_BYTES + self._pitch
        if self.region[after : after + GUARD_BYTES] != self.expected[after : after + GUARD_BYTES]:
            raise Broken(f"slot {slot}: the guard behind it is damaged")
        self.free.append(slot)


class Soak:
    """Host a writes messages of `sizes` to host b until they are all completed, or the QP failed.

    `hang_s`: longest virtual time without progress, after which `Broken` says so; it follows from the parameters.
    """

    def __init__(self, conditions: Conditions, params: MrcParams, sizes: Iterable[int], largest_bytes: int, paths: int, seed: int) -> None:
        self.conditions, self.params = conditions, params
        self.slots = Slots(SLOTS, largest_bytes, Random(f"soak {seed}"))
        ports = conditions.ports
        self.a = MrcCore("a", "fd00::a", params, {"b": peer_spec("b", "fd00::b", paths, ports)}, {}, memoryview(bytearray(0)), seed)
        self.b = MrcCore("b", "fd00::b", params, {}, {"a": peer_spec("a", "fd00::a", paths, ports)}, memoryview(self.slots.region), seed)
        self.a.connect({"b": self.b.attributes()})
        self.b.connect({"a": self.a.attributes()})
        self.start_s = START_S
        self.hosts = Host("a", self.a), Host("b", self.b)
        self.channel = Channel(*self.hosts, conditions, seed, START_S)
        self.errors: list[QpError] = []
        self.retired: Counter[str] = Counter()  # EVs that were called bad, by reason
        self.on_event: Callable[[Event], None] = lambda event: None
        self.posted_packets = self.posted_bytes = self.completed = 0
        self._sizes: Iterator[int] = iter(sizes)
        self._under_way: list[tuple[int, int, int]] = []  # (slot, offset, size) of what was posted and is not completed
        self._posted, self._all_posted = 0, False
        self._progress_s, self._acked = START_S, 0

    @property
    def hang_s(self) -> float:
        """The waits of a QP that fails are shorter together: those below the ACK timeout double, then come the retries."""
        return 10.0 + 2 * self.params.backstop_s + sum(self._stalls_s())

    def _stalls_s(self) -> Iterator[float]:
        return (end - start for host in self.hosts for start, end in host.stalls)

    @property
    def done(self) -> bool:
        """Whether everything was completed and acknowledged, or the QP has failed."""
        return bool(self.errors) or (self._all_posted and not self._under_way and not self.a.outstanding_messages("b"))

    def run(self, until: float = float("inf")) -> None:
        """To the end, or to `until` in virtual time. Raises `Broken`."""
        self._post()
        while not self.done and self.channel.now < until:
            self.channel.run(min(until, self._progress_s + self.hang_s), self._turn)
            if not self.done and self.channel.now >= self._progress_s + self.hang_s:
                raise Broken(f"no progress from {self._progress_s:.3f} s to {self.channel.now:.3f} s of virtual time")

    def idle(self, seconds: float) -> None:
        """Lets time pass, whatever is left to do."""
        self.channel.run(self.channel.now + seconds, lambda: self._turn() and False)

    def check(self) -> None:
        """What must hold at the end of a run without a QP error."""
        if self.slots.region != self.slots.expected:
            raise Broken("bytes of the region changed that nobody wrote")
        sent, received = self.a.report(), self.b.report()
        new = sent["data_packets_sent"] - sent["data_packets_retransmitted"]
        counts = {"posted": self.posted_packets, "sent first": new, "received": received["data_packets_received"]}
        if len(set(counts.values())) > 1:
            raise Broken(f"counters disagree: {counts}")
        if self.a.acked_bytes() != self.posted_bytes:
            raise Broken(f"{self.a.acked_bytes()} bytes acknowledged of {self.posted_bytes}")
        by_ev = sum(row[3] for row in self.a.path_rows())
        if by_ev != sent["data_packets_sent"]:
            raise Broken(f"{by_ev} packets by EV, {sent['data_packets_sent']} in all")

    def _post(self) -> bool:
        """Posts while there is room, in batches; whether anything was posted."""
        posted = self._posted
        if len(self.slots.free) <= SLOTS // 4:
            return False
        while self.slots.free and not self._all_posted:
            size_bytes = next(self._sizes, None)
            if size_bytes is None:
                self._all_posted = True
                break
            slot, offset, data = self.slots.fill(size_bytes)
            self.a.post_write(self.channel.now, "b", memoryview(data), offset, self._posted)
            self._under_way.append((slot, offset, size_bytes))
            self._posted += 1
            self.posted_bytes += size_bytes
            self.posted_packets += self._packets(size_bytes)
        return self._posted > posted

    def _packets(self, size_bytes: int) -> int:
        """Packets of a message: each Write that it goes out as is cut by itself."""
        write_bytes, payload_bytes = self.params.write_bytes or size_bytes or 1, self.params.payload_bytes
        plain = max(0, -(-size_bytes // write_bytes) - 1)
        last_bytes = size_bytes - plain * write_bytes
        return plain * -(-write_bytes // payload_bytes) + max(1, -(-last_bytes // payload_bytes))

    def _turn(self) -> bool:
        """After each step of the channel: checks what was completed; whether `run` must look (something was posted, or all is done)."""
        for completion in self.b.take_completions():
            if completion.imm != self.completed:
                raise Broken(f"message {completion.imm} completed, {self.completed} was next")
            self.slots.check(*self._under_way.pop(0))
            self.completed += 1
            self._progress_s = self.channel.now
        self._note()
        return self._post() or self.done

    def _note(self) -> None:
        self.errors += self.a.take_errors()
        acked = self.a.acked_bytes()
        if acked != self._acked:
            self._acked, self._progress_s = acked, self.channel.now
        for event in self.a.take_events():
            if event.event == "ev_state" and event.fields["to"] == "ASSUMED_BAD":
                self.retired[event.fields["reason"]] += 1
            self.on_event(event)
