"""What routing said and did: messages, sessions and changes of FIBs, in a whole run and while one fault was on. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from testbed.report.model import ArmRun, Event, FaultInterval
from testbed.scenario.derived_links import SWITCHING_OF_ARM, TRANSPORT_OF_ARM

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

    `fib_first_s` and `fib_last_s` count from when the fault was issued (routing knows of an orderly reboot before links go) to the first
    and the last change of any switch's FIB; None without one.
    `session_losses` and `reasons` (the router's word for why) are those of sessions over links that the fault touches. `shared`: another
    fault began or ended meanwhile, or a session over its links came or went (one that comes back may take as long as the connect retry), so
    messages and changes cannot be told apart. Counts are None where the history does not tell them.
    """

    updates: float | None = None
    withdrawals: float | None = None
    session_losses: float | None = None
    fib_changes: float | None = None
    fib_first_s: float | None = None
    fib_last_s: float | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)
    shared: bool = False


def routing_under(run: ArmRun, fault: FaultInterval) -> FaultRouting:
    """What routing did between a fault's beginning and its end."""
    if not is_routed(run.arm) or not fault.happened or not run.events:
        return FaultRouting()
    during = [event for event in run.events if fault.from_s <= float(event["t_s"]) < fault.until_s(run.duration_s)]
    told = message_counts(during) if tells_messages(run) else {}
    lost = [event for event in _lost_sessions(during) if _of_fault(fault, event)]
    changed = [float(event["t_s"]) - fault.from_s for event in _fib(during)]
    return FaultRouting(
        told.get("bgp_updates"), told.get("bgp_withdrawals"), float(len(lost)) if told else None, float(len(changed)),
        min(changed, default=None), max(changed, default=None),
        dict(Counter(str(event.get("reason") or "unknown") for event in lost)), _is_shared(run, fault, during),
    )  # fmt: skip


def _of_fault(fault: FaultInterval, session: Event) -> bool:
    """Whether a session runs over a link that the fault touches, or to the switch that it is about."""
    ends = (str(session.get("node")), str(session.get("peer")))
    return fault.target in ends or any(fault.touches("-".join(pair)) for pair in (ends, ends[::-1]))


def _is_shared(run: ArmRun, fault: FaultInterval, during: Iterable[Event]) -> bool:
    others = [other for other in run.faults if other.id != fault.id and other.happened]
    moments = [moment for other in others for moment in (other.begin_s, other.until_s(run.duration_s))]
    if any(fault.from_s <= moment < fault.until_s(run.duration_s) for moment in moments):
        return True
    sessions = [event for event in during if event.get("event") == "session" and not _of_fault(fault, event)]
    return any(_of_fault(other, event) for event in sessions for other in others)


def retired_under(run: ArmRun, fault: FaultInterval) -> float | None:
    """How many EVs became ASSUMED_BAD while the fault was on, whether or not their paths are known; None without MRC."""
    if TRANSPORT_OF_ARM.get(run.arm) != "mrc" or not fault.happened or not run.events:
        return None
    until_s = fault.until_s(run.duration_s)
    gone = [event for event in run.named("ev_state") if event.get("to") == "ASSUMED_BAD" and fault.from_s <= float(event["t_s"]) < until_s]
    return float(len({(event.get("source"), event.get("peer"), event.get("ev")) for event in gone}))


def routing_rows(run: ArmRun) -> dict[str, dict[str, Any]]:
    """By fault, for summary.json: what routing did, and how many EVs the senders left."""
    return {
        fault.id: {"routing": asdict(routing_under(run, fault)), "retired": retired_under(run, fault)} for fault in run.faults
    }  # fmt: skip


def reasons_of(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why sessions went down under one fault, over its repeats; the most frequent first."""
    seen: Counter[str] = Counter()
    for entry in entries:
        seen.update((entry.get("routing") or {}).get("reasons") or {})
    return [reason for reason, _ in seen.most_common()]
