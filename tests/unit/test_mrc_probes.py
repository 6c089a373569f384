"""How often EVs out of use are probed, and what brings them back."""

from __future__ import annotations

import pytest
from mrc_lab import NOW, START_S, World, ev_set

from hosts.mrc.channel import Conditions
from hosts.mrc.ev import ASSUMED_BAD, Ev
from hosts.mrc.evs import LATE_PROBES, EvSet
from hosts.mrc.params import MrcParams
from testbed.errors import UsageError

RTT_S = 0.001


def out(evs: EvSet, *indices: int) -> list[Ev]:
    """These EVs have just gone out of use."""
    gone = [evs.evs[index] for index in indices]
    for ev in gone:
        evs.retire(NOW, ev, None)
    for ev in gone:
        evs.schedule_probe(NOW, ev, RTT_S)
    return gone


def intervals(evs: EvSet, probes: int) -> list[float]:
    """Times between probes that are never answered, of the only EV out of use."""
    (ev,) = evs.out
    told, now = [], NOW
    for _ in range(probes):
        told.append(ev.probe_at - now)
        now = ev.probe_at
        assert list(evs.due_probes(now, RTT_S)) == [ev]
    return told


def test_by_default_a_dead_path_is_probed_as_often_after_an_hour_as_at_first() -> None:
    evs = ev_set(4, probe_jitter=0)
    out(evs, 1)
    assert intervals(evs, 20) == pytest.approx([0.05] * 20)


def test_the_interval_may_double_with_each_unanswered_probe_up_to_a_limit() -> None:
    evs = ev_set(4, probe_jitter=0, probe_interval_max_s=0.3)
    out(evs, 1)
    assert intervals(evs, 6) == pytest.approx([0.05, 0.05, 0.1, 0.2, 0.3, 0.3])


def test_an_answer_brings_the_interval_back() -> None:
    evs = ev_set(4, probe_jitter=0, probe_interval_max_s=10.0)
    (ev,) = out(evs, 1)
    intervals(evs, 6)
    evs.probe_answered(NOW, ev.probe_id)
    now = ev.probe_at
    list(evs.due_probes(now, RTT_S))
    assert ev.probe_at - now == pytest.approx(0.05)


def test_many_evs_out_of_use_share_the_greatest_rate_of_probes() -> None:
    evs = ev_set(4, evs=256, probe_jitter=0, probe_rate_max=100)
    out(evs, *range(200))
    sent, now = 0, NOW
    while now < NOW + 10:
        now = max(now, evs.next_probe() or now)
        sent += len(list(evs.due_probes(now, RTT_S)))
    assert 900 <= sent <= 1300


def test_a_few_evs_out_of_use_are_not_held_back_by_that_rate() -> None:
    evs = ev_set(16, probe_jitter=0)
    out(evs, *range(15))
    assert max(ev.probe_at for ev in evs.out) == pytest.approx(NOW + 0.05)


def test_the_interval_grows_with_the_rtt() -> None:
    evs = ev_set(4, probe_jitter=0)
    (ev,) = out(evs, 1)
    evs.schedule_probe(NOW, ev, 0.1)
    assert ev.probe_at == pytest.approx(NOW + 0.8)


def test_the_next_probe_is_that_of_the_ev_that_is_due_first() -> None:
    evs = ev_set(8)
    gone = out(evs, 0, 3, 5)
    assert evs.next_probe() == min(ev.probe_at for ev in gone)
    evs.restore(min(gone, key=lambda ev: ev.probe_at))
    assert evs.next_probe() == sorted(ev.probe_at for ev in gone)[1]


@pytest.mark.parametrize(
    "wrong", [{"port_up_probes": 0}, {"probe_interval_max_s": -1}, {"probe_rate_max": 0}, {"probe_successes": 0}, {"ev_min_active": -1}]
)
def test_values_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        MrcParams.from_mapping(wrong)


def test_a_path_that_comes_back_is_in_use_after_three_probes() -> None:
    """Cut at 0.1 s, back at 1 s: three intervals of 50 ms, a fifth more each at most, and the round trips."""
    world = World(Conditions(dead=((2, 100.1, 101.0),)), seed=4, cwnd_max_packets=16)
    for _ in range(60):
        world.post_row([1 << 18] * 4)
    world.run_on(2.0)
    (gone,), (back,) = world.states(ASSUMED_BAD), world.states("GOOD")
    assert (gone.fields["ev"], back.fields["ev"], back.fields["reason"]) == (2, 2, "probe")
    assert 0.08 <= back.t - 101.0 <= 0.2


def test_a_path_that_answers_later_than_the_next_probe_comes_back_all_the_same() -> None:
    dead = ((2, START_S + 0.2, START_S + 1.0),)
    world = World(Conditions(rate_bps=50e6, extra_delay_s={2: 0.06}, dead=dead), link_rate_bps=50e6)
    for _ in range(100):
        world.post(1 << 15, 0)
        world.run_on(0.03)
    (back,) = [event for event in world.states("GOOD", "probe") if event.t > START_S + 1.0]
    assert back.fields["ev"] == 2
    assert [row[2] for row in world.a.path_rows()] == ["GOOD"] * 4


def test_an_answer_that_comes_after_the_next_probe_proves_nothing_but_is_waited_for_from_then_on() -> None:
    evs = ev_set(4, probe_jitter=0, probe_successes=1)
    (ev,) = out(evs, 1)
    first_s = ev.probe_at
    (_,) = evs.due_probes(first_s, RTT_S)
    late, second_s = ev.probe_id, ev.probe_at
    (_,) = evs.due_probes(second_s, RTT_S)
    assert evs.probe_answered(second_s + 0.01, late) == (ev, False)
    assert evs.probe_answered(second_s + 0.01, late) is None
    third_s = ev.probe_at
    (_,) = evs.due_probes(third_s, RTT_S)
    assert ev.probe_at - third_s == pytest.approx(2 * 0.06)
    assert evs.probe_answered(third_s + 0.06, ev.probe_id) == (ev, True)


def test_few_probes_are_remembered() -> None:
    evs = ev_set(4)
    (ev,) = out(evs, 1)
    intervals(evs, 1000)
    assert len(ev.asked) == LATE_PROBES
