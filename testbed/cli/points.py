"""What `validate` and `--dry-run` say about a scenario, with all points of its sweep if it has one. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import topologies
from testbed.cli.dryrun import plan_data, plan_lines
from testbed.cli.output import table
from testbed.scenario import Drawn, Scenario, total_duration_s
from testbed.scenario.model import Point
from testbed.units import counted, format_duration


def valid_line(scenario: Scenario, drawn: Sequence[Drawn]) -> str:
    """One sentence; `drawn` holds the faults of each run."""
    sweep, counts = scenario.sweep, sorted({len(one.faults) for one in drawn})
    points = (
        f"{counted(len(scenario.points), 'point')} of {sweep.key} ({', '.join(point.text for point in scenario.points)}), " if sweep else ""
    )
    fewest = f"{counts[0]} to " if len(counts) > 1 else ""
    faults = f"{fewest}{counted(counts[-1], 'fault')}"
    return f"{scenario.name} is valid: {points}{faults}, about {format_duration(total_duration_s(scenario))} in all"


def points_data(scenario: Scenario, drawn: Sequence[Drawn]) -> dict[str, Any]:
    """Every point as JSON-able data; empty without a sweep."""
    told = [_point_data(point, faults) for point, faults in zip(scenario.points, drawn, strict=False)]
    return {"points": told} if told else {}


def _point_data(point: Point, drawn: Drawn) -> Mapping[str, Any]:
    return {
        "value": point.value,
        "text": point.text,
        "folder": point.folder,
        "faults": drawn.as_dict()["faults"],
        "topology": topologies.summary(point.scenario.build_topology()),
        "expected_s": total_duration_s(point.scenario),
    }


def dry_run_data(scenario: Scenario, drawn: Sequence[Drawn]) -> dict[str, Any]:
    """The plan; of a sweep, that of its first point, every point, and the time of all."""
    first = scenario.single_runs()[0]
    plan = plan_data(first, first.build_topology(), drawn[0])
    return plan | {"scenario": scenario.resolved(), "expected_s": total_duration_s(scenario)} | points_data(scenario, drawn)


def dry_run_lines(scenario: Scenario, drawn: Sequence[Drawn], verbose: bool) -> list[str]:
    """The same for people."""
    first = scenario.single_runs()[0]
    plan = plan_lines(first, first.build_topology(), drawn[0], verbose)
    if scenario.sweep is None:
        return plan
    own = [f"{scenario.name}: {scenario.title}", f"point {scenario.points[0].text} of {scenario.sweep.key}:"]
    return [*own, *(f"  {line}" for line in plan[1:]), *_point_lines(scenario, drawn)]


def _point_lines(scenario: Scenario, drawn: Sequence[Drawn]) -> list[str]:
    assert scenario.sweep is not None
    rows = [(scenario.sweep.key, "FOLDER", "FAULTS", "TIME")]
    for point, one in zip(scenario.points, drawn, strict=True):
        rows.append((point.text, point.folder, str(len(one.faults)), f"about {format_duration(total_duration_s(point.scenario))}"))
    last = f"time: {counted(len(scenario.points), 'point')}, about {format_duration(total_duration_s(scenario))} in all"
    return ["all points:", *(f"  {line}" for line in table(rows)), last]
