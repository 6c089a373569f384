"""A measurement of convergence in words: cells of its tables, and what it found. Pure; its input is converge.json."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from testbed.converge.analysis import BEGIN, NO_IMPACT, NOT_REPAIRED, NOTHING_LOST, REPAIRED
from testbed.converge.classes import LOCAL, REMOTE
from testbed.report.findings import seconds
from testbed.report.routing_words import detection_s
from testbed.units import counted

Row = Mapping[str, Any]
STATE_WORDS: Mapping[str, str] = {
    NO_IMPACT: "no impact",
    NOTHING_LOST: "nothing lost",
    NOT_REPAIRED: "not detected while it lasted",
}
UNSETTLED_WORDS = "lost until all had settled"  # after a fault's end
PHASE_WORDS = {BEGIN: "when it begins", "end": "when it ends"}
CLASS_WORDS = {LOCAL: "local (the router at the fault skips a next hop)", REMOTE: "remote (other routers must be told)"}
TABLE_HEAD = (
    "FLOWS", "PROFILE", "FIRST LOST", "LAST LOST", "LOST", "AS TIME", "LAST FIB", "AT ENDS", "UPDATES", "+PREFIXES", "-PREFIXES", "NOTIF",
    "SESSIONS LOST",
)  # fmt: skip
STATIC = "static"
ALIKE_S = 0.1  # medians up to this count as alike, and as nothing: what the machine's own noise is
ALIKE_RATIO = 1.5  # larger ones, when the largest is no more than so many times the smallest


def headings(rows: Iterable[Row]) -> Iterator[tuple[str, list[Row]]]:
    """(what was done, its rows) for each fault and phase."""
    for (fault, phase), found in groupby(rows, key=lambda row: (row["fault"], row["phase"])):
        told = list(found)
        first = told[0]
        lasted = f", lasted {seconds(first['lasted_s'])}" if phase == BEGIN and first["lasted_s"] is not None else ""
        yield f"{fault}: {first['kind']} on {first['target']} ({first['tier']}{lasted}), {PHASE_WORDS[phase]}", told


def table_row(row: Row) -> tuple[str, ...]:
    """A row's cells, in the order of TABLE_HEAD."""
    lost = ("–", "–") if row["state"] == NO_IMPACT else (count_cell(row["lost"]), time_cell(row["lost_s"]))
    counts = (count_cell(row[name]) for name in ("updates", "announced", "withdrawn", "notifications", "sessions_lost"))
    times = (time_cell(row[name]) for name in ("fib_last_s", "fib_last_at_ends_s"))
    return (row["class"], row["profile"], time_cell(row["first_lost_s"]), outage_cell(row), *lost, *times, *counts)


def outage_cell(row: Row) -> str:
    """Until the last lost packet; states that are no time, in words, with how many repeats ended so where they differ."""
    states: Mapping[str, int] = row["states"]
    words = STATE_WORDS if row["phase"] == BEGIN else {**STATE_WORDS, NOT_REPAIRED: UNSETTLED_WORDS}
    if set(states) == {REPAIRED}:
        return time_cell(row["outage_s"])
    if len(states) == 1:
        return words[next(iter(states))]
    others = [f"{count} of {row['repeats']} {words[state]}" for state, count in states.items() if state != REPAIRED]
    return f"{time_cell(row['last_lost_s'])} ({', '.join(others)})"


def time_cell(told: Mapping[str, Any]) -> str:
    """Median and range of times."""
    if told["median"] is None:
        return "–"
    words = [seconds(told[name]) for name in ("median", "min", "max") if told[name] is not None]
    return words[0] if len(set(words)) == 1 else f"{words[0]} [{' to '.join(words[1:])}]"


def count_cell(told: Mapping[str, Any]) -> str:
    """Median and range of counts."""
    if told["median"] is None:
        return "–"
    return f"{told['median']}" if told["min"] == told["max"] else f"{told['median']} [{told['min']} to {told['max']}]"


def findings(content: Mapping[str, Any]) -> list[str]:
    """What was found: a sentence a fault on its begin, then what that says of local and remote flows."""
    begins = [row for row in content["rows"] if row["phase"] == BEGIN and row["profile"] != STATIC]
    told = [_fault_sentence(list(found)) for _, found in groupby(begins, key=lambda row: row["fault"])]
    detection = {profile: detection_s(found) for profile, found in options(content).items()}
    return [*told, *_alike(begins, detection), *_skipped(content)]


def _fault_sentence(rows: Sequence[Row]) -> str:
    first = rows[0]
    parts = [_class_words([row for row in rows if row["class"] == name], name) for name in (LOCAL, REMOTE)]
    return f"{first['fault']}, {first['kind']} on {first['target']}: " + "; ".join(part for part in parts if part) + "."


def _class_words(rows: Sequence[Row], name: str) -> str:
    if not rows:
        return ""
    known = sorted((row for row in rows if row["outage_s"]["median"] is not None), key=lambda row: float(row["outage_s"]["median"]))
    parts = []
    if known:
        low, high = known[0], known[-1]
        span = f"{outage_words(low)} ({low['profile']})"
        parts.append(span if low is high else f"{span} to {outage_words(high)} ({high['profile']})")
    for state in (NOT_REPAIRED, NO_IMPACT):
        of_state = [row["profile"] for row in rows if row["state"] == state]
        parts += [f"{STATE_WORDS[state]}: {', '.join(of_state)}"] if of_state else []
    return f"{name} flows {', '.join(parts)}"


def outage_words(row: Row) -> str:
    """The median until the last lost packet."""
    return STATE_WORDS[NOTHING_LOST] if row["state"] == NOTHING_LOST else seconds(row["outage_s"]["median"])


def _alike(begins: Sequence[Row], detection: Mapping[str, float | None]) -> Iterator[str]:
    """Where timers made no difference: by the medians of all profiles that were hit, if these find a silent loss at different times."""
    for (fault, name), found in groupby(begins, key=lambda row: (row["fault"], row["class"])):
        hit = [row for row in found if row["state"] != NO_IMPACT]
        medians = [row["outage_s"]["median"] for row in hit]
        known = [value for value in medians if value is not None]
        differ = len({detection.get(row["profile"]) for row in hit}) > 1
        if differ and len(known) == len(hit) and max(known) <= max(ALIKE_S, ALIKE_RATIO * min(known)):
            yield _alike_words(f"the {name} flows of {fault} ({hit[0]['kind']} on {hit[0]['target']})", len(hit), known, name)


def _alike_words(which: str, profiles: int, medians: Sequence[float], name: str) -> str:
    if max(medians) <= ALIKE_S:
        return (
            f"For {which} all {counted(profiles, 'profile')} were over it within {seconds(ALIKE_S)}, whatever their timers: "
            "a transport that leaves the path by itself could save no more than that."
        )
    span = f"{seconds(min(medians))} to {seconds(max(medians))}"
    why = "what takes the time is that others must be told" if name == REMOTE else "no timer decides it"
    return f"For {which} all {counted(profiles, 'profile')} needed about the same, {span}, whatever their timers: {why}."


def _skipped(content: Mapping[str, Any]) -> list[str]:
    return [f"Not measured: {one['fault']}, {one['kind']} on {one['target']}: {one['why']}." for one in content["skipped"]]


def fidelity(content: Mapping[str, Any]) -> dict[str, tuple[str, list[str]]]:
    """Profile -> the worst verdict over its repeats, and the reasons."""
    order = ("good", "suspect", "invalid")
    found: dict[str, tuple[str, list[str]]] = {}
    for fabric in content["fabrics"]:
        verdict, reasons = found.get(fabric["profile"], ("good", []))
        told = fabric["fidelity"]
        new = [f"repeat {fabric['repeat']}: {reason}" for reason in told["reasons"]]
        found[fabric["profile"]] = (max(verdict, told["verdict"], key=order.index), [*reasons, *new])
    return found


def worst_fidelity(content: Mapping[str, Any]) -> str:
    """Of all profiles."""
    return max((verdict for verdict, _ in fidelity(content).values()), key=("good", "suspect", "invalid").index, default="unknown")


def timers(content: Mapping[str, Any]) -> dict[str, str]:
    """Profile -> its options in words, as its own fabric reports them; "-" where there are none."""
    return {profile: ", ".join(map(_option, told.items())) or "–" for profile, told in options(content).items()}


def options(content: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Profile -> the options of its routing, wherever in its fabric's manifest they are."""
    first: dict[str, Mapping[str, Any]] = {}
    for fabric in content["fabrics"]:
        first.setdefault(fabric["profile"], next(_with_timers(fabric["fabric"]), {}))
    return first


def _with_timers(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        if "hold_s" in value:
            yield value
        for entry in value.values():
            yield from _with_timers(entry)


def _option(option: tuple[str, Any]) -> str:
    """hold_s = 9 becomes "hold 9 s"."""
    name, _, unit = option[0].rpartition("_")
    return f"{name.replace('_', ' ')} {option[1]} {unit}" if unit in ("s", "ms") else f"{option[0].replace('_', ' ')} {option[1]}"


def footer(content: Mapping[str, Any]) -> list[str]:
    """What a reader must know to judge a picture."""
    machine = content["machine"]
    verdicts = "; ".join(f"{profile} {verdict}" for profile, (verdict, _) in fidelity(content).items())
    unfinished = "" if content["complete"] else " NOT COMPLETE: what was measured until it ended."
    probes = f"{content['flows']} streams of {content['probe_rate_per_s']} packets/s, so {seconds(content['resolution_s'])} resolution"
    return [
        f"Scenario {content['scenario']}, seed {content['seed']}, {counted(content['repeats'], 'repeat')}; no job, probes only: "
        f"{probes}.{unfinished}",
        f"Machine: {machine.get('cpu')}, {machine.get('cores')} cores, kernel {machine.get('kernel')}. Fidelity: {verdicts or 'unknown'}",
        f"Keepalive/hold, MRAI 0 unless said: {short_timers(content)}",
    ]


def short_timers(content: Mapping[str, Any]) -> str:
    """The timers alone, of each profile that has any."""
    told = (f"{profile} {_timers(found)}" for profile, found in options(content).items() if found)
    return "; ".join(told) or "none"


def _timers(found: Mapping[str, Any]) -> str:
    """Of either kind of BGP: FRR's options count BFD in milliseconds, the controller's in seconds."""
    interval_s = found.get("bfd_interval_ms", 0) / 1e3 or found.get("bfd_interval_s", 0)
    mrai_s = found.get("advertisement_interval_s") or found.get("mrai_s")
    bfd = f"BFD {seconds(interval_s)} x {found.get('bfd_multiplier')}" if interval_s else "no BFD"
    return f"{found.get('keepalive_s'):g}/{found['hold_s']:g} s, {bfd}" + (f", MRAI {seconds(mrai_s)}" if mrai_s else "")
