"""The CSV files of an arm and repeat: rows to plain data. A row that makes no sense is left out and counted."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from testbed.report.model import ArmRun, LinkCounter, QpSeries, Series, StepRow

Row = TypeVar("Row")
# Beyond any time in seconds, and any count: what is larger is damage, and would overflow the plots' axes.
MAX_NUMBER = 1e12
MAX_LINE_CHARACTERS = 10_000


def read_table(path: Path, parse: Callable[[Mapping[str, str]], Row]) -> tuple[list[Row], int]:
    """The rows of a CSV that `parse` accepts, and how many it did not (KeyError, ValueError, TypeError), or that are no rows at all."""
    rows: list[Row] = []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    sound = [line for line in lines if len(line) <= MAX_LINE_CHARACTERS and "\0" not in line]
    bad = len(lines) - len(sound)
    for row in csv.DictReader(sound, quoting=csv.QUOTE_NONE):  # so that a stray quote does not swallow the rest
        try:
            if None in row.values():
                raise ValueError("the row is shorter than the header")
            rows.append(parse(row))
        except (KeyError, ValueError, TypeError):
            bad += 1
    return rows, bad


def plausible(value: float) -> float:
    """The value itself; ValueError for NaN and for what is larger than anything in a run."""
    if not abs(value) <= MAX_NUMBER:  # also for NaN
        raise ValueError(f"{value} is no number that a run can have")
    return value


# --- steps.csv -----------------------------------------------------------------------------------------------------------------------


def step_row(row: Mapping[str, str]) -> StepRow:
    """One step of one rank."""
    ok = {"": None, "1": True, "true": True, "0": False, "false": False}[row["ok"].lower()]
    attempt, step, rank = (int(plausible(int(row[name]))) for name in ("attempt", "step", "rank"))
    return StepRow(attempt, step, rank, plausible(float(row["start_s"])), _time(row["end_s"]), ok, _time(row.get("compute_end_s", "")))


def _time(text: str) -> float | None:
    """A time in seconds; None for an empty cell, and for what no run can have."""
    value = float(text or "nan")
    return value if abs(value) <= MAX_NUMBER else None


# --- links.csv -----------------------------------------------------------------------------------------------------------------------

TAKEN = ("dropped_packets", "lost_packets", "ev_dropped_packets")  # what a fault or chance took
OUTCOMES = ("queue_dropped_packets", "marked_packets", "trimmed_packets")


class LinkRow(NamedTuple):
    """One sample of a link direction; `outcomes` in the order of OUTCOMES, None where the file has no such column."""

    link: str
    from_node: str
    t_s: float
    packets: float
    octets: float
    taken: float
    outcomes: tuple[float | None, ...]


def link_row(row: Mapping[str, str]) -> LinkRow:
    """One sample; the columns that old files lack may be absent."""
    t_s, packets, octets = (plausible(float(row[name])) for name in ("t_s", "tx_packets", "tx_bytes"))
    taken = plausible(float(row[TAKEN[0]])) + sum(plausible(float(row[name])) for name in TAKEN[1:] if name in row)
    outcomes = tuple(plausible(float(row[name])) if name in row else None for name in OUTCOMES)
    return LinkRow(row["link"], row["from_node"], t_s, packets, octets, taken, outcomes)


def link_counters(rows: Iterable[LinkRow]) -> list[LinkCounter]:
    """One entry a link direction; what happened before the job (its last sample before 0) is taken off."""
    directions: dict[tuple[str, str], list[LinkRow]] = {}
    for row in rows:
        directions.setdefault((row.link, row.from_node), []).append(row)
    return [_link_counter(sorted(samples, key=lambda row: row.t_s)) for samples in directions.values()]


def _link_counter(samples: Sequence[LinkRow]) -> LinkCounter:
    before = next((row for row in reversed(samples) if row.t_s <= 0.0), None)
    during = [row for row in samples if row.t_s > 0.0]
    last = samples[-1]

    def series(count: Callable[[LinkRow], float]) -> Series:
        base = count(before) if before else 0.0
        return tuple((row.t_s, max(0.0, count(row) - base)) for row in during)

    outcomes = {
        name: series(lambda row, number=number: row.outcomes[number] or 0.0)  # type: ignore[misc]
        for number, name in enumerate(OUTCOMES)
        if last.outcomes[number] is not None
    }
    return LinkCounter(
        last.link, last.from_node, last.packets - (before.packets if before else 0.0), last.octets - (before.octets if before else 0.0),
        series(lambda row: row.taken), series(lambda row: row.packets), series(lambda row: row.octets), outcomes,
    )  # fmt: skip


# --- paths.csv -----------------------------------------------------------------------------------------------------------------------


class PathRow(NamedTuple):
    """One sample of an EV: data packets sent on it so far."""

    t_s: float
    host: str
    peer: str
    ev: int
    packets: float


def path_row(row: Mapping[str, str]) -> PathRow:
    """One sample of an EV."""
    t_s, packets = (plausible(float(row[name])) for name in ("t_s", "tx_packets"))
    return PathRow(t_s, row["host"], row["peer"], int(plausible(int(row["ev"]))), packets)


def path_samples(folder: Path, run: ArmRun) -> list[PathRow]:
    """The samples of an arm and repeat of the run in `folder`; none without paths.csv."""
    path = folder / run.arm / str(run.repeat) / "paths.csv"
    return read_table(path, path_row)[0] if path.is_file() else []


# --- flows.csv -----------------------------------------------------------------------------------------------------------------------

QP_COUNTERS = ("tx_packets", "rtx_packets", "acked_bytes")
QP_UNREAD = ("trimmed_packets", "marked_packets")  # absent from old files; damage in them damages the row all the same


class QpRow(NamedTuple):
    """One sample of a sending QP; `numbers` are t_s, QP_COUNTERS, cwnd_packets."""

    host: str
    peer: str
    numbers: tuple[float, ...]


def qp_row(row: Mapping[str, str]) -> QpRow:
    """One sample of a QP."""
    numbers = tuple(plausible(float(row[name])) for name in ("t_s", *QP_COUNTERS, "cwnd_packets"))
    for name in QP_UNREAD:
        plausible(float(row.get(name, 0)))
    return QpRow(row["host"], row["peer"], numbers)


def qp_series(rows: Iterable[QpRow]) -> list[QpSeries]:
    """One entry a sending QP, in order of first sight."""
    qps: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for host, peer, numbers in rows:
        qps.setdefault((host, peer), []).append(numbers)
    return [_qp_series(host, peer, np.array(sorted(samples)).T) for (host, peer), samples in qps.items()]


def _qp_series(host: str, peer: str, columns: NDArray[np.float64]) -> QpSeries:
    t_s, tx, rtx, acked, cwnd = columns
    return QpSeries(host, peer, t_s, _unbroken(tx), _unbroken(rtx), _unbroken(acked), cwnd)


def _unbroken(counter: NDArray[np.float64]) -> NDArray[np.float64]:
    """A cumulative counter that starts anew after a crash, as one that goes on: a fall is a new start from 0."""
    steps = np.diff(counter, prepend=0.0)
    return np.asarray(np.cumsum(np.where(steps < 0, counter, steps)), dtype=np.float64)
