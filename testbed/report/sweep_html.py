"""The files on top of a sweep: sweep.json, the picture, and a page that leads to the points' own reports."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from testbed.files import write_text
from testbed.report import plot_sweep, plot_timers, style
from testbed.report.context import fidelity_line, label
from testbed.report.html import command, overrides, template
from testbed.report.metrics import METRICS, metric
from testbed.report.plots import write_figure
from testbed.report.sweep_data import read_manifest, read_sweep, relative
from testbed.report.sweep_words import finding, share_words, spread_words

CAPTIONS = {"sweep": plot_sweep.CAPTION, "timers": plot_timers.CAPTION}


def write_sweep(folder: Path) -> dict[str, Any]:
    """Writes sweep.json, plots/ and report.html, and returns the content of the first. UsageError if the folder is no sweep."""
    data = read_sweep(folder)
    write_text(folder / "sweep.json", json.dumps(data, indent=1, allow_nan=False, default=str) + "\n")
    plots = write_pictures(folder, data)
    write_text(folder / "report.html", render(folder, data, [path for path in plots if path.suffix == ".png"]))
    return data


def write_pictures(folder: Path, data: Mapping[str, Any]) -> list[Path]:
    """Writes plots/sweep.png and .svg, and of a sweep over routing's timers plots/timers.png and .svg; returns their paths."""
    with style.styled():
        figures = {"timers": plot_timers.draw(data), "sweep": plot_sweep.draw(data)}
        drawn = [(name, figure) for name, figure in figures.items() if figure is not None]
        return [path for name, figure in drawn for path in write_figure(folder, name, figure, data["fidelity"]["verdict"])]


def render(folder: Path, data: Mapping[str, Any], pngs: Sequence[Path]) -> str:
    """The whole page; every string from the run is escaped by the template."""
    pictures = [(base64.b64encode(png.read_bytes()).decode("ascii"), CAPTIONS[png.stem]) for png in pngs]
    return template("sweep.html.j2").render(**page(folder, data), pictures=pictures)


def page(folder: Path, data: Mapping[str, Any]) -> dict[str, Any]:
    """Everything on the page but the picture, as plain values."""
    manifest = read_manifest(folder)
    return {
        **{name: data[name] for name in ("key", "label", "metric", "relative", "hypothesis", "seed", "problems", "machine")},
        "title": data["title"] or data["scenario"], "name": data["scenario"], "folder": folder.name, "headline": headline(data),
        "fidelity_line": fidelity_line(data), "reasons": data["fidelity"]["reasons"], "finding": finding(data),
        "meaning": metric(data["metric"]).meaning, "arms": [label(arm) for arm in data["arms"]],
        "points": [_point_row(folder, data, index) for index in range(len(data["points"]))], "tables": _tables(data),
        "command": command(manifest), "again": again(folder, manifest), "started": str(manifest.get("started") or "unknown"),
        "revision": str(manifest.get("revision") or "unknown"),
    }  # fmt: skip


def headline(data: Mapping[str, Any]) -> tuple[str, str]:
    """(good | bad | unsure, one sentence): the verdict on top of the page, the worst of the points."""
    points, fidelity = data["points"], data["fidelity"]["verdict"]
    complete = sum(point["state"] == "complete" for point in points)
    if complete < len(points):
        return "bad", f"Not a whole sweep: {complete} of {len(points)} points are complete."
    if fidelity == "invalid":
        return "bad", "Not valid: the machine could not carry every point; see the table for those that it could."
    judged = [verdict for point in points for verdict in point["expectations"]]
    missed = sum(not verdict["met"] for verdict in judged)
    if missed:
        return "bad", f"{missed} of {len(judged)} expectations of all points were not met."
    doubt = "" if fidelity == "good" else f" The emulation's fidelity is {fidelity}."
    if data["problems"]:
        return "bad", "Every point is complete, and something is wrong." + doubt
    words = f"All {len(judged)} expectations of all points were met." if judged else "No expectation was judged."
    return ("good" if judged and not doubt else "unsure"), words + doubt


def _point_row(folder: Path, data: Mapping[str, Any], index: int) -> dict[str, Any]:
    point, name = data["points"][index], data["metric"]
    cells = []
    for arm in data["arms"]:
        words = spread_words(point["arms"].get(arm, {}).get(name, {}), metric(name).unit)
        share = relative(data, arm, name)[index] if data["relative"] else None
        cells.append(words if share is None else f"{words}, {share_words(share)}")
    href = f"{point['folder']}/report.html"
    return {
        "text": point["text"], "cells": cells, "expectations": point["expectations"], "state": point["state"],
        "fidelity": point["fidelity"].get("verdict", "unknown"), "href": quote(href) if (folder / href).is_file() else "",
    }  # fmt: skip


def _tables(data: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, list[str], str]]]]:
    """For each arm the metrics that were measured at any point, one cell a point."""
    tables = []
    for arm in data["arms"]:
        told = [point["arms"].get(arm, {}) for point in data["points"]]
        rows = [(entry.name, [spread_words(metrics.get(entry.name, {}), entry.unit) for metrics in told], entry.unit) for entry in METRICS]
        tables.append((label(arm), [row for row in rows if set(row[1]) != {"–"}]))
    return tables


def again(folder: Path, manifest: Mapping[str, Any]) -> str:
    """A command that repeats the sweep from the scenario in its folder."""
    return shlex.join(["sudo", "./testbed.sh", "run", str(folder / "scenario.yaml"), *overrides(manifest.get("scenario"))])
