"""What the links of an arm were, for the report: rate, queue, base RTT, BDP, and the thresholds in bytes by who sends. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ROLE_NAMES = {"host": "host's port", "fabric": "switch to switch", "last_hop": "switch to host"}
_OF_FABRIC = (
    ("rate", "rate_bps"),
    ("MTU", "mtu_bytes"),
    ("data queue", "queue_bytes"),
    ("control queue", "control_queue_bytes"),
    ("burst", "burst_bytes"),
)
_OF_ROLE = (
    ("marks from", "ecn_min_bytes"),
    ("all marked from", "ecn_max_bytes"),
    ("trims above", "trim_bytes"),
    ("drops above", "limit_bytes"),
)


def link_rows(fabric: Any) -> list[tuple[str, str]]:
    """(name, value with unit) from the manifest of an arm's fabric; what it does not tell, or is switched off, is left out."""
    if not isinstance(fabric, Mapping):
        return []
    program = fabric.get("link_program")
    rows = [(name, _with_unit(field, fabric[field])) for name, field in _OF_FABRIC if _is_number(fabric.get(field))]
    return rows + (_program_rows(program) if isinstance(program, Mapping) else [])


def _program_rows(program: Mapping[str, Any]) -> list[tuple[str, str]]:
    base_rtt_s, loss = program.get("base_rtt_s"), program.get("loss_by_tier")
    rows = []
    if _is_number(base_rtt_s) and base_rtt_s:  # thresholds are shares of the BDP; without them nobody goes by it
        rows = [("base RTT", f"{base_rtt_s * 1e3:g} ms"), ("BDP", _with_unit("bdp_bytes", program.get("bdp_bytes")))]
    for role, name in ROLE_NAMES.items():
        told = program.get(role)
        if isinstance(told, Mapping):
            rows += [(f"{name}: {what}", _with_unit(field, told[field])) for what, field in _of_role(role) if told.get(field)]
    losses = loss.items() if isinstance(loss, Mapping) else ()
    return rows + [(f"loss on {tier}", f"{share:.2%}") for tier, share in losses if _is_number(share) and share]


def _of_role(role: str) -> tuple[tuple[str, str], ...]:
    """The last hop does not mark, whatever its thresholds."""
    return _OF_ROLE[2:] if role == "last_hop" else _OF_ROLE


def _with_unit(field: str, value: Any) -> str:
    if not _is_number(value):
        return "unknown"
    return f"{value / 1e6:g} Mbit/s" if field == "rate_bps" else f"{value:,.0f} B"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
