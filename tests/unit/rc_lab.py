"""Two RC cores with several QPs, and a channel between them that loses, delays, repeats and reorders."""

from __future__ import annotations

import random

from hosts.core import PeerSpec, Transmit
from hosts.rc import RcCore, RcParams

A, B = PeerSpec("a", "fd00::1", ()), PeerSpec("b", "fd00::2", ())
REGION_BYTES = 1 << 16
TICK_S = 0.001


def raw(packet: Transmit) -> memoryview:
    return memoryview(bytes(packet.header) + bytes(packet.payload) + packet.trailer)


class Ends:
    """`a` writes to `b`; both are connected."""

    def __init__(self, seed: int = 3, **params: object) -> None:
        self.params = RcParams(**{"payload_bytes": 64, "timeout_exponent": 11, **params})  # type: ignore[arg-type]
        self.region = memoryview(bytearray(REGION_BYTES))
        self.a = RcCore("a", A.address, self.params, {"b": B}, {}, memoryview(bytearray(8)), seed)
        self.b = RcCore("b", B.address, self.params, {}, {"a": A}, self.region, seed)
        self.attributes = {"a": self.a.attributes(), "b": self.b.attributes()}
        self.a.connect(self.attributes)
        self.b.connect(self.attributes)
        self.now = 0.0

    def write(self, data: bytes, offset: int = 0, imm: int = 1) -> None:
        self.a.post_write(self.now, "b", memoryview(data), offset, imm)

    def data(self) -> list[Transmit]:
        return list(self.a.transmit(self.now))

    def answers(self) -> list[Transmit]:
        return list(self.b.transmit(self.now))

    def to_b(self, *packets: Transmit, marked: bool = False) -> None:
        for packet in packets:
            if marked:
                self.b.on_marked()
            self.b.on_datagram(self.now, 0, raw(packet))

    def to_a(self, *packets: Transmit) -> None:
        for packet in packets:
            self.a.on_datagram(self.now, 0, raw(packet))

    def tick(self) -> None:
        self.now += TICK_S
        self.a.on_timer(self.now)

    def finish(self, draw: random.Random, loss: float, turns: int = 20_000) -> None:
        """Until all is acknowledged or has failed, over a channel that loses, repeats, delays and reorders in both directions."""
        to_b, to_a = list[Transmit](), list[Transmit]()
        for _ in range(turns):
            to_b += self.data()
            now, to_b = passing(to_b, draw, loss)
            self.to_b(*now, marked=draw.random() < 0.1)
            to_a += self.answers()
            now, to_a = passing(to_a, draw, loss)
            self.to_a(*now)
            self.tick()
            if not self.a.outstanding_messages("b") or self.a.path_rows()[0][2] != "GOOD":
                return
        raise AssertionError("no end")


def passing(waiting: list[Transmit], draw: random.Random, loss: float) -> tuple[list[Transmit], list[Transmit]]:
    """What arrives of the waiting packets now, and what still waits."""
    now, later = list[Transmit](), list[Transmit]()
    for packet in waiting:
        (now if draw.random() < 0.8 else later).append(packet)
    if draw.random() < 0.2:
        draw.shuffle(now)
    return [packet for packet in now for _ in range(1 + (draw.random() < 0.1)) if draw.random() >= loss], later
