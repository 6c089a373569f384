"""The options of `run` that record packets, and what they mean for a scenario."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from testbed.capture.plan import WHOLE_BYTES, CapturePlan
from testbed.errors import UsageError
from testbed.scenario import Scenario
from testbed.units import UnitError, format_size, parse_size

F = TypeVar("F", bound=Callable[..., Any])
LEAST_SNAPLEN, MOST_SNAPLEN = 64, WHOLE_BYTES - 1


def capture_options(command: F) -> F:
    """Adds --pcap, --pcap-limit and --pcap-snaplen to a command."""
    options = (
        click.option("--pcap", metavar="TARGET", multiple=True, help="Record a link, node or port (h1:0), and explain it (repeatable)."),
        click.option("--pcap-limit", metavar="SIZE", default="20MB", show_default=True, help="The most that a capture may hold."),
        click.option(
            "--pcap-snaplen", type=click.IntRange(LEAST_SNAPLEN, MOST_SNAPLEN), metavar="BYTES", help="Keep no more of a packet than this."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def capture_plan(scenario: Scenario, names: tuple[str, ...], limit: str, snaplen: int | None) -> CapturePlan:
    """Checked against the topology of the scenario, or of each point of its sweep. UsageError before anything starts."""
    plan = CapturePlan(names, _size(limit), snaplen or WHOLE_BYTES)
    for single in scenario.single_runs() if names else ():
        plan.targets(single.build_topology())
    return plan


def _size(limit: str) -> int:
    try:
        return parse_size(limit)
    except UnitError as error:
        raise UsageError(f"--pcap-limit: {error}") from error


def capture_lines(plan: CapturePlan) -> list[str]:
    """What a run would record, for `--dry-run`; nothing when it would not."""
    kept = "" if plan.snaplen == WHOLE_BYTES else f", {plan.snaplen} B of a packet"
    told = f"captures: {', '.join(plan.names)}; each of {format_size(plan.limit_bytes)} at most{kept}, in every arm and repeat"
    return [told] if plan.names else []
