"""What routing said and did: messages, sessions and changes of FIBs, in a whole run and while one fault was on. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from testbed.report.model import ArmRun, Event, FaultInterval
from testbed.scenario.derived_links import SWITCHING_OF_ARM

ROUTED = ("frr", "ovs-bgp")
"""Kinds of switching whose tables routing changes."""
COUNTS = ("bgp_updates", "bgp_withdrawals", "bgp_notifications", "session_losses")


def is_routed(arm: str) -> bool:
    """Whether anything routes in this arm; where nothing does its tables stay as they are."""
    return SWITCHING_OF_ARM.get(arm) in ROUTED


def routing_metrics(run: ArmRun) -> dict[str, float | None]:
    """Messages and changes between the job's start and end; None where nothing routes, or the history does not tell."""
    during = [event for event in run.events if 0 <= float(event["t_s"]) <= run.duration_s]
    known = is_routed(run.arm) and bool(run.events)
    told: Mapping[str, float | None] = message_counts(during) if known and tells_messages(run) else dict.fromkeys(COUNTS)
    return {**told, "fib_changes": float(len(_fib(during))) if known else None}


def tells_messages(run: ArmRun) -> bool:
    """Whether the history holds what routing said at all: a history without any such event is an old one, not a silent fabric."""
    return any(event.get("event") in ("bgp_message", "session") for event in run.events)


def message_counts(events: Iterable[Event]) -> dict[str, float]:
    """UPDATEs received, prefixes withdrawn by them, NOTIFICATIONs received, and ends of sessions that went down."""
    seen = list(events)
    updates = [event for event in seen if event.get("event") == "bgp_message" and event.get("kind") == "update"]
    notified = sum(event.get("event") == "bgp_message" and event.get("kind") == "notification" for event in seen)
    withdrawn = sum(_count(event.get("withdrawn")) for event in updates)
    return dict(zip(COUNTS, (float(len(updates)), withdrawn, float(notified), float(len(_lost_sessions(seen)))), strict=True))


def _count(value: Any) -> float:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1e9 else 0.0


def _lost_sessions(events: Iterable[Event]) -> list[Event]:
    return [event for event in events if event.get("event") == "session" and event.get("up") is False]


def _fib(events: Iterable[Event]) -> list[Event]:
    return [event for event in events if event.get("event") == "fib"]


# --- under a fault -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FaultRouting:
    """What routing did while one fault was on, in one arm and repeat; what it did at the fault's end is not in it.

    `fib_first_s` and `fib_last_s` count from the fault's effect to the first and the last change of any switch's FIB; None without one.
    `reasons`: how many ends of sessions went down, by the router's word for why. Counts are None where the history does not tell them.
    """

    updates: float | None = None
    withdrawals: float | None = None
    session_losses: float | None = None
    fib_changes: float | None = None
    fib_first_s: float | None = None
    fib_last_s: float | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)


def routing_under(run: ArmRun, fault: FaultInterval) -> FaultRouting:
    """What routing did between a fault's beginning and its end."""
    if not is_routed(run.arm) or not fault.happened or not run.events:
        return FaultRouting()
    during = [event for event in run.events if fault.from_s <= float(event["t_s"]) < fault.until_s(run.duration_s)]
    told = message_counts(during) if tells_messages(run) else {}
    changed = [max(0.0, float(event["t_s"]) - fault.begin_s) for event in _fib(during)]
    return FaultRouting(
        told.get("bgp_updates"), told.get("bgp_withdrawals"), told.get("session_losses"), float(len(changed)),
        min(changed, default=None), max(changed, default=None),
        dict(Counter(str(event.get("reason") or "unknown") for event in _lost_sessions(during))),
    )  # fmt: skip


def routing_rows(run: ArmRun) -> dict[str, dict[str, Any]]:
    """By fault, for summary.json."""
    return {fault.id: {"routing": asdict(routing_under(run, fault))} for fault in run.faults}


def reasons_of(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why sessions went down under one fault, over its repeats; the most frequent first."""
    seen: Counter[str] = Counter()
    for entry in entries:
        seen.update((entry.get("routing") or {}).get("reasons") or {})
    return [reason for reason, _ in seen.most_common()]
