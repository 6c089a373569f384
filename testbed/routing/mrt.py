"""bgpd's own record of what it received, taken apart: MRT files with BGP4MP and BGP4MP_ET records (RFC 6396). Pure and strict.

What cannot be so is an `MrtError` that says where; only the last record may be cut short, since bgpd may be writing it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from testbed.errors import TestbedError

HEADER = struct.Struct("!IHHI")  # RFC 6396 2: timestamp in seconds, type, subtype, length of what follows
MICROSECONDS = struct.Struct("!I")  # RFC 6396 3: counted in the length
BGP4MP, BGP4MP_ET = 16, 17
STATE_CHANGE, MESSAGE, MESSAGE_AS4, STATE_CHANGE_AS4 = 0, 1, 4, 5  # RFC 6396 4.4
AS_FORMATS = {STATE_CHANGE: "!HH", MESSAGE: "!HH", MESSAGE_AS4: "!II", STATE_CHANGE_AS4: "!II"}
ADDRESS_BYTES = {1: 4, 2: 16}  # AFI: IPv4, IPv6
STATES = {1: "Idle", 2: "Connect", 3: "Active", 4: "OpenSent", 5: "OpenConfirm", 6: "Established", 7: "Clearing", 8: "Deleted"}
"""RFC 6396 4.4.1, and FRR's own: 7 and 8."""
MARKER = b"\xff" * 16
BGP_HEADER = struct.Struct("!16sHB")  # RFC 4271 4.1
KINDS = {1: "open", 2: "update", 3: "notification", 4: "keepalive", 5: "route-refresh"}
MP_REACH, MP_UNREACH = 14, 15  # RFC 4760
EXTENDED_LENGTH = 0x10  # of an attribute's flags: two bytes of length
PLAIN = frozenset({1, 2})  # SAFI: unicast, multicast


class MrtError(TestbedError):
    """A record that no bgpd writes."""


@dataclass(frozen=True)
class Peering:
    """Between whom: addresses are None in a state change of a session that has none."""

    peer: str | None
    local: str | None
    peer_as: int
    local_as: int
    ifindex: int


@dataclass(frozen=True)
class Message:
    """A BGP message that was received. `t_s`: seconds since 1970. Prefixes of an update; code and subcode of a notification."""

    t_s: float
    peering: Peering
    kind: str
    announced: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()
    notification: tuple[int, int] | None = None


@dataclass(frozen=True)
class StateChange:
    """A session went from one state of RFC 4271's machine to another."""

    t_s: float
    peering: Peering
    old: str
    new: str


Record = Message | StateChange


class _Bytes:
    """Bytes that are read from the front; MrtError where they end too early."""

    def __init__(self, data: bytes, where: str) -> None:
        self._data, self._at, self._where = data, 0, where

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int, what: str) -> bytes:
        if count > self.left:
            raise MrtError(f"{self._where}: {what} needs {count} bytes, and {self.left} are left")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, size: int, what: str) -> int:
        return int.from_bytes(self.take(size, what), "big")

    def part(self, count: int, what: str) -> _Bytes:
        return _Bytes(self.take(count, what), f"{self._where}, {what}")

    def wrong(self, text: str) -> MrtError:
        return MrtError(f"{self._where}: {text}")

    def end(self) -> None:
        if self.left:
            raise self.wrong(f"{self.left} bytes too many")


def records(data: bytes) -> list[Record]:
    """All complete records of a file, in its order. MrtError names the byte where a record begins that makes no sense."""
    found, at = list[Record](), 0
    while len(data) - at >= HEADER.size:
        seconds, kind, subtype, length = HEADER.unpack_from(data, at)
        if kind not in (BGP4MP, BGP4MP_ET) or subtype not in AS_FORMATS:
            raise MrtError(f"record at byte {at}: type {kind}, subtype {subtype} is neither a BGP message nor a state change")
        if length > len(data) - at - HEADER.size:
            break
        body = _Bytes(data[at + HEADER.size : at + HEADER.size + length], f"record at byte {at}")
        t_s = seconds + (_microseconds(body) if kind == BGP4MP_ET else 0.0)
        found.append(_record(t_s, subtype, body))
        at += HEADER.size + length
    return found


def _microseconds(body: _Bytes) -> float:
    count = body.number(MICROSECONDS.size, "microseconds")
    if count >= 1_000_000:
        raise body.wrong(f"{count} microseconds are more than a second")
    return count / 1e6


def _record(t_s: float, subtype: int, body: _Bytes) -> Record:
    """One record without its time."""
    is_change = subtype in (STATE_CHANGE, STATE_CHANGE_AS4)
    peering = _peering(body, struct.Struct(AS_FORMATS[subtype]), is_change)
    return _state_change(t_s, peering, body) if is_change else _message(t_s, peering, body)


def _peering(body: _Bytes, numbers: struct.Struct, may_be_short: bool) -> Peering:
    """FRR leaves interface, family and addresses out of a state change whose session has no address any more."""
    peer_as, local_as = numbers.unpack(body.take(numbers.size, "AS numbers"))
    if may_be_short and body.left == 4:
        return Peering(None, None, peer_as, local_as, 0)
    ifindex, family = body.number(2, "interface index"), body.number(2, "address family")
    if family not in ADDRESS_BYTES:
        raise body.wrong(f"address family {family} is neither IPv4 (1) nor IPv6 (2)")
    peer, local = (_address(body.take(ADDRESS_BYTES[family], what)) for what in ("peer's address", "own address"))
    return Peering(peer, local, peer_as, local_as, ifindex)


def _address(raw: bytes) -> str:
    return str(IPv4Address(raw) if len(raw) == 4 else IPv6Address(raw))


def _state_change(t_s: float, peering: Peering, body: _Bytes) -> StateChange:
    old, new = body.number(2, "old state"), body.number(2, "new state")
    body.end()
    for state in (old, new):
        if state not in STATES:
            raise body.wrong(f"there is no state {state}")
    return StateChange(t_s, peering, STATES[old], STATES[new])


def _message(t_s: float, peering: Peering, body: _Bytes) -> Message:
    """RFC 4271 4.1."""
    marker, length, number = BGP_HEADER.unpack(body.take(BGP_HEADER.size, "BGP header"))
    if marker != MARKER or length != body.left + BGP_HEADER.size:
        raise body.wrong(f"no BGP message of {length} bytes with its marker")
    if number not in KINDS:
        raise body.wrong(f"there is no BGP message of type {number}")
    if KINDS[number] == "update":
        announced, withdrawn = _update(body)
        return Message(t_s, peering, "update", announced, withdrawn)
    code = (body.number(1, "error code"), body.number(1, "error subcode")) if KINDS[number] == "notification" else None
    return Message(t_s, peering, KINDS[number], notification=code)


def _update(body: _Bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Announced and withdrawn prefixes: RFC 4271 4.3, and RFC 4760 for all that is not IPv4."""
    withdrawn = _prefixes(body.part(body.number(2, "length of withdrawn routes"), "withdrawn routes"), 1)
    attributes = body.part(body.number(2, "length of attributes"), "attributes")
    announced = list[str]()
    while attributes.left:
        flags, kind = attributes.number(1, "attribute's flags"), attributes.number(1, "attribute's type")
        length = attributes.number(2 if flags & EXTENDED_LENGTH else 1, "attribute's length")
        value = attributes.part(length, f"attribute {kind}")
        if kind == MP_REACH:
            announced += _reached(value)
        elif kind == MP_UNREACH:
            withdrawn += _prefixes(value, _family(value))
    return (*announced, *_prefixes(body, 1)), tuple(withdrawn)


def _reached(value: _Bytes) -> list[str]:
    """MP_REACH_NLRI: family, next hop, a reserved byte, prefixes."""
    family = _family(value)
    value.take(value.number(1, "length of the next hop"), "next hop")
    value.take(1, "reserved byte")
    return _prefixes(value, family)


def _family(value: _Bytes) -> int:
    """AFI of plain prefixes; others (labels, VPNs) are written otherwise, and no router here speaks them."""
    family, subsequent = value.number(2, "address family"), value.number(1, "subsequent family")
    if family not in ADDRESS_BYTES or subsequent not in PLAIN:
        raise value.wrong(f"prefixes of family {family}/{subsequent} are not known here")
    return family


def _prefixes(body: _Bytes, family: int) -> list[str]:
    """Prefixes to the end: a length in bits, and as many bytes as it takes (RFC 4271 4.3)."""
    found, size = list[str](), ADDRESS_BYTES[family]
    while body.left:
        bits = body.number(1, "prefix length")
        if bits > 8 * size:
            raise body.wrong(f"a prefix of {bits} bits")
        raw = body.take((bits + 7) // 8, "prefix")
        found.append(f"{_address(raw.ljust(size, bytes(1)))}/{bits}")
    return found
