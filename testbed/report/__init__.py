"""From the files of a run to numbers, pictures and one self-contained report.

Drawing needs matplotlib, which takes a second to import, so it is imported only when something is drawn. Reading needs NumPy: whoever only
wants to know the metrics' names, as the check of a scenario, does not wait for it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from testbed.report.metrics import METRIC_NAMES, METRICS, Metric
from testbed.report.verdict import Verdict, judge

__all__ = [
    "METRICS",
    "METRIC_NAMES",
    "Metric",
    "Verdict",
    "judge",
    "summarise",
    "write_converge",
    "write_plots",
    "write_report",
    "write_results",
    "write_summary",
    "write_sweep",
]


def summarise(run_dir: Path) -> dict[str, Any]:
    """The content of summary.json; nothing is written. UsageError if the folder is no run."""
    from testbed.report import summary

    return summary.summarise(run_dir)


def write_summary(run_dir: Path) -> dict[str, Any]:
    """Writes summary.json, and returns its content. UsageError if the folder is no run."""
    from testbed.report import summary

    return summary.write_summary(run_dir)


def write_results(run_dir: Path) -> dict[str, Any]:
    """Writes summary.json, plots/ and report.html of a run, and returns the content of the first: the run is read, and drawn, once."""
    from testbed.report import html, plots, reading
    from testbed.report.summary import write_summary_of

    data = reading.read_run(run_dir)
    summary = write_summary_of(data)
    pictures = {path.stem: path.read_bytes() for path in plots.write_figures(data, summary) if path.suffix == ".png"}
    html.write_page(data, summary, pictures)
    return summary


def write_plots(run_dir: Path) -> list[Path]:
    """Writes plots/<name>.png (150 dpi) and .svg; returns their paths. UsageError if the folder is no run or sweep."""
    if is_converge(run_dir):
        from testbed.report import converge_html

        return converge_html.write_pictures(run_dir, converge_html.read(run_dir))
    if is_sweep(run_dir):
        from testbed.report import sweep_data, sweep_html

        return sweep_html.write_pictures(run_dir, sweep_data.read_sweep(run_dir))
    from testbed.report import plots

    return plots.write_plots(run_dir)


def write_report(run_dir: Path) -> Path:
    """Writes report.html and returns its path. What is missing is said in the report; UsageError if the folder is no run or sweep."""
    if is_converge(run_dir):
        return write_converge(run_dir)
    if is_sweep(run_dir):
        write_sweep(run_dir)
        return run_dir / "report.html"
    from testbed.report import html

    return html.write_report(run_dir)


def write_sweep(folder: Path) -> dict[str, Any]:
    """Writes sweep.json, the picture and report.html of a sweep, from its points; returns the content of the first."""
    from testbed.report import sweep_html

    return sweep_html.write_sweep(folder)


def is_sweep(folder: Path) -> bool:
    """Whether a folder is that of a sweep, whose points are the runs; a damaged manifest says no."""
    return _kind(folder) == "sweep"


def is_converge(folder: Path) -> bool:
    """Whether a folder is that of a measurement of convergence; a damaged manifest says no."""
    return _kind(folder) == "converge"


def _kind(folder: Path) -> object:
    """What a folder's manifest calls it; None of a run, or of a damaged one."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return manifest.get("kind") if isinstance(manifest, dict) else None


def write_converge(folder: Path) -> Path:
    """Writes the pictures and report.html of a measurement of convergence, from its converge.json; returns the page's path."""
    from testbed.report import converge_html

    return converge_html.write_report(folder)
