"""Reads a run's folder. What is missing or damaged becomes a sentence in `problems`; only a folder that is no run at all is an error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from testbed.errors import UsageError
from testbed.report import tables
from testbed.report.model import STREAMS, ArmRun, Event, FaultInterval, QpSeries, StepRow, StreamFlow
from testbed.report.tables import MAX_NUMBER

Row = TypeVar("Row")
# Fields of an event, by type. What ends in `_s` is a number of seconds, `path` a list of links.
_TEXTS = ("event", "source", "peer", "from", "to", "reason", "outcome", "fault", "kind", "target", "tier")
_WHOLE = ("ev", "attempt", "step")
MAX_RUN_S = 1e5  # 28 hours. Pictures have a bin for every 100 ms: a longer time, which damage can claim, would take the memory


@dataclass(frozen=True)
class RunData:
    """A whole run: its manifest, its scenario, its planned faults, and every arm and repeat found."""

    folder: Path
    manifest: Mapping[str, Any]
    scenario: Mapping[str, Any]
    seed: int | None
    arms: Mapping[str, tuple[ArmRun, ...]]
    problems: tuple[str, ...]

    @property
    def all_problems(self) -> list[str]:
        """What is missing or damaged, of the run and of each arm and repeat."""
        return [*self.problems, *(problem for runs in self.arms.values() for run in runs for problem in run.problems)]


def read_run(folder: Path) -> RunData:
    """Reads everything that the statistics need. UsageError if `folder` holds no run."""
    _require_run(folder)
    problems: list[str] = []
    manifest = _json_object(folder / "manifest.json", problems)
    planned = _json_object(folder / "faults.json", problems)
    given = _scenario(folder / "scenario.yaml", problems)
    resolved = manifest.get("scenario")
    scenario = resolved if isinstance(resolved, dict) else given
    repeats = sorted(_arm_folders(folder), key=lambda path: (_arm_rank(path.parent.name, scenario, manifest), int(path.name)))
    arms: dict[str, tuple[ArmRun, ...]] = {}
    for path in repeats:
        arms[path.parent.name] = (*arms.get(path.parent.name, ()), read_arm(path, planned, scenario))
    problems += _expected_but_absent(arms, scenario, manifest)
    seed = next((told for told in (planned.get("seed"), manifest.get("seed")) if isinstance(told, int)), None)
    return RunData(folder, manifest, scenario, seed, arms, tuple(problems))


def _require_run(folder: Path) -> None:
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; give the folder of a run, such as results/latest")
    marks = ("manifest.json", "faults.json", "scenario.yaml")
    if not any((folder / mark).exists() for mark in marks) and not any(_arm_folders(folder)):
        raise UsageError(
            f"{folder}: this is no run: it holds none of {', '.join(marks)} and no <arm>/<repeat>/ folder; "
            "give the folder that `testbed run` named at its end, results/<scenario>/<time>/"
        )


def _arm_folders(folder: Path) -> Iterable[Path]:
    marks = ("arm.json", "events.jsonl", "steps.csv", "agents")
    candidates = (path for path in folder.glob("*/*") if path.name.isdecimal() and path.is_dir())
    return [path for path in candidates if any((path / mark).exists() for mark in marks)]


def _asked_arms(scenario: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[str]:
    """The arms that were really asked for: the manifest knows about --arm, the scenario's text does not."""
    asked = next((told for told in (manifest.get("arms"), scenario.get("arms")) if isinstance(told, list)), [])
    names = [arm.get("name", "") if isinstance(arm, Mapping) else str(arm) for arm in asked]
    return [name for name in names if name]


def _arm_rank(arm: str, scenario: Mapping[str, Any], manifest: Mapping[str, Any]) -> tuple[int, str]:
    """Arms keep the scenario's order; unknown ones come last."""
    asked = _asked_arms(scenario, manifest)
    return (asked.index(arm) if arm in asked else len(asked), arm)


def _expected_but_absent(arms: Mapping[str, tuple[ArmRun, ...]], scenario: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[str]:
    repeats = manifest.get("repeats") or scenario.get("repeats") or 1
    absent = []
    for arm in _asked_arms(scenario, manifest):
        have = len(arms.get(arm, ()))
        if isinstance(repeats, int) and have < repeats:
            absent.append(f"arm {arm}: {have} of {repeats} repeats are there; the run was interrupted, or is still going on")
    return absent


# --- one arm and repeat --------------------------------------------------------------------------------------------------------------


def read_arm(folder: Path, planned: Mapping[str, Any], scenario: Mapping[str, Any]) -> ArmRun:
    """Reads one ``<arm>/<repeat>/`` folder against the planned faults (faults.json) and the scenario."""
    problems: list[str] = []
    info = _json_object(folder / "arm.json", problems)
    if not isinstance(info.get("fidelity"), Mapping):
        info["fidelity"] = {}
    if not isinstance(info["fidelity"].get("reasons", []), list):
        info["fidelity"] = {**info["fidelity"], "reasons": []}
    events = _events(folder / "events.jsonl", problems)
    job, steps_file = _job(scenario, info), folder / "steps.csv"
    no_steps = job.get("kind") == STREAMS and not steps_file.exists()
    steps = [] if no_steps else _table(steps_file, tables.step_row, problems)
    agents = _agents(folder / "agents.json", problems)
    links = tables.link_counters(_table(folder / "links.csv", tables.link_row, problems))
    qps = tables.qp_series(_table(folder / "flows.csv", tables.qp_row, problems))
    lasted_s = _duration_s(info, events, steps, qps)
    if lasted_s > MAX_RUN_S:
        problems.append(f"{_where(folder)}: claims to have lasted {lasted_s:g} s; only the first {MAX_RUN_S:g} s are looked at")
    return ArmRun(
        arm=folder.parent.name, repeat=int(folder.name), duration_s=min(lasted_s, MAX_RUN_S), steps=steps,
        faults=fault_intervals(planned, events), events=events, links=links, agents=agents, info=info,
        problems=(*problems, *_told_problems(folder, info, events, steps, job)), job=job,
        flows=_flows(info) if job.get("kind") == STREAMS else (), qps=qps,
    )  # fmt: skip


def _job(scenario: Mapping[str, Any], info: Mapping[str, Any]) -> dict[str, Any]:
    """The job's section of the scenario, with what arm.json tells of it."""
    told = (part.get("job") for part in (scenario, info))
    return {name: value for part in told if isinstance(part, Mapping) for name, value in part.items()}


def _flows(info: Mapping[str, Any]) -> tuple[StreamFlow, ...]:
    """The flows of arm.json: the scenario tells only how they are made."""
    job = info.get("job")
    listed = job.get("flows") if isinstance(job, Mapping) else None
    found = (_flow(entry) for entry in listed if isinstance(entry, Mapping)) if isinstance(listed, list) else ()
    return tuple(flow for flow in found if flow is not None)


def _flow(entry: Mapping[str, Any]) -> StreamFlow | None:
    source, target = entry.get("from"), entry.get("to")
    if not isinstance(source, str) or not isinstance(target, str):
        return None
    at_s = max(0.0, _number(entry.get("at_s")) or 0.0)
    return StreamFlow(source, target, at_s, _number(entry.get("for_s")), str(entry.get("role") or "flow"))


def _duration_s(info: Mapping[str, Any], events: list[Event], steps: list[StepRow], qps: list[QpSeries]) -> float:
    """The job's time: until it was stopped; else as arm.json tells it; of an interrupted arm, up to its last sign of life."""
    stops = [float(event["t_s"]) for event in events if event.get("event") == "job_stop"]
    if stops:
        return stops[-1]
    told = _number(info.get("duration_s")) or 0.0
    if told > 0 and not info.get("interrupted"):
        return told
    signs = [float(event["t_s"]) for event in events] + [row.end_s or row.start_s for row in steps] + [float(qp.t_s[-1]) for qp in qps]
    last_s = max(signs, default=0.0)
    return min(last_s, told) if told > 0 else last_s


def _told_problems(folder: Path, info: Mapping[str, Any], events: list[Event], steps: list[StepRow], job: Mapping[str, Any]) -> list[str]:
    where = _where(folder)
    found = [f"{where}: ended with an error: {info['error']}"] if info.get("error") else []
    found += [f"{where}: interrupted; what was measured until then is kept"] if info.get("interrupted") else []
    for event in events:
        if event.get("event") == "damaged_lines":
            what = f"{event.get('lines')} unusable lines of {event.get('file')}"
            found.append(f"{where}: {what} were left out (an agent was killed while writing)")
    streams = job.get("kind") == STREAMS
    if streams and not _flows(info):
        found.append(f"{where}: arm.json tells no flow of its streams, so no flow can be judged")
    if (folder / "steps.csv").exists() and not steps and not streams:
        found.append(f"{where}: steps.csv holds no step")
    return found


def fault_intervals(planned: Mapping[str, Any], events: list[Event]) -> list[FaultInterval]:
    """The planned faults with what the history says of each; faults that only the history knows come after them."""
    begins = {str(event.get("fault")): event for event in events if event.get("event") == "fault_begin"}
    ends = {str(event.get("fault")): event for event in events if event.get("event") == "fault_end"}
    told = planned.get("faults")
    listed = {str(entry.get("id")): entry for entry in told if isinstance(entry, Mapping)} if isinstance(told, list) else {}
    names = [*listed, *(name for name in begins if name not in listed)]
    return [_interval(name, listed.get(name, {}), begins.get(name, {}), ends.get(name, {})) for name in names]


def _interval(name: str, plan: Mapping[str, Any], begin: Event, end: Event) -> FaultInterval:
    target = str(plan.get("target", begin.get("target", "")))
    at_s = _number(plan.get("at_s"), begin.get("planned_s")) or 0.0
    for_s = _number(plan.get("for_s"))
    return FaultInterval(
        id=name, kind=str(plan.get("kind", begin.get("kind", "unknown"))), target=target,
        target_type=str(plan.get("target_type", "link" if "-" in target else "switch")),
        tier=str(plan.get("tier", begin.get("tier", "unknown"))), planned_s=at_s,
        planned_end_s=at_s + for_s if for_s is not None else _number(end.get("planned_s")) or at_s,
        issued_s=_number(begin.get("issued_s"), begin.get("t_s")),
        effective_s=_number(begin.get("effective_s")), end_s=_number(end.get("effective_s"), end.get("issued_s"), end.get("t_s")),
        links=_fault_links(plan), params=dict(plan["params"]) if isinstance(plan.get("params"), Mapping) else {},
    )  # fmt: skip


def _fault_links(plan: Mapping[str, Any]) -> tuple[str, ...]:
    told = plan.get("links")
    return tuple(link for link in told if isinstance(link, str)) if isinstance(told, list) else ()


def _number(*candidates: Any) -> float | None:
    """The first candidate that is a number which a run can have."""
    for value in candidates:
        if isinstance(value, int | float) and abs(value) <= MAX_NUMBER:  # not for NaN
            return float(value)
    return None


# --- files ---------------------------------------------------------------------------------------------------------------------------


def _where(path: Path) -> str:
    """How a message names a file or folder of an arm and repeat."""
    parts = path.parts[-3:] if path.suffix else path.parts[-2:]
    return "/".join(parts if len(parts) == 3 and parts[1].isdecimal() else path.parts[-1:] if path.suffix else parts)


def _json_object(path: Path, problems: list[str]) -> dict[str, Any]:
    value = _json(path, problems)
    if value is not None and not isinstance(value, dict):
        problems.append(f"{_where(path)}: should be a JSON object, and is {type(value).__name__}")
    return value if isinstance(value, dict) else {}


def _is_there(path: Path, problems: list[str]) -> bool:
    """Whether it can be read: a pipe in its place would be waited for, and a link may lead nowhere or round in circles."""
    there = path.is_file()
    if not there:
        problems.append(f"{_where(path)} is {'no file' if path.exists() else 'missing'}")
    return there


def _json(path: Path, problems: list[str]) -> Any:
    if not _is_there(path, problems):
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        problems.append(f"{_where(path)} is damaged: {error}")
        return None


def _scenario(path: Path, problems: list[str]) -> dict[str, Any]:
    if not _is_there(path, problems):
        return {}
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problems.append(f"scenario.yaml is damaged: {' '.join(str(error).split())}")
        return {}
    return value if isinstance(value, dict) else {}


def _agents(path: Path, problems: list[str]) -> dict[str, Mapping[str, Any]]:
    """agents.json by host; a list of entries that name their host is as good."""
    value = _json(path, problems)
    entries = value.items() if isinstance(value, dict) else ((str(e.get("host")), e) for e in value or [] if isinstance(e, dict))
    return {host: entry for host, entry in entries if isinstance(entry, dict)}


def _events(path: Path, problems: list[str]) -> list[Event]:
    if not _is_there(path, problems):
        return []
    events, bad = [], 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        event = _event(line)
        bad += event is None
        events += [event] if event is not None else []
    if bad:
        problems.append(f"{_where(path)}: {bad} damaged lines left out")
    return sorted(events, key=lambda event: float(event["t_s"]))


def _event(line: str) -> Event | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and _is_sound(event) else None


def _is_sound(event: Event) -> bool:
    """Whether everything that the statistics read has its type (docs/architecture.md); null stands for nothing anywhere."""
    told = {name: value for name, value in event.items() if value is not None}
    required = {"t_s", "event"} | ({"source", "ev"} if told.get("event") in ("ev_state", "probe") else set())
    if not required <= set(told) or any(_number(told[name]) is None for name in told if name.endswith("_s")):
        return False
    texts, whole = (told.get(name) for name in _TEXTS if name in told), (told.get(name) for name in _WHOLE if name in told)
    path = told.get("path", [])
    links = isinstance(path, list) and all(isinstance(link, str) for link in path)
    return links and all(isinstance(text, str) for text in texts) and all(type(number) is int for number in whole)


def _table(path: Path, parse: Callable[[Mapping[str, str]], Row], problems: list[str]) -> list[Row]:
    if not _is_there(path, problems):
        return []
    rows, bad = tables.read_table(path, parse)
    if bad:
        problems.append(f"{_where(path)}: {bad} damaged lines left out")
    return rows
