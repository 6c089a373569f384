"""Sound packets of every kind, changed anywhere and most often sealed again: the core takes them or counts them, and never raises."""

from __future__ import annotations

import ipaddress
from random import Random

from forgery import Forger
from fuzzing import mutated, seeded, times
from mrc_lab import NOW, Pair
from wire_samples import MRC, TRIMMED

from hosts import wire
from hosts.mrc import MrcCore

ROUNDS = 150_000
UDP_LENGTH = wire.BTH_OFFSET - 4


def test_no_change_of_a_packet_makes_a_core_raise() -> None:
    rng, pair = seeded("frames"), Pair(initial_psn=0)
    samples = [*MRC.values(), *TRIMMED.values(), *pair.send(3 * 4096)]
    for number in range(times(ROUNDS)):
        core, packet = rng.choice((pair.a, pair.b)), mutated(rng.choice(samples), samples, rng)
        if rng.random() < 0.9:
            packet = delivered(packet, core, pair, rng)
        before = bytes(pair.region), counted(pair)
        core.on_datagram(NOW + number * 1e-6, 0, memoryview(packet))
        if number % 16 == 0:
            settle(core, NOW + number * 1e-6)
        assert pair.region == before[0] or counted(pair) > before[1]
    drops = pair.a.report()["drops"] | pair.drops()
    assert drops.keys() >= {"icrc", "bad_length", "unknown_qp", "unknown_opcode", "not_mrc", "rkey", "wrong_source"}


def counted(pair: Pair) -> int:
    return int(pair.b.report()["data_packets_received"])


def settle(core: MrcCore, now: float) -> None:
    """The rest of a turn of the agent's loop."""
    core.on_receive_done(now)
    core.on_timer(now)
    list(core.transmit(now))


def delivered(packet: bytes, core: MrcCore, pair: Pair, rng: Random) -> bytes:
    """From its peer to the core, with right lengths, sealed, and half the time for a QP that it has."""
    if len(packet) < wire.BTH_OFFSET + wire.BTH.size_bytes + wire.ICRC_BYTES:
        return packet
    changed = bytearray(packet)
    ends = ("fd00::b", "fd00::a") if core is pair.a else ("fd00::a", "fd00::b")
    changed[8:40] = b"".join(ipaddress.IPv6Address(end).packed for end in ends)
    for offset in (4, UDP_LENGTH):
        changed[offset : offset + 2] = (len(packet) - wire.IPV6.size_bytes & 0xFFFF).to_bytes(2, "big")
    if rng.random() < 0.5:
        forger = Forger.of(pair.a, pair.b, rng)
        qp = rng.choice(forger.senders if core is pair.a else forger.receivers)
        changed[wire.BTH_OFFSET + 5 : wire.BTH_OFFSET + 8] = qp.to_bytes(3, "big")
    return bytes(changed[: -wire.ICRC_BYTES]) + wire.icrc(changed[: -wire.ICRC_BYTES])
