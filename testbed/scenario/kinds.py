"""The vocabulary of faults: what each kind aims at, which parameters its record has, and what may happen beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.scenario.schema_faults import MAX_EVS


@dataclass(frozen=True)
class Param:
    """A parameter of a fault's record: what it must be, in words and as a check."""

    says: str
    fits: Callable[[Any], bool]
    required: bool = True
    is_end: bool = False
    """The name of a node, which must be an end of the link."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault. `target` is the record's `target_type`: link, bundle, port, switch or host."""

    target: str
    params: Mapping[str, Param] = field(default_factory=dict)
    takes_path: bool = True
    """No packet (or none of one direction) passes the links meanwhile."""


def _number(value: Any, above: float, limit: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and above < value <= limit


def _evs(value: Any) -> bool:
    whole = isinstance(value, (list, tuple)) and all(isinstance(ev, int) and not isinstance(ev, bool) and 0 <= ev < 2**32 for ev in value)
    return whole and 0 < len(value) <= MAX_EVS


_END = Param("the name of one end of the link", lambda value: isinstance(value, str), is_end=True)
_SENDER = Param(_END.says, _END.fits, required=False, is_end=True)
_SHARE = Param("a share above 0, up to 1", lambda value: _number(value, 0, 1))
_ANY_SHARE = Param(_SHARE.says, _SHARE.fits, required=False)
_SPAN = Param("a number of seconds above 0", lambda value: _number(value, 0, 1e9))
_RATE = Param("a number of bits a second above 0", lambda value: _number(value, 0, 1e12), required=False)
_EVS = Param(f"a list of 1 to {MAX_EVS} entropy values", _evs, required=False)
_OF = Param("carrier or silent", lambda value: value in ("carrier", "silent"))

KINDS: Mapping[str, Kind] = {
    "carrier": Kind("link"),
    "silent": Kind("link"),
    "remote": Kind("link", {"seen_by": _END}),
    "one-way": Kind("link", {"from": _END}),
    "loss": Kind("link", {"share": _SHARE, "from": _SENDER, "evs": _EVS}, takes_path=False),
    "rate": Kind("link", {"rate_bps": _RATE, "share": _ANY_SHARE, "from": _SENDER}, takes_path=False),
    "flap": Kind("link", {"down_s": _SPAN, "up_s": _SPAN, "of": _OF}),
    "bundle": Kind("bundle", {"of": _OF}),
    "port": Kind("port"),
    "switch-kill": Kind("switch"),
    "switch-reboot": Kind("switch"),
    "switch-hang": Kind("switch"),
    "host-slow": Kind("host", {"share": _SHARE, "period_s": _SPAN}, takes_path=False),
}


def takes_path(kind: str, params: Mapping[str, Any]) -> bool:
    """Whether no packet passes the fault's links; so does a loss of everything."""
    return KINDS[kind].takes_path or (kind == "loss" and params["share"] >= 1 and not params.get("evs"))


def may_overlap(one: str, other: str) -> bool:
    """Whether two kinds may be on at the same time on a link: a link may lose packets or be slow, whatever else happens to it."""
    return one != other and not (KINDS[one].takes_path and KINDS[other].takes_path)
