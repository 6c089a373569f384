"""Hostile packets through the cores: nothing is raised, nothing is changed, everything is counted, and the transfer goes on.

A Write has no signature, so a forger who knows key, address, QP and PSN cannot be told from the peer. What can be told is refused.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

import pytest
from mrc_lab import on_wire

from hosts import wire
from hosts.core import Core, PathSpec, PeerSpec
from hosts.mrc import MrcCore, MrcParams
from hosts.mrc.frames import Framer, NackFields, SackFields
from hosts.mrc.receiver import MOST_READY
from hosts.rc import RcCore, RcParams
from hosts.rc import wire as rc_wire

REGION_BYTES = 1 << 17
PAYLOAD_BYTES = 1024
STEP_S = 0.001
A, B = "fd00::a", "fd00::b"
MAKERS = ("mrc", "rc")


def spec(name: str, address: str) -> PeerSpec:
    return PeerSpec(name, address, tuple(PathSpec(ev, 0, str(ev), 1, ()) for ev in range(4)))


def core(transport: str, name: str, region: bytearray, seed: int = 1) -> Core:
    """Host a sends to b, b to a, both over four paths."""
    address, peer = (A, spec("b", B)) if name == "a" else (B, spec("a", A))
    peers = {peer.name: peer}
    if transport == "mrc":
        return MrcCore(name, address, MrcParams(payload_bytes=PAYLOAD_BYTES), peers, peers, memoryview(region), seed)
    return RcCore(name, address, RcParams(payload_bytes=PAYLOAD_BYTES), peers, peers, memoryview(region), seed)


class Duel:
    """Two hosts that write to each other over a perfect network into which a third one throws packets."""

    def __init__(self, transport: str, seed: int = 1) -> None:
        self.rng, self.now, self.transport = Random(seed), 100.0, transport
        self.regions = {"a": bytearray(REGION_BYTES), "b": bytearray(REGION_BYTES)}
        self.cores = {name: core(transport, name, region, seed) for name, region in self.regions.items()}
        self.seen: dict[str, list[bytes]] = {"a": [], "b": []}  # what each was sent by the other
        self.attributes = {name: each.attributes() for name, each in self.cores.items()}
        for name, other in (("a", "b"), ("b", "a")):
            self.cores[name].connect({other: self.attributes[other]})
        self.data = {name: self.rng.randbytes(REGION_BYTES) for name in "ab"}
        self.completed: dict[str, list[int]] = {"a": [], "b": []}
        self.thrown = 0

    def post_all(self) -> None:
        """Each host writes its data to the other in 16 messages."""
        size = REGION_BYTES // 16
        for name, other in (("a", "b"), ("b", "a")):
            for imm in range(16):
                self.cores[name].post_write(self.now, other, memoryview(self.data[name])[imm * size : (imm + 1) * size], imm * size, imm)

    def turn(self, throw: Callable[[str], list[bytes]], lose: Callable[[str], bool] = lambda name: False) -> None:
        """Every host sends what it has; the other gets it between hostile packets."""
        self.now += STEP_S
        for name, other in (("a", "b"), ("b", "a")):
            sent = [on_wire(transmit) for transmit in self.cores[name].transmit(self.now)]
            self.seen[other] += sent
            kept = [packet for packet in sent if not lose(name)]
            hostile = throw(other)
            self.thrown += len(hostile)
            for packet in [*hostile, *kept]:
                self.cores[other].on_datagram(self.now, 0, memoryview(packet))
            self.cores[other].on_receive_done(self.now)
            self.cores[other].on_timer(self.now)
            self.completed[other] += [done.imm for done in self.cores[other].take_completions()]

    def finished(self) -> bool:
        return all(len(done) == 16 for done in self.completed.values())

    def drops(self) -> Counter[str]:
        return sum((Counter(each.report()["drops"]) for each in self.cores.values()), Counter())

    def assert_exact(self) -> None:
        assert self.completed == {"a": list(range(16)), "b": list(range(16))}
        assert self.regions["b"] == self.data["a"]
        assert self.regions["a"] == self.data["b"]


def impossible(duel: Duel, to: str) -> Iterator[bytes]:
    """Packets that cannot be the peer's, of every kind, one after another."""
    rng, stranger = duel.rng, core(duel.transport, "b" if to == "a" else "a", bytearray(REGION_BYTES), seed=99)
    stranger.connect({to: core(duel.transport, to, bytearray(REGION_BYTES), seed=98).attributes()})
    stranger.post_write(0.0, to, memoryview(bytes(4 * PAYLOAD_BYTES)), 0, 7)
    other_attempt = [on_wire(transmit) for transmit in stranger.transmit(0.0)]
    forgers = MRC_FORGERS if duel.transport == "mrc" else RC_FORGERS
    while True:
        yield rng.randbytes(rng.choice((0, 1, 11, 15, 16, 47, 48, 59, 60, 64, 100, 1500, 9000, 65535)))
        yield rng.choice(other_attempt)
        yield rng.choice(forgers)(duel, to)
        if duel.seen[to]:
            real = rng.choice(duel.seen[to])
            yield real[: rng.randrange(len(real))]
            yield flipped(real, rng)
            yield real + rng.randbytes(rng.randrange(1, 40))


def flipped(packet: bytes, rng: Random) -> bytes:
    """One to three bits inverted, where the ICRC protects them: past the inner IPv6 and UDP headers, and not in BTH's reserved byte."""
    changed, start = bytearray(packet), 53 if packet[0] >> 4 == 6 else 5
    for at in rng.sample(range(start * 8, len(packet) * 8), rng.randrange(1, 4)):
        changed[at // 8] ^= 1 << at % 8
    return bytes(changed)


def mrc_framer(duel: Duel, to: str, kind: str) -> Framer:
    """Builds packets from the peer of `to`, to its receive or send QP."""
    peer = "b" if to == "a" else "a"
    own = {"receive": "send_qps", "send": "receive_qps"}[kind]
    theirs = {"receive": "receive_qps", "send": "send_qps"}[kind]
    addresses = {"a": A, "b": B}
    return Framer(addresses[peer], addresses[to], duel.attributes[peer][own][to][0], duel.attributes[to][theirs][peer][0], wire.UDP_PORT)


def mrc_first_psn(duel: Duel, to: str, kind: str) -> int:
    """Of what the peer of `to` sends to its receive QP, or of what its send QP sends to the peer."""
    peer = "b" if to == "a" else "a"
    source, target = (peer, to) if kind == "receive" else (to, peer)
    return int(duel.attributes[source]["first_psns"][target][0])


def mrc_data(duel: Duel, to: str, psn_ahead: int, va: int, rkey: int) -> bytes:
    framer = mrc_framer(duel, to, "receive")
    psn = mrc_first_psn(duel, to, "receive") + psn_ahead & wire.PSN_MASK
    payload = memoryview(bytes(PAYLOAD_BYTES))
    opcode = duel.rng.choice((wire.WRITE_FIRST, wire.WRITE_MIDDLE, wire.WRITE_LAST, wire.WRITE_ONLY))
    header, trailer = framer.data(duel.rng.getrandbits(32), opcode, psn | wire.TS_BIT, (0, 0), 0, va, rkey, payload, None)
    return bytes(header) + bytes(payload) + trailer


def mrc_wrong_key(duel: Duel, to: str) -> bytes:
    right = duel.attributes[to]
    return mrc_data(duel, to, duel.rng.randrange(200), right["base"], right["rkey"] ^ 1 << duel.rng.randrange(32))


def mrc_outside(duel: Duel, to: str) -> bytes:
    right, rng = duel.attributes[to], duel.rng
    va = rng.choice((right["base"] - 1, right["base"] + REGION_BYTES - PAYLOAD_BYTES + 1, 0, (1 << 64) - 1, right["base"] + (1 << 40)))
    return mrc_data(duel, to, rng.randrange(200), va, right["rkey"])


def mrc_far_psn(duel: Duel, to: str) -> bytes:
    right = duel.attributes[to]
    return mrc_data(duel, to, duel.rng.randrange(2000, (1 << 24) - 2000), right["base"], right["rkey"])


def mrc_unsent_sack(duel: Duel, to: str) -> bytes:
    """Acknowledges what was never sent."""
    framer = mrc_framer(duel, to, "send")
    cack = mrc_first_psn(duel, to, "send") + duel.rng.randrange(1000, (1 << 23) - 1000) & wire.PSN_MASK
    return sack(framer, duel.rng, cack, duel.rng.getrandbits(64))


def mrc_trimmed(duel: Duel, to: str) -> bytes:
    """The header of a packet that would be refused whole."""
    return wire.trimmed(duel.rng.choice((mrc_wrong_key, mrc_outside, mrc_far_psn))(duel, to), duel.rng.choice((1, 2)))


def mrc_unsent_nack(duel: Duel, to: str) -> bytes:
    """Names a transmission that never was: the PSN, the EV or the timestamp is wrong."""
    framer = mrc_framer(duel, to, "send")
    psn = mrc_first_psn(duel, to, "send") + duel.rng.randrange(-5, 200) & wire.PSN_MASK
    return nack(framer, NackFields(duel.rng.choice((1, 2, 0x0A)), duel.rng.randrange(1 << 16, 1 << 32), psn, duel.rng.getrandbits(16)))


def nack(framer: Framer, say: NackFields) -> bytes:
    header, trailer = framer.nack(3, say)
    return bytes(header) + trailer


def mrc_unasked_reply(duel: Duel, to: str) -> bytes:
    framer = mrc_framer(duel, to, "send")
    header, trailer = framer.sack(3, SackFields(1, True, duel.rng.randrange(-(1 << 15), 1 << 15), 0, 0, 0, 8, 0, 0, 0, 0, 0))
    return bytes(header) + trailer


def sack(framer: Framer, rng: Random, cack: int, bitmap: int) -> bytes:
    say = SackFields(
        rng.getrandbits(24), False, rng.randrange(-(1 << 15), 1 << 15), rng.getrandbits(32), cack, rng.getrandbits(4), rng.getrandbits(8),
        rng.randrange(-(1 << 15), 1 << 15), bitmap, rng.getrandbits(16), rng.getrandbits(15), rng.getrandbits(24),
    )  # fmt: skip
    header, trailer = framer.sack(rng.getrandbits(32), say)
    return bytes(header) + trailer


def rc_packet(duel: Duel, to: str, kind: str, opcode: int, psn: int, extension: bytes, payload: bytes) -> bytes:
    peer = "b" if to == "a" else "a"
    addresses = {"a": A, "b": B}
    (source,), (target,) = duel.attributes[peer][{"send": "receive", "receive": "send"}[kind]][to], duel.attributes[to][kind][peer]
    flow = rc_wire.Flow(addresses[peer], addresses[to], source["source_port"], target["qpn"])
    header, trailer = flow.build(opcode, psn & wire.PSN_MASK, extension, payload)
    return header + payload + trailer


def rc_first_psn(duel: Duel, to: str, kind: str) -> int:
    peer = "b" if to == "a" else "a"
    (end,) = duel.attributes[peer]["send"][to] if kind == "receive" else duel.attributes[to]["send"][peer]
    return int(end["first_psn"])


def rc_past_psn(duel: Duel, to: str) -> bytes:
    """A Write of a PSN long past: never placed, wherever it points."""
    psn = rc_first_psn(duel, to, "receive") - duel.rng.randrange(1, 1 << 22)
    reth = rc_wire.RETH.pack(duel.rng.getrandbits(64), duel.rng.getrandbits(32), PAYLOAD_BYTES)
    return rc_packet(duel, to, "receive", rc_wire.WRITE_FIRST, psn, reth, bytes(PAYLOAD_BYTES))


def rc_unsent_ack(duel: Duel, to: str) -> bytes:
    psn = rc_first_psn(duel, to, "send") + duel.rng.randrange(1000, 1 << 22)
    return rc_packet(duel, to, "send", rc_wire.ACK, psn, rc_wire.AETH.pack(rc_wire.SYNDROME_ACK << 24), b"")


def rc_old_nak(duel: Duel, to: str) -> bytes:
    psn = rc_first_psn(duel, to, "send") - duel.rng.randrange(2, 1 << 22)
    return rc_packet(duel, to, "send", rc_wire.ACK, psn, rc_wire.AETH.pack(duel.rng.randrange(0x60, 0x63) << 24), b"")


MRC_FORGERS = (mrc_wrong_key, mrc_outside, mrc_far_psn, mrc_unsent_sack, mrc_unasked_reply, mrc_trimmed, mrc_unsent_nack)
RC_FORGERS = (rc_past_psn, rc_unsent_ack, rc_old_nak)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("transport", MAKERS)
def test_impossible_packets_change_nothing(transport: str, seed: int) -> None:
    duel = Duel(transport, seed)
    throwers = {to: impossible(duel, to) for to in "ab"}
    duel.post_all()
    for _ in range(400):
        duel.turn(lambda to: [next(throwers[to]) for _ in range(8)])
        if duel.finished():
            break
    duel.assert_exact()
    assert duel.drops().total() == duel.thrown


@pytest.mark.parametrize("transport", MAKERS)
def test_replayed_packets_change_nothing(transport: str) -> None:
    duel = Duel(transport)
    duel.post_all()
    for _ in range(400):
        duel.turn(lambda to: duel.rng.sample(duel.seen[to], min(8, len(duel.seen[to]))))
        if duel.finished():
            break
    duel.assert_exact()
    for region in duel.regions.values():
        region[:] = bytes(REGION_BYTES)
    duel.turn(lambda to: duel.seen[to])  # everything once more
    assert duel.regions == {"a": bytes(REGION_BYTES), "b": bytes(REGION_BYTES)}
    assert duel.drops()["duplicate"] > 0


@pytest.mark.parametrize("seed", range(20))
def test_a_lying_peer_cannot_break_the_mrc_core(seed: int) -> None:
    """SACKs that only the peer could tell are lies: the transfer may fail, but nothing is raised and no byte is written elsewhere."""
    duel, rng = Duel("mrc", seed), Random(seed)
    framers = {to: mrc_framer(duel, to, "send") for to in "ab"}
    first = {to: mrc_first_psn(duel, to, "send") for to in "ab"}
    duel.post_all()
    for _ in range(150):
        duel.turn(
            lambda to: [sack(framers[to], rng, first[to] + rng.randrange(-2, 140) & wire.PSN_MASK, rng.getrandbits(64)) for _ in range(3)],
            lambda name: rng.random() < 0.2,
        )
    for each in duel.cores.values():
        assert each.next_deadline() is None or each.next_deadline() >= duel.now
    for name, other in (("a", "b"), ("b", "a")):
        assert all(got in (0, want) for got, want in zip(duel.regions[other], duel.data[name], strict=True))


@pytest.mark.parametrize("seed", range(10))
def test_a_peer_that_nacks_what_it_likes_only_costs_retransmissions(seed: int) -> None:
    """NACKs of transmissions that are under way, and were not trimmed."""
    duel, rng = Duel("mrc", seed), Random(seed)
    framers = {to: mrc_framer(duel, to, "send") for to in "ab"}
    first = {to: mrc_first_psn(duel, to, "send") for to in "ab"}
    duel.post_all()

    def lies(to: str) -> list[bytes]:
        psns = [first[to] + ahead & wire.PSN_MASK for ahead in rng.sample(range(140), 30)]
        stamp = wire.timestamp(duel.now if to == "a" else duel.now - STEP_S)
        return [nack(framers[to], NackFields(1, ev, psn, stamp)) for psn in psns for ev in range(4)]

    for _ in range(150):
        duel.turn(lies)
    for _ in range(400):
        duel.turn(lambda to: [])
    duel.assert_exact()
    assert min(core.report()["trimmed_packets"] for core in duel.cores.values()) > 0  # lies that were believed
    assert all(row[2] != "ASSUMED_BAD" for core in duel.cores.values() for row in core.path_rows())


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("transport", MAKERS)
def test_sealed_noise_is_never_raised(transport: str, seed: int) -> None:
    """Random fields behind right addresses and a right ICRC."""
    duel, rng = Duel(transport, seed), Random(seed)
    for _ in range(300):
        to = rng.choice("ab")
        duel.cores[to].on_datagram(duel.now, 0, memoryview(sealed_noise(duel, to, rng)))
    for each in duel.cores.values():
        each.on_receive_done(duel.now)
        each.on_timer(duel.now + 0.01)
        assert len(list(each.transmit(duel.now + 0.01))) < 1000


def sealed_noise(duel: Duel, to: str, rng: Random) -> bytes:
    peer = "b" if to == "a" else "a"
    content = rng.randbytes(rng.choice((0, 4, 16, 28, 36, 60, 500)))
    if duel.transport == "rc":
        kind = rng.choice(("send", "receive"))
        opcode = rng.choice((*rc_wire.WRITES, rc_wire.ACK))
        psn = rc_first_psn(duel, to, kind) + rng.choice((0, 1, rng.getrandbits(24)))
        return rc_packet(duel, to, kind, opcode, psn, b"", content)
    addresses = {"a": A, "b": B}
    qps = [duel.attributes[to][kind][peer][0] for kind in ("send_qps", "receive_qps")]
    opcode, bits = rng.choice(tuple(wire.OPCODES)), rng.getrandbits(4)
    bth = wire.BTH.pack(
        opcode=opcode, pad=bits >> 2, ts=bits >> 1 & 1, rtx=bits & 1, destination_qp=rng.choice(qps), psn=rng.getrandbits(24)
    )
    source, target = (ipaddress.IPv6Address(addresses[end]).packed for end in (peer, to))
    packet = wire.addresses(source, target, rng.getrandbits(32), len(bth + content) + wire.ICRC_BYTES) + bth + content
    return packet + wire.icrc(packet)


def test_a_flood_of_probes_leaves_a_bounded_number_of_answers() -> None:
    duel = Duel("mrc")
    framer = mrc_framer(duel, "b", "receive")
    for number in range(3 * MOST_READY):
        header, trailer = framer.probe(1, number & 0xFFFF, 0)
        duel.cores["b"].on_datagram(duel.now, 0, memoryview(bytes(header) + trailer))
    assert sum(transmit.control for transmit in duel.cores["b"].transmit(duel.now)) == MOST_READY
