"""All findings of a run for its report's head. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.report.findings import detection_sentence, step_findings
from testbed.report.findings_streams import network_findings, stream_findings
from testbed.report.model import STREAMS


def findings(summary: Mapping[str, Any]) -> list[str]:
    """What the job saw, then what the network did."""
    if not summary["arms"]:
        return ["No arm was measured."]
    job = [*stream_findings(summary), detection_sentence(summary)] if summary["job"] == STREAMS else step_findings(summary)
    return [*job, *network_findings(summary)]
