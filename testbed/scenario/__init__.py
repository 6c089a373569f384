"""Scenario files: schema, loading with all errors at once, the drawn fault list."""

from testbed.scenario.churn import draw
from testbed.scenario.faults import Drawn, Fault, read_faults, write_faults
from testbed.scenario.load import load, load_text
from testbed.scenario.model import Scenario, arm_duration_s, total_duration_s
from testbed.scenario.problems import Problem, ScenarioInvalid

__all__ = [
    "Drawn",
    "Fault",
    "Problem",
    "Scenario",
    "ScenarioInvalid",
    "arm_duration_s",
    "draw",
    "load",
    "load_text",
    "read_faults",
    "total_duration_s",
    "write_faults",
]
