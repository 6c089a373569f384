"""From lost probes and events around a fault to its figures; and medians over repeats that know what is no time."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.converge import analysis, summary
from testbed.converge.analysis import NO_IMPACT, NOT_REPAIRED, NOTHING_LOST, REPAIRED, Moments, Seen, Stream
from testbed.converge.classes import LOCAL, REMOTE, ProbeFlow
from testbed.converge.fidelity import ProbeHealth, judged
from testbed.converge.ledger import Ledger, packed, unpacked

ROW = ("t0_1_1-t1_1_1", "t0_1_1")
GAP_S = 0.02
MOMENTS = Moments(called_begin=99.99, begin=100.0, called_end=104.0, end=104.01, ended=110.0)


def flow(name: str = LOCAL) -> ProbeFlow:
    return ProbeFlow(name, "h1", "h16", 50000, frozenset({ROW}))


def seen(lost: list[float], crossed: int = 25, kind: str = "carrier", events: tuple = (), moments: Moments = MOMENTS) -> Seen:
    streams = [Stream(flow(), 500, lost), Stream(flow(), 500, [])]
    return Seen(kind, "t1_1_1", {"t0_1_1"}, moments, streams, {ROW: crossed}, GAP_S, events)


def traffic(lost: list[float], phase: str = "begin", **more) -> dict:
    return analysis.figures(seen(lost, **more))[phase]["classes"][LOCAL]


def test_times_count_from_the_effect_and_the_loss_is_told_as_packets_and_as_time() -> None:
    told = traffic([99.995, 100.1, 100.2])
    assert (told["first_lost_s"], told["last_lost_s"], told["lost"]) == (-0.005, 0.2, 3)
    assert told["lost_s"] == pytest.approx(3 * GAP_S)
    assert (told["streams"], told["streams_hit"], told["state"]) == (2, 1, REPAIRED)


@pytest.mark.parametrize(
    ("lost", "crossed", "state"),
    [([], 0, NO_IMPACT), ([], 25, NOTHING_LOST), ([100.1], 0, REPAIRED), ([100.1, 103.99], 25, NOT_REPAIRED)],
)
def test_no_impact_nothing_lost_repaired_and_not_repaired_are_four_things(lost: list[float], crossed: int, state: str) -> None:
    assert traffic(lost, crossed=crossed)["state"] == state


def test_what_is_lost_while_the_end_takes_effect_belongs_to_the_fault() -> None:
    lost = [100.1, 104.005, 104.5]
    assert traffic(lost)["lost"] == 2
    assert traffic(lost, phase="end")["first_lost_s"] == pytest.approx(0.49)


def test_a_boot_and_what_a_switch_does_in_order_count_from_the_command() -> None:
    moments = Moments(called_begin=99.0, begin=100.0, called_end=104.0, end=106.0, ended=110.0)
    begin, end = (traffic([99.5, 105.0], phase, kind="switch-reboot", moments=moments) for phase in analysis.PHASES)
    assert (begin["first_lost_s"], end["first_lost_s"]) == (0.5, 1.0)
    assert traffic([105.0], "end", kind="switch-kill", moments=moments)["first_lost_s"] == 1.0
    assert traffic([105.0], "begin", moments=moments)["first_lost_s"] == 5.0, "a link's loss lasts until the effect of its end"


def test_probes_lost_before_the_fault_are_the_machines() -> None:
    assert analysis.lost_before(seen([98.0, 99.95])) == 1


def events() -> tuple:
    fib = {"source": "netlink", "event": "fib", "change": "replace", "prefix": "fd00::1/128"}
    message = {"source": "routing", "event": "bgp_message", "node": "t0_1_1", "peer": "t1_1_1"}
    return (
        {"t": 99.0, "node": "t0_1_1", **fib},
        {"t": 100.05, "node": "t0_1_1", **fib},
        {"t": 100.3, "node": "t2_1", **fib},
        {"t": 100.9, "node": "t1_1_1", **fib},
        {"t": 100.2, **message, "kind": "update", "announced": 0, "withdrawn": 2},
        {"t": 100.25, **message, "kind": "update", "announced": 3, "withdrawn": 0},
        {"t": 100.1, **message, "kind": "notification", "announced": 0, "withdrawn": 0},
        {"t": 100.0, "source": "routing", "event": "session", "node": "t0_1_1", "peer": "t1_1_1", "up": False, "reason": "carrier"},
        {"t": 104.005, "source": "routing", "event": "session", "node": "t0_1_1", "peer": "t1_1_1", "up": True, "reason": "established"},
        {"t": 105.0, "node": "t0_1_1", **fib},
    )


def test_fib_changes_and_messages_are_told_for_their_own_phase() -> None:
    begin, end = (analysis.figures(seen([], events=events()))[phase] for phase in analysis.PHASES)
    assert (begin["fib_changes"], begin["fib_last_s"], begin["fib_last_at_ends_s"]) == (2, 0.3, 0.05)
    told = [begin[name] for name in ("updates", "announced", "withdrawn", "notifications", "sessions_lost")]
    assert told == [2, 3, 2, 1, 1]
    assert (end["fib_changes"], end["fib_last_s"], end["updates"], end["sessions_lost"]) == (1, 0.99, 0, 0)


def test_the_fib_of_the_broken_switch_itself_is_no_convergence() -> None:
    assert analysis.figures(seen([], events=events()))["begin"]["fib_last_s"] == 0.3


moments_of_loss = st.lists(st.floats(95, 112, allow_nan=False), max_size=40).map(sorted)


@given(moments_of_loss)
def test_no_lost_probe_is_counted_twice_and_none_between_the_phases_is_missed(lost: list[float]) -> None:
    phases = analysis.figures(seen(lost))
    counted = sum(phases[phase]["classes"][LOCAL]["lost"] for phase in analysis.PHASES) + analysis.lost_before(seen(lost))
    assert counted == sum(moment < MOMENTS.ended for moment in lost)


@given(moments_of_loss, st.integers(0, 100))
def test_figures_are_json_and_the_first_is_not_after_the_last(lost: list[float], crossed: int) -> None:
    for told in analysis.figures(seen(lost, crossed)).values():
        json.dumps(told, allow_nan=False)
        one = told["classes"][LOCAL]
        assert (one["lost"] == 0) == (one["state"] in (NO_IMPACT, NOTHING_LOST)) == (one["first_lost_s"] is None)
        assert one["lost"] == 0 or one["first_lost_s"] <= one["last_lost_s"]


def sample(state: str, last_s: float | None, profile: str = "datacenter", repeat: int = 1, name: str = LOCAL) -> dict:
    lost = 0 if last_s is None else 10
    one = {"state": state, "first_lost_s": last_s and 0.01, "last_lost_s": last_s, "lost": lost, "lost_s": 0.2 * bool(lost)}
    control = dict.fromkeys(summary.CONTROL, 1)
    phase = {"lasted_s": 4.0, "classes": {name: one}, **control}
    told = {"profile": profile, "repeat": repeat, "fault": "f1", "kind": "carrier", "target": "t0_1_1-t1_1_1", "tier": "T0-T1"}
    return {**told, "phases": {"begin": phase, "end": phase}}


def row_of(*samples: dict) -> dict:
    return summary.rows(samples, ["datacenter"])[0]


def test_the_median_counts_what_was_never_repaired_as_endless_and_leaves_out_what_was_not_hit() -> None:
    row = row_of(sample(REPAIRED, 0.1), sample(REPAIRED, 0.3), sample(NOT_REPAIRED, 4.0), sample(NO_IMPACT, None))
    assert row["outage_s"] == {"n": 3, "median": 0.3, "min": 0.1, "max": None}
    assert row["states"] == {NO_IMPACT: 1, REPAIRED: 2, NOT_REPAIRED: 1}
    assert row["state"] == REPAIRED


def test_a_median_that_is_no_time_is_a_state() -> None:
    assert row_of(sample(NOT_REPAIRED, 4.0), sample(NOT_REPAIRED, 4.0), sample(REPAIRED, 0.1))["state"] == NOT_REPAIRED
    assert row_of(sample(NO_IMPACT, None))["state"] == NO_IMPACT
    assert row_of(sample(NOTHING_LOST, None))["state"] == NOTHING_LOST
    assert row_of(sample(NO_IMPACT, None))["outage_s"]["median"] is None


def test_packets_that_were_under_way_are_lost_although_the_outage_is_over_at_once() -> None:
    row = row_of(sample(REPAIRED, -0.002))
    assert (row["state"], row["outage_s"]["median"], row["lost"]["median"]) == (REPAIRED, 0.0, 10)


def test_rows_are_ordered_by_fault_phase_class_and_profile() -> None:
    samples = [sample(REPAIRED, 0.1, profile, name=name) for profile in ("b", "a") for name in (REMOTE, LOCAL)]
    found = [(row["phase"], row["class"], row["profile"]) for row in summary.rows(samples, ["a", "b"])]
    assert found == [(phase, name, profile) for phase in ("begin", "end") for name in (LOCAL, REMOTE) for profile in ("a", "b")]


@given(st.lists(st.one_of(st.none(), st.just(math.inf), st.floats(0, 1e3)), max_size=9))
def test_a_spread_is_ordered_and_never_infinite(values: list[float | None]) -> None:
    told = summary.spread(values)
    json.dumps(told, allow_nan=False)
    known = [told[name] for name in ("min", "median", "max") if told[name] is not None]
    assert known == sorted(known)
    assert told["n"] == sum(value is not None for value in values)


@given(st.sets(st.integers(0, 49)), st.lists(st.integers(0, 80)))
def test_a_ledger_loses_exactly_what_never_arrived(arrived: set[int], strangers: list[int]) -> None:
    ledger = Ledger()
    for number in range(50):
        assert ledger.send(float(number)) == number
    for sequence in [*arrived, *(number for number in strangers if number >= 50 or number in arrived)]:
        ledger.arrive(sequence)
    assert ledger.lost() == [float(number) for number in range(50) if number not in arrived]
    assert (ledger.sent, ledger.arrived) == (50, len(arrived))


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.binary(max_size=64))
def test_a_probe_is_read_back_and_other_packets_are_not_taken_for_one(magic: int, number: int, sequence: int, other: bytes) -> None:
    assert unpacked(packed(magic, number, sequence), magic) == (number, sequence)
    assert unpacked(packed(magic ^ 1, number, sequence), magic) is None
    assert unpacked(other, magic) is None or other[12:16] == magic.to_bytes(4, "big")


def test_probes_that_are_late_or_lost_without_a_fault_make_the_figures_suspect() -> None:
    rows = [(0.0, 0.2, 0.0, 1, 0.001)] * 5
    good = {"rate_share": 1.0, "late_p99_s": 0.002, "refused": 0}
    assert judged(rows, 0, 0, ProbeHealth.of([good], 0, GAP_S))["verdict"] == "good"
    for worse, lost in (({**good, "rate_share": 0.9}, 0), ({**good, "late_p99_s": 0.03}, 0), ({**good, "refused": 2}, 0), (good, 1)):
        told = judged(rows, 0, 0, ProbeHealth.of([good, worse], lost, GAP_S))
        assert told["verdict"] == "suspect"
        assert len(told["reasons"]) == 1
