"""From the files of a run to numbers, pictures and one self-contained report.

Drawing needs matplotlib, which takes a second to import, so it is imported only when something is drawn.
"""

from __future__ import annotations

from pathlib import Path

from testbed.report.metrics import METRIC_NAMES, METRICS, Metric
from testbed.report.summary import summarise, write_summary
from testbed.report.verdict import Verdict, judge

__all__ = ["METRICS", "METRIC_NAMES", "Metric", "Verdict", "judge", "summarise", "write_plots", "write_report", "write_summary"]


def write_plots(run_dir: Path) -> list[Path]:
    """Writes plots/<name>.png (150 dpi) and .svg; returns their paths. UsageError if the folder is no run."""
    from testbed.report import plots

    return plots.write_plots(run_dir)


def write_report(run_dir: Path) -> Path:
    """Writes report.html and returns its path. What is missing is said in the report; UsageError if the folder is no run."""
    from testbed.report import html

    return html.write_report(run_dir)
