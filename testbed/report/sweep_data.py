"""sweep.json: every metric of every arm at every point of a sweep, from the points' own folders."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.errors import UsageError
from testbed.report import sweep_detection
from testbed.report.context import machine_text, transports_line
from testbed.report.metrics import METRIC_NAMES, METRICS
from testbed.report.reading import RunData, read_run
from testbed.report.summary import FIDELITY_FIGURES, no_nan, summarise_data, worst_figure, worst_verdict
from testbed.report.verdict import expectations, judge

KIND = "sweep"
# What the picture shows when the scenario does not say: the first that was measured anywhere.
DEFAULT_METRICS = ("job_goodput_bps", "flow_goodput_min_share", "step_p50_s")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The sweep's manifest. UsageError if the folder is no sweep."""
    try:
        found = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder} is no sweep: its manifest.json cannot be read ({error}); give a folder of `testbed run`") from error
    if not is_sweep_manifest(found):
        raise UsageError(f"{folder} is no sweep: its manifest.json names no points; give a folder of `testbed run`")
    return dict(found)


def is_sweep_manifest(found: Any) -> bool:
    """Whether a manifest, as read, is that of a sweep."""
    points = _listed(found.get("points")) if isinstance(found, dict) and found.get("kind") == KIND else []
    return bool(points) and all(_is_point(point) for point in points)


def _is_point(told: Any) -> bool:
    """A point's folder lies directly in the sweep's."""
    folder = told.get("folder") if isinstance(told, dict) else None
    return isinstance(folder, str) and folder not in ("", ".", "..") and "/" not in folder


def read_sweep(folder: Path) -> dict[str, Any]:
    """The content of sweep.json (docs/sweeps.md tells the keys). UsageError if the folder is no sweep."""
    manifest = read_manifest(folder)
    scenario = _mapping(manifest.get("scenario"))
    asked = _mapping(scenario.get("sweep"))
    points = [_point(folder, told) for told in manifest["points"]]
    key = str(asked.get("key") or "value")
    found = {
        "scenario": str(scenario.get("name") or folder.parent.name), "title": str(scenario.get("title") or ""),
        "hypothesis": str(scenario.get("hypothesis") or ""), "seed": manifest.get("seed"), "repeats": manifest.get("repeats"),
        "key": key, "label": str(asked.get("label") or key), "metric": shown_metric(asked.get("metric"), points),
        "relative": asked.get("relative") is True, "arms": _arms(manifest, points), "points": points,
        "fidelity": _fidelity(points), "machine": machine_text(RunData(folder, manifest, scenario, None, {}, ())),
        "metrics": {metric.name: {"unit": metric.unit, "meaning": metric.meaning} for metric in METRICS},
        "transports": next((point["transports"] for point in points if point["transports"]), ""),
        "interrupted": manifest.get("interrupted") is not False, "complete": manifest.get("complete") is True,
        "problems": list(_problems(points)),
    }  # fmt: skip
    return dict(no_nan(found))


def _point(folder: Path, told: Mapping[str, Any]) -> dict[str, Any]:
    """One point: what its manifest entry tells, and its metrics, fidelity and verdicts if anything was measured."""
    entry = {
        "value": told.get("value"), "text": str(told.get("text")), "folder": told["folder"], "state": str(told.get("state")),
        "exit_code": told.get("exit_code"), "problems": [str(problem) for problem in _listed(told.get("problems"))],
    }  # fmt: skip
    if not any((folder / told["folder"]).glob("*/*/arm.json")):
        return entry | {
            "arms": {},
            "fidelity": {"verdict": "unknown", "reasons": []},
            "expectations": [],
            "detection": {},
            "transports": "",
        }
    data = read_run(folder / told["folder"])
    summary = summarise_data(data)
    verdicts = judge(expectations(data.scenario), summary)
    arms = {arm: {name: found[name] for name in METRIC_NAMES} for arm, found in summary["arms"].items()}
    judged = [{"met": verdict.met, "sentence": verdict.sentence} for verdict in verdicts]
    return entry | {
        "arms": arms, "fidelity": summary["fidelity"], "expectations": judged,
        "detection": sweep_detection.of_point(data, summary), "transports": transports_line(data),
    }  # fmt: skip


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _arms(manifest: Mapping[str, Any], points: Sequence[Mapping[str, Any]]) -> list[str]:
    """The arms in the scenario's order."""
    asked = [str(arm) for arm in _listed(manifest.get("arms"))]
    return list(dict.fromkeys([*asked, *(arm for point in points for arm in point["arms"])]))


def shown_metric(asked: Any, points: Sequence[Mapping[str, Any]]) -> str:
    """The metric of the picture: the one asked for, else the first of DEFAULT_METRICS that was measured."""
    if asked in METRIC_NAMES:
        return str(asked)
    arms = [metrics for point in points for metrics in point["arms"].values()]
    measured = {name for metrics in arms for name, spread in metrics.items() if spread["median"] is not None}
    return next((name for name in DEFAULT_METRICS if name in measured), DEFAULT_METRICS[-1])


def _problems(points: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for point in points:
        if point["state"] != "complete":
            yield f"{point['text']}: {point['state']}"
        yield from (f"{point['text']}: {problem}" for problem in point["problems"])


def _fidelity(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The worst verdict of the points with every reason, and the worst figure of each kind."""
    told = [point["fidelity"] for point in points]
    names = [name for name in FIDELITY_FIGURES if any(name in entry for entry in told)]
    verdict = worst_verdict([(point["text"], point["fidelity"]) for point in points])
    return verdict | {name: worst_figure(told, name) for name in names}


def series(data: Mapping[str, Any], arm: str, metric: str, part: str = "median") -> list[float | None]:
    """A metric of an arm along the points; `part` is median, min or max of the repeats."""
    return [point["arms"].get(arm, {}).get(metric, {}).get(part) for point in data["points"]]


def relative(data: Mapping[str, Any], arm: str, metric: str, part: str = "median") -> list[float | None]:
    """The same as a share of the arm's own median at the first point; all None where there is none, or it is 0."""
    first = series(data, arm, metric)[0]
    return [None if value is None or not first else value / first for value in series(data, arm, metric, part)]
