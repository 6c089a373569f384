"""The sender's books in every order of SACK, NACK, duplicate, loss and late arrival: what is open is counted, no packet is forgotten."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mrc_lab import NOW, PAIR_BYTES, Pair, answers, on_wire, psn_of, states, tell

from hosts import wire
from hosts.mrc.frames import NackFields, SackFields
from hosts.mrc.loss import Packet, Tx
from hosts.mrc.sender import SendQp

STEPS = 250
MESSAGES, MESSAGE_BYTES = 6, 9_000


def transmissions(packet: Packet) -> list[Tx]:
    """All that may still be open."""
    return ([packet.tx] if packet.tx is not None else []) + packet.elder


def assert_books_balance(qp: SendQp) -> None:
    """`flight.count` is the number of open transmissions, and each unacknowledged packet is open, queued or urgent."""
    packets, waiting = qp._outgoing.packets, {packet.psn for packet, _ in qp._urgent}
    listed = {id(tx) for tx in qp.flight._order if tx.open}
    held = {id(tx) for packet in packets.values() for tx in transmissions(packet) if tx.open}
    assert listed == held
    assert qp.flight.count == len(held)
    for packet in packets.values():
        assert not packet.queued or packet.psn in qp._outgoing._rtx
        assert packet.queued or packet.psn in waiting or any(tx.open for tx in transmissions(packet)), packet.psn


class Chaos:
    """A pair whose packets arrive in any order, not at all, twice, or trimmed: paths here are not FIFO."""

    def __init__(self, seed: int, paths: int, kindness: float) -> None:
        self.pair = Pair(paths, ack_timeout_exponent=15, exponential_retries=25)
        self.rng, self.now, self.kindness = Random(seed), NOW, kindness
        self.qp = self.pair.a._send["b"].qps[0]
        self.ways: tuple[list[bytes], list[bytes]] = [], []  # on their way to b, and to a
        self.completed: list[int] = []
        self.sent = bytearray(PAIR_BYTES)
        for imm in range(MESSAGES):
            data, start = self.rng.randbytes(MESSAGE_BYTES), imm * MESSAGE_BYTES
            self.sent[start : start + MESSAGE_BYTES] = data
            self.pair.a.post_write(NOW, "b", memoryview(data), start, imm)

    def step(self) -> None:
        """Time passes, both ends take their turn, and perhaps something happens to a packet."""
        self.now += self.rng.choice((0.0, 0.0001, 0.002, 0.01, 0.05))
        for core, way in ((self.pair.a, self.ways[0]), (self.pair.b, self.ways[1])):
            core.on_timer(self.now)
            way += [on_wire(transmit) for transmit in core.transmit(self.now)]
            assert_books_balance(self.qp)
        index = self.rng.randrange(2)
        if self.ways[index]:
            self._happen(index)
        self.completed += [completion.imm for completion in self.pair.b.take_completions()]

    def _happen(self, index: int) -> None:
        way, core, rng = self.ways[index], (self.pair.b, self.pair.a)[index], self.rng
        at = 0 if rng.random() < self.kindness else rng.randrange(len(way))
        packet = way.pop(at)
        what = "deliver" if rng.random() < self.kindness else rng.choice(("deliver", "drop", "twice", "trim"))
        if what == "drop":
            return
        if what == "twice":
            way.append(packet)
        if what == "trim" and wire.is_write(packet[wire.BTH_OFFSET]):
            packet = wire.trimmed(packet)
        core.on_datagram(self.now, 0, memoryview(packet))
        assert_books_balance(self.qp)
        if rng.random() < 0.7:
            core.on_receive_done(self.now)
            assert_books_balance(self.qp)


@settings(deadline=None, max_examples=150)
@given(seed=st.integers(0, 1 << 20), paths=st.integers(1, 5), kindness=st.sampled_from([0.0, 0.5, 0.9]))
def test_the_books_balance_in_any_order_and_everything_arrives_once(seed: int, paths: int, kindness: float) -> None:
    chaos = Chaos(seed, paths, kindness)
    for _ in range(STEPS):
        chaos.step()
    chaos.kindness = 1.0
    for _ in range(40 * STEPS):
        if not chaos.pair.a.outstanding_messages("b"):
            break
        chaos.step()
    assert chaos.completed == list(range(MESSAGES))
    assert chaos.pair.region == chaos.sent
    assert chaos.qp.flight.count == 0


class Liar:
    """A peer that says what it likes about what is under way."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.pair, self.now = Pair(self.rng.randrange(1, 5), exponential_retries=25), NOW
        self.qp = self.pair.a._send["b"].qps[0]
        self.pair.a.post_write(NOW, "b", memoryview(bytes(PAIR_BYTES)), 0, 1)

    def lie(self) -> None:
        """A SACK or a NACK that names a transmission under way, or none."""
        rng, una = self.rng, self.qp._outgoing.una
        under_way = [tx for tx in self.qp.flight._order if tx.open]
        tx = rng.choice(under_way) if under_way and rng.random() < 0.8 else None
        psn, entropy, stamp = (tx.packet.psn, tx.ev.index, tx.stamp) if tx else (rng.randrange(1 << 24), rng.randrange(1 << 32), 0)
        if rng.random() < 0.4:
            self.qp.on_nack(self.now, NackFields(rng.randrange(4), entropy, psn & wire.PSN_MASK, stamp))
            return
        cack, number = una + rng.randrange(-3, 5), rng.choice((self.qp._newest_sack + 1 & wire.PSN_MASK, rng.randrange(1 << 24)))
        offset = psn - cack if tx else rng.randrange(-0x8000, 0x8000)
        bitmap = rng.getrandbits(64) & rng.getrandbits(64)
        say = SackFields(
            number, False, offset, entropy, cack & wire.PSN_MASK, rng.randrange(16), 8, rng.choice((1, offset)), bitmap, stamp, 0, 0
        )
        self.qp.on_sack(self.now, say._replace(skip=rng.randrange(4), penalty=rng.randrange(128)))

    def step(self) -> None:
        """A lie, and a turn of the sender."""
        self.now += self.rng.choice((0.0, 0.001, 0.05))
        for act in (self.lie, lambda: self.pair.a.on_receive_done(self.now), lambda: self.pair.a.on_timer(self.now)):
            act()
            assert_books_balance(self.qp)
        list(self.pair.a.transmit(self.now))
        assert_books_balance(self.qp)


@settings(deadline=None, max_examples=100)
@given(seed=st.integers(0, 1 << 20))
def test_the_books_balance_whatever_the_peer_says(seed: int) -> None:
    liar = Liar(seed)
    for _ in range(60):
        liar.step()
        assert 1 <= liar.qp.window.cwnd_packets <= 64
        assert liar.qp.evs.pick() in liar.qp.evs.evs


def test_the_books_are_really_looked_at() -> None:
    chaos = Chaos(1, 2, 0.9)
    chaos.step()
    chaos.qp.flight.count += 1
    with pytest.raises(AssertionError):
        chaos.step()


def test_a_failed_qp_takes_no_verdicts_back_and_makes_no_new_ones() -> None:
    pair = Pair(4, linear_retries=1, exponential_retries=0)
    packets = pair.send(12 * 4096)
    qp, now = pair.a._send["b"].qps[0], NOW
    *_, nacked = answers(pair, wire.trimmed(packets[0]), *packets[4:8])
    tell(pair, nacked)  # p1 to p3 are overtaken on their paths, which is no proof while NACKed data is missing
    late = answers(pair, packets[0], packets[11])
    while qp.error is None:
        now += 0.1
        pair.a.on_timer(now)
        list(pair.a.transmit(now))
    pair.a.take_events()
    before = states(pair.a)
    tell(pair, *late, now=now)
    assert (qp.flight.count, pair.a.take_events(), states(pair.a)) == (0, [], before)
    assert not qp.ready
    assert pair.a.report()["drops"]["unknown_qp"] == len(late) > 0


def test_a_full_window_is_not_ready_until_something_leaves_it() -> None:
    pair = Pair(4, cwnd_initial_packets=4)
    qp = pair.a._send["b"].qps[0]
    packets = pair.send(12 * 4096)
    assert len(packets) == 4
    assert not qp.ready
    tell(pair, *answers(pair, *packets))
    assert qp.flight.count > 1
    assert not qp.ready


def test_a_window_that_fills_with_the_last_packet_that_the_caller_takes_is_known_to_be_full() -> None:
    """The window grows only while it is what holds the job back, and whoever takes packets one by one must not hide that."""
    pair = Pair(4, cwnd_initial_packets=2)
    qp = pair.a._send["b"].qps[0]
    pair.a.post_write(NOW, "b", memoryview(bytes(12 * 4096)), 0, 1)
    taken = pair.a.transmit(NOW)
    packets = [on_wire(next(iter(taken))) for _ in range(2)]
    assert qp.ready
    assert list(pair.a.transmit(NOW)) == []
    assert not qp.ready
    before = qp.window.cwnd_packets
    tell(pair, *answers(pair, *packets), now=NOW + 0.001)
    pair.b.on_timer(NOW + 0.01)
    tell(pair, *pair.b.transmit(NOW + 0.01), now=NOW + 0.011)
    assert qp.window.cwnd_packets > before


def test_a_copy_that_waits_takes_the_place_of_the_retransmission_that_a_nack_asks_for() -> None:
    pair = Pair(4)
    (packet,) = pair.send(4096)
    late = NOW + 5.0
    pair.a.on_timer(late)  # the probe timeout: a copy is to be sent
    (nack,) = answers(pair, wire.trimmed(packet))
    pair.a.on_datagram(late, 0, memoryview(on_wire(nack)))
    sent = [psn_of(on_wire(transmit)) for transmit in pair.a.transmit(late) if transmit.payload]
    assert sent == [psn_of(packet)]
    assert list(pair.a.transmit(late)) == []


def test_a_packet_that_was_queued_and_sent_as_a_copy_can_be_queued_again() -> None:
    pair = Pair(4)
    (packet,) = pair.send(4096)
    late = NOW + 5.0
    pair.a.on_timer(late)
    (nack,) = answers(pair, wire.trimmed(packet))
    (copy,) = tell(pair, nack, now=late)
    (nack,) = answers(pair, wire.trimmed(copy), now=late)
    (again,) = tell(pair, nack, now=late)
    assert (psn_of(again), list(pair.a.transmit(late))) == (psn_of(packet), [])


def test_a_job_that_just_fills_the_window_and_has_no_more_to_send_does_not_make_it_grow() -> None:
    pair = Pair(4, cwnd_initial_packets=2)
    now = NOW
    for _ in range(20):
        packets = pair.send(2 * 4096, now=now)
        assert len(packets) == 2
        assert tell(pair, *answers(pair, *packets, now=now), now=now + 0.001) == []
        now += 0.01
    assert pair.a.flow_rows()[0][4] == 2


def test_a_job_that_sends_little_has_each_packet_acknowledged_at_once() -> None:
    """A loss is noticed by the next packet that arrives; with few of them each must be told."""
    pair = Pair()
    tell(pair, *answers(pair, *pair.send()))
    first, *_ = pair.send(3 * 4096)
    (say,) = pair.give(first)
    assert say.cack == 1001
