"""Reads pcap and pcapng, packet by packet: bounded memory, and whatever is in the file a clean end.

A file that is no capture raises `NotACapture`. One that breaks off, or goes on with nonsense, ends there, and `damage` says why.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import BinaryIO

from testbed.capture import pcapng
from testbed.errors import UsageError

PCAP_MAGICS = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}  # nanoseconds a unit of the record's fraction of a second
CHECK_FOLLOWS = 1 << 26  # of a pcap's link type: its top four bits are the length of the frames' check sequence, in units of 2 bytes
MAX_PACKET_BYTES = 1 << 18  # libpcap's own limit (MAXIMUM_SNAPLEN)
MAX_BLOCK_BYTES = 1 << 24
MAX_INTERFACES, MAX_NAMES, MAX_NAME = 1 << 16, 1 << 17, 64
CHUNK_BYTES = 1 << 16


class NotACapture(UsageError):
    """The file is neither pcap nor pcapng."""


class Damaged(Exception):
    """The file cannot be read on from here."""


@dataclass(frozen=True, slots=True)
class Record:
    """One captured packet; `direction` is `in`, `out` or empty, `time_ns` counts from 1970."""

    time_ns: int
    interface: str
    direction: str
    link_type: int
    data: bytes
    original_bytes: int


@dataclass(slots=True)
class Interface:
    """What pcapng says of an interface; a unit of time is 1/`units_a_second` s."""

    name: str
    link_type: int
    snaplen: int = 0
    units_a_second: int = 10**6
    offset_s: int = 0

    def time_ns(self, units: int) -> int:
        """Nanoseconds since 1970."""
        return units * 10**9 // self.units_a_second + self.offset_s * 10**9


@dataclass
class Capture:
    """An open capture. `names`, `zero_ns` (the wall clock at time 0) and `dropped` (by the kernel) fill as its blocks come by."""

    stream: BinaryIO
    name: str
    names: dict[str, str] = field(default_factory=dict)
    zero_ns: int | None = None
    dropped: int = 0
    damage: str = ""

    def records(self) -> Iterator[Record]:
        """All packets. NotACapture before the first one if this is no capture."""
        magic = self.stream.read(4)
        if len(magic) == 4 and int.from_bytes(magic, "little") == pcapng.SECTION:
            walk = self._blocks()
        elif (order := _pcap_order(magic)) is not None:
            walk = self._pcap(magic, order)
        else:
            what = "is empty" if not magic else "is neither pcap nor pcapng"
            raise NotACapture(f"{self.name} {what}: give a capture, as `testbed run --pcap` or tcpdump writes it")
        try:
            yield from walk
        except Damaged as damage:
            self.damage = str(damage)

    def _read(self, size: int, what: str) -> bytes:
        data = self.stream.read(size)
        if len(data) < size:
            raise Damaged(f"the file ends within {what}: {size} B should follow, {len(data)} do")
        return data

    # --- pcap ------------------------------------------------------------------------------------------------------------------------

    def _pcap(self, magic: bytes, order: str) -> Iterator[Record]:
        unit_ns = PCAP_MAGICS[struct.unpack(order + "I", magic)[0]]
        *_, network = struct.unpack(order + "HHiIII", self._read(20, "its header"))
        check_bytes = 2 * (network >> 28) if network & CHECK_FOLLOWS else 0
        record = struct.Struct(order + "IIII")
        while head := self.stream.read(record.size):
            if len(head) < record.size:
                raise Damaged(f"the file ends within a packet's header, {len(head)} B after its beginning")
            seconds, fraction, captured, original = record.unpack(head)
            if captured > MAX_PACKET_BYTES:
                raise Damaged(f"a packet of {captured} B: no capture holds one above {MAX_PACKET_BYTES}")
            data, sent = self._read(captured, "a packet"), max(0, original - check_bytes)
            yield Record(seconds * 10**9 + fraction * unit_ns, "", "", network & 0xFFFF, data[:sent] if check_bytes else data, sent)

    # --- pcapng ----------------------------------------------------------------------------------------------------------------------

    def _blocks(self) -> Iterator[Record]:
        order, interfaces, kind_bytes = "<", list[Interface](), struct.pack("<I", pcapng.SECTION)
        while kind_bytes:
            if len(kind_bytes) < 4:
                raise Damaged("the file ends within a block's header")
            if int.from_bytes(kind_bytes, "little") == pcapng.SECTION:  # the same either way round
                order, content = self._section()
                interfaces = []
                self._comments(order, content[12:])
            else:
                kind = struct.unpack(order + "I", kind_bytes)[0]
                yield from self._block(kind, order, interfaces)
            kind_bytes = self.stream.read(4)

    def _section(self) -> tuple[str, bytes]:
        length_bytes, mark = self._read(4, "a section header"), self._read(4, "a section header")
        orders = [order for order in "<>" if struct.unpack(order + "I", mark)[0] == pcapng.BYTE_ORDER]
        if not orders:
            raise Damaged(f"a section whose byte order mark is {mark.hex()}")
        return orders[0], self._content(struct.unpack(orders[0] + "I", length_bytes)[0], orders[0], "a section header", mark)[4:]

    def _content(self, length: int, order: str, what: str, begun: bytes = b"") -> bytes:
        """The content of a block of `length` bytes, of which `begun` is read already; its trailing length must say the same."""
        if length < 12 + len(begun) or length % 4 or length > MAX_BLOCK_BYTES:
            raise Damaged(f"{what} of {length} B, which cannot be")
        content = begun + self._read(length - 12 - len(begun), what)
        if (again := struct.unpack(order + "I", self._read(4, what))[0]) != length:
            raise Damaged(f"{what} of {length} B that ends with another length, {again}")
        return content

    def _block(self, kind: int, order: str, interfaces: list[Interface]) -> Iterator[Record]:
        length = struct.unpack(order + "I", self._read(4, "a block's header"))[0]
        if kind in (pcapng.ENHANCED, pcapng.OBSOLETE, pcapng.SIMPLE):
            yield _packet(kind, self._content(length, order, "a packet's block"), order, interfaces)
        elif kind == pcapng.INTERFACE:
            if len(interfaces) == MAX_INTERFACES:
                raise Damaged(f"more than {MAX_INTERFACES} interfaces")
            interfaces.append(_interface(self._content(length, order, "an interface's block"), order))
        elif kind == pcapng.NAMES:
            self._add_names(self._content(length, order, "a block of names"), order)
        elif kind == pcapng.STATISTICS:
            options = _options(self._content(length, order, "a statistics block")[12:], order)
            self.dropped += sum(
                struct.unpack(order + "Q", value)[0] for code, value in options if (code, len(value)) == (pcapng.DROPPED, 8)
            )
        else:
            self._skip(length)

    def _skip(self, length: int) -> None:
        """Passes over a block of a kind that has no packets, however long it says it is."""
        if length < 12:
            raise Damaged(f"a block of {length} B, which cannot be")
        left = (length + 3 & ~3) - 8
        while left:
            left -= len(self._read(min(left, CHUNK_BYTES), "a block"))

    def _comments(self, order: str, options: bytes) -> None:
        for code, value in _options(options, order):
            if code == pcapng.COMMENT and self.zero_ns is None:
                self.zero_ns = pcapng.zero_of(value.decode(errors="replace"))

    def _add_names(self, records: bytes, order: str) -> None:
        for code, value in _options(records, order):
            if code == pcapng.NAME_IPV6 and len(value) > 16 and len(self.names) < MAX_NAMES:
                self.names[str(IPv6Address(value[:16]))] = printable(value[16:].split(b"\0")[0])


def _pcap_order(magic: bytes) -> str | None:
    return next((order for order in "<>" if len(magic) == 4 and struct.unpack(order + "I", magic)[0] in PCAP_MAGICS), None)


def _options(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Codes and values; what is cut off at the end is left out."""
    at = 0
    while at + 4 <= len(data):
        code, length = struct.unpack_from(order + "HH", data, at)
        if code == 0 or at + 4 + length > len(data):
            return
        yield code, data[at + 4 : at + 4 + length]
        at += 4 + (length + 3 & ~3)


def _interface(content: bytes, order: str) -> Interface:
    if len(content) < 8:
        raise Damaged(f"an interface's block with {len(content)} B in it")
    link_type, _, snaplen = struct.unpack_from(order + "HHI", content)
    made = Interface("", link_type, snaplen)
    setters: dict[int, Callable[[bytes], None]] = {
        pcapng.IF_NAME: lambda value: setattr(made, "name", printable(value)),
        pcapng.IF_RESOLUTION: lambda value: setattr(made, "units_a_second", _units(value[0] if value else 6)),
        pcapng.IF_OFFSET: lambda value: setattr(
            made, "offset_s", int.from_bytes(value[:8], "little" if order == "<" else "big", signed=True)
        ),
    }
    for code, value in _options(content[8:], order):
        if code in setters:
            setters[code](value[:MAX_NAME])
    return made


def _units(resolution: int) -> int:
    return 1 << (resolution & 0x7F) if resolution & 0x80 else 10**resolution


def _packet(kind: int, content: bytes, order: str, interfaces: list[Interface]) -> Record:
    form = struct.Struct(order + {pcapng.ENHANCED: "IIIII", pcapng.OBSOLETE: "HHIIII", pcapng.SIMPLE: "I"}[kind])
    if len(content) < form.size:
        raise Damaged(f"a packet's block with {len(content)} B in it")
    values = form.unpack_from(content)
    number = 0 if kind == pcapng.SIMPLE else values[0]
    if number >= len(interfaces):
        raise Damaged(f"a packet of interface {number}, of which no block tells")
    interface = interfaces[number]
    if kind == pcapng.SIMPLE:
        original = values[0]
        size = min(original, interface.snaplen or original, len(content) - form.size)
        return Record(0, interface.name, "", interface.link_type, content[form.size : form.size + size], original)
    high, low, size, original = values[-4:]
    if size > len(content) - form.size:
        raise Damaged(f"a packet of {size} B in a block with room for {len(content) - form.size}")
    data, options = content[form.size : form.size + size], content[form.size + (size + 3 & ~3) :]
    return Record(
        interface.time_ns(high << 32 | low), interface.name, _direction(options, order), interface.link_type, data, original
    )  # fmt: skip


def _direction(options: bytes, order: str) -> str:
    flags = (value for code, value in _options(options, order) if (code, len(value)) == (pcapng.FLAGS, 4))
    return next((pcapng.DIRECTIONS.get(struct.unpack(order + "I", value)[0] & 3, "") for value in flags), "")


def printable(text: bytes) -> str:
    """A name from a file, so that it cannot steer a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:MAX_NAME].decode(errors="replace"))
