"""The click commands. Each returns an Output; `main` writes it. The engine is imported inside the commands that need it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from testbed.cli import dryrun, engine, points
from testbed.cli import selftest as selftest_command
from testbed.cli.captures import capture_lines, capture_options, capture_plan
from testbed.cli.converge import converge
from testbed.cli.decode import decode as decode_command
from testbed.cli.ev import ev
from testbed.cli.options import json_option, results_option
from testbed.cli.output import Output, table
from testbed.cli.targets import find_run, resolve_fabric
from testbed.errors import TestbedError
from testbed.scenario import Drawn, Scenario, draw, load, read_faults, total_duration_s
from testbed.scenario.builtin import find, names
from testbed.scenario.schema import ARMS
from testbed.units import format_duration

F = TypeVar("F", bound=Callable[..., Any])

set_option = click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help="Replace a value, as job.vector=1MiB (repeatable).")
param_option = click.option("--param", "params", metavar="NAME=N", multiple=True, help="A parameter of the topology, as k=4 (repeatable).")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--debug", is_flag=True, help="Print the traceback of an internal error instead of writing it to a file.")
def cli(debug: bool) -> None:
    """Shows on an emulated AI fabric what MRC does when links fail, against BGP.

    Exit codes: 0 good; 1 an expectation was not met; 2 wrong usage or scenario; 3 this machine cannot do it; 4 the run is not valid;
    70 a bug of the testbed; 130 interrupted.
    """


@cli.command()
@json_option
def doctor(as_json: bool) -> Output:
    """Tell whether this machine can run the testbed, and what is missing."""
    return engine.doctor()


@cli.command()
@click.argument("topology", required=False)
@click.option("--arm", type=click.Choice(selftest_command.ARMS), default=selftest_command.ARMS[0], show_default=True, help="Whose links.")
@param_option
@json_option
def selftest(topology: str | None, arm: str, params: tuple[str, ...], as_json: bool) -> Output:
    """Measure whether emulated links do what they are asked to; needs root.

    Without TOPOLOGY on a small fabric of its own. With a topology, or a scenario, on that one, with the scenario's links.
    """
    return selftest_command.run(resolve_fabric(topology, params) if topology else None, arm)


@cli.command("list")
@json_option
def list_scenarios(as_json: bool) -> Output:
    """List the scenarios that come with the testbed."""
    rows = [_listed(name, path) for name, path in names().items()]
    head = ("NAME", "ARMS", "RUN", "ALL IN ALL", "TITLE")
    cells = [(row["name"], ",".join(row["arms"]), _time(row["duration_s"]), _time(row["expected_s"]), row["title"]) for row in rows]
    lines = table([head, *cells])
    return Output({"scenarios": rows}, lines)


def _listed(name: str, path: Path) -> dict[str, Any]:
    """A broken file does not hide the others."""
    try:
        scenario = load(path)
    except TestbedError as error:
        title = f"NOT VALID: see `testbed validate {name}`"
        return {"name": name, "title": title, "arms": [], "duration_s": None, "expected_s": None, "path": str(path), "error": str(error)}
    return {
        "name": name,
        "title": scenario.title,
        "arms": list(scenario.arms),
        "duration_s": scenario.run.duration_s,
        "expected_s": total_duration_s(scenario),
        "path": str(path),
    }


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(seconds)


@cli.command()
@click.argument("scenario")
@set_option
@json_option
def validate(scenario: str, sets: tuple[str, ...], as_json: bool) -> Output:
    """Check a scenario (a name or a file) without running it: all mistakes at once."""
    loaded = load(find(scenario), sets)
    drawn = [draw(single) for single in loaded.single_runs()]
    data = {"valid": True, "scenario": loaded.resolved(), "faults": len(drawn[0].faults), **points.points_data(loaded, drawn)}
    return Output(data, [points.valid_line(loaded, drawn)])


@cli.command()
@click.argument("scenario")
@click.option("--arm", "arms", metavar="A,B", help=f"Only these arms, of {', '.join(ARMS)}.")
@click.option("--repeat", type=click.IntRange(1, 100), metavar="N", help="Run every arm N times.")
@click.option("--seed", type=click.IntRange(0), metavar="S", help="Seed of all random draws.")
@set_option
@click.option("--faults", "faults_file", type=click.Path(path_type=Path), metavar="FILE", help="Replay the faults.json of another run.")
@capture_options
@click.option("--dry-run", is_flag=True, help="Only show nodes, links, rules, faults and time; needs no root.")
@click.option("-v", "--verbose", is_flag=True, help="With --dry-run: every node, link and rule.")
@results_option
@json_option
def run(
    scenario: str,
    arms: str | None,
    repeat: int | None,
    seed: int | None,
    sets: tuple[str, ...],
    faults_file: Path | None,
    pcap: tuple[str, ...],
    pcap_limit: str,
    pcap_snaplen: int | None,
    dry_run: bool,
    verbose: bool,
    results: Path,
    as_json: bool,
) -> Output:
    """Run a scenario (a name or a file) in a sandbox; needs root."""
    loaded = load(find(scenario), [*sets, *_selection(arms, repeat, seed)])
    drawn = [_drawn(single, faults_file) for single in loaded.single_runs()]
    capture = capture_plan(loaded, pcap, pcap_limit, pcap_snaplen)
    if dry_run:
        lines = [*points.dry_run_lines(loaded, drawn, verbose), *capture_lines(capture)]
        return Output(points.dry_run_data(loaded, drawn) | {"captures": capture.as_dict()}, lines)
    return engine.run(loaded, drawn, results, capture)


def _selection(arms: str | None, repeat: int | None, seed: int | None) -> list[str]:
    """--arm, --repeat and --seed as overrides, so that they are checked like the file's own values."""
    chosen = ", ".join(f'"{arm.strip()}"' for arm in arms.split(",")) if arms is not None else ""
    pairs = (("arms", f"[{chosen}]" if arms is not None else None), ("repeats", repeat), ("seed", seed))
    return [f"{key}={value}" for key, value in pairs if value is not None]


def _drawn(scenario: Scenario, faults_file: Path | None) -> Drawn:
    if faults_file is None:
        return draw(scenario)
    return read_faults(faults_file, scenario)


@cli.command()
@click.argument("run", metavar="RUN")
@results_option
@json_option
def plot(run: str, results: Path, as_json: bool) -> Output:
    """Draw the plots of a run again. RUN is a folder, `latest`, or a scenario's name (its latest run)."""
    return engine.plot(find_run(run, results))


@cli.command()
@click.argument("run", metavar="RUN")
@results_option
@json_option
def report(run: str, results: Path, as_json: bool) -> Output:
    """Write the report of a run again. RUN is a folder, `latest`, or a scenario's name (its latest run)."""
    return engine.report(find_run(run, results))


@cli.command()
@click.argument("topology")
@click.option("--arm", type=click.Choice(ARMS), default=ARMS[0], show_default=True, help="Which kind of switches.")
@param_option
def shell(topology: str, arm: str, params: tuple[str, ...]) -> Output:
    """Bring a topology (or a scenario's) up in a sandbox and open the Mininet prompt; needs root."""
    return engine.shell(resolve_fabric(topology, params), arm)


cli.add_command(decode_command)
cli.add_command(ev)
cli.add_command(converge)


@cli.group()
def topo() -> None:
    """Look at topologies, without root."""


@topo.command("show")
@click.argument("topology")
@param_option
@click.option("--paths", "pair", nargs=2, metavar="HOST HOST", help="All shortest paths of a pair, with their uSID lists.")
@json_option
def topo_show(topology: str, params: tuple[str, ...], pair: Sequence[str] | None, as_json: bool) -> Output:
    """Show a topology: fat-tree, multi-plane, or that of a scenario."""
    import topologies

    shown = resolve_fabric(topology, params).topology
    data, lines = topologies.to_dict(shown), dryrun.topology_lines(shown)
    if pair:
        data = {**data, "paths": dryrun.path_data(shown, pair)}
        lines = [*lines[:1], *dryrun.path_lines(shown, *pair)]
    return Output(data, lines)
