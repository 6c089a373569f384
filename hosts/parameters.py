"""What the parameters of transports have in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from testbed.errors import UsageError


def refuse_unknown(transport: str, names: Iterable[str], kind: type[Any]) -> None:
    """UsageError for the first of `names` that is no field of the dataclass `kind`, with the nearest one; `transport` as people call it."""
    known = [each.name for each in fields(kind)]
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"use {', '.join(known)}"
            raise UsageError(f"{transport} parameter {name!r} is unknown: {hint}")
