"""Two MRC cores that meet in a test: in virtual time over lossy paths (`World`), or with packets carried by hand (`Pair`)."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from hosts import wire
from hosts.core import Completion, Event, QpError, Transmit
from hosts.mrc import MrcCore, MrcParams
from hosts.mrc.channel import Channel, Conditions, Host, peer_spec
from hosts.mrc.evs import EvSet
from hosts.mrc.frames import Framer, NackFields, SackFields, parse_sack
from hosts.mrc.loss import Allowance, Packet
from hosts.mrc.verdicts import PathHistory, Verdicts
from hosts.mrc.window import RttEstimator


def connected(params: MrcParams, paths: int, region: bytearray, seed: int, ports: int = 1) -> tuple[MrcCore, MrcCore]:
    """Sender a and receiver b, which has the region."""
    a = MrcCore("a", "fd00::a", params, {"b": peer_spec("b", "fd00::b", paths, ports)}, {}, memoryview(bytearray(0)), seed)
    b = MrcCore("b", "fd00::b", params, {}, {"a": peer_spec("a", "fd00::a", paths, ports)}, memoryview(region), seed)
    a.connect({"b": b.attributes()})
    b.connect({"a": a.attributes()})
    return a, b


START_S = 100.0
WORLD_BYTES = 1 << 20


class World:
    """Sender a, receiver b, the channel between, and what they reported."""

    def __init__(self, conditions: Conditions = Conditions(), paths: int = 4, seed: int = 1, **params: float) -> None:  # noqa: B008
        self.region = bytearray(WORLD_BYTES)
        self.a, self.b = connected(MrcParams.from_mapping(params), paths, self.region, seed, conditions.ports)
        self.host_a, self.host_b = Host("a", self.a), Host("b", self.b)
        self.channel = Channel(self.host_a, self.host_b, conditions, seed, START_S)
        self.completions: list[Completion] = []
        self.errors: list[QpError] = []
        self.events: list[Event] = []
        self.expected = bytearray(WORLD_BYTES)
        self._rng, self._posted = Random(seed), 0

    def post(self, size_bytes: int, at: int | None = None) -> None:
        """Queues a message of random bytes, by default to anywhere in the region."""
        data = self._rng.randbytes(size_bytes)
        start = self._rng.randrange(WORLD_BYTES - size_bytes + 1) if at is None else at
        self.expected[start : start + size_bytes] = data
        self.a.post_write(self.channel.now, "b", memoryview(data), start, self._posted)
        self._posted += 1

    def post_row(self, sizes_bytes: Iterable[int]) -> None:
        """Queues messages that lie one behind the other, from the region's start."""
        offset = 0
        for size_bytes in sizes_bytes:
            self.post(size_bytes, offset)
            offset += size_bytes

    def run(self, seconds: float) -> None:
        """Until everything is delivered and acknowledged, the QP failed, or the time is over."""
        self.channel.run(self.channel.now + seconds, self.settled)
        self.settled()

    def settled(self) -> bool:
        """Whether nothing more will happen by itself."""
        self.completions += self.b.take_completions()
        self.errors += self.a.take_errors()
        self.events += self.a.take_events()
        return bool(self.errors) or (len(self.completions) == self._posted and not self.a.outstanding_messages("b"))

    def run_on(self, seconds: float) -> None:
        """Lets time pass, idle or not."""
        self.channel.run(self.channel.now + seconds, lambda: self.settled() and False)
        self.settled()

    def assert_delivered(self) -> None:
        """Every message once, in order, with the right bytes."""
        assert not self.errors
        assert [completion.imm for completion in self.completions] == list(range(self._posted))
        assert self.region == self.expected

    def states(self, to: str, reason: str | None = None) -> list[Event]:
        """EV state changes."""
        found = [event for event in self.events if event.event == "ev_state" and event.fields["to"] == to]
        return [event for event in found if reason is None or event.fields["reason"] == reason]


NOW = 50.0
PAIR_BYTES = 1 << 16


class Pair:
    """A connected sender a and receiver b; packets are carried by hand."""

    def __init__(self, paths: int = 4, **params: float) -> None:
        settings = MrcParams.from_mapping({"initial_psn": 1000, "idle_probes": 0, "cwnd_initial_packets": 0, **params})
        self.region = bytearray(PAIR_BYTES)
        self.a, self.b = connected(settings, paths, self.region, 1)
        attributes, send_qp = self.b.attributes(), self.a.attributes()["send_qps"]["b"][0]
        self.rkey, self.base, self.qp = attributes["rkey"], attributes["base"], attributes["receive_qps"]["a"][0]
        self.framer = Framer("fd00::a", "fd00::b", send_qp, self.qp, wire.UDP_PORT)
        self._answering = Framer("fd00::b", "fd00::a", 1, send_qp, wire.UDP_PORT)

    def send(self, size_bytes: int = 4096, now: float = NOW) -> list[bytes]:
        """Posts a message and returns its packets."""
        self.a.post_write(now, "b", memoryview(Random(3).randbytes(size_bytes)), 0, 42)
        return [on_wire(t) for t in self.a.transmit(now)]

    def give(self, *packets: bytes, now: float = NOW) -> list[SackFields]:
        """Delivers packets to b and returns the SACKs."""
        return [parse_sack(memoryview(on_wire(t))) for t in answers(self, *packets, now=now)]

    def sack(self, say: SackFields, ev: int = 0) -> bytes:
        """A SACK that b did not send."""
        header, trailer = self._answering.sack(ev, say)
        return bytes(header) + trailer

    def nack(self, say: NackFields) -> bytes:
        """A NACK that b did not send."""
        header, trailer = self._answering.nack(0, say)
        return bytes(header) + trailer

    def drops(self) -> dict[str, int]:
        return self.b.report()["drops"]


def on_wire(transmit: Transmit) -> bytes:
    return bytes(transmit.header) + bytes(transmit.payload) + transmit.trailer


def answers(pair: Pair, *packets: bytes, now: float = NOW) -> list[Transmit]:
    """Delivers packets to b and returns all that it sends."""
    for packet in packets:
        pair.b.on_datagram(now, 0, memoryview(packet))
    pair.b.on_receive_done(now)
    return list(pair.b.transmit(now))


def opcode_of(transmit: Transmit) -> int:
    return transmit.header[wire.BTH_OFFSET]


def entropy_of(packet: bytes) -> int:
    return int.from_bytes(packet[40:42], "big")


def psn_of(packet: bytes) -> int:
    return wire.BTH.unpack(packet, wire.BTH_OFFSET)["psn"]


def tell(pair: Pair, *transmits: Transmit, now: float = NOW) -> list[bytes]:
    """Delivers packets to a and returns all that it sends."""
    for transmit in transmits:
        pair.a.on_datagram(now, 0, memoryview(on_wire(transmit)))
    pair.a.on_receive_done(now)
    return [on_wire(each) for each in pair.a.transmit(now)]


def states(core: MrcCore) -> list[str]:
    return [row[2] for row in core.path_rows()]


# Parts of a core on their own


def ev_set(count: int = 8, **params: float) -> EvSet:
    """EVs over `count` paths."""
    return EvSet(peer_spec("b", "fd00::b", count).paths, MrcParams.from_mapping(params), Random(1))


def verdicts_on(evs: EvSet, params: MrcParams, events: list[Event]) -> Verdicts:
    """Those of QP 7 to h2, whose history is `events`."""
    rtt = RttEstimator(params)
    return Verdicts(evs, params, rtt, Allowance(params, rtt), PathHistory("h2", 7, events))


def empty_packet(psn: int = 0) -> Packet:
    """One for the books of what is under way, where only its number counts."""
    return Packet(psn, 0, (0, 0), 0, memoryview(b""), None)
