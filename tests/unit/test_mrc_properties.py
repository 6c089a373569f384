"""Whatever the network does: every message arrives once, in order, with the right bytes, or the QP reports an error. Never a hang."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from fuzzing import examples
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.soak_lab import START_S, Soak
from hosts.mrc import MrcParams
from hosts.mrc.channel import Conditions, Queue

KNOWN = {field.name for field in fields(MrcParams)}
LAST_PSN = (1 << 24) - 1
HEALING_ROUNDS = 4  # of probes, each may be overtaken by the end of the last damage


def chance(*values: float) -> st.SearchStrategy[float]:
    return st.sampled_from([0.0, 0.0, *values])


@st.composite
def sizes(draw: st.DrawFn, payload_bytes: int) -> list[int]:
    """Those at the edges of a packet, and messages of many."""
    edges = [0, 1, payload_bytes - 1, payload_bytes, payload_bytes + 1, 2 * payload_bytes]
    some = st.sampled_from(edges) | st.integers(0, 40 * payload_bytes)
    return draw(st.lists(some, min_size=1, max_size=8)) * draw(st.sampled_from([1, 4, 16]))


@st.composite
def parameters(draw: st.DrawFn) -> MrcParams:
    """Of the transport; those that this version does not have are left out."""
    raw: dict[str, Any] = {
        "payload_bytes": draw(st.sampled_from([1, 3, 64, 1000])),
        "evs": draw(st.sampled_from([0, 5, 32])),
        "ev_min_active": draw(st.sampled_from([1, 3])),
        "ack_every": draw(st.sampled_from([1, 4, 32])),
        "mpr_packets": draw(st.sampled_from([128, 1024])),
        "initial_psn": draw(st.sampled_from([-1, 0, LAST_PSN, LAST_PSN - 20, LAST_PSN - 300])),
        "cwnd_initial_packets": draw(st.sampled_from([0, 2])),
        "idle_probes": draw(st.sampled_from([0, 2])),
        "link_rate_bps": draw(st.sampled_from([0.0, 50e6])),
        "trimming": draw(st.booleans()),
        "ack_timeout_exponent": draw(st.sampled_from([12, 18])),
        "linear_retries": draw(st.sampled_from([0, 7])),
        "exponential_retries": draw(st.sampled_from([0, 3, 5])),
        "qps": draw(st.sampled_from([1, 1, 3])),
        "write_bytes": draw(st.sampled_from([0, 0, 2048])),
    }
    return MrcParams.from_mapping({name: value for name, value in raw.items() if name in KNOWN})


@st.composite
def networks(draw: st.DrawFn, paths: int) -> Conditions:
    """Any mixture of damage, deaths and queues."""
    span = st.tuples(st.floats(0, 1), st.floats(0, 3)).map(lambda pair: (START_S + pair[0], START_S + sum(pair)))
    path, ports = st.integers(0, paths - 1), draw(st.sampled_from([1, 1, 2, 4]))
    host = st.sampled_from(["a", "b"])
    return Conditions(
        jitter_s=draw(chance(0.0005, 0.005)),
        rate_bps=draw(st.sampled_from([5e6, 50e6, 500e6])),
        loss=draw(chance(0.01, 0.1, 0.3)),
        duplication=draw(chance(0.01, 0.5)),
        extra_delay_s={index: 0.0007 * index for index in range(draw(st.integers(0, paths)))},
        path_loss=dict.fromkeys(range(draw(st.integers(0, 1))), 0.5),
        dead=tuple((which, *when) for which, when in draw(st.lists(st.tuples(path, span), max_size=4))),
        trimming=draw(chance(0.05, 0.4)),
        marking=draw(chance(0.1, 1.0)),
        queue=draw(st.sampled_from([Queue(), Queue(2000, 8000, 10_000, 40_000), Queue(trim_bytes=20_000, last_hop=True, shared=True)])),
        dead_one_way=tuple((who, which, *when) for who, which, when in draw(st.lists(st.tuples(host, path, span), max_size=3))),
        ports=ports,
        port_down=tuple((who, which % ports, *when) for who, which, when in draw(st.lists(st.tuples(host, path, span), max_size=2))),
        reorder=draw(chance(0.05, 0.5)),
        reorder_s=draw(st.sampled_from([0.0005, 0.01])),
        corruption=draw(chance(0.02, 0.2)),
        truncation=draw(chance(0.02, 0.2)),
        replay=draw(chance(0.05, 0.5)),
    )


@st.composite
def stalls(draw: st.DrawFn) -> list[tuple[float, float]]:
    """When a host gets no CPU."""
    return [
        (START_S + at, START_S + at + length) for at, length in draw(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.4)), max_size=2))
    ]


@dataclass(frozen=True)
class Case:
    """Two hosts, their network, and what the one sends to the other."""

    params: MrcParams
    network: Conditions
    sizes: list[int]
    paths: int
    seed: int
    stalls: tuple[list[tuple[float, float]], list[tuple[float, float]]]

    def soak(self) -> Soak:
        soak = Soak(self.network, self.params, self.sizes, max(self.sizes), self.paths, self.seed)
        for host, times in zip(soak.hosts, self.stalls, strict=True):
            host.stalls = times
        return soak


@st.composite
def cases(draw: st.DrawFn) -> Case:
    params, paths = draw(parameters()), draw(st.integers(1, 6))
    lengths, seed = draw(sizes(params.payload_bytes)), draw(st.integers(0, 1 << 16))
    return Case(params, draw(networks(paths)), lengths, paths, seed, (draw(stalls()), draw(stalls())))


@examples(150)
@given(case=cases())
def test_each_message_arrives_once_and_in_order_or_the_qp_reports_an_error(case: Case) -> None:
    soak = case.soak()
    soak.run()
    if not soak.errors:
        soak.check()


@examples(60)
@given(case=cases())
def test_every_ev_is_good_again_once_the_network_has_healed(case: Case) -> None:
    soak = case.soak()
    soak.run(START_S + 2)
    heal(soak)
    wait_s = healing_s(soak)  # probes may have been put off by the RTT of the bad network
    soak.run()
    if soak.errors:
        return
    soak.check()
    soak.idle(max(wait_s, healing_s(soak)))
    assert {row[2] for row in soak.a.path_rows()} <= {"GOOD", "SKIP"}


def heal(soak: Soak) -> None:
    """From here on the network does nothing to packets."""
    clean = Conditions(rate_bps=500e6, ports=soak.conditions.ports)
    for field in fields(Conditions):
        setattr(soak.conditions, field.name, getattr(clean, field.name))


def healing_s(soak: Soak) -> float:
    """Time for the probes that bring an EV back, by the parameters and the RTT that was measured."""
    params, srtt_s = soak.params, soak.a.flow_rows()[0][5] * soak.params.qps  # the mean over the QPs
    interval_s = max(params.probe_interval_s, params.probe_rtts * srtt_s) * (1 + params.probe_jitter)
    return HEALING_ROUNDS + (params.probe_successes + HEALING_ROUNDS) * interval_s
