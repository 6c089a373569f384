"""`testbed converge SCENARIO`: how long routing needs after each fault, for each profile, on probe traffic and on FIBs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.engine import again_in_sandbox, writable
from testbed.cli.options import json_option, results_option
from testbed.cli.output import Output, quiet_stdout, table
from testbed.cli.progress import reporting
from testbed.converge import plan as plans
from testbed.converge.plan import Plan, Trial
from testbed.converge.profiles import PROFILES
from testbed.scenario import Drawn, draw, load
from testbed.scenario.builtin import find
from testbed.units import counted, format_duration

if TYPE_CHECKING:
    from testbed.run.session import RunOutcome


@click.command()
@click.argument("scenario")
@click.option("--profile", "profiles", type=click.Choice(list(PROFILES)), multiple=True, help="Only this one (repeatable); default: all.")
@click.option(
    "--repeats", type=click.IntRange(1, 100), default=plans.DEFAULT_REPEATS, show_default=True, help="How often each fault comes."
)
@click.option(
    "--probe-rate", type=click.IntRange(1, plans.MAX_RATE_PER_S), default=plans.DEFAULT_RATE_PER_S, show_default=True,
    help="Probes a second of each stream.",
)  # fmt: skip
@click.option("--flows", type=click.IntRange(2, plans.MAX_FLOWS), default=plans.DEFAULT_FLOWS, show_default=True, help="Streams of probes.")
@click.option("--seed", type=click.IntRange(0), metavar="S", help="Seed of all random draws.")
@click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help="Replace a value, as faults[0].for=3s (repeatable).")
@click.option("--dry-run", is_flag=True, help="Only show profiles, faults and time; needs no root.")
@results_option
@json_option
def converge(
    scenario: str,
    profiles: tuple[str, ...],
    repeats: int,
    probe_rate: int,
    flows: int,
    seed: int | None,
    sets: tuple[str, ...],
    dry_run: bool,
    results: Path,
    as_json: bool,
) -> Output:
    """Measure how long routing needs after each fault of a scenario, without a job; needs root."""
    chosen = [*sets, *([f"seed={seed}"] if seed is not None else [])]
    names = list(dict.fromkeys(profiles)) or list(PROFILES)
    plan, drawn = planned(scenario, chosen, names, repeats=repeats, rate_per_s=probe_rate, flows=flows)
    if dry_run:
        return Output({"dry_run": True, **plan.as_dict()}, plan_lines(plan))
    return _measure(plan, drawn, results)


def planned(scenario: str, sets: Sequence[str], names: Sequence[str], *, repeats: int, rate_per_s: int, flows: int) -> tuple[Plan, Drawn]:
    """The plan and the drawn faults: each profile is the scenario with one more override, checked as if it stood in the file."""
    path = find(scenario)
    overrides = {name: [PROFILES[name].override] if PROFILES[name].override else [] for name in names}
    trials = [Trial(PROFILES[name], load(path, [*sets, *overrides[name]])) for name in names]
    drawn = draw(trials[0].scenario)
    return plans.make(trials, drawn, repeats=repeats, rate_per_s=rate_per_s, flows=flows), drawn


def _measure(plan: Plan, drawn: Drawn, results: Path) -> Output:
    from testbed import sandbox

    sandbox.require_root()
    results = writable(results)
    if not sandbox.inside():
        return again_in_sandbox({trial.profile.arm for trial in plan.trials})
    sandbox.prepare(keep=[results])
    from testbed.converge.session import measure

    with quiet_stdout(), reporting() as reporter:
        reporter.note(plan_lines(plan)[-1])
        outcome = measure(plan, drawn, results, reporter=reporter)
    return answer(outcome)


def answer(outcome: RunOutcome) -> Output:
    """What a measurement says when it is over."""
    content, folder = outcome.summary, str(outcome.folder)
    data = {"run": folder, "exit_code": outcome.exit_code, "problems": outcome.problems, **content}
    return Output(data, [*result_lines(content), f"results: {folder}", *outcome.problems], outcome.exit_code)


def plan_lines(plan: Plan) -> list[str]:
    """The plan for people."""
    scenario, told = plan.scenario, plan.as_dict()
    faults = [(fault.id, fault.kind, fault.target, f"lasts {format_duration(fault.for_s)}") for fault in plan.faults]
    skipped = [f"  not measured: {fault.id} ({fault.kind} on {fault.target}): {why}" for fault, why in plan.skipped]
    streams = f"{counted(plan.flows, 'stream')}, each {plan.rate_per_s} a second (resolution {format_duration(plan.gap_s)})"
    return [
        f"{scenario.name}: {scenario.title}",
        f"profiles: {', '.join(told['profiles'])}; repeats: {plan.repeats}; seed: {scenario.seed}",
        f"probes: {streams}",
        "faults, each by itself:",
        *(f"  {line}" for line in table(faults)),
        *skipped,
        f"time: {counted(plan.repeats * len(plan.trials), 'fabric')}, {counted(len(plan.faults), 'fault')} on each: "
        f"about {format_duration(told['expected_s'])} in all",
    ]


def result_lines(content: Mapping[str, Any]) -> list[str]:
    """A table a fault and phase; medians, ranges in brackets."""
    from testbed.report.converge_words import TABLE_HEAD, headings, table_row

    lines: list[str] = []
    for heading, rows in headings(content["rows"]):
        lines += [heading, *(f"  {line}" for line in table([TABLE_HEAD, *map(table_row, rows)])), ""]
    return lines or ["nothing was measured"]
