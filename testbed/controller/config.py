"""What the controller's process is told, as a file: pure data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Config:
    """The fabric (`topologies.build`'s arguments), BGP's parameters, and the process's own places.

    ``socket``: where switches connect. ``events``: the history, one JSON object a line, appended. ``switches``: those that should connect
    before it begins, and ``gather_s`` how long it waits for the next one; others may come later. ``library``: `ryu`, `os-ken` or `auto`.
    """

    kind: str
    params: Mapping[str, int]
    options: Mapping[str, Any]
    seed: int
    socket: str
    events: str
    switches: tuple[str, ...]
    library: str = "ryu"
    gather_s: float = 45.0

    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Config:
        """From `text()`."""
        given = json.loads(text)
        return cls(**{**given, "switches": tuple(given["switches"])})
