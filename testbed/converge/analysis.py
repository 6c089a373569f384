"""From what was seen around one fault to its figures: one for the fault's begin, one for its end. Pure.

All moments are CLOCK_MONOTONIC seconds; all figures are seconds from the effect (negative: just before it, as packets under way are hit).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.converge.classes import CLASSES, ProbeFlow, Row

BEGIN, END = "begin", "end"
PHASES = (BEGIN, END)
NO_IMPACT, NOTHING_LOST, REPAIRED, NOT_REPAIRED = "no impact", "nothing lost", "repaired", "not repaired"
STATES = (NO_IMPACT, NOTHING_LOST, REPAIRED, NOT_REPAIRED)
"""`no impact`: nothing was lost, and no probe was on the links that broke, neither before nor during the fault: it says nothing.
`nothing lost`: probes were on them, and none was lost. `not repaired`: probes were lost until the fault's end: it was not detected while it
lasted, or those who had to be told were not told in time."""
LEAD_S = 0.1  # packets sent so long before the effect may still be hit by it
TAIL_GAPS, TAIL_S = 3, 0.25  # lost within so many gaps, or so many seconds, of the fault's end: lost until then
ORDERLY = "switch-reboot"
BOOTS = (ORDERLY, "switch-kill")


@dataclass(frozen=True)
class Moments:
    """When one fault was given, took effect and ended: `called_*` when the command was given, `ended` when all had settled."""

    called_begin: float
    begin: float
    called_end: float
    end: float
    ended: float


@dataclass(frozen=True)
class Stream:
    """What came of one stream of probes: how many were sent, and when those were sent that never arrived."""

    flow: ProbeFlow
    sent: int
    lost: Sequence[float]


@dataclass(frozen=True)
class Seen:
    """All that was seen around one fault. `crossed`: probes a link direction, just before the fault and while it was on."""

    kind: str
    target: str
    ends: Collection[str]
    moments: Moments
    streams: Sequence[Stream]
    crossed: Mapping[Row, int]
    gap_s: float
    events: Sequence[Mapping[str, Any]] = field(default_factory=tuple)


@dataclass(frozen=True)
class Window:
    """A phase from `zero`, the effect: packets sent from `since` to `until`, and what routers do from `told` to `told_until`."""

    zero: float
    since: float
    until: float
    told: float
    told_until: float


def windows(kind: str, moments: Moments) -> dict[str, Window]:
    """Each phase's window. What a switch does in order, and a boot, begin with the command: their effect is the last step of many."""
    begin = moments.called_begin if kind == ORDERLY else moments.begin
    end = moments.called_end if kind in BOOTS else moments.end
    called, over = moments.called_begin, moments.called_end
    return {
        BEGIN: Window(begin, min(begin, called) - LEAD_S, end, called, over),
        END: Window(end, end, moments.ended, over, moments.ended),
    }


def figures(seen: Seen) -> dict[str, dict[str, Any]]:
    """Of each phase what the fault did to traffic (`classes`), to FIBs and in routing."""
    spans = windows(seen.kind, seen.moments)
    return {
        phase: {"lasted_s": _rounded(span.until - span.zero), "classes": _classes(seen, span), **_control(seen, span)}
        for phase, span in spans.items()
    }


def lost_before(seen: Seen) -> int:
    """Probes lost before the fault could hit any: the machine's doing."""
    since = windows(seen.kind, seen.moments)[BEGIN].since
    return sum(moment < since for stream in seen.streams for moment in stream.lost)


def _classes(seen: Seen, span: Window) -> dict[str, dict[str, Any]]:
    by_class = {name: [stream for stream in seen.streams if stream.flow.flow_class == name] for name in CLASSES}
    return {name: _traffic(seen, streams, span) for name, streams in by_class.items() if streams}


def _traffic(seen: Seen, streams: Sequence[Stream], span: Window) -> dict[str, Any]:
    """What the streams of one class lost in a window. `lost_s`: the mean time that a stream that lost any was without its packets."""
    lost = [[moment for moment in stream.lost if span.since <= moment < span.until] for stream in streams]
    all_lost = sorted(moment for one in lost for moment in one)
    hit = sum(bool(one) for one in lost)
    crossed = sum(seen.crossed.get(row, 0) for row in {row for stream in streams for row in stream.flow.rows})
    return {
        "streams": len(streams),
        "streams_hit": hit,
        "crossed": crossed,
        "lost": len(all_lost),
        "lost_s": _rounded(len(all_lost) * seen.gap_s / hit) if hit else 0.0,
        "first_lost_s": _rounded(all_lost[0] - span.zero) if all_lost else None,
        "last_lost_s": _rounded(all_lost[-1] - span.zero) if all_lost else None,
        "state": _state(all_lost, crossed, span, seen.gap_s),
    }


def tail_s(gap_s: float) -> float:
    """What was lost in this time before a fault's end counts as lost until then."""
    return max(TAIL_GAPS * gap_s, TAIL_S)


def _state(lost: Sequence[float], crossed: int, span: Window, gap_s: float) -> str:
    if not lost:
        return NOTHING_LOST if crossed else NO_IMPACT
    return NOT_REPAIRED if lost[-1] >= span.until - tail_s(gap_s) else REPAIRED


def _control(seen: Seen, span: Window) -> dict[str, Any]:
    """FIB changes and what routing said, from the moment the fault was given; of a broken switch without its own FIB."""
    events = [event for event in seen.events if span.told <= event["t"] < span.told_until]
    changes = [event for event in events if event["event"] == "fib" and event["node"] != seen.target]
    at_ends = [event for event in changes if event["node"] in seen.ends]
    messages = [event for event in events if event["event"] == "bgp_message"]
    updates = [event for event in messages if event["kind"] == "update"]
    return {
        "fib_changes": len(changes),
        "fib_last_s": _last(changes, span),
        "fib_last_at_ends_s": _last(at_ends, span),
        "updates": len(updates),
        "announced": sum(event["announced"] for event in updates),
        "withdrawn": sum(event["withdrawn"] for event in updates),
        "notifications": sum(event["kind"] == "notification" for event in messages),
        "sessions_lost": sum(event["event"] == "session" and not event["up"] for event in events),
    }


def _last(events: Sequence[Mapping[str, Any]], span: Window) -> float | None:
    return _rounded(max(event["t"] for event in events) - span.zero) if events else None


def _rounded(seconds: float) -> float:
    return round(seconds, 4)
