"""The fault timeline: one fault, the drawn list, and `faults.json`, from which a run can be replayed exactly."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from heapq import heappop, heappush
from itertools import islice
from pathlib import Path
from typing import Any

from testbed.errors import UsageError
from testbed.files import write_json
from testbed.scenario.deny import Evs, given_evs
from testbed.scenario.derived_links import CONTROLLER_ARMS, HASHED_ARMS
from testbed.scenario.kinds import KINDS, may_overlap, slowed_bps
from testbed.scenario.model import Scenario
from testbed.scenario.problems import Place, Problem, ScenarioInvalid, did_you_mean
from testbed.scenario.schema_faults import MIN_FAULT_S, ExplicitFault
from testbed.scenario.targets import CONTROLLER, Target, UnknownTarget, aim, resolve
from topologies import Topology

MAX_FILE_BYTES = 4 * 2**20
_ID = re.compile(r"[A-Za-z0-9.-]{1,32}", re.ASCII)
"""Of a fault: it stands in tables, pictures and terminals as it is."""


@dataclass(frozen=True)
class Fault:
    """One fault of a run. `at_s` counts from the job's start; `for_s` is how long it lasts (a switch: until it starts to boot).

    `params` are the kind's own (see kinds.py), JSON-able; `links` the names of the links it touches: none for a slow host.
    """

    id: str
    kind: str
    target: str
    target_type: str
    tier: str
    at_s: float
    for_s: float
    source: str
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)
    links: tuple[str, ...] = ()

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
        return {"seed": self.seed, "counts": dict(self.counts), "faults": [_plain(fault) for fault in self.faults]}


def _plain(fault: Fault) -> dict[str, Any]:
    return {**asdict(fault), "links": list(fault.links)}


def from_spec(spec: ExplicitFault, index: int, topology: Topology) -> Fault:
    """The fault that entry `index` of the scenario describes, without an id. UnknownTarget if the topology has no such thing."""
    target = resolve(topology, spec.kind, aim(spec)[1])
    at_s, for_s = round(spec.at_s, 3), round(spec.for_s, 3)
    return Fault("", spec.kind, target.name, target.type, target.tier, at_s, for_s, place_source(index), _params(spec), target.links)


def _params(spec: ExplicitFault) -> dict[str, Any]:
    given = spec.model_dump(mode="json", exclude={"kind", "at_s", "for_s", aim(spec)[0]}, exclude_none=True)
    named = {"from" if name == "from_node" else name: value for name, value in given.items()}
    return {name: value for name, value in named.items() if value != []}


def numbered(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Sorts by time and gives the ids f1, f2 ... in that order."""
    ordered = sorted(faults, key=lambda fault: (fault.at_s, fault.target, fault.kind))
    return tuple(replace(fault, id=f"f{number}") for number, fault in enumerate(ordered, 1))


def conflict(one: Fault, other: Fault) -> str | None:
    """The target or link that two faults are on at the same time, in a way that makes no sense; None if they get along."""
    in_time = one.at_s < other.end_s and other.at_s < one.end_s
    if not in_time or may_overlap(one.kind, other.kind):
        return None
    return one.target if one.target == other.target else min(set(one.links) & set(other.links), default=None)


def overlaps(faults: Sequence[Fault]) -> Iterator[tuple[int, int, str]]:
    """(position of a fault, that of one that began no later, where) for each fault that is on beside another in a way that makes no sense.

    Only the first other one of each: a thousand faults at once are a thousand problems, not half a million.
    """
    on: list[tuple[float, int]] = []  # a heap of (end, position)
    for at in sorted(range(len(faults)), key=lambda position: faults[position].at_s):
        while on and on[0][0] <= faults[at].at_s:
            heappop(on)
        found = ((other, where) for _, other in on if (where := conflict(faults[at], faults[other])))
        for other, where in islice(found, 1):
            yield at, other, where
        heappush(on, (faults[at].end_s, at))


def write_faults(path: Path, drawn: Drawn) -> None:
    """Writes faults.json."""
    write_json(path, drawn.as_dict())


def read_faults(path: Path, scenario: Scenario) -> Drawn:
    """Reads faults.json back, exactly as it was drawn. Raises ScenarioInvalid with everything that does not fit the scenario."""
    data, topology = _read_json(path), scenario.build_topology()
    problems: list[Problem] = []
    items = data.get("faults")
    if not isinstance(items, list):
        raise ScenarioInvalid(str(path), [Problem(("faults",), "must be a list of faults", "give a faults.json that a run wrote")])
    faults = [fault for index, item in enumerate(items) if (fault := _read_fault(item, index, topology, problems))]
    problems += _duplicate_ids(faults) + _replay_problems(faults, scenario, topology)
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
    place: Place = ("faults", index)
    if not isinstance(item, dict):
        problems.append(Problem(place, "must be an object"))
        return None
    before = len(problems)
    for name in ("id", "kind", "target"):
        if not isinstance(item.get(name), str):
            problems.append(Problem((*place, name), "must be text"))
    if isinstance(item.get("id"), str) and not _ID.fullmatch(item["id"]):
        problems.append(Problem((*place, "id"), "must be 1 to 32 letters, digits, dots or dashes", "runs number faults f1, f2, ..."))
    for name, least_s in (("at_s", 0.0), ("for_s", MIN_FAULT_S)):
        problems += _time_problems(item.get(name), least_s, (*place, name))
    if len(problems) > before:
        return None
    target = _read_target(item, place, topology, problems)
    params = _read_params(item, place, problems)
    if target is None or len(problems) > before:
        return None
    source = str(item.get("source", place_source(index)))
    at_s, for_s = float(item["at_s"]), float(item["for_s"])
    return Fault(item["id"], item["kind"], target.name, target.type, target.tier, at_s, for_s, source, params, target.links)


def _time_problems(value: object, least_s: float, place: Place) -> list[Problem]:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and least_s <= value < 1e9
    return [] if good else [Problem(place, f"must be a number of seconds, {least_s:g} or more")]


def _read_target(item: Mapping[str, Any], place: Place, topology: Topology, problems: list[Problem]) -> Target | None:
    if item["kind"] not in KINDS:
        problems.append(Problem((*place, "kind"), f"unknown fault kind {item['kind']!r}", did_you_mean(item["kind"], KINDS)))
        return None
    named = item.get("links") if KINDS[item["kind"]].target == "bundle" else item["target"]
    try:
        return resolve(topology, item["kind"], named)
    except UnknownTarget as error:
        problems.append(Problem((*place, *(error.inside or ("target",))), error.message, error.hint))
        return None


def _read_params(item: Mapping[str, Any], place: Place, problems: list[Problem]) -> dict[str, Any]:
    given = item.get("params", {})
    if not isinstance(given, dict):
        problems.append(Problem((*place, "params"), "must be an object"))
        return {}
    known = KINDS[item["kind"]].params if item["kind"] in KINDS else {}
    for name in sorted(given.keys() - known.keys()):
        problems.append(Problem((*place, "params", name), f"is no parameter of {item['kind']}", did_you_mean(name, known, "parameters")))
    for name, param in known.items():
        ends = item["target"].split("-") if param.is_end else ()
        if (name in given or param.required) and not (param.fits(given.get(name)) and (not ends or given[name] in ends)):
            problems.append(Problem((*place, "params", name), f"must be {param.says}"))
    if item["kind"] == "rate" and ("rate_bps" in given) == ("share" in given):
        problems.append(Problem((*place, "params"), "needs either rate_bps or share"))
    return dict(given)


def _duplicate_ids(faults: Iterable[Fault]) -> list[Problem]:
    seen: set[str] = set()
    problems = []
    for index, fault in enumerate(faults):
        if fault.id in seen:
            problems.append(Problem(("faults", index, "id"), f"{fault.id!r} is there twice"))
        seen.add(fault.id)
    return problems


def _replay_problems(faults: list[Fault], scenario: Scenario, topology: Topology) -> list[Problem]:
    """What would not work in this run, though each fault by itself is fine."""
    problems, duration_s, hosts = list[Problem](), scenario.run.duration_s, scenario.job_hosts()
    for fault in sorted(faults, key=lambda fault: fault.at_s):
        if fault.end_s > duration_s:
            message = f"lasts until {fault.end_s:g} s, the run only {duration_s:g} s"
            problems.append(Problem((fault.id,), message, "make run.duration longer"))
        problems += _misfits(fault, scenario, topology, hosts)
    return problems + [Problem((faults[at].id,), f"overlaps with {faults[other].id} on {where}") for at, other, where in overlaps(faults)]


def missing_evs(evs: Sequence[int], topology: Topology, given: Evs, arms: Collection[str]) -> str | None:
    """What is wrong with EVs that no pair of hosts has: a loss of these would do nothing, and not say so."""
    if not evs or len(topology.hosts) < 2:
        return None
    if hashed := [arm for arm in arms if arm in HASHED_ARMS]:
        return f"the EVs of {hashed[0]} have drawn numbers: a fault that names EVs would hit none there"
    try:
        limit = given.most(topology)
    except UsageError as error:
        return str(error)
    high = [str(ev) for ev in evs if ev >= limit]
    return f"no pair has EV {', '.join(high)}: they are numbered from 0 to {limit - 1}" if high else None


def _misfits(fault: Fault, scenario: Scenario, topology: Topology, job_hosts: Collection[str]) -> list[Problem]:
    if fault.target_type == CONTROLLER and (message := no_controller(scenario.arms)):
        return [Problem((fault.id,), message, CONTROLLER_HINT)]
    if fault.kind == "host-slow" and fault.target not in job_hosts:
        return [Problem((fault.id,), idle_host(fault.target))]
    if message := missing_evs(fault.params.get("evs", ()), topology, given_evs(scenario.transport.get("mrc", {})), scenario.arms):
        return [Problem((fault.id,), message)]
    if fault.kind == "rate":
        try:
            slowed_bps(fault.params.get("rate_bps"), fault.params.get("share"), scenario.links.rate_bps)
        except ValueError as error:
            return [Problem((fault.id,), str(error))]
    return []


CONTROLLER_HINT = f"add one of {', '.join(CONTROLLER_ARMS)} to arms"


def no_controller(arms: Sequence[str]) -> str | None:
    """What is wrong with the death of a controller where no arm has one; None if one has. In the other arms nothing happens then."""
    return None if set(arms) & set(CONTROLLER_ARMS) else f"no arm has a controller: {', '.join(arms)}"


def idle_host(host: str) -> str:
    """What is wrong with a slow host that has no part in the job."""
    return f"{host} takes no part in the job: no program runs there that could be slow"


def _counts(value: object) -> dict[str, int]:
    return {str(key): count for key, count in value.items() if isinstance(count, int)} if isinstance(value, dict) else {}


def place_source(index: int) -> str:
    """The `source` of the explicit fault at `index` of the scenario."""
    return f"$.faults[{index}]"
