"""What a decoded packet is, and the walk over its bytes that fills it: header after header by the tables, never past the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv6Address
from typing import NamedTuple

from hosts.wire import Buffer, Header

Value = int | str
IPV6_BITS = 128
MOST_LAYERS = 32  # of one packet; the longest that makes sense has about half of them
ADDRESS_BITS: Mapping[str, int] = {"ETHERNET": 48, "IPV6": IPV6_BITS}  # of headers whose source and destination people write as text
REASONS: Mapping[str, str] = {
    "truncated": "fewer bytes are there than a header needs, or a length field says",
    "overlong": "more bytes are there than a length field says, or behind a packet that carries no data",
    "bad_length": "UDP's length and IPv6's payload length disagree",
    "bad_version": "IPv6's version is not 6, or BTH's not 0",
    "nested": "more IPv6 headers inside each other, or headers of any kind, than anybody sends",
    "icrc": "the ICRC is not the one that the bytes have; both are told",
    "unknown_opcode": "an opcode that neither MRC nor RC has here",
    "reserved_bits": "reserved bits are set",
    "unknown_type": "a TSETH whose type is not 1",
    "unknown_m": "the m-flag 3",
    "unknown_nack_reason": "a NACK for a reason that there is not",
    "unknown_endpoint_op": "an Endpoint Request or Response of an operation that there is not",
    "wrong_qp": "an Endpoint Request or Response that does not go to QP 2",
    "dma_length": "RETH's DMA length is not the payload's",
    "bad_pad": "payload and padding are no multiple of 4",
    "not_trimmable": "the DSCP says trimmed, but this opcode has no payload to cut off",
    "no_becn": "a CNP whose BECN bit is not set",
    "trimmed_payload": "the DSCP says trimmed, but bytes are left behind the headers",
}
"""Why packets are called malformed."""


class Layer(NamedTuple):
    """One header: where it starts, and its fields by name; addresses as text. Reserved bits are among them only when they are set."""

    name: str
    offset: int
    fields: Mapping[str, Value]


class Problem(NamedTuple):
    """What is wrong with a packet: a reason to count by, and a sentence."""

    reason: str
    text: str


@dataclass
class Packet:
    """One packet, explained. `kind` is one of `hosts.decode.KINDS`, `says` a sentence; addresses are the innermost ones.

    `usids`: what is left of the outer destination's list. `entropy`: the EV of an MRC packet. `traffic_class`: the DSCP's role and the ECN
    bits. `cut`: the capture kept too little of it (snaplen), so what lies behind was not looked at; that is no fault of the packet.
    """

    captured_bytes: int
    original_bytes: int
    kind: str = "other"
    says: str = ""
    source: str = ""
    destination: str = ""
    usids: tuple[int, ...] = ()
    usid_block: str = ""
    entropy: int | None = None
    traffic_class: str = ""
    payload_bytes: int = 0
    cut: bool = False
    layers: list[Layer] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def layer(self, name: str) -> Mapping[str, Value]:
        """The fields of the last header of that name; empty when there is none."""
        return next((layer.fields for layer in reversed(self.layers) if layer.name == name), {})


class Stop(Exception):
    """Nothing more can be read of this packet; why is in its problems, or in `cut`."""


class Walk:
    """A place in a packet. `end` is where it ends by the innermost length field read; `short`: less is there than one of them says."""

    def __init__(self, frame: Buffer, original_bytes: int) -> None:
        self.data = bytes(frame)
        self.at, self.end, self.short = 0, max(original_bytes, len(self.data)), False
        self.packet = Packet(len(self.data), self.end)

    @property
    def left(self) -> int:
        """Bytes from here to the end of the packet, captured or not."""
        return self.end - self.at

    def problem(self, reason: str, text: str) -> None:
        """Something is wrong with the packet."""
        self.packet.problems.append(Problem(reason, text))

    def stop(self, reason: str, text: str) -> Stop:
        """To be raised: something is wrong, so that what follows has no meaning."""
        self.problem(reason, text)
        return Stop()

    def need(self, size_bytes: int, what: str) -> None:
        """Stops the walk unless so many bytes are here; they are cut off by the capture, or missing in the packet."""
        if size_bytes > self.left:
            raise Stop() if self.short else self.stop("truncated", f"{what} needs {size_bytes} B at byte {self.at}, {self.left} are there")
        if self.at + size_bytes > len(self.data):
            self.packet.cut = True
            raise Stop

    def take(self, header: Header) -> dict[str, int]:
        """The fields of the header that stands here; the walk goes on behind it."""
        if len(self.packet.layers) == MOST_LAYERS:
            raise self.stop("nested", f"more than {MOST_LAYERS} headers, one behind the other")
        self.need(header.size_bytes, header.name)
        values = header.unpack(self.data, self.at)
        shown: dict[str, Value] = dict(values)
        for name in header.reserved:
            if not values[name]:
                del shown[name]
            else:
                self.problem("reserved_bits", f"{header.name} has reserved bits set: {name} is {values[name]:#x}")
        if bits := ADDRESS_BITS.get(header.name):
            for name in ("source", "destination"):
                shown[name] = _address(bits, values[name])
        self.packet.layers.append(Layer(header.name, self.at, shown))
        self.at += header.size_bytes
        return values

    def bound(self, length_bytes: int, what: str, padded: bool = False) -> None:
        """A length field: the packet ends so many bytes from here. More may be there only as the padding of a short Ethernet frame."""
        if length_bytes > self.left:
            if not self.short:  # else the headers within say the same again
                self.problem("truncated", f"{what} is {length_bytes}, but {self.left} B are there")
            self.short = True
            return
        if length_bytes < self.left and not padded:
            self.problem("overlong", f"{what} is {length_bytes}, but {self.left} B are there")
        self.end = self.at + length_bytes


@lru_cache(maxsize=4096)
def _address(bits: int, value: int) -> str:
    return str(IPv6Address(value)) if bits == IPV6_BITS else value.to_bytes(bits // 8, "big").hex(":")
