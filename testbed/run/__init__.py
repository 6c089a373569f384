"""One run of a scenario: arms, repeats, agents, verdict."""

from testbed.run.session import RunOutcome, run_scenario

__all__ = ["RunOutcome", "run_scenario"]
