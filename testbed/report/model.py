"""The data that the statistics work on: one arm and repeat as plain values. Pure; `reading` fills it from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Event = Mapping[str, Any]
Series = tuple[tuple[float, float], ...]  # (t_s, cumulative count), in order of time
# Kinds of fault that lose no packet: `rate` only slows a link down, `host-slow` a host, and tables outlive their controller. No path is
# worth leaving for them.
LOSSLESS_KINDS = frozenset({"rate", "host-slow", "controller-kill"})
STREAMS = "streams"  # the kind of job without steps, as arm.json and the scenario name it


@dataclass(frozen=True)
class StepRow:
    """One step of one rank. `end_s` None = unfinished when the run ended or crashed; `ok` None = unknown for the same reason.

    `compute_end_s` None = not known.
    """

    attempt: int
    step: int
    rank: int
    start_s: float
    end_s: float | None
    ok: bool | None
    compute_end_s: float | None = None


@dataclass(frozen=True)
class FaultInterval:
    """One fault as it happened in one arm and repeat. Times are seconds since the job's start, None = did not happen.

    `links` are the names of all links that it touches (a switch's: all of its links); empty in old files, and for a fault of a host.
    `params` are the kind's own: `from` (the node whose packets are hit; without it both ways are), `evs` (the only EVs that are hit), ...
    """

    id: str
    kind: str
    target: str
    target_type: str
    tier: str
    planned_s: float
    planned_end_s: float
    issued_s: float | None
    effective_s: float | None
    end_s: float | None
    links: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def happened(self) -> bool:
        """Whether the history knows a beginning of it."""
        return self.effective_s is not None or self.issued_s is not None

    @property
    def begin_s(self) -> float:
        """When it took effect; when it was issued or planned, if no effect was recorded."""
        return next(time for time in (self.effective_s, self.issued_s, self.planned_s) if time is not None)

    @property
    def from_s(self) -> float:
        """The earliest it may have had any effect: when it was issued. The effect is confirmed a little after it begins."""
        return min(self.begin_s, self.begin_s if self.issued_s is None else self.issued_s)

    def until_s(self, duration_s: float) -> float:
        """When it was over; the run's end if no end was recorded."""
        return duration_s if self.end_s is None else self.end_s

    @property
    def loses(self) -> bool:
        """Whether it loses packets, so that an EV whose path it hits is rightly retired."""
        return self.kind not in LOSSLESS_KINDS

    def touches(self, link: str, from_node: str | None = None) -> bool:
        """Whether it acts on a link; with `from_node`, whether on what that end sends."""
        sender = self.params.get("from")
        if sender is not None and from_node is not None and from_node != sender:
            return False
        if self.links:
            return link in self.links
        return self.target in link.split("-") if self.target_type == "switch" else self.target == link

    def hits(self, path: Sequence[str], ev: int | None = None) -> bool:
        """Whether it acts on what is sent over a path (link names in order), or on what comes back; `ev`: the number of the EV."""
        return bool(self.way(path, ev))

    def way(self, path: Sequence[str], ev: int | None = None) -> str:
        """What of a path's traffic it acts on: "data", "return" (acknowledgements), "both"; empty for nothing."""
        evs = self.params.get("evs")
        if isinstance(evs, list | tuple) and evs and ev is not None and ev not in evs:
            return ""
        met = [number for number, link in enumerate(path) if self.touches(link)]
        sender = self.params.get("from")
        if not met or sender is None:
            return "both" if met else ""
        ways = {"data" if sending_end(path, number) == sender else "return" for number in met}
        return "both" if len(ways) > 1 else ways.pop()


def sending_end(path: Sequence[str], number: int) -> str:
    """The node that sends on the path's link `number` in the direction of the path; empty if the path does not tell."""
    ends = path[number].split("-")
    if number > 0:
        return next((end for end in ends if end in path[number - 1].split("-")), "")
    onward = path[1].split("-") if len(path) > 1 else ends
    return next((end for end in ends if end not in onward), "")


def link_tier(link: str) -> str:
    """NIC-T0, T0-T1, T1-T2: by the names of switches (docs/architecture.md), of which the lower comes first in a link's name."""
    low, _, high = link.partition("-")
    upper = high.partition("_")[0].upper()
    return f"{low.partition('_')[0].upper() if '_' in low else 'NIC'}-{upper}"


@dataclass(frozen=True)
class JobStep:
    """One step of the whole job: over when its slowest rank was done. `cut` = "crash" or "run end" if it was never finished.

    `time_s` is the time since the previous step of the same attempt was over, or since the attempt began; for a step that was cut, up
    to then.
    """

    attempt: int
    step: int
    start_s: float
    end_s: float
    cut: str = ""
    useful: bool = True

    @property
    def time_s(self) -> float:
        """Seconds that the job spent in this step."""
        return self.end_s - self.start_s

    @property
    def complete(self) -> bool:
        """Whether every rank finished it."""
        return not self.cut


@dataclass(frozen=True)
class LinkCounter:
    """The counters of one link direction: at the run's end, and over time since the job's start.

    `dropped` is what faults and random loss took; `outcomes` holds queue_dropped_packets, marked_packets, trimmed_packets, where the file
    has them.
    """

    link: str
    from_node: str
    tx_packets: float
    tx_bytes: float
    dropped: Series = ()
    sent: Series = ()
    octets: Series = ()
    outcomes: Mapping[str, Series] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class QpSeries:
    """One sending QP over time, an array a column of flows.csv; counters are cumulative and go on over a crash."""

    host: str
    peer: str
    t_s: NDArray[np.float64]
    tx_packets: NDArray[np.float64]
    rtx_packets: NDArray[np.float64]
    acked_bytes: NDArray[np.float64]
    cwnd_packets: NDArray[np.float64]


@dataclass(frozen=True)
class StreamFlow:
    """One flow of a job of streams, as planned: on from `at_s` for `for_s` (None: to the run's end). Role: flow, incast, victim."""

    source: str
    target: str
    at_s: float
    for_s: float | None
    role: str = "flow"


@dataclass(frozen=True)
class ArmRun:
    """One arm and repeat. Missing files leave their part empty and a sentence in `problems`."""

    arm: str
    repeat: int
    duration_s: float
    steps: Sequence[StepRow] = ()
    faults: Sequence[FaultInterval] = ()
    events: Sequence[Event] = ()
    links: Sequence[LinkCounter] = ()
    agents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    job: Mapping[str, Any] = field(default_factory=dict)
    flows: tuple[StreamFlow, ...] = ()
    qps: Sequence[QpSeries] = ()

    @property
    def streams(self) -> bool:
        """Whether its job is one of streams, which has no steps."""
        return self.job.get("kind") == STREAMS

    @property
    def rate_bps(self) -> float | None:
        """The links' rate, as the fabric tells it; None if it does not."""
        fabric = self.info.get("fabric")
        told = fabric.get("rate_bps") if isinstance(fabric, Mapping) else None
        return float(told) if isinstance(told, int | float) and told > 0 else None

    @property
    def lossy_tiers(self) -> frozenset[str]:
        """The tiers whose links lose packets by chance all the time (`links.loss`), as the fabric tells them."""
        told: Any = self.info
        for name in ("fabric", "link_program", "loss_by_tier"):
            told = told.get(name) if isinstance(told, Mapping) else None
        shares = told.items() if isinstance(told, Mapping) else ()
        return frozenset(str(tier) for tier, share in shares if isinstance(share, int | float) and share > 0)

    def named(self, *names: str) -> list[Event]:
        """The events with one of these names, in order of time."""
        return [event for event in self.events if event.get("event") in names]
