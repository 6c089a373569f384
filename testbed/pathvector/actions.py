"""What the model of BGP wants done in the real world, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Fib = dict[str, tuple[str, ...]]
"""Host address -> names of the interfaces that lead there, sorted; unreachable hosts are absent."""


@dataclass(frozen=True)
class Install:
    """A switch's entry for one host address becomes these interfaces (sorted); none: the entry is removed."""

    switch: str
    address: str
    ports: tuple[str, ...]


@dataclass(frozen=True)
class SendKeepalive:
    """A small packet of the control class leaves the switch on this interface: what says that the link passes packets."""

    switch: str
    ifname: str


@dataclass(frozen=True)
class Record:
    """A history event (docs/architecture.md, source `routing`: `bgp_message`, `session`), without its time `t`.

    FIB changes are not among them: they are history when the switch has confirmed them, which only the caller knows.
    """

    t: float
    event: Mapping[str, Any]


Action = Install | SendKeepalive | Record
