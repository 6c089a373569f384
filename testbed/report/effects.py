"""What each fault did: stalls attributed to it, packets it dropped, how fast MRC left the dead paths. Pure functions on plain data."""

from __future__ import annotations

import statistics as stdlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from testbed.report import routing_words
from testbed.report import statistics as stats
from testbed.report.model import ArmRun, Event, FaultInterval, JobStep, LinkCounter, link_tier
from testbed.report.routing_words import bfd_packets_per_s, bgp_parameters
from testbed.scenario.kinds import takes_carrier

GRACE_S = 1.0  # an EV may still be retired for a loss this long after the fault's end: the proof of the loss comes one timeout later
COUNTER_PERIOD_S = 0.5  # links.csv is sampled this often, so drops are seen up to this much late
# From here on a link direction carried the job's packets: a transport needs more (data or acknowledgements) for one step, and routing
# needs fewer a second (a keepalive and its acknowledgement every 3 s).
TRAFFIC_PACKETS, TRAFFIC_PACKETS_PER_S = 12, 2.0
OUT_OF_USE = ("ASSUMED_BAD", "DENIED")
PORT_REASONS = ("port_down", "peer_port_down")  # an EV is left because a NIC port is down
STREAM_LOOK_S = 2.0  # so long before a fault the traffic of streams is looked at


@dataclass(frozen=True)
class FaultEffect:
    """What one fault did in one arm and repeat.

    `stall_s` is what all steps that overlap [effective, end + settle] lost in sum against the healthy median (faster steps make up for
    slower ones, else a long fault would collect plain noise; never below 0), `stall_max_s` the longest stall among them. Where a step
    slowed by more than noise also overlaps another fault that hit traffic the stall cannot be divided: each of these faults gets all of it
    and is marked `overlapping`. `hit` tells whether the job's packets used the faulted link (`carried_traffic`), None without counters;
    a fault that hit none has no stall of its own, so both figures are None.
    """

    fault: str
    kind: str
    tier: str
    target: str
    planned_s: float
    issued_s: float | None
    effective_s: float | None
    end_s: float | None
    hit: bool | None
    stall_s: float | None
    stall_max_s: float | None
    overlapping: bool
    crashes: int
    packets_lost: float | None
    detections: int
    detection_max_s: float | None


@dataclass(frozen=True)
class Detection:
    """One EV retired because of a fault: from the fault's effect, and from the first packet lost after it, to the last packet sent on it.

    The two differ by the time during which the sender had nothing to send. A packet that was on its way when the fault took effect counts
    as lost at that moment. An EV whose last packet left before the effect was never used in vain: 0.

    `base_rtt_s` is the pair's median RTT of idle probes before the job, or the smallest RTT ever seen where it has none;
    `smallest_rtt_s` is always the latter. `way`: what of the EV's traffic the fault acted on, "data", "return" (acknowledgements), "both".
    """

    fault: str
    kind: str
    host: str
    peer: str
    ev: int
    t_s: float
    after_effect_s: float
    after_first_loss_s: float | None
    base_rtt_s: float | None
    smallest_rtt_s: float | None
    way: str = "both"

    def in_rtts(self) -> float | None:
        """`after_effect_s` in base RTTs of the pair."""
        return self.after_effect_s / self.base_rtt_s if self.base_rtt_s else None

    def loss_in_rtts(self) -> float | None:
        """`after_first_loss_s` in base RTTs of the pair."""
        return self.after_first_loss_s / self.base_rtt_s if self.base_rtt_s and self.after_first_loss_s is not None else None


# --- stalls --------------------------------------------------------------------------------------------------------------------------


def fault_effects(run: ArmRun, steps: Sequence[JobStep], median_s: float | None, settle_s: float = stats.SETTLE_S) -> list[FaultEffect]:
    """One entry a fault, in the order of the faults."""
    judged = stats.judged_steps(steps, median_s)
    hit = {fault.id: carried_traffic(run, fault, steps) for fault in run.faults if fault.happened}
    windows = {
        fault.id: (fault.begin_s, fault.until_s(run.duration_s) + settle_s)
        for fault in run.faults
        if fault.happened and hit[fault.id] is not False
    }
    found = detections(run)
    return [_effect(run, fault, judged, median_s, windows, found, hit.get(fault.id)) for fault in run.faults]


def _effect(
    run: ArmRun,
    fault: FaultInterval,
    judged: Sequence[JobStep],
    median_s: float | None,
    windows: Mapping[str, tuple[float, float]],
    found: Sequence[Detection],
    hit_traffic: bool | None,
) -> FaultEffect:
    window = windows.get(fault.id)
    hit = [step for step in judged if window and stats.overlaps(step, window)]
    stalls = [stats.stall_s(step, median_s) for step in hit] if median_s else []
    slowed = [step for step in hit if median_s and stats.stall_s(step, median_s) > stats.NEGLIGIBLE_SHARE * median_s]
    others = [other for name, other in windows.items() if name != fault.id]
    mine = [detection.after_effect_s for detection in found if detection.fault == fault.id]
    return FaultEffect(
        fault=fault.id, kind=fault.kind, tier=fault.tier, target=fault.target,
        planned_s=fault.planned_s, issued_s=fault.issued_s, effective_s=fault.effective_s, end_s=fault.end_s,
        hit=hit_traffic,
        stall_s=max(0.0, sum(step.time_s - median_s for step in hit)) if window and median_s else None,
        stall_max_s=max(stalls, default=0.0) if window and median_s else None,
        overlapping=any(stats.overlaps(step, other) for step in slowed for other in others),
        crashes=sum(step.cut == "crash" for step in hit),
        packets_lost=_dropped(run, fault) if fault.happened else None,
        detections=len(mine), detection_max_s=max(mine, default=None),
    )  # fmt: skip


def carried_traffic(run: ArmRun, fault: FaultInterval, steps: Sequence[JobStep]) -> bool | None:
    """Whether the job's packets used the faulted link (or any link of the faulted switch) in this arm; None without counters.

    They did if one of its directions carried more than routing needs in the last step that was complete before the fault; or if the fault
    swallowed that many, which happens when a flow is moved onto a link that fails silently. The time after that step is left out: while
    the job stalls, only routing sends, and a session that comes up sends much. What BFD sends in that time is no traffic of the
    job, nor is what routing sends into a dead link. A job of streams has no steps: there it is the STREAM_LOOK_S before the fault.
    """
    touched, looked_at = _touched(run, fault) or _of_host(run, fault), _span_before(run, fault, steps)
    if not any(counter.sent for counter in touched) or looked_at is None:
        return None
    # Samples at or before both ends: the window is one sample early rather than to miss what was sent just before it.
    start_s, end_s = looked_at
    before = [_at(counter.sent, end_s) - _at(counter.sent, start_s - COUNTER_PERIOD_S) for counter in touched]
    on_s = fault.until_s(run.duration_s) - fault.begin_s
    lost = max((drops for _, drops in _drops(run, fault)), default=0.0) - routing_words.calls(run.arm, bgp_parameters(run), on_s)
    counted_s = max(_sampled_s(counter.sent, end_s) - _sampled_s(counter.sent, start_s - COUNTER_PERIOD_S) for counter in touched)
    bfd = bfd_packets_per_s(bgp_parameters(run)) * counted_s
    return _is_traffic(max(before) - bfd, end_s - start_s) or _is_traffic(lost, on_s)


def _span_before(run: ArmRun, fault: FaultInterval, steps: Sequence[JobStep]) -> tuple[float, float] | None:
    """The last complete step before the fault; of streams, the time just before it. None if there is none."""
    if run.streams:
        return max(0.0, fault.begin_s - STREAM_LOOK_S), fault.begin_s
    last = max((step for step in steps if step.complete and step.end_s <= fault.begin_s), key=lambda step: step.end_s, default=None)
    return (last.start_s, last.end_s) if last else None


def _is_traffic(packets: float, seconds: float) -> bool:
    return packets >= max(TRAFFIC_PACKETS, TRAFFIC_PACKETS_PER_S * seconds)


def _touched(run: ArmRun, fault: FaultInterval) -> list[LinkCounter]:
    """The link directions that the fault acts on."""
    return [counter for counter in run.links if fault.touches(counter.link, counter.from_node)]


def _of_host(run: ArmRun, fault: FaultInterval) -> list[LinkCounter]:
    """The directions of the links of a host at fault: it takes part in the job if they carry something."""
    return [counter for counter in run.links if fault.target_type == "host" and fault.target in counter.link.split("-")]


def _drops(run: ArmRun, fault: FaultInterval) -> list[tuple[LinkCounter, float]]:
    """Packets that each touched direction dropped while the fault was on."""
    end_s = fault.until_s(run.duration_s) + COUNTER_PERIOD_S
    return [(counter, _at(counter.dropped, end_s) - _at(counter.dropped, fault.begin_s)) for counter in _touched(run, fault)]


def _dropped(run: ArmRun, fault: FaultInterval) -> float | None:
    """Packets dropped on the faulted link, or on all links of the faulted switch, while the fault was on; None without counters.

    None, too, where the counters do not see what is lost: without carrier a packet dies before it gets to a link's counter.
    """
    drops = _drops(run, fault)
    return sum(dropped for _, dropped in drops) if drops and not takes_carrier(fault.kind, fault.params) else None


def _at(series: Sequence[tuple[float, float]], t_s: float) -> float:
    """The last value of a cumulative counter at or before `t_s`; 0 before its first sample."""
    return max((value for sample_s, value in series if sample_s <= t_s), default=0.0)


def _sampled_s(series: Sequence[tuple[float, float]], t_s: float) -> float:
    """When the sample that `_at` takes was taken; 0 before the first."""
    return max((sample_s for sample_s, _ in series if sample_s <= t_s), default=0.0)


def group_effects(effects: Sequence[FaultEffect], key: Callable[[FaultEffect], str]) -> dict[str, dict[str, Any]]:
    """Median and maximum of the faults' stalls by kind or tier, of those that `hit` traffic; `alone` leaves out those whose stall is shared
    with another fault."""
    groups: dict[str, list[FaultEffect]] = {}
    for effect in effects:
        if effect.stall_s is not None or effect.hit is False:
            groups.setdefault(key(effect), []).append(effect)
    return {name: _group(members) for name, members in sorted(groups.items())}


def _group(members: Sequence[FaultEffect]) -> dict[str, Any]:
    hit = [effect for effect in members if effect.hit is not False]
    alone = [effect for effect in hit if not effect.overlapping]
    return {
        "faults": len(members),
        "hit": len(hit),
        **_median_max([effect.stall_s for effect in members]),
        "alone": {"faults": len(alone), **_median_max([effect.stall_s for effect in alone])},
        "crashes": sum(effect.crashes for effect in members),
    }


def _median_max(values: Sequence[float | None]) -> dict[str, float | None]:
    known = [value for value in values if value is not None]
    return {"stall_median_s": stdlib.median(known) if known else None, "stall_max_s": max(known, default=None)}


# --- detection -----------------------------------------------------------------------------------------------------------------------


def retirements(run: ArmRun) -> list[Event]:
    """The events by which an EV that was in use became ASSUMED_BAD; not those by which the administrator allows a denied one again."""
    return [event for event in run.named("ev_state") if event.get("to") == "ASSUMED_BAD" and event.get("from") not in OUT_OF_USE]


def pair_events(run: ArmRun, pair: tuple[str, str] | None) -> list[Event]:
    """The changes of state and the probes of the EVs of one (host, peer), in order of time."""
    return [event for event in run.named("ev_state", "probe") if (event["source"], event.get("peer")) == pair]


def bad_spans(run: ArmRun, events: Sequence[Event], state: str = "ASSUMED_BAD") -> dict[int, list[tuple[float, float]]]:
    """EV -> when it was in `state`, from the events of its pair; of one that did not come back, up to the job's crash or the run's end."""
    ends = [*_ends_of_qps(run), (run.duration_s, float("inf"))]
    spans: dict[int, list[tuple[float, float]]] = {}
    since: dict[int, float] = {}

    def qp_end(ev: int) -> tuple[float, float]:
        return next((crash_s, last_s) for crash_s, last_s in ends if since[ev] < last_s)

    def close(ev: int, t_s: float) -> None:
        end_s, begin_s = min(t_s, qp_end(ev)[0]), since.pop(ev)
        if end_s > begin_s:
            spans.setdefault(ev, []).append((begin_s, end_s))

    for event in events:
        if event["event"] == "ev_state":
            ev, t_s = int(event["ev"]), float(event["t_s"])
            if ev in since and (event.get("to") != state or t_s > qp_end(ev)[1]):
                close(ev, t_s)
            if event.get("to") == state:
                since.setdefault(ev, t_s)
    for ev in list(since):
        close(ev, run.duration_s)
    return spans


def crash_times(run: ArmRun) -> list[float]:
    """When the job crashed: its QPs end, and with them their EVs."""
    return [float(event["t_s"]) for event in run.named("job_crash")]


def _ends_of_qps(run: ArmRun) -> Iterator[tuple[float, float]]:
    """Each crash, and a time up to which what agents tell is of QPs from before it: they hear of it one after the other."""
    restarts = [float(event["t_s"]) for event in run.named("job_restart")]
    for crash_s in crash_times(run):
        yield crash_s, (crash_s + min((t_s for t_s in restarts if t_s >= crash_s), default=float("inf"))) / 2


def probe_times(events: Sequence[Event]) -> dict[int, list[float]]:
    """EV -> when a probe was sent on it, from the events of its pair."""
    times: dict[int, list[float]] = {}
    for event in events:
        if event["event"] == "probe" and event.get("outcome") == "sent":
            times.setdefault(int(event["ev"]), []).append(float(event["t_s"]))
    return times


def blamed(run: ArmRun, event: Event, grace_s: float = GRACE_S) -> FaultInterval | None:
    """The fault that explains a retirement: it loses packets, acts on the EV's path (either way), and was on at that time or over for under
    `grace_s`; the latest of several."""
    path, ev, t_s = event.get("path") or (), event.get("ev"), float(event["t_s"])
    lossy = (fault for fault in run.faults if fault.happened and fault.loses and fault.hits(path, ev))
    possible = [fault for fault in lossy if fault.from_s <= t_s <= fault.until_s(run.duration_s) + grace_s]
    return max(possible, key=lambda fault: fault.begin_s, default=None)


def false_retirements(run: ArmRun, grace_s: float = GRACE_S) -> int:
    """Retirements whose path is known, and had neither a fault that loses packets nor a link that loses some by chance.

    An EV that left with its NIC port, or the peer's, is none: nobody said that packets were lost.
    """
    judged = (event for event in retirements(run) if event.get("reason") not in PORT_REASONS)
    return sum(bool(event.get("path")) and not _explained(run, event, grace_s) for event in judged)


def _explained(run: ArmRun, event: Event, grace_s: float) -> bool:
    """Whether a packet of the EV, or its acknowledgement, can have been lost: by random loss of a whole tier, or by a fault."""
    return any(link_tier(link) in run.lossy_tiers for link in event["path"]) or blamed(run, event, grace_s) is not None


def detections(run: ArmRun, grace_s: float = GRACE_S) -> list[Detection]:
    """One entry for each EV that a fault took out of use and whose last sending time is known, in order of time.

    Only the first retirement under a fault counts: one that loses some packets lets probes pass, so the EV comes back and goes again.
    """
    found: dict[tuple[str, str, str, int], Detection] = {}
    for event in retirements(run):
        fault, last_tx_s = blamed(run, event, grace_s), event.get("last_tx_s")
        if fault is not None and isinstance(last_tx_s, int | float):
            detection = _detection(run, event, fault, float(last_tx_s))
            found.setdefault((detection.fault, detection.host, detection.peer, detection.ev), detection)
    return list(found.values())


def _detection(run: ArmRun, event: Event, fault: FaultInterval, last_tx_s: float) -> Detection:
    first = event.get("first_lost_tx_s")
    host, peer = str(event.get("source", "")), str(event.get("peer", ""))
    return Detection(
        fault=fault.id, kind=fault.kind, host=host, peer=peer, ev=int(event.get("ev", -1)), t_s=float(event["t_s"]),
        after_effect_s=max(0.0, last_tx_s - fault.begin_s),
        after_first_loss_s=max(0.0, last_tx_s - max(fault.begin_s, float(first))) if isinstance(first, int | float) else None,
        base_rtt_s=pair_rtt_s(run, IDLE_RTT, host, peer) or pair_rtt_s(run, SMALLEST_RTT, host, peer),
        smallest_rtt_s=pair_rtt_s(run, SMALLEST_RTT, host, peer), way=fault.way(event.get("path") or (), event.get("ev")),
    )  # fmt: skip


IDLE_RTT, SMALLEST_RTT = "idle_rtt_s", "base_rtt_s"  # as agents.json names them


def pair_rtt_s(run: ArmRun, which: str, host: str, peer: str) -> float | None:
    """One of the pair's two RTTs in seconds as its agent saw it; the median over all pairs if this one is not known."""
    own = _rtts(run.agents.get(host, {}), which).get(peer)
    return own or median_rtt_s([run], which)


def median_rtt_s(runs: Sequence[ArmRun], which: str) -> float | None:
    """Median over all pairs of one of the RTTs that agents.json tells, in seconds; None if no agent knows it."""
    known = [rtt for run in runs for agent in run.agents.values() for rtt in _rtts(agent, which).values()]
    return stdlib.median(known) if known else None


def _rtts(agent: Mapping[str, Any], which: str) -> dict[str, float]:
    told = agent.get(which)
    pairs = told.items() if isinstance(told, Mapping) else ()
    return {str(peer): float(rtt) for peer, rtt in pairs if isinstance(rtt, int | float) and rtt > 0}


def detection_metrics(found: Sequence[Detection]) -> dict[str, float | None]:
    """Median and maximum in seconds and base RTTs; None if no EV was retired for a fault.

    A fault that loses packets by chance is there to be found only with the first packet that it took, not from its effect.
    """
    at_once = [detection for detection in found if detection.kind != "loss"]
    return {
        **_median_and_max("detection", "s", [detection.after_effect_s for detection in at_once]),
        **_median_and_max("detection", "rtt", [detection.in_rtts() for detection in at_once]),
        **_median_and_max("after_first_loss", "s", [detection.after_first_loss_s for detection in found]),
        **_median_and_max("after_first_loss", "rtt", [detection.loss_in_rtts() for detection in found]),
    }


def _median_and_max(name: str, unit: str, values: Sequence[float | None]) -> dict[str, float | None]:
    known = [value for value in values if value is not None]
    return {f"{name}_median_{unit}": stdlib.median(known) if known else None, f"{name}_max_{unit}": max(known, default=None)}


def as_rows(entries: Sequence[FaultEffect] | Sequence[Detection]) -> list[dict[str, Any]]:
    """Plain dictionaries for summary.json."""
    return [asdict(entry) for entry in entries]
