"""Goodput of each flow of a job of streams against its fair share. Pure functions on plain data.

Goodput counts payload that the receiver acknowledged. A link's rate is compared as what its full packets can carry of payload.
"""

from __future__ import annotations

import statistics as stdlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.link_settings import ETHERNET_HEADER_BYTES
from testbed.report.context import transport_parameters
from testbed.report.counters import Column, bin_edges, growth, middles
from testbed.report.fair_share import FairSpan, fair_spans, jain, mean_rate, on_between
from testbed.report.model import ArmRun, QpSeries, StreamFlow
from testbed.scenario.fit import header_bytes

SETTLE_S = 2.0  # a flow is judged from this long after its start, or from half of its time if it is on for less than twice that
MIN_SPAN_S = 0.5  # shorter spans give no figure: a message of 64 KiB alone takes a tenth of that at 10 Mbps

Span = tuple[float, float]


@dataclass(frozen=True)
class FlowGoodput:
    """What one flow got over the `span` in which it is judged (s), and what was fair; `share` = goodput / fair rate, None if unknown."""

    flow: StreamFlow
    span: Span
    goodput_bps: float
    fair_bps: float | None

    @property
    def share(self) -> float | None:
        """Goodput as a share of the fair rate."""
        return self.goodput_bps / self.fair_bps if self.fair_bps else None


# --- what a link can carry -----------------------------------------------------------------------------------------------------------


def payload_share(run: ArmRun) -> float | None:
    """The share of a link's rate that full packets of this arm leave to payload; None if the packets' size is not known."""
    headers = header_bytes(run.arm)
    payload = transport_parameters(run).get("payload_bytes", _largest_segment(run, headers))
    if headers is None or not isinstance(payload, int) or payload <= 0:
        return None
    return payload / (payload + headers + ETHERNET_HEADER_BYTES)


def _largest_segment(run: ArmRun, headers: int | None) -> int | None:
    """What TCP puts into a packet: all that the links' MTU leaves. The frames' own headers (hosts/tcp) count as payload: 0.4 % of it."""
    fabric = run.info.get("fabric")
    mtu_bytes = fabric.get("mtu_bytes") if isinstance(fabric, Mapping) else None
    return mtu_bytes - headers if isinstance(mtu_bytes, int) and headers is not None else None


def host_rates_bps(run: ArmRun) -> dict[str, float]:
    """Payload rate of each flow's host in one direction, over all its NIC ports (as links.csv knows them; one if it does not)."""
    rate_bps, share = run.rate_bps, payload_share(run)
    if rate_bps is None or share is None:
        return {}
    links = {counter.link for counter in run.links}
    hosts = {host for flow in run.flows for host in (flow.source, flow.target)}
    return {host: rate_bps * share * max(1, sum(host in link.split("-") for link in links)) for host in hosts}


# --- flows ---------------------------------------------------------------------------------------------------------------------------


def settled(on: Span) -> Span:
    """The part of a time that is judged: without the settling time at its start."""
    return on[0] + min(SETTLE_S, (on[1] - on[0]) / 2), on[1]


def flow_goodputs(run: ArmRun) -> list[FlowGoodput]:
    """One entry a flow, in the job's order; empty without flows.csv."""
    if not run.qps:
        return []
    rates = host_rates_bps(run)
    fair = fair_spans(run.flows, rates, run.duration_s) if rates else []
    return [_judged(run, flow, fair) for flow in run.flows]


def _judged(run: ArmRun, flow: StreamFlow, fair: Sequence[FairSpan]) -> FlowGoodput:
    span = settled(on_between(flow, run.duration_s))
    fair_bps = mean_rate((flow.source, flow.target), fair, *span) if fair else None
    return FlowGoodput(flow, span, mean_bps(qp_of(run, flow), [span]), fair_bps)


def qp_of(run: ArmRun, flow: StreamFlow) -> QpSeries | None:
    """The QP that carries a flow; None if it left no trace."""
    return next((qp for qp in run.qps if (qp.host, qp.peer) == (flow.source, flow.target)), None)


def mean_bps(qp: QpSeries | None, spans: Iterable[Span]) -> float:
    """Mean goodput over all of the spans together, counters interpolated; 0 for a QP that left no trace."""
    known = [span for span in spans if span[1] > span[0]]
    seconds = sum(end - start for start, end in known)
    if qp is None or seconds <= 0:
        return 0.0
    return sum(float(growth(qp.t_s, qp.acked_bytes, span)[0]) for span in known) * 8 / seconds


def goodput_series(qp: QpSeries | None, duration_s: float, bin_s: float) -> tuple[Column, Column]:
    """(middle of each bin in s, goodput in it in bit/s) over the whole run."""
    edges = bin_edges(duration_s, bin_s)
    octets = growth(qp.t_s, qp.acked_bytes, edges) if qp is not None else np.zeros(len(edges) - 1)
    return middles(edges), octets * 8 / bin_s


# --- incast and its victim -----------------------------------------------------------------------------------------------------------


def incast_on(run: ArmRun) -> Span | None:
    """When all flows of the incast are on; None without an incast."""
    spans = [on_between(flow, run.duration_s) for flow in run.flows if flow.role == "incast"]
    return (max(start for start, _ in spans), min(end for _, end in spans)) if spans else None


def bottleneck_share(run: ArmRun) -> float | None:
    """Goodput of all flows into the incast's receiver while all of them are on, as a share of the payload rate of its links."""
    on, rates = incast_on(run), host_rates_bps(run)
    receiver = next((flow.target for flow in run.flows if flow.role == "incast"), None)
    if on is None or receiver is None or not run.qps or not rates:
        return None
    span = settled(on)
    if span[1] - span[0] < MIN_SPAN_S:
        return None
    return sum(mean_bps(qp_of(run, flow), [span]) for flow in run.flows if flow.target == receiver) / rates[receiver]


def victim_share(run: ArmRun) -> float | None:
    """The victim's goodput while the incast is on, as a share of its goodput while it is off; the lowest of several victims."""
    on = incast_on(run)
    if on is None or not run.qps:
        return None
    shares = [_victim_share(run, flow, on) for flow in run.flows if flow.role == "victim"]
    return min((share for share in shares if share is not None), default=None)


def _victim_share(run: ArmRun, victim: StreamFlow, on: Span) -> float | None:
    life = settled(on_between(victim, run.duration_s))
    under = (max(settled(on)[0], life[0]), min(on[1], life[1]))
    first_s, last_s = _any_incast(run)
    free = [(life[0], min(first_s, life[1])), (max(last_s + SETTLE_S, life[0]), life[1])]
    if under[1] - under[0] < MIN_SPAN_S or sum(max(0.0, end - start) for start, end in free) < MIN_SPAN_S:
        return None
    qp = qp_of(run, victim)
    alone_bps = mean_bps(qp, free)
    return mean_bps(qp, [under]) / alone_bps if alone_bps > 0 else None


def _any_incast(run: ArmRun) -> Span:
    """From the first flow of the incast that is on to the last."""
    spans = [on_between(flow, run.duration_s) for flow in run.flows if flow.role == "incast"]
    return min(start for start, _ in spans), max(end for _, end in spans)


def stream_metrics(run: ArmRun) -> dict[str, float | None]:
    """All metrics of flows; None for a job of steps, and for what was not measured."""
    found = flow_goodputs(run)
    shares = [flow.share for flow in found if flow.share is not None]
    return {
        "flow_goodput_min_share": min(shares, default=None),
        "flow_goodput_median_share": stdlib.median(shares) if shares else None,
        "jain": fairness(found),
        "bottleneck_share": bottleneck_share(run),
        "victim_share": victim_share(run),
    }


def fairness(found: Sequence[FlowGoodput]) -> float | None:
    """Jain's index over the fair shares that flows of the same role got; the lowest of the roles."""
    roles = {entry.flow.role for entry in found}
    told = [jain([entry.share for entry in found if entry.flow.role == role and entry.share is not None]) for role in roles]
    return min((index for index in told if index is not None), default=None)


def flow_rows(found: Sequence[FlowGoodput]) -> list[dict[str, Any]]:
    """Plain dictionaries for summary.json."""
    return [
        {"from": entry.flow.source, "to": entry.flow.target, "role": entry.flow.role, "from_s": entry.span[0], "to_s": entry.span[1],
         "goodput_bps": entry.goodput_bps, "fair_bps": entry.fair_bps, "share": entry.share}
        for entry in found
    ]  # fmt: skip
