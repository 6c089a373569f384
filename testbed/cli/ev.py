"""`testbed ev`: the administrator's denylist of the run that is going on (docs/denylist.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from testbed.cli.options import json_option, results_option
from testbed.cli.output import Output, table
from testbed.cli.targets import find_run
from testbed.control import NAME, Request, ask, check, is_live
from testbed.errors import HostError, UsageError
from testbed.scenario.schema_faults import EV_LIMIT
from testbed.units import counted

F = TypeVar("F", bound=Callable[..., Any])
COLUMNS = ("host", "peer", "ev", "state", "tx_packets", "lost_packets", "path")

EV_NUMBER = click.IntRange(0, EV_LIMIT - 1)
run_option = click.option("--run", "run", metavar="RUN", help="A run's folder or a scenario's name; by default the run that is going on.")


@click.group()
def ev() -> None:
    """Take EVs (paths) of the run that is going on out of use, and allow them again; needs root."""


def _which_evs(command: F) -> F:
    """--link, or --host, --peer and --ev; which run; --json."""
    for option in (
        json_option,
        results_option,
        run_option,
        click.option("--ev", "evs", type=EV_NUMBER, metavar="N", multiple=True, help="The number of an EV (repeatable)."),
        click.option("--peer", metavar="HOST", help="... towards this host."),
        click.option("--host", metavar="HOST", help="EVs of this sender,"),
        click.option("--link", "links", metavar="LINK", multiple=True, help="Every EV whose path has this link (repeatable)."),
    ):
        command = option(command)
    return command


@ev.command("deny")
@_which_evs
def deny(as_json: bool, **asked: Any) -> Output:
    """Take EVs out of use: nothing is sent on them, not even probes, until they are allowed."""
    return _change("deny", **asked)


@ev.command("allow")
@_which_evs
def allow(as_json: bool, **asked: Any) -> Output:
    """Allow EVs that were denied."""
    return _change("allow", **asked)


def _change(
    do: str, links: tuple[str, ...], host: str | None, peer: str | None, evs: tuple[int, ...], run: str | None, results: Path
) -> Output:
    request = Request(do, links, host, peer, evs)
    check(request)
    folder = _folder(run, results)
    answer = ask(folder, {"do": do, **request.asked()})
    return Output({"run": str(folder), **_told(answer)}, _change_lines(do, answer["evs"]))


def _change_lines(do: str, evs: Mapping[str, Mapping[str, list[int]]]) -> list[str]:
    word = {"deny": "denied", "allow": "allowed"}[do]
    lines = [f"{word} from {host} to {peer}: EV {', '.join(map(str, told))}" for host, peers in evs.items() for peer, told in peers.items()]
    return lines or [f"nothing is {word}: no EV of this job is concerned"]


@ev.command("list")
@click.option("--host", metavar="HOST", help="Only EVs of this sender.")
@run_option
@results_option
@json_option
def list_evs(host: str | None, run: str | None, results: Path, as_json: bool) -> Output:
    """Show every EV of the run that is going on, with its state."""
    folder = _folder(run, results)
    answer = ask(folder, {"do": "list", "host": host})
    rows = [[_cell(row.get(column)) for column in COLUMNS] for row in answer["evs"]]
    head = [f"{folder}: arm {answer['arm']}, repeat {answer['repeat']}, {counted(len(rows), 'EV')}"]
    return Output({"run": str(folder), **_told(answer)}, [*head, *table([[column.upper() for column in COLUMNS], *rows])])


def _cell(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _told(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {key: answer[key] for key in ("arm", "repeat", "evs")}


def _folder(run: str | None, results: Path) -> Path:
    """The folder of the control socket: of the run that is named, else of the only one that is going on. HostError if there is none."""
    if run is not None:
        try:
            folder = find_run(run, results)
        except UsageError as error:
            raise HostError(str(error)) from error  # the words are right, but there is no such run
        return folder.parent if (folder.parent / NAME).exists() and not (folder / NAME).exists() else folder  # a point of a sweep
    live = sorted({socket.parent.resolve() for socket in results.glob(f"*/*/{NAME}") if is_live(socket.parent)})
    if not live:
        raise HostError(f"no run is going on in {results}: start one with `testbed run`, or say where with --results or --run")
    if len(live) > 1:
        raise HostError(f"several runs are going on, say which with --run: {', '.join(map(str, live))}")
    return live[0]
