"""What each flow of a job of streams may expect: max-min fair rates over the hosts' NIC links, and Jain's index. Pure.

The fabric itself is left out: at full bisection and sprayed evenly it is no bottleneck, so a share below 1 is what an arm loses to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from testbed.report.model import StreamFlow

Pair = tuple[str, str]  # (source, target)
Direction = tuple[str, str]  # (host, "out" or "in")


def max_min(pairs: Sequence[Pair], capacity: Mapping[str, float]) -> dict[Pair, float]:
    """Max-min fair rates of flows that share the outgoing link of their source and the incoming link of their target.

    `capacity` is each host's rate in either direction; a host that is not in it counts as 1. Progressive filling (Bertsekas and Gallager,
    "Data Networks", 6.5.2): the most crowded link's flows get equal parts of what is left of it, and are done.
    """
    open_pairs = list(dict.fromkeys(pairs))
    left: dict[Direction, float] = {end: capacity.get(end[0], 1.0) for pair in open_pairs for end in _ends(pair)}
    rates: dict[Pair, float] = {}
    while open_pairs:
        crowd = Counter(end for pair in open_pairs for end in _ends(pair))
        tightest = min(crowd, key=lambda end: left[end] / crowd[end])
        part = left[tightest] / crowd[tightest]
        done = [pair for pair in open_pairs if tightest in _ends(pair)]
        for pair in done:
            rates[pair] = part
            for end in _ends(pair):
                left[end] -= part
        open_pairs = [pair for pair in open_pairs if tightest not in _ends(pair)]
    return rates


def _ends(pair: Pair) -> tuple[Direction, Direction]:
    return (pair[0], "out"), (pair[1], "in")


def on_between(flow: StreamFlow, duration_s: float) -> tuple[float, float]:
    """When the flow is on, in seconds: its planned time, at most to the run's end."""
    end_s = duration_s if flow.for_s is None else min(duration_s, flow.at_s + flow.for_s)
    return flow.at_s, max(flow.at_s, end_s)


@dataclass(frozen=True)
class FairSpan:
    """A time in which the same flows were on, and the max-min fair rate of each."""

    begin_s: float
    end_s: float
    rates: Mapping[Pair, float]


def fair_spans(flows: Sequence[StreamFlow], capacity: Mapping[str, float], duration_s: float) -> list[FairSpan]:
    """The run cut at every start and end of a flow, in order of time."""
    spans = {flow: on_between(flow, duration_s) for flow in flows}
    edges = sorted({edge for on in spans.values() for edge in on})
    active = {edge: [(flow.source, flow.target) for flow, on in spans.items() if on[0] <= edge < on[1]] for edge in edges}
    return [FairSpan(begin, end, max_min(active[begin], capacity)) for begin, end in pairwise(edges)]


def mean_rate(pair: Pair, spans: Iterable[FairSpan], begin_s: float, end_s: float) -> float:
    """The pair's mean fair rate from `begin_s` to `end_s`; 0 for an empty time."""
    parts = [(min(span.end_s, end_s) - max(span.begin_s, begin_s), span.rates.get(pair, 0.0)) for span in spans]
    return sum(seconds * rate for seconds, rate in parts if seconds > 0) / (end_s - begin_s) if end_s > begin_s else 0.0


def jain(values: Collection[float]) -> float | None:
    """Jain's fairness index: 1 if all are alike, 1/n if one has it all; None for fewer than two values or nothing but zeros."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if len(values) > 1 and squares > 0 else None
