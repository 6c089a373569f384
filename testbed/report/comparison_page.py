"""The part of a run's page that sets its arms side by side, as plain values for the template. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.report import comparison, comparison_tables, context, spare
from testbed.report.allowed import allowed_rows
from testbed.report.model import STREAMS
from testbed.report.reading import RunData
from testbed.report.spare import Spare

PICTURES = ("steps", "stalls", "lost")
"""The pictures of all arms that stand in this part, in this order."""


def comparison_of(data: RunData, summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """None for a run with one arm, and for a job of streams, which has no steps to compare."""
    if len(summary["arms"]) < 2 or summary["job"] == STREAMS:
        return None
    routed, routing_rows = comparison_tables.routing_rows(summary)
    return {
        **comparison.sentences(summary, spares(data)),
        "glance": comparison_tables.glance_rows(summary),
        "faults": comparison_tables.fault_rows(summary),
        "routed": [context.label(arm) for arm in routed],
        "routing": routing_rows,
        "allowed_arms": [context.label(run.arm) for run in context.first_runs(data)],
        "allowed": allowed_rows(data),
    }


def spares(data: RunData) -> dict[str, Spare]:
    """By fault, what the topology has to spare for the job's pairs, where that can be told."""
    topology = spare.topology_of(data.scenario)
    runs = [run for run in context.first_runs(data) if spare.job_pairs(run)]
    if topology is None or not runs:
        return {}
    found = ((fault.id, spare.spare_under(topology, runs[0], fault)) for fault in runs[0].faults)
    return {fault: told for fault, told in found if told is not None}
