"""Packets of one who would harm a QP pair a -> b: sealed, of any opcode, with what he knows right and all else guessed."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from random import Random

from hosts import wire
from hosts.mrc import MrcCore

EVS = 8  # of which he knows that they are used
EDGES_24 = (0, 1, 0x7FFFFF, 0x800000, 0xFFFFFF)
A, B, STRANGER = "fd00::a", "fd00::b", "fd00::bad"


class Forger:
    """Knows addresses and QP numbers of a pair a -> b; `psn_near` may say where the window is."""

    def __init__(
        self, senders: list[int], receivers: list[int], rng: Random, psn_near: Callable[[], int] | None = None, a: str = A, b: str = B
    ) -> None:
        self._rng, self._near, self._a, self._b = rng, psn_near, a, b
        self.senders, self.receivers, self.stranger = senders, receivers, False

    @classmethod
    def of(cls, a: MrcCore, b: MrcCore, rng: Random, psn_near: Callable[[], int] | None = None) -> Forger:
        """For two cores of a test."""
        return cls(a.attributes()["send_qps"]["b"], b.attributes()["receive_qps"]["a"], rng, psn_near)

    def psn(self) -> int:
        """Near the window for one who knows it, else any."""
        rng = self._rng
        if self._near is not None and rng.random() < 0.8:
            return self._near() + rng.randint(-300, 300) & wire.PSN_MASK
        return rng.choice(EDGES_24) if rng.random() < 0.1 else rng.getrandbits(24)

    def entropy(self) -> int:
        return self._rng.choice((self._rng.randrange(EVS), self._rng.getrandbits(32)))

    def to_b(self, opcode: int, fields: dict[str, int], payload: bytes = b"", qp: int | None = None, **bth: int) -> bytes:
        return self._packet(self._a, self._b, opcode, fields, payload, qp or self._rng.choice(self.receivers), bth)

    def to_a(self, opcode: int, fields: dict[str, int], qp: int | None = None, **bth: int) -> bytes:
        return self._packet(self._b, self._a, opcode, fields, b"", qp or self._rng.choice(self.senders), bth)

    def _packet(self, source: str, target: str, opcode: int, fields: dict[str, int], payload: bytes, qp: int, bth: dict[str, int]) -> bytes:
        stamped = bool(bth.get("ts"))
        parts = [(header, {k: v for k, v in fields.items() if k in dict(header.fields)}) for header in wire.headers_of(opcode, stamped)]
        packed = [ipaddress.IPv6Address(STRANGER if self.stranger else source).packed, ipaddress.IPv6Address(target).packed]
        entropy, said = self.entropy(), {"opcode": opcode, "destination_qp": qp, "psn": self.psn(), **bth}
        return wire.build_between(packed[0], packed[1], entropy, said, parts, payload)

    # One packet of each kind

    def write(self) -> bytes:
        """Data; the key is a guess."""
        rng, payload = self._rng, self._rng.randbytes(self._rng.choice((0, 1, 63, 64, 700)))
        length = rng.choice((len(payload), rng.getrandbits(32), 0))
        fields = {
            "va": rng.choice((0, rng.getrandbits(64), (1 << 64) - 1)), "rkey": rng.getrandbits(32), "dma_length": length,
            "tx_timestamp": rng.getrandbits(16), "msn": rng.getrandbits(16), "rqmsn": rng.getrandbits(16), "imm": rng.getrandbits(32),
        }  # fmt: skip
        flags = {name: rng.getrandbits(1) for name in ("a", "r", "rtx", "ts")}
        return self.to_b(rng.randint(wire.WRITE_FIRST, wire.WRITE_ONLY_IMM), fields, payload, **flags)

    def cut(self) -> bytes:
        """Data that claims to be trimmed."""
        return wire.trimmed(self.write(), self._rng.choice((wire.TRIMMED, wire.TRIMMED_LASTHOP)))

    def sack(self) -> bytes:
        """Says anything, edges first."""
        rng, signed = self._rng, (-0x8000, -1, 0, 1, 64, 0x7FFF)
        fields = {
            "m": rng.getrandbits(2), "probe_reply": rng.getrandbits(1), "ack_psn_offset": rng.choice(signed), "entropy": self.entropy(),
            "cack_psn": self.psn(), "cc_type": rng.getrandbits(4), "cc_flags": rng.getrandbits(4), "mpr": rng.choice((0, 1, 8, 255)),
            "sack_offset": rng.choice(signed), "bitmap": rng.choice((0, (1 << 64) - 1, rng.getrandbits(64))),
            "tx_timestamp": rng.getrandbits(16), "ooo_count": rng.getrandbits(15), "restore_cwnd": rng.getrandbits(1),
            "rcv_cwnd_pen": rng.choice((0, 1, 127)), "rcvd_bytes": rng.getrandbits(24), "down_ports": rng.choice((0, 1, 255)),
        }  # fmt: skip
        return self.to_a(wire.SACK, fields)

    def nack(self) -> bytes:
        """Of every reason there is or is not."""
        rng = self._rng
        reason = rng.choice((*wire.NACK_REASONS, rng.getrandbits(8)))
        return self.to_a(
            wire.NACK, {"reason": reason, "entropy": self.entropy(), "nack_psn": self.psn(), "tx_timestamp": rng.getrandbits(16)}
        )

    def probe(self) -> bytes:
        """Is answered, whoever asks."""
        return self.to_b(wire.PROBE, {"probe_id": self._rng.getrandbits(16), "tx_timestamp": self._rng.getrandbits(16)})

    def other(self) -> bytes:
        """Opcodes that belong to the other end, or to none."""
        rng = self._rng
        opcode = rng.choice((wire.ACK, wire.SACK, wire.NACK, wire.PROBE))
        return rng.choice((self.to_a, self.to_b))(opcode, {"syndrome": 0x1F}, qp=rng.getrandbits(24))

    def endpoint(self) -> bytes:
        """Any operation with any mask, as request or response, from either end or from a stranger."""
        rng = self._rng
        opcode = rng.choice((wire.ENDPOINT_REQUEST, wire.ENDPOINT_RESPONSE))
        fields = {
            "op": rng.choice((0, 1, 2, 255)), "status": rng.getrandbits(8), "tx_timestamp": rng.getrandbits(16), "entropy": self.entropy(),
            "port_mask": rng.choice((0, 1, rng.getrandbits(32), 0xFFFFFFFF)),
        }  # fmt: skip
        return rng.choice((self.to_a, self.to_b))(opcode, fields, qp=rng.choice((wire.ENDPOINT_QPN, rng.getrandbits(24))))

    def anything(self, kinds: Iterable[str] = ("write", "cut", "sack", "nack", "probe", "other")) -> bytes:
        """One of `kinds`, sometimes from a stranger's address."""
        self.stranger = self._rng.random() < 0.25
        packet: bytes = getattr(self, self._rng.choice(tuple(kinds)))()
        return packet


def addressee(packet: bytes) -> str:
    """Host a or b, by the inner destination."""
    return "a" if packet[24:40] == ipaddress.IPv6Address(A).packed else "b"
