"""Arm against arm on the same faults: who stalled, where another arm is as good as MRC or better, and why. Pure."""

from __future__ import annotations

import statistics as stdlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.report import findings, routing
from testbed.report.context import TRANSPORT_OF_ARM, in_list
from testbed.report.findings import ALIKE_SHARE
from testbed.report.spare import Spare
from testbed.report.statistics import STALLED_RATIO

REFERENCE = "mrc"
BETTER, ALIKE, WORSE, MISSED, UNKNOWN = "better", "alike", "worse", "missed", "unknown"


@dataclass(frozen=True)
class Effect:
    """What one fault did in one arm, over its repeats.

    `stalls_s`: of the repeats in which it hit the arm's traffic. `half_step_s`: what a step must lose to count as stalled.
    """

    arm: str
    entries: tuple[Mapping[str, Any], ...]
    half_step_s: float

    @property
    def hits(self) -> list[Mapping[str, Any]]:
        """The repeats whose traffic it hit, or where nobody can tell."""
        return [entry for entry in self.entries if entry["hit"] is not False]

    @property
    def counted(self) -> list[Mapping[str, Any]]:
        """The hits whose stall is the fault's own, if there are any: one that is shared with another fault is given to both in full."""
        return [entry for entry in self.hits if not entry.get("overlapping")] or self.hits

    @property
    def stalls_s(self) -> list[float]:
        """The known stalls."""
        return [entry["stall_s"] for entry in self.counted if entry["stall_s"] is not None]

    @property
    def is_shared(self) -> bool:
        """Whether no repeat tells its stall from another fault's."""
        return any(entry.get("overlapping") for entry in self.counted)

    @property
    def slowest_s(self) -> float:
        """The longest stall of a single step: the sum over a long fault is also one of noise."""
        return max((entry["stall_max_s"] for entry in self.counted if entry["stall_max_s"] is not None), default=0.0)

    @property
    def crashes(self) -> int:
        """Crashes of the job in a step under the fault."""
        return sum(entry["crashes"] for entry in self.hits)

    @property
    def median_s(self) -> float:
        """Median stall; 0 without any."""
        return stdlib.median(self.stalls_s or [0.0])


def effects_of(summary: Mapping[str, Any]) -> dict[str, dict[str, Effect]]:
    """By fault and arm, in the order of the faults."""
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for arm, told in summary["arms"].items():
        for entry in told["repeats"]:
            for fault in entry["faults"]:
                found.setdefault(fault["fault"], {}).setdefault(arm, []).append(fault)
    return {
        fault: {arm: Effect(arm, tuple(entries), _half_step_s(summary, arm)) for arm, entries in arms.items()}
        for fault, arms in found.items()
    }


def _half_step_s(summary: Mapping[str, Any], arm: str) -> float:
    median = summary["arms"][arm].get("healthy_median_s", {}).get("median")
    return (STALLED_RATIO - 1) * (median or 0.0)


# --- one arm against MRC ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judgement:
    """How MRC came off against another arm under one fault, and what that rests on."""

    outcome: str
    basis: str = ""


def compare(ours: Effect, other: Effect) -> Judgement:
    """MRC against another arm.

    Alike: no step of either stalled; each one's median lies within the other's range, so that the repeats cannot tell them apart (where one
    odd repeat alone lets the ranges touch they can); or the medians are less than a tenth apart. A crash on one side only is never alike.
    """
    if not other.hits or not ours.hits:
        return Judgement(MISSED)
    if not ours.stalls_s or not other.stalls_s:
        return Judgement(UNKNOWN)
    if bool(ours.crashes) != bool(other.crashes):
        return Judgement(BETTER if other.crashes else WORSE, "only one of the two crashed")
    basis = _alike(ours, other)
    if basis:
        return Judgement(ALIKE, basis)
    return Judgement(BETTER if ours.median_s < other.median_s else WORSE)


def _alike(ours: Effect, other: Effect) -> str:
    if not other.crashes and all(side.slowest_s < side.half_step_s for side in (ours, other)):
        return "no step lost half of a healthy one in either"
    if _within(ours.median_s, other.stalls_s) and _within(other.median_s, ours.stalls_s):
        return "each median lies within the other's range of repeats"
    if abs(ours.median_s - other.median_s) <= ALIKE_SHARE * max(ours.median_s, other.median_s):
        return f"the medians differ by under {ALIKE_SHARE:.0%}"
    return ""


def _within(value_s: float, stalls_s: Sequence[float]) -> bool:
    return len(stalls_s) > 1 and min(stalls_s) <= value_s <= max(stalls_s)


def judgements(summary: Mapping[str, Any]) -> dict[str, dict[str, Judgement]]:
    """By fault, MRC against each other arm; empty without an MRC arm."""
    return {
        fault: {arm: compare(arms[REFERENCE], effect) for arm, effect in arms.items() if arm != REFERENCE}
        for fault, arms in effects_of(summary).items() if REFERENCE in arms
    }  # fmt: skip


# --- in words --------------------------------------------------------------------------------------------------------------------------


def sentences(summary: Mapping[str, Any], spares: Mapping[str, Spare]) -> dict[str, list[str]]:
    """Three lists: how many faults came out how, for each arm; where another arm is as good as MRC, and why; where it is better."""
    judged, effects = judgements(summary), effects_of(summary)
    if not judged:
        return {"tally": [], "alike": [], "worse": []}
    alike = [_sentence(effects[fault], told, ALIKE, spares.get(fault)) for fault, told in judged.items() if _arms(told, ALIKE)]
    worse = [_sentence(effects[fault], told, WORSE, spares.get(fault)) for fault, told in judged.items() if _arms(told, WORSE)]
    known = any(judgement.outcome not in (MISSED, UNKNOWN) for told in judged.values() for judgement in told.values())
    return {
        "tally": _tally(judged, effects),
        "alike": alike or ["Under no fault was another arm as good as MRC." if known else NOTHING_COMPARED],
        "worse": worse or ["Under no fault did MRC stall longer than another arm." if known else NOTHING_COMPARED],
    }


NOTHING_COMPARED = "Nothing can be compared: no fault hit MRC's traffic and another arm's with known stalls of both."


def _arms(told: Mapping[str, Judgement], outcome: str) -> list[str]:
    return [arm for arm, judgement in told.items() if judgement.outcome == outcome]


OUTCOME_WORDS = {BETTER: "MRC better", ALIKE: "as good", WORSE: "MRC worse", MISSED: "not on its traffic's path", UNKNOWN: "not measured"}


def _tally(judged: Mapping[str, Mapping[str, Judgement]], effects: Mapping[str, Mapping[str, Effect]]) -> list[str]:
    arms = dict.fromkeys(arm for told in judged.values() for arm in told)
    return [
        f"MRC against {in_list(arm)}: {_counts([told[arm].outcome for told in judged.values() if arm in told])}{_undivided(effects, arm)}."
        for arm in arms
    ]


def _undivided(effects: Mapping[str, Mapping[str, Effect]], arm: str) -> str:
    """Under how many faults a stall of either may be another fault's."""
    pairs = [(arms[REFERENCE], arms[arm]) for arms in effects.values() if {REFERENCE, arm} <= arms.keys()]
    count = sum(any(side.is_shared for side in pair) for pair in pairs)
    return f"; in {count} a stall is shared with another fault" if count else ""


def _counts(outcomes: Sequence[str]) -> str:
    told = [f"{words} in {outcomes.count(outcome)}" for outcome, words in OUTCOME_WORDS.items() if outcome in outcomes]
    return f"{', '.join(told)} of {findings.plural(len(outcomes), 'fault')}"


def _sentence(effects: Mapping[str, Effect], told: Mapping[str, Judgement], outcome: str, spare: Spare | None) -> str:
    first = effects[REFERENCE].entries[0]
    what = f"{first['fault']}, {first['kind']} on {first['target']} ({first['tier']})"
    parts = [_arm_part(effects[arm], told[arm]) for arm in _arms(told, outcome)]
    words = f"{what}: MRC lost {stall_words(effects[REFERENCE])}; {'; '.join(parts)}."
    acted = any(_changes(effects[arm]) for arm in _arms(told, outcome) if routing.is_routed(arm))
    return words + (f" Spare next hops: {spare.words}." if acted and spare and spare.words else "")


def _arm_part(effect: Effect, judgement: Judgement) -> str:
    verdict = f" ({judgement.basis})" if judgement.basis else ""
    why = reason(effect)
    return f"{in_list(effect.arm)} {stall_words(effect)}{verdict}" + (f": {why}" if why else "")


def stall_words(effect: Effect) -> str:
    """Median and range of the stalls, crashes, and how many repeats it hit."""
    stalls, repeats = effect.stalls_s, len(effect.entries)
    if not effect.hits:
        return "no impact"
    if not stalls:
        return "not measured"
    spread = f" [{findings.seconds(min(stalls))} to {findings.seconds(max(stalls))}]" if len(stalls) > 1 else ""
    missed = f", hit in {len(effect.hits)} of {repeats} repeats" if len(effect.hits) < repeats else ""
    crashed = f", {findings.plural(effect.crashes, 'crash')}" if effect.crashes else ""
    return findings.seconds(effect.median_s) + spread + crashed + missed + _shared_words(effect)


def _shared_words(effect: Effect) -> str:
    """Whether another fault was on in the steps that stalled."""
    shared = sum(bool(entry.get("overlapping")) for entry in effect.hits)
    if not shared:
        return ""
    return ", shared with another fault" if shared == len(effect.hits) else f", {shared} shared with another fault and left out"


def reason(effect: Effect) -> str:
    """Why the arm came off as it did, from what its routing and its senders did while the fault was on."""
    parts = [_routing_reason(effect)] if routing.is_routed(effect.arm) else []
    parts += [_sender_reason(effect)] if TRANSPORT_OF_ARM.get(effect.arm) == "mrc" else []
    parts += ["nothing routes in this arm, and its senders keep the paths that they have"] * (not parts)
    return ", ".join(part for part in parts if part)


def _routing_reason(effect: Effect) -> str:
    told = [entry.get("routing") or {} for entry in effect.hits]
    changes = _changes(effect)
    if changes is None:
        return "what its routing did is not known"
    if not changes:
        return "no switch's table changed while the fault was on, so routing had no part in it"
    first, last = (_median([entry.get(name) for entry in told]) for name in ("fib_first_s", "fib_last_s"))
    span = f"tables changed from {findings.seconds(first or 0)} to {findings.seconds(last or 0)} after its beginning"
    span += ", which may be another fault's doing that began or ended meanwhile" * any(entry.get("shared") for entry in told)
    reasons = routing.reasons_of(effect.hits)
    fell = "with the carrier" if reasons == ["carrier"] else f"by {' and '.join(reasons)}"
    at_once = ", so no timer was waited for" * (set(reasons) <= AT_ONCE)
    return f"sessions fell {fell}{at_once}; {span}" if reasons else span


AT_ONCE = frozenset({"carrier", "notification", "closed", "shutdown", "speaker"})
"""Reasons of a session's end that are no timer's (docs/architecture.md); both ends of a session tell theirs, so a timer of one is seen."""


def _changes(effect: Effect) -> float | None:
    """Changes of tables under the fault, of all repeats that it hit; None where no history tells."""
    told = [(entry.get("routing") or {}).get("fib_changes") for entry in effect.hits]
    known = [count for count in told if count is not None]
    return float(sum(known)) if known else None


def _sender_reason(effect: Effect) -> str:
    left = _median([entry.get("retired") for entry in effect.hits])
    return f"its senders left {findings.number(left)} EVs by themselves (median)" if left else ""


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return stdlib.median(known) if known else None
