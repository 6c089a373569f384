"""Goodput of a job of steps, and by how much short bursts can flatter it. Pure functions on plain data."""

from __future__ import annotations

import statistics as stdlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from testbed.link_settings import ETHERNET_HEADER_BYTES
from testbed.report.goodput import payload_share
from testbed.report.model import ArmRun, JobStep, StepRow, link_tier

SENT_SHARES = {"all-reduce": 2.0, "all-to-all": 1.0}  # of (N - 1) / N of the vector: what a rank sends a step


def job_goodput_bps(run: ArmRun, steps: Sequence[JobStep]) -> float | None:
    """Useful bytes that a rank sends in all useful steps, by the time that these took less their compute; None for streams.

    A step that the run's end cut short brings no bytes. Its time counts if it is already longer than the median, so that a transfer that
    hangs until the end cannot hide. Crashes are not in it: how long they last is the scenario's `restart`. A whole run in which no step at
    all was completed has a goodput of 0.
    """
    sent_bytes = step_bytes(run)
    useful = _transfer_s(run, [step for step in steps if step.complete and step.useful])
    cut = _transfer_s(run, [step for step in steps if step.cut == "run end"])
    if sent_bytes is None:
        return None
    if not useful:
        whole = run.info.get("interrupted") is False and not run.info.get("error")
        return 0.0 if whole and run.duration_s > 0 else None
    median_s = stdlib.median(useful)
    seconds = sum(useful) + sum(time_s for time_s in cut if time_s > median_s)
    return sent_bytes * 8 * len(useful) / seconds if seconds > 0 else None


def _transfer_s(run: ArmRun, steps: Iterable[JobStep]) -> list[float]:
    """The time of each step without its compute; 0 for a step that was still computing."""
    computed = _compute_s(run.steps)
    return [step.time_s - computed.get((step.attempt, step.step), step.time_s if computed else 0.0) for step in steps]


def step_bytes(run: ArmRun) -> float | None:
    """What a rank sends a step, in bytes of payload; None for streams, or if the job is not known."""
    vector_bytes, ranks = run.job.get("vector_bytes"), len({row.rank for row in run.steps})
    factor = SENT_SHARES.get(str(run.job.get("kind") or "all-reduce"))
    if run.streams or factor is None or not isinstance(vector_bytes, int) or vector_bytes <= 0 or ranks < 2:
        return None
    return factor * (ranks - 1) / ranks * vector_bytes


def burst_share(run: ArmRun) -> float | None:
    """The share of what a rank sends a step that its links may let pass at once: by so much its time can beat the links' rate.

    A link that was idle (in the compute phase) has a full token bucket: `burst_bytes`, and a packet more, for HTB lets a bucket go below 0
    once. None if the fabric does not tell.
    """
    fabric, sent_bytes, payload = run.info.get("fabric"), step_bytes(run), payload_share(run)
    told = [fabric.get(name) for name in ("burst_bytes", "mtu_bytes")] if isinstance(fabric, Mapping) else []
    sizes = [float(part) for part in told if isinstance(part, int | float) and part > 0]
    if sent_bytes is None or payload is None or len(sizes) < 2:
        return None
    ports = Counter(link.partition("-")[0] for link in {counter.link for counter in run.links} if link_tier(link) == "NIC-T0")
    at_once = (sum(sizes) + ETHERNET_HEADER_BYTES) * max(ports.values(), default=1)
    return at_once * payload / sent_bytes


def _compute_s(rows: Iterable[StepRow]) -> dict[tuple[int, int], float]:
    """Median over the ranks of each step's compute time, by (attempt, step)."""
    seen: dict[tuple[int, int], list[float]] = {}
    for row in rows:
        if row.compute_end_s is not None:
            seen.setdefault((row.attempt, row.step), []).append(row.compute_end_s - row.start_s)
    return {key: stdlib.median(told) for key, told in seen.items()}
