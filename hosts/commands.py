"""The agent protocol's commands (docs/architecture.md) as checked data. Pure: JSON in, dataclasses out; UsageError names the field."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hosts import wire
from hosts.core import PathSpec, PeerSpec
from testbed.errors import UsageError

COMMANDS = ("config", "connect", "start", "deny", "evs", "drain", "abort", "stop")
FILE_KINDS = ("events", "steps", "flows", "paths")
MIB = 2**20
MOST_PORTS = 32  # of a NIC: as many as the port masks of the wire have bits (hosts/wire.py, ERTH)


class Fields:
    """Typed access to a JSON object; each error names the place, as `$.send_to[0].paths[1].ev`."""

    def __init__(self, raw: Any, where: str) -> None:
        if not isinstance(raw, Mapping):
            raise UsageError(f"{where} is {raw!r:.80}: give a JSON object")
        self.raw, self.where = raw, where

    def refuse_unknown(self, *known: str) -> None:
        """UsageError if there is a key that nobody reads."""
        if unknown := sorted(set(self.raw) - set(known)):
            raise UsageError(f"{self.where} has unknown keys {', '.join(unknown)}: it knows {', '.join(known)}")

    def _wrong(self, key: str, wanted: str) -> UsageError:
        got = f"is {self.raw[key]!r:.80}" if key in self.raw else "is missing"
        return UsageError(f"{self.where}.{key} {got}: give {wanted}")

    def text(self, key: str) -> str:
        """A string that is not empty."""
        value = self.raw.get(key)
        if not isinstance(value, str) or not value:
            raise self._wrong(key, "a text")
        return value

    def whole(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number from `low` to `high`."""
        value = self.raw.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self._wrong(key, f"a whole number from {low} to {high}")
        return value

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self.raw.get(key)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def number(self, key: str) -> float:
        """A finite number."""
        value = self.raw.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e18:
            raise self._wrong(key, "a number")
        return float(value)

    def address(self, key: str) -> str:
        """An IPv6 address, normalised."""
        try:
            return str(ipaddress.IPv6Address(self.text(key)))
        except ValueError as error:
            raise self._wrong(key, "an IPv6 address") from error

    def object(self, key: str) -> Fields:
        """A JSON object; an absent one is empty."""
        return Fields(self.raw.get(key, {}), f"{self.where}.{key}")

    def items(self, key: str) -> list[Any]:
        """A JSON list."""
        value = self.raw.get(key)
        if not isinstance(value, list):
            raise self._wrong(key, "a list")
        return value

    def objects(self, key: str) -> Iterator[Fields]:
        """The objects of a JSON list."""
        for at, raw in enumerate(self.items(key)):
            yield Fields(raw, f"{self.where}.{key}[{at}]")


@dataclass(frozen=True)
class SocketSettings:
    """Buffers (bytes) and DSCPs of an agent's sockets.

    `send_buffer_bytes` is about what a socket may have waiting in the host's own link queue. It has to be smaller than that queue: then the
    socket blocks, as a NIC holds back its QPs, and no packet is dropped by its own sender. The default fits a queue of 64 packets of 4 KiB.
    """

    data_dscp: int
    control_dscp: int = wire.DSCP_CONTROL
    receive_buffer_bytes: int = 8 * MIB
    send_buffer_bytes: int = MIB // 4
    again_dscp: int = wire.DSCP_TRIMMABLE_RETX  # MRC's data that is sent again


# MRC's data is trimmable; RC's and TCP's is best effort.
DATA_DSCP = {"mrc": wire.DSCP_TRIMMABLE, "rc": 0, "tcp": 0}
USID, ECMP = FORWARDING = ("usid", "ecmp")


@dataclass(frozen=True)
class Deny:
    """EVs that the administrator takes out of use (`on`) or allows again: those over `links`, and those numbered in `evs`, by peer.

    `ways_back`: links that are denied or allowed to answers alone. Who restores an earlier state says so, and names EVs one by one.
    """

    links: frozenset[str] = frozenset()
    evs: Mapping[str, frozenset[int]] = field(default_factory=dict)
    on: bool = True
    ways_back: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Whether it names anything."""
        return bool(self.links or self.evs)


@dataclass(frozen=True)
class Config:
    """What one agent is and does. `forwarding`: what chooses MRC's paths, the sender (`usid`) or the routers' hash (`ecmp`)."""

    host: str
    rank: int
    transport: str
    params: Mapping[str, Any]
    job: Mapping[str, Any]
    address: str
    send_to: tuple[PeerSpec, ...]
    receive_from: tuple[PeerSpec, ...]
    files: Mapping[str, Path]
    seed: int
    sockets: SocketSettings = field(default_factory=lambda: SocketSettings(0))
    deny: Deny = field(default_factory=Deny)
    forwarding: str = USID

    @property
    def ports(self) -> list[int]:
        """The NIC ports that any path uses."""
        return sorted({path.port for peer in (*self.send_to, *self.receive_from) for path in peer.paths})


@dataclass(frozen=True)
class Start:
    """This attempt begins at `at`, the first attempt began at `origin` (CLOCK_MONOTONIC seconds)."""

    at: float
    first_step: int
    attempt: int
    origin: float


def parse_line(line: bytes) -> tuple[str, Fields]:
    """The command's name and its fields; UsageError if the line is no command."""
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the command {line!r:.80} is not JSON: {error}") from error
    fields = Fields(raw, "$")
    name = fields.text("cmd")
    if name not in COMMANDS:
        raise UsageError(f"$.cmd is {name!r:.80}: give one of {', '.join(COMMANDS)}")
    return name, fields


def parse_config(fields: Fields) -> Config:
    """The `config` command."""
    fields.refuse_unknown(
        "cmd", "host", "rank", "transport", "params", "job", "addresses", "send_to", "receive_from", "files", "seed", "sockets", "deny",
        "forwarding",
    )  # fmt: skip
    transport = fields.text("transport")
    if transport not in DATA_DSCP:
        raise UsageError(f"$.transport is {transport!r:.80}: give one of {', '.join(DATA_DSCP)}")
    return Config(
        host=fields.text("host"),
        rank=fields.whole("rank", 0, 1 << 20),
        transport=transport,
        params=fields.object("params").raw,
        job=fields.object("job").raw,
        address=fields.object("addresses").address("inner"),
        send_to=_peers(fields, "send_to", transport),
        receive_from=_peers(fields, "receive_from", transport),
        files=_files(fields.object("files")),
        seed=fields.whole("seed", -(1 << 63), 1 << 64),
        sockets=_sockets(fields.object("sockets"), transport),
        deny=_denied(fields.object("deny"), on=True),
        forwarding=_forwarding(fields, transport),
    )


def _forwarding(fields: Fields, transport: str) -> str:
    if transport != "mrc" and "forwarding" in fields.raw:
        raise UsageError(f"$.forwarding is for MRC only: leave it out with transport {transport!r}, whose paths the network chooses")
    forwarding = fields.text("forwarding") if "forwarding" in fields.raw else USID
    if forwarding not in FORWARDING:
        raise UsageError(f"$.forwarding is {forwarding!r:.80}: give one of {', '.join(FORWARDING)}")
    return forwarding


def _peers(fields: Fields, key: str, transport: str) -> tuple[PeerSpec, ...]:
    peers = tuple(_peer(peer) for peer in fields.objects(key))
    if len({peer.name for peer in peers}) < len(peers):
        raise UsageError(f"{fields.where}.{key} names a peer twice: there is one QP to a peer")
    for at, peer in enumerate(peers):
        if transport == "mrc" and not peer.paths:
            raise UsageError(f"{fields.where}.{key}[{at}].paths is empty: give at least one path to {peer.name}")
        if transport == "mrc":
            _refuse_gaps(peer, f"{fields.where}.{key}[{at}].paths")
    return peers


def _refuse_gaps(peer: PeerSpec, where: str) -> None:
    """Whoever hears an EV finds its path by the number alone (hosts.core.PathSpec)."""
    numbers, count = [path.ev for path in peer.paths], len(peer.paths)
    if numbers[0] % count or numbers != list(range(numbers[0], numbers[0] + count)):
        raise UsageError(f"{where} have the EVs {numbers!r:.80}: number them on from a multiple of {count}")


def _peer(peer: Fields) -> PeerSpec:
    paths = tuple(_path(path) for path in peer.objects("paths"))
    return PeerSpec(peer.text("name"), peer.address("address"), paths)


def _path(path: Fields) -> PathSpec:
    links = tuple(str(link) for link in path.items("links"))
    return PathSpec(
        path.whole("ev", 0, 1 << 32), path.whole("port", 0, MOST_PORTS - 1), path.address("destination"), path.whole("plane", 0, 1 << 16),
        links, path.whole("peer_port", 0, MOST_PORTS - 1, 0),
    )  # fmt: skip


def _files(files: Fields) -> dict[str, Path]:
    files.refuse_unknown(*FILE_KINDS)
    return {kind: Path(files.text(kind)) for kind in files.raw}


def _sockets(sockets: Fields, transport: str) -> SocketSettings:
    sockets.refuse_unknown("data_dscp", "control_dscp", "again_dscp", "receive_buffer_bytes", "send_buffer_bytes")
    default = SocketSettings(DATA_DSCP[transport])
    return SocketSettings(
        sockets.whole("data_dscp", 0, 63, default.data_dscp),
        sockets.whole("control_dscp", 0, 63, default.control_dscp),
        sockets.whole("receive_buffer_bytes", 4096, 1 << 30, default.receive_buffer_bytes),
        sockets.whole("send_buffer_bytes", 4096, 1 << 30, default.send_buffer_bytes),
        sockets.whole("again_dscp", 0, 63, default.again_dscp),
    )


def parse_start(fields: Fields) -> Start:
    """The `start` command."""
    fields.refuse_unknown("cmd", "at", "first_step", "attempt", "origin")
    at = fields.number("at")
    origin = fields.number("origin") if "origin" in fields.raw else at
    return Start(at, fields.whole("first_step", 0, 1 << 40), fields.whole("attempt", 0, 1 << 40), origin)


def parse_deny(fields: Fields) -> Deny:
    """The `deny` command."""
    fields.refuse_unknown("cmd", "links", "evs", "deny", "ways_back")
    return _denied(fields, fields.flag("deny"))


def _denied(fields: Fields, on: bool) -> Deny:
    """`links` and `evs`, each of which may be absent."""
    evs = fields.object("evs")
    numbers = {peer: frozenset(_numbers(evs, peer)) for peer in evs.raw}
    return Deny(_links(fields, "links"), numbers, on, _links(fields, "ways_back"))


def _links(fields: Fields, key: str) -> frozenset[str]:
    links = fields.items(key) if key in fields.raw else []
    for at, link in enumerate(links):
        if not isinstance(link, str) or not link:
            raise UsageError(f"{fields.where}.{key}[{at}] is {link!r:.80}: give the name of a link")
    return frozenset(links)


def _numbers(fields: Fields, key: str) -> list[int]:
    values = fields.items(key)
    for at, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
            raise UsageError(f"{fields.where}.{key}[{at}] is {value!r:.80}: give the number of an EV")
    return values


def parse_connect(fields: Fields) -> dict[str, Mapping[str, Any]]:
    """The `connect` command: attributes by host."""
    fields.refuse_unknown("cmd", "peers")
    peers = fields.object("peers")
    return {host: peers.object(host).raw for host in peers.raw}
