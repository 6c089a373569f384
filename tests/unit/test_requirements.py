"""Which arms a missing program stops."""

from __future__ import annotations

import pytest

from testbed.requirements import PROGRAMS, SWITCHING_OF_PURPOSE, Check, _program
from testbed.scenario.schema import ARMS


def missing(purpose: str, required: bool) -> Check:
    return _program(("no-such-program", "no-such-package", purpose, required))


@pytest.mark.parametrize(
    ("purpose", "required", "stopped"),
    [
        ("the MRC arm's switches", True, {"mrc", "mrc-no-trim", "rc-bgp-ovs", "rc-static"}),
        ("the BGP arm", False, {"rc-bgp", "mrc-bgp", "tcp-bgp"}),
        ("sandbox", True, set(ARMS)),
        ("some commands of Mininet's prompt", False, set()),
    ],
)
def test_a_missing_program_stops_every_arm_that_needs_it_and_no_other(purpose: str, required: bool, stopped: set[str]) -> None:
    check = missing(purpose, required)
    assert {arm for arm in ARMS if check.stops([arm])} == stopped


def test_programs_are_told_apart_by_purposes_that_programs_have() -> None:
    assert set(SWITCHING_OF_PURPOSE) <= {purpose for _, _, purpose, _ in PROGRAMS}
