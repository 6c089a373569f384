"""What each fault did to the goodput of a job of streams. Pure functions on plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.report.fair_share import on_between
from testbed.report.goodput import MIN_SPAN_S, SETTLE_S, Span, mean_bps, qp_of, settled
from testbed.report.model import ArmRun, FaultInterval, StreamFlow


@dataclass(frozen=True)
class FaultGoodput:
    """Goodput while one fault was on, as a share of the same flows' goodput while none was: of all flows together, and of the worst one.

    None if no flow was on long enough in both times.
    """

    fault: str
    goodput_share: float | None
    worst_flow_share: float | None


def fault_goodputs(run: ArmRun) -> list[FaultGoodput]:
    """One entry a fault that happened; empty for a job of steps, and without flows.csv."""
    if not run.streams or not run.qps:
        return []
    return [_of_fault(run, fault) for fault in run.faults if fault.happened]


def _of_fault(run: ArmRun, fault: FaultInterval) -> FaultGoodput:
    pairs = [told for flow in run.flows if (told := _under_and_free(run, flow, fault)) is not None]
    free_bps = sum(free for _, free in pairs)
    shares = [under / free for under, free in pairs if free > 0]
    total = sum(under for under, _ in pairs) / free_bps if free_bps > 0 else None
    return FaultGoodput(fault.id, total, min(shares, default=None))


def _under_and_free(run: ArmRun, flow: StreamFlow, fault: FaultInterval) -> tuple[float, float] | None:
    """The flow's goodput in bit/s while the fault is on, and while none is; None if it was on too briefly in either time."""
    life = settled(on_between(flow, run.duration_s))
    under = (max(life[0], fault.begin_s), min(life[1], fault.until_s(run.duration_s)))
    free = _without(life, [(other.begin_s, other.until_s(run.duration_s) + SETTLE_S) for other in run.faults if other.happened])
    if under[1] - under[0] < MIN_SPAN_S or sum(end - begin for begin, end in free) < MIN_SPAN_S:
        return None
    qp = qp_of(run, flow)
    return mean_bps(qp, [under]), mean_bps(qp, free)


def _without(span: Span, holes: Sequence[Span]) -> list[Span]:
    """What is left of a span without the holes."""
    left, begin_s = [], span[0]
    for hole in sorted(holes):
        if begin_s < min(hole[0], span[1]):
            left.append((begin_s, min(hole[0], span[1])))
        begin_s = max(begin_s, hole[1])
    return [*left, (begin_s, span[1])] if begin_s < span[1] else left


def fault_metrics(found: Sequence[FaultGoodput]) -> dict[str, float | None]:
    """The fault that cost most, by all flows together and by the worst flow."""
    totals = [entry.goodput_share for entry in found if entry.goodput_share is not None]
    flows = [entry.worst_flow_share for entry in found if entry.worst_flow_share is not None]
    return {"fault_goodput_share": min(totals, default=None), "fault_worst_flow_share": min(flows, default=None)}
