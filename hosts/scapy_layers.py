"""scapy layers of the MRC headers, made from the tables of `hosts.wire`: for tests, captures and decoding, never in the packet path.

scapy takes seconds to import, so nothing is imported before `layers()` is called. After that `IPv6(...)/UDP(dport=4791)/...` dissects into
BTH, the extension headers of its opcode, the payload and the ICRC (a trimmed packet has neither); packets of RoCE RC stay with scapy's own
layer.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from hosts import wire
from hosts.wire import Header

DEFAULTS = {("BTH", "pkey"): 0xFFFF, ("TSETH", "type"): wire.TSETH_TYPE}
OWN_IN_SCAPY = frozenset({"IPV6", "UDP"})


@cache
def layers() -> dict[str, Any]:
    """The layer classes by header name, with scapy's own IPv6 and UDP, and ICRC; bound to MRC's UDP ports.

    Raises:
        ImportError: scapy is not installed.
    """
    from scapy.contrib import roce
    from scapy.fields import LEIntField
    from scapy.layers.inet import UDP
    from scapy.layers.inet6 import IPv6
    from scapy.packet import Packet, bind_layers, split_layers

    made: dict[str, Any] = {"IPV6": IPv6, "UDP": UDP}
    made["ICRC"] = type("ICRC", (Packet,), {"name": "ICRC", "fields_desc": [LEIntField("value", 0)]})
    for header in wire.HEADERS.values():
        if header.name not in OWN_IN_SCAPY:
            made[header.name] = _layer(header, made)
    made["BTH"].dispatch_hook = classmethod(lambda cls, raw=b"", *_, **__: roce.BTH if raw and raw[0] >> 5 != wire.MRC_OPCODES else cls)
    split_layers(UDP, roce.BTH, dport=wire.UDP_PORT)  # scapy takes the first layer bound to a port
    for port in sorted(wire.UDP_PORTS, reverse=True):  # the last one bound is the default when building
        bind_layers(UDP, made["BTH"], dport=port)
    return made


def _layer(header: Header, made: dict[str, Any]) -> Any:
    """A scapy class with one field a table row."""
    from scapy.packet import Packet

    members: dict[str, Any] = {
        "name": header.name,
        "fields_desc": [_field(header, name, bits) for name, bits in header.fields],
        "guess_payload_class": lambda self, payload: _following(self, made) or Packet.guess_payload_class(self, payload),
    }
    if header is wire.BTH:
        members["do_dissect_payload"] = lambda self, data: _dissect_content(self, data, made)
    return type(header.name, (Packet,), members)


def _field(header: Header, name: str, bits: int) -> Any:
    from scapy.fields import BitField, SignedShortField

    default = DEFAULTS.get((header.name, name), 0)
    return SignedShortField(name, default) if name in header.signed else BitField(name, default, bits)


def _following(layer: Any, made: dict[str, Any]) -> Any:
    """The class of the header after `layer`, by the opcode of its BTH; None = payload."""
    bth = layer
    while bth is not None and bth.name != "BTH":
        bth = bth.underlayer
    try:
        chain = ["BTH", *(header.name for header in wire.headers_of(bth.opcode, bool(bth.ts)))] if bth is not None else []
    except ValueError:  # an opcode that MRC does not have: all that follows is payload
        return None
    place = chain.index(layer.name) if layer.name in chain else len(chain)
    return made[chain[place + 1]] if place + 1 < len(chain) else None


def _dissect_content(bth: Any, data: bytes, made: dict[str, Any]) -> None:
    """What follows a BTH: extension headers and payload, and the ICRC at the end."""
    from scapy.packet import Packet

    if len(data) < wire.ICRC_BYTES or _is_trimmed(bth):
        Packet.do_dissect_payload(bth, data)
        return
    Packet.do_dissect_payload(bth, data[: -wire.ICRC_BYTES])
    bth.lastlayer().add_payload(made["ICRC"](data[-wire.ICRC_BYTES :]))


def _is_trimmed(bth: Any) -> bool:
    """Whether the IPv6 header before a BTH has the DSCP of a trimmed packet."""
    below = bth.underlayer.underlayer if bth.underlayer is not None else None
    return getattr(below, "tc", 0) >> 2 in wire.TRIM_REASONS


def seal(packet: Any) -> bytes:
    """The bytes of an inner packet built without ICRC, with its ICRC."""
    raw = bytes(packet)
    return raw + wire.icrc(raw)


def dissect(inner: bytes) -> Any:
    """The scapy view of an inner packet (from its IPv6 header)."""
    return layers()["IPV6"](inner)
