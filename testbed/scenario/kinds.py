"""The vocabulary of faults: what each kind aims at, which parameters its record has, and what may happen beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.link_settings import MIN_RATE_BPS
from testbed.scenario.schema_faults import EV_LIMIT, MAX_EVS, MAX_PERIOD_S, MIN_FLAP_S, MIN_PERIOD_S
from testbed.units import MAX_DURATION_S, MAX_RATE_BPS, MIN_SHARE, format_rate


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
    """A kind of fault. `target` is the record's `target_type`: link, bundle, port, switch, host or controller."""

    target: str
    params: Mapping[str, Param] = field(default_factory=dict)
    takes_path: bool = True
    """No packet (or none of one direction) passes the links meanwhile."""


def _number(value: Any, least: float, limit: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 and least <= value <= limit


def _part(value: Any) -> bool:
    return _number(value, MIN_SHARE, 1) and value < 1


def _ev(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < EV_LIMIT


def _evs(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and 0 < len(value) <= MAX_EVS and all(map(_ev, value))


_END = Param("the name of one end of the link", lambda value: isinstance(value, str), is_end=True)
_SENDER = Param(_END.says, _END.fits, required=False, is_end=True)
_SHARE = Param(f"a share of {MIN_SHARE:g} to 1", lambda value: _number(value, MIN_SHARE, 1))
_PART = Param(f"a share of {MIN_SHARE:g} or more, below 1", _part)
_RATE_PART = Param(_PART.says, _PART.fits, required=False)
_FLAP = Param(f"a number of seconds, {MIN_FLAP_S:g} or more", lambda value: _number(value, MIN_FLAP_S, MAX_DURATION_S))
_PERIOD = Param(f"{MIN_PERIOD_S:g} to {MAX_PERIOD_S:g} seconds", lambda value: _number(value, MIN_PERIOD_S, MAX_PERIOD_S))
_RATE = Param("a number of bits a second above 0", lambda value: _number(value, 0, MAX_RATE_BPS), required=False)
_EVS = Param(f"a list of 1 to {MAX_EVS} entropy values", _evs, required=False)
_OF = Param("carrier or silent", lambda value: value in ("carrier", "silent"))

KINDS: Mapping[str, Kind] = {
    "carrier": Kind("link"),
    "silent": Kind("link"),
    "remote": Kind("link", {"seen_by": _END}),
    "one-way": Kind("link", {"from": _END}),
    "loss": Kind("link", {"share": _SHARE, "from": _SENDER, "evs": _EVS}, takes_path=False),
    "rate": Kind("link", {"rate_bps": _RATE, "share": _RATE_PART, "from": _SENDER}, takes_path=False),
    "flap": Kind("link", {"down_s": _FLAP, "up_s": _FLAP, "of": _OF}),
    "bundle": Kind("bundle", {"of": _OF}),
    "port": Kind("port"),
    "switch-kill": Kind("switch"),
    "switch-reboot": Kind("switch"),
    "switch-hang": Kind("switch"),
    "host-slow": Kind("host", {"share": _PART, "period_s": _PERIOD}, takes_path=False),
    "controller-kill": Kind("controller", takes_path=False),
}


def takes_path(kind: str, params: Mapping[str, Any]) -> bool:
    """Whether no packet passes the fault's links; so does a loss of everything."""
    return KINDS[kind].takes_path or (kind == "loss" and params["share"] >= 1 and not params.get("evs"))


CARRIER_KINDS = ("carrier", "port", "switch-kill", "switch-reboot")


def takes_carrier(kind: str, params: Mapping[str, Any]) -> bool:
    """Whether both ends lose their carrier, so that what they send there is lost before any counter of the link sees it."""
    return kind in CARRIER_KINDS or (kind in ("flap", "bundle") and params.get("of", "carrier") == "carrier")


def may_overlap(one: str, other: str) -> bool:
    """Whether two kinds may be on at the same time on a link: a link may lose packets or be slow, whatever else happens to it."""
    return one != other and not (KINDS[one].takes_path and KINDS[other].takes_path)


def slowed_bps(rate_bps: float | None, share: float | None, link_bps: float) -> float:
    """What a link of `link_bps` runs at with a `rate` fault, which has one of the two; ValueError says what is wrong with that."""
    slowed = rate_bps if rate_bps is not None else (share or 0.0) * link_bps
    if not MIN_RATE_BPS <= slowed < link_bps:
        bounds = f"{format_rate(MIN_RATE_BPS)} or more, and less than links.rate ({format_rate(link_bps)})"
        raise ValueError(f"makes {format_rate(slowed)}; it must be {bounds}")
    return slowed
