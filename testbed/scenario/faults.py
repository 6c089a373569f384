"""The fault timeline: one fault, the drawn list, and `faults.json`, from which a run can be replayed exactly."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from testbed.scenario.problems import Problem, ScenarioInvalid, did_you_mean
from topologies import Topology

LINK_KINDS = ("carrier", "silent")
SWITCH_KINDS = ("switch-kill", "switch-reboot")
MAX_FILE_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Fault:
    """One fault of a run. `at_s` counts from the job's start; `for_s` is how long it lasts (a switch: until it starts to boot)."""

    id: str
    kind: str
    target: str
    target_type: str
    tier: str
    at_s: float
    for_s: float
    source: str

    @property
    def end_s(self) -> float:
        """When healing starts, in seconds since the job's start."""
        return round(self.at_s + self.for_s, 6)


@dataclass(frozen=True)
class Drawn:
    """The drawn list, sorted by time, and what drawing did: `counts` by word (see churn.py)."""

    seed: int
    faults: tuple[Fault, ...]
    counts: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The content of faults.json."""
        return {"seed": self.seed, "counts": dict(self.counts), "faults": [asdict(fault) for fault in self.faults]}


def numbered(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Sorts by time and gives the ids f1, f2 ... in that order."""
    ordered = sorted(faults, key=lambda fault: (fault.at_s, fault.target, fault.kind))
    return tuple(Fault(**{**asdict(fault), "id": f"f{number}"}) for number, fault in enumerate(ordered, 1))


def write_faults(path: Path, drawn: Drawn) -> None:
    """Writes faults.json."""
    path.write_text(json.dumps(drawn.as_dict(), indent=1) + "\n", encoding="utf-8")


def read_faults(path: Path, topology: Topology, duration_s: float = math.inf) -> Drawn:
    """Reads faults.json back, exactly as it was drawn. Raises ScenarioInvalid with everything that does not fit topology or run."""
    data = _read_json(path)
    problems: list[Problem] = []
    items = data.get("faults")
    if not isinstance(items, list):
        raise ScenarioInvalid(str(path), [Problem(("faults",), "must be a list of faults", "give a faults.json that a run wrote")])
    faults = [fault for index, item in enumerate(items) if (fault := _read_fault(item, index, topology, problems))]
    problems += _duplicate_ids(faults) + _replay_problems(faults, duration_s)
    seed = data.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int):
        problems.append(Problem(("seed",), "must be a whole number"))
    if problems:
        raise ScenarioInvalid(str(path), problems)
    return Drawn(seed, tuple(sorted(faults, key=lambda fault: fault.at_s)), _counts(data.get("counts")))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():  # a pipe or device would be read for ever, and a run reads it twice
            raise ScenarioInvalid(str(path), [Problem((), "is not a file", "give the faults.json of a run")])
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ScenarioInvalid(str(path), [Problem((), f"is larger than {MAX_FILE_BYTES} bytes")])
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioInvalid(str(path), [Problem((), f"cannot be read: {error.strerror}", "give the faults.json of a run")]) from error
    except (ValueError, RecursionError) as error:
        raise ScenarioInvalid(str(path), [Problem((), f"is not JSON: {error}", "give the faults.json of a run")]) from error
    if not isinstance(data, dict):
        raise ScenarioInvalid(str(path), [Problem((), "must be a JSON object", "give the faults.json of a run")])
    return data


def _read_fault(item: object, index: int, topology: Topology, problems: list[Problem]) -> Fault | None:
    place = ("faults", index)
    if not isinstance(item, dict):
        problems.append(Problem(place, "must be an object"))
        return None
    before = len(problems)
    for name in ("id", "kind", "target"):
        if not isinstance(item.get(name), str):
            problems.append(Problem((*place, name), "must be text"))
    for name in ("at_s", "for_s"):
        problems += _time_problems(item.get(name), (*place, name))
    if len(problems) == before:
        problems += _target_problems(item, place, topology)
    if len(problems) > before:
        return None
    kind, target = item["kind"], item["target"]
    target_type = "link" if kind in LINK_KINDS else "switch"
    source = str(item.get("source", place_source(index)))
    tier = tier_of(topology, target_type, target)
    return Fault(item["id"], kind, target, target_type, tier, float(item["at_s"]), float(item["for_s"]), source)


def _time_problems(value: object, place: tuple[str | int, ...]) -> list[Problem]:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9
    return [] if good else [Problem(place, "must be a number of seconds, 0 or more")]


def _target_problems(item: Mapping[str, Any], place: tuple[str | int, ...], topology: Topology) -> list[Problem]:
    if item["kind"] in LINK_KINDS:
        known: Iterable[str] = topology.links
    elif item["kind"] in SWITCH_KINDS:
        known = topology.switches
    else:
        return [Problem((*place, "kind"), f"unknown fault kind {item['kind']!r}", did_you_mean(item["kind"], LINK_KINDS + SWITCH_KINDS))]
    if item["target"] in set(known):
        return []
    return [Problem((*place, "target"), f"{item['target']!r} is not in this topology", did_you_mean(item["target"], known))]


def _duplicate_ids(faults: Iterable[Fault]) -> list[Problem]:
    seen: set[str] = set()
    problems = []
    for index, fault in enumerate(faults):
        if fault.id in seen:
            problems.append(Problem(("faults", index, "id"), f"{fault.id!r} is there twice"))
        seen.add(fault.id)
    return problems


def _replay_problems(faults: list[Fault], duration_s: float) -> list[Problem]:
    """What would not work in this run, though each fault by itself is fine."""
    problems, last_end_s = [], dict[str, float]()
    for fault in sorted(faults, key=lambda fault: fault.at_s):
        if fault.end_s > duration_s:
            message = f"lasts until {fault.end_s:g} s, the run only {duration_s:g} s"
            problems.append(Problem((fault.id,), message, "make run.duration longer"))
        if fault.at_s < last_end_s.get(fault.target, 0.0):
            problems.append(Problem((fault.id,), f"overlaps with an earlier fault on {fault.target}"))
        last_end_s[fault.target] = fault.end_s
    return problems


def _counts(value: object) -> dict[str, int]:
    return {str(key): count for key, count in value.items() if isinstance(count, int)} if isinstance(value, dict) else {}


def place_source(index: int) -> str:
    """The `source` of the explicit fault at `index` of the scenario."""
    return f"$.faults[{index}]"


def tier_of(topology: Topology, target_type: str, target: str) -> str:
    """The tier as faults.json writes it: a link's tier name, or T0, T1, T2 of a switch."""
    return topology.links[target].tier if target_type == "link" else f"T{topology.nodes[target].tier}"
