"""Merges what the agents of one arm and repeat wrote into the run's files, on one clock that starts with the job.

Input: ``agents/<host>.events.jsonl|steps.csv|flows.csv|paths.csv`` with raw CLOCK_MONOTONIC seconds. Output, in the folder above: the
files of the same kind in docs/architecture.md, "Files of a run", whose times are seconds since the job's start.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hosts.recorder import HEADERS
from testbed.files import write_text

STEPS_COLUMNS, FLOWS_COLUMNS, PATHS_COLUMNS = (tuple(HEADERS[kind].strip().split(",")) for kind in ("steps", "flows", "paths"))

# Fields of an agent's event that are points in time (not durations) and therefore move to the job's clock with the event.
POINTS_IN_TIME = ("last_tx_s", "first_lost_tx_s")


@dataclass
class _Damage:
    """What could not be used, by file name: lines cut short by a killed agent, and lines that make no sense."""

    lines: dict[str, int] = field(default_factory=dict)

    def count(self, path: Path) -> None:
        """Counts one unusable line of `path`."""
        self.lines[path.name] = self.lines.get(path.name, 0) + 1


def merge(arm_repeat_dir: Path, start_mono: float, extra_events: Iterable[Mapping[str, Any]]) -> None:
    """Writes events.jsonl, steps.csv, flows.csv and paths.csv of `arm_repeat_dir` from its ``agents/`` folder.

    `start_mono` is the job's start in CLOCK_MONOTONIC seconds. An extra event (faults, run, netlink) carries either ``t_s``, already
    relative, and is kept as it is, or a raw ``t``, which is converted. Lines that cannot be used, such as the truncated last line of a
    killed agent, are left out, and an event ``damaged_lines`` of source ``run`` says how many of which file.
    """
    agents, damage = arm_repeat_dir / "agents", _Damage()
    _merge_table(agents, "steps", STEPS_COLUMNS, _shift(start_mono, "start_s", "compute_end_s", "end_s"), arm_repeat_dir, damage)
    for kind, columns in (("flows", FLOWS_COLUMNS), ("paths", PATHS_COLUMNS)):
        _merge_table(agents, kind, columns, _shift(start_mono, "t_s"), arm_repeat_dir, damage)
    events = [relative_event(event, start_mono) for event in (*_agent_events(agents, damage), *extra_events)]
    events += [_damage_event(name, lines, events) for name, lines in damage.lines.items()]
    events.sort(key=lambda event: float(event["t_s"]))
    write_text(arm_repeat_dir / "events.jsonl", "".join(json.dumps(event, allow_nan=False) + "\n" for event in events))


def relative_event(event: Mapping[str, Any], start_mono: float) -> dict[str, Any]:
    """The event on the job's clock: a raw ``t`` becomes ``t_s`` and the points in time among its fields move with it."""
    if "t" not in event:
        return _finite(dict(event))
    fields = {key: value for key, value in event.items() if key != "t"}
    for name in POINTS_IN_TIME:
        if isinstance(fields.get(name), int | float):
            fields[name] = round(fields[name] - start_mono, 6)
    return _finite({"t_s": round(float(event["t"]) - start_mono, 6), **fields})


def _finite(event: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no NaN: such a value becomes null."""
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in event.items()}


def _damage_event(name: str, lines: int, events: list[dict[str, Any]]) -> dict[str, Any]:
    last_s = max((float(event["t_s"]) for event in events), default=0.0)
    return {"t_s": last_s, "source": "run", "event": "damaged_lines", "file": name, "lines": lines}


def _agent_events(agents: Path, damage: _Damage) -> Iterator[dict[str, Any]]:
    for path in sorted(agents.glob("*.events.jsonl")):
        host = path.name.removesuffix(".events.jsonl")
        for line in _whole_lines(path, damage):
            event = _parse_event(line)
            if event is None:
                damage.count(path)
            else:
                yield {"t": event.pop("t"), "source": event.pop("source", host), **event}


def _parse_event(line: str) -> dict[str, Any] | None:
    """The event of one line, or None if the line is no JSON object with a numeric `t` and an `event`."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    usable = isinstance(event, dict) and isinstance(event.get("t"), int | float) and "event" in event
    return event if usable else None


def _merge_table(
    agents: Path, kind: str, columns: tuple[str, ...], convert: Callable[[dict[str, str]], dict[str, str]], out: Path, damage: _Damage
) -> None:
    rows: list[dict[str, str]] = []
    for path in sorted(agents.glob(f"*.{kind}.csv")):
        rows.extend(_table_rows(path, kind, columns, convert, damage))
    order = "start_s" if "start_s" in columns else "t_s"
    rows.sort(key=lambda row: float(row[order]))
    lines = [",".join(columns), *(",".join(row[column] for column in columns) for row in rows)]
    write_text(out / f"{kind}.csv", "\n".join(lines) + "\n")


def _table_rows(
    path: Path, kind: str, columns: tuple[str, ...], convert: Callable[[dict[str, str]], dict[str, str]], damage: _Damage
) -> Iterator[dict[str, str]]:
    lines = list(_whole_lines(path, damage))
    header = lines[0].split(",") if lines else []
    for cells in csv.reader(lines[1:], quoting=csv.QUOTE_NONE):
        if cells == header:  # an agent that was configured anew appended its header again
            continue
        if len(cells) != len(header):
            damage.count(path)
            continue
        try:
            row = convert(_named(header, cells, path.name.removesuffix(f".{kind}.csv")))
            yield {column: row[column] for column in columns}
        except (KeyError, ValueError):
            damage.count(path)


def _named(header: list[str], cells: list[str], host: str) -> dict[str, str]:
    """The row by column name; an agent may call the raw time `t` and leave its own name out."""
    row = {"host": host, **dict(zip(header, cells, strict=True))}
    if "t" in row:
        row["t_s"] = row.pop("t")
    return row


def _shift(start_mono: float, *names: str) -> Callable[[dict[str, str]], dict[str, str]]:
    """A function that moves the named columns to the job's clock; an empty cell stays empty (unfinished)."""

    def convert(row: dict[str, str]) -> dict[str, str]:
        moved = {name: f"{float(row[name]) - start_mono:.6f}" if row[name] else "" for name in names}
        return {**row, **moved}

    return convert


def _whole_lines(path: Path, damage: _Damage) -> Iterator[str]:
    """The complete lines of a file; a last line without its end of line was cut by the agent's death and is counted."""
    text = path.read_text(encoding="utf-8", errors="replace")
    *whole, rest = text.split("\n")
    if rest:
        damage.count(path)
    yield from (line for line in (line.rstrip("\r") for line in whole) if line)
