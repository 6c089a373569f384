"""What goes between the brain and the OpenFlow library, as plain data, so that either can be replaced. Times: CLOCK_MONOTONIC seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from testbed.controller.tables import Change, Routes


class Connection(Protocol):
    """A connected switch. Nothing waits: answers come as events."""

    datapath_id: int

    def carry_out(self, changes: Iterable[Change]) -> list[int]:
        """Sends the changes, and returns the number of the barrier after each one's route."""
        ...

    def send(self, port: int, frame: bytes) -> None:
        """A packet out of a port."""
        ...


@dataclass(frozen=True)
class Connected:
    """A switch is there: its ports with their carrier, and the routes that it has."""

    t: float
    connection: Connection
    ports: Mapping[int, bool]
    routes: Routes


@dataclass(frozen=True)
class Disconnected:
    """A connection ended."""

    t: float
    connection: Connection


@dataclass(frozen=True)
class PortChanged:
    """A port has carrier or has none."""

    t: float
    connection: Connection
    port: int
    up: bool


@dataclass(frozen=True)
class PacketIn:
    """A packet that came to a port."""

    t: float
    connection: Connection
    port: int
    data: bytes


@dataclass(frozen=True)
class Confirmed:
    """The switch has done all before that barrier."""

    t: float
    connection: Connection
    barrier: int


@dataclass(frozen=True)
class Refused:
    """The switch said that it does not do something."""

    t: float
    connection: Connection
    text: str


Event = Connected | Disconnected | PortChanged | PacketIn | Confirmed | Refused
