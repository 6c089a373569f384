"""From the files of a run to numbers, pictures and one self-contained report."""

from testbed.report.html import write_report
from testbed.report.metrics import METRIC_NAMES, METRICS, Metric
from testbed.report.plots import write_plots
from testbed.report.summary import summarise, write_summary
from testbed.report.verdict import Verdict, judge

__all__ = ["METRICS", "METRIC_NAMES", "Metric", "Verdict", "judge", "summarise", "write_plots", "write_report", "write_summary"]
