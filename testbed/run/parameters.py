"""What an arm's transport is told: what the scenario gives, on top of what the fabric implies."""

from __future__ import annotations

from typing import Any

from testbed.scenario import Scenario
from testbed.scenario.derived_links import TRANSPORT_OF_ARM


def given_parameters(scenario: Scenario, arm: str) -> dict[str, Any]:
    """Named parameters that differ from the transport's defaults. MRC knows its link's rate, as a NIC does, and whether switches trim."""
    transport = TRANSPORT_OF_ARM[arm]
    settings = scenario.link_settings(arm)
    implied = {"link_rate_bps": settings.rate_bps, "trimming": settings.trimming} if transport == "mrc" else {}
    return {**implied, **scenario.transport.get(transport, {})}
