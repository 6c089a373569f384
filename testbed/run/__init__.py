"""One run of a scenario: arms, repeats, agents, verdict."""

from testbed.run.session import RunOutcome, run_scenario
from testbed.run.sweep import run_sweep

__all__ = ["RunOutcome", "run_scenario", "run_sweep"]
