"""One who sends what he likes into a running transfer: nothing is changed, nobody is killed, all is counted, memory is bounded."""

from __future__ import annotations

import gc
import types
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice, repeat

import pytest
from forgery import Forger, addressee
from fuzzing import seeded, times
from mrc_lab import on_wire

from benchmarks.soak_lab import Soak
from hosts import wire
from hosts.mrc import MrcCore, MrcParams
from hosts.mrc.channel import Conditions, flipped, peer_spec
from hosts.mrc.frames import EndpointFields, Framer, parse_sack

MESSAGE_BYTES = 12_000
TURN_S = 0.001
A_TURN = 40  # hostile packets
MOST_OBJECTS = 150_000  # that a core may hold: its caches and queues are bounded

FORGED = ("write", "cut", "sack", "nack", "probe", "other")


def attacked(make: Callable[[Soak], Iterator[bytes]], count: int, **conditions: float) -> Soak:
    """A transfer over 4 paths and 8 EVs that goes on until so many packets of `make` were thrown in, and then comes to its end."""
    params, goes_on = MrcParams(evs=8, payload_bytes=1000, ack_every=2), [True]
    sizes = iter(lambda: MESSAGE_BYTES if goes_on else 0, 0)
    soak = Soak(Conditions(jitter_s=0.0003, rate_bps=20e6, **conditions), params, sizes, MESSAGE_BYTES, 4, 1)
    hostile = make(soak)
    for _ in range(count // A_TURN):
        for packet in islice(hostile, A_TURN):
            soak.hosts["ab".index(addressee(packet))].inbox.append((0, packet))
        soak.run(soak.channel.now + TURN_S)
    goes_on.clear()
    soak.run()
    assert soak.errors == []
    soak.check()
    return soak


def forging(what: str, near: bool, kinds: tuple[str, ...] = FORGED) -> Callable[[Soak], Iterator[bytes]]:
    rng = seeded(what)

    def make(soak: Soak) -> Iterator[bytes]:
        first = soak.a.attributes()["first_psns"]["b"]
        first = first[0] if isinstance(first, list) else first

        def psn_near() -> int:
            return first + soak.b.report()["data_packets_received"]

        forger = Forger.of(soak.a, soak.b, rng, psn_near if near else None)
        return (forger.anything(kinds) for _ in repeat(None))

    return make


def drops(soak: Soak) -> int:
    return sum(sum(core.report()["drops"].values()) for core in (soak.a, soak.b))


@pytest.mark.parametrize("kind", FORGED)
def test_forgery_by_one_who_knows_the_qps_does_no_harm(kind: str) -> None:
    count = times(4000)
    soak = attacked(forging(f"qps {kind}", False, (kind,)), count)
    assert soak.retired == {}
    if kind != "probe":
        assert drops(soak) >= count


@pytest.mark.parametrize("kind", FORGED)
def test_forgery_by_one_who_knows_the_window_too_does_no_harm(kind: str) -> None:
    """Without key, EV and timestamp it is still nothing."""
    count = times(4000)
    soak = attacked(forging(f"window {kind}", True, (kind,)), count, loss=0.03, trimming=0.03)
    if kind != "probe":
        assert drops(soak) >= count


def test_endpoint_packets_of_anybody_do_not_end_a_transfer() -> None:
    attacked(forging("endpoint", True, ("endpoint",)), times(4000))


def test_a_whole_history_replayed_both_ways_does_no_harm() -> None:
    def make(soak: Soak) -> Iterator[bytes]:
        seen: list[bytes] = []
        soak.channel.on_send = lambda now, host, path, t: seen.append(on_wire(t))
        while True:
            yield from seen[-2000:] or [b""]

    soak = attacked(make, times(4000), loss=0.01)
    assert drops(soak) > 0


def test_flipped_and_cut_copies_of_what_is_under_way_do_no_harm() -> None:
    rng = seeded("flipped")

    def make(soak: Soak) -> Iterator[bytes]:
        seen: list[bytes] = []
        soak.channel.on_send = lambda now, host, path, t: seen.append(on_wire(t))
        while True:
            packet = rng.choice(seen or [bytes(60)])
            yield flipped(packet, rng) if rng.random() < 0.7 else packet[: rng.randrange(len(packet))]

    count = times(4000)
    soak = attacked(make, count)
    assert drops(soak) >= count // 2


def test_what_is_trimmed_of_anything_under_way_does_no_harm() -> None:
    """Nothing protects a trimmed header: any field may say anything."""
    rng = seeded("cut")

    def make(soak: Soak) -> Iterator[bytes]:
        seen: list[bytes] = []
        soak.channel.on_send = lambda now, host, path, t: (
            None if t.control or not t.payload else seen.append(bytes(t.header) + bytes(t.payload))
        )
        while True:
            cut = wire.trimmed(rng.choice(seen)) if seen else bytes(60)
            at = rng.randrange(wire.BTH_OFFSET, len(cut))
            yield cut if rng.random() < 0.2 else cut[:at] + rng.randbytes(1) + cut[at + 1 :]

    attacked(make, times(4000))


def held_objects(core: MrcCore) -> int:
    """Containers and objects that can be reached from `core`."""
    skipped = (type, types.ModuleType, types.FunctionType, types.MethodType)
    seen, waiting = {id(core)}, [core]
    while waiting:
        for child in gc.get_referents(waiting.pop()):
            if id(child) not in seen and not isinstance(child, skipped):
                seen.add(id(child))
                waiting.append(child)
    return len(seen)


def test_memory_is_bounded_under_a_flood_of_everything() -> None:
    soak = attacked(forging("memory", True), times(20_000))
    assert max(held_objects(soak.a), held_objects(soak.b)) < MOST_OBJECTS


@pytest.mark.parametrize("questions", ["probes", "endpoint requests"])
def test_who_asks_without_end_does_not_keep_a_host_from_sending_data_and_sacks(questions: str) -> None:
    """An agent takes more packets in a turn than it sends."""
    params = MrcParams(idle_probes=0, cwnd_initial_packets=0, payload_bytes=100)
    spec = {name: peer_spec(name, f"fd00::{name}", 2) for name in "ab"}
    a, b = (
        MrcCore(name, f"fd00::{name}", params, {peer: spec[peer]}, {peer: spec[peer]}, memoryview(bytearray(1 << 16)), 1)
        for name, peer in ("ab", "ba")
    )
    told = {"a": a.attributes(), "b": b.attributes()}
    a.connect(told)
    b.connect(told)
    for core, peer in ((a, "b"), (b, "a")):
        core.post_write(1.0, peer, memoryview(bytes(5000)), 0, 1)
    asked = Framer("fd00::b", "fd00::a", 2, 2, wire.UDP_PORT).endpoint(0, wire.ENDPOINT_REQUEST, EndpointFields(5, wire.EV_PROBE, 0xFF, 0))
    if questions == "probes":
        asked = Framer("fd00::b", "fd00::a", 1, told["a"]["receive_qps"]["b"][0], wire.UDP_PORT).probe(0, 1, 0)
    flood = [b"".join(asked)] * 64
    sent = Counter[str]()
    for packet in [on_wire(t) for t in b.transmit(1.0)]:
        a.on_datagram(1.0, 0, memoryview(packet))
    for _ in range(8):
        for packet in flood:
            a.on_datagram(1.0, 0, memoryview(packet))
        a.on_receive_done(1.0)
        for each in islice(a.transmit(1.0), 16):
            sack = each.header[wire.BTH_OFFSET] == wire.SACK and not parse_sack(memoryview(bytes(each.header) + each.trailer)).probe_reply
            sent["data" if each.payload else "sack" if sack else "answer"] += 1
    assert sent["answer"] >= 16
    assert sent["data"] >= 16
    assert sent["sack"] >= 1
