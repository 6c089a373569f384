"""What an argument of a command means: a scenario by name or path, a topology with parameters, a run's folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import topologies
from testbed.errors import UsageError
from testbed.scenario import Scenario, load
from testbed.scenario.builtin import find, is_file, names
from testbed.scenario.problems import did_you_mean
from topologies import Topology

# What `topo show` and `shell` build when no parameter is given.
DEFAULT_PARAMS: Mapping[str, Mapping[str, int]] = {
    "fat-tree": {"k": 4},
    "multi-plane": {"planes": 4, "t0s": 2, "t1s": 2, "hosts_per_t0": 2},
}
MARK = "manifest.json"


@dataclass(frozen=True)
class Fabric:
    """A topology to show or bring up, and the scenario that it came from, if any."""

    topology: Topology
    scenario: Scenario | None


def resolve_fabric(target: str, params: Sequence[str]) -> Fabric:
    """A kind of topology with `--param name=value`, or a scenario's topology (parameters override it). Raises UsageError."""
    given = dict(parse_param(param) for param in params)
    if target in topologies.KINDS:
        return Fabric(topologies.build(target, **{**DEFAULT_PARAMS[target], **given}), None)
    if not _is_scenario(target):
        known = [*topologies.KINDS, *names()]
        raise UsageError(f"there is no topology or scenario {target!r} ({did_you_mean(target, known, 'topologies and scenarios')})")
    scenario = load(find(target), [f"topology.{name}={value}" for name, value in given.items()])
    return Fabric(scenario.build_topology(), scenario)


def _is_scenario(target: str) -> bool:
    return target in names() or "/" in target or target.endswith((".yaml", ".yml")) or is_file(Path(target))


def parse_param(text: str) -> tuple[str, int]:
    """Reads "k=4". Raises UsageError."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not (value.strip().isascii() and value.strip().isdigit()) or len(value) > 9:
        raise UsageError(f"--param {text!r}: write name=number, as k=4")
    return name.strip().replace("-", "_"), int(value)


def find_run(target: str, results: Path) -> Path:
    """A run's folder: a path, `latest`, or a scenario's name (its latest run). Raises UsageError."""
    for candidate in (Path(target), results / target):
        if is_file(candidate / MARK):
            return candidate.resolve()
    runs = runs_of(results / target)
    if runs:
        return runs[-1].resolve()
    if os.path.isdir(target):
        raise UsageError(f"{target} is a folder, but holds no run: there is no {MARK} in it")
    known = sorted(folder.name for folder in results.iterdir() if runs_of(folder)) if results.is_dir() else []
    hint = did_you_mean(target, ["latest", *known], "there are") if known else f"{results} holds no runs yet: start one with `testbed run`"
    raise UsageError(f"there is no run {target!r} ({hint})")


def runs_of(folder: Path) -> list[Path]:
    """The runs in a scenario's results folder, oldest first (their names are times)."""
    try:
        if not folder.is_dir() or folder.is_symlink():
            return []
    except OSError:  # a name that the system refuses, as one that is too long
        return []
    return sorted(run for run in folder.iterdir() if (run / MARK).is_file() and not run.is_symlink())
