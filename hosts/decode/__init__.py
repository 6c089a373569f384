"""Explains captured packets: one frame in, a `Packet` of layers, words and problems out. Pure, and no bytes make it raise.

What it knows are the tables of `hosts.wire`; MRC within SRv6 first of all, RoCE RC, and the names of whatever else runs in the fabric. A
checksum of UDP or TCP is not looked at, as the kernel may leave it open inside a machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Any

from hosts.decode.network import LINK_TYPES, USID_SHIFT
from hosts.decode.walk import REASONS, Layer, Packet, Problem, Stop, Walk
from hosts.wire import Buffer

__all__ = ["ETHERNET_LINK", "KINDS", "LINK_TYPES", "REASONS", "Layer", "Packet", "Problem", "as_dict", "decode", "sentence"]

ETHERNET_LINK = 1
KINDS: Mapping[str, str] = {
    "data": "MRC: a Write, of any opcode",
    "trimmed": "MRC: a Write whose payload a switch cut off",
    "sack": "MRC: SACK",
    "nack": "MRC: NACK",
    "probe": "MRC: Probe",
    "probe-reply": "MRC: a SACK that answers a Probe",
    "ack": "MRC: ACK",
    "endpoint": "MRC: Endpoint Request or Response",
    "rc-data": "RoCE RC: a Write, of any opcode",
    "rc-ack": "RoCE RC: ACK or NAK",
    "rc-cnp": "RoCE RC: CNP, a packet came marked (DCQCN)",
    "roce": "RoCEv2 with an opcode that is none of these, or too short to have one",
    "bgp": "BGP, over TCP",
    "bfd": "BFD",
    "nd": "IPv6 neighbour and router discovery",
    "icmpv6": "ICMPv6 of other types",
    "tcp": "TCP, but not BGP",
    "udp": "UDP to other ports",
    "ipv4": "IPv4",
    "arp": "ARP",
    "other": "anything else",
}


def decode(frame: Buffer, original_bytes: int | None = None, link_type: int = ETHERNET_LINK) -> Packet:
    """Explains one captured frame; `original_bytes` is its length on the wire, where the capture kept less of it.

    A link type that is not in `LINK_TYPES` gives a packet of kind `other`.
    """
    walk = Walk(frame, len(frame) if original_bytes is None else original_bytes)
    enter = LINK_TYPES.get(link_type)
    if enter is None:
        walk.packet.says = f"link type {link_type}"
        return walk.packet
    with contextlib.suppress(Stop):
        enter(walk)
    return walk.packet


def sentence(packet: Packet, names: Mapping[str, str]) -> str:
    """A packet in one line, with what is wrong at its end; `names`: of addresses, those of uSIDs too (`fcbb:bb00:1::` for 1)."""
    ends = [names.get(address, address) for address in (packet.source, packet.destination) if address]
    parts = [
        " > ".join(ends),
        _left(packet, names) if packet.usids else "",
        "" if packet.entropy is None else f"EV {packet.entropy}",
        packet.says or "cut off before it says anything",
        packet.traffic_class,
        f"[{packet.captured_bytes} of {packet.original_bytes} B captured]" if packet.cut else "",
    ]
    wrong = [f"  !! {problem.text}" for problem in packet.problems]
    return "  ".join(part for part in parts if part) + "".join(wrong)


def _left(packet: Packet, names: Mapping[str, str]) -> str:
    """How many uSIDs are left, and whose they are."""
    told = [names.get(_alone(packet.usid_block, usid), f"{usid:x}") for usid in packet.usids]
    return f"{len(told)} left: {' '.join(told)}"


@lru_cache(maxsize=4096)
def _alone(block: str, usid: int) -> str:
    """The destination that holds this uSID and no other."""
    return str(IPv6Address(int(IPv6Address(block)) | usid << USID_SHIFT))


def as_dict(packet: Packet, names: Mapping[str, str]) -> dict[str, Any]:
    """JSON-able, with the same sentence."""
    return {
        "kind": packet.kind,
        "summary": sentence(packet, names),
        "captured_bytes": packet.captured_bytes,
        "original_bytes": packet.original_bytes,
        "cut": packet.cut,
        "payload_bytes": packet.payload_bytes,
        "entropy": packet.entropy,
        "usids": list(packet.usids),
        "layers": [{"name": layer.name, "offset": layer.offset, "fields": dict(layer.fields)} for layer in packet.layers],
        "problems": [problem._asdict() for problem in packet.problems],
    }
