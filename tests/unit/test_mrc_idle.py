"""Idle probes: the RTT of the idle fabric, measured before any data."""

from random import Random

import pytest

from hosts.mrc.channel import peer_spec
from hosts.mrc.evs import EvSet
from hosts.mrc.idle import MOST_PROBES, IdleProbes
from hosts.mrc.params import MrcParams

NOW = 100.0


def idle(paths=2, **params):
    settings = MrcParams.from_mapping({"idle_probes": 2, **params})
    return IdleProbes(EvSet(peer_spec("b", "fd00::b", paths).paths, settings, Random(1)), settings)


def run(probes, rtt_s):
    """Answers every probe after rtt_s; the EVs in order."""
    now, order = NOW, []
    while (due := probes.due(now)) is not None:
        ev, number = due
        order.append(ev.index)
        assert probes.due(now) is None, "one at a time"
        now += rtt_s
        assert probes.answered(now, number) == (ev, pytest.approx(rtt_s))
    return order


def test_every_ev_is_probed_in_turn():
    probes = idle(paths=3)
    assert run(probes, 0.001) == [0, 1, 2, 0, 1, 2]
    assert probes.next_deadline() is None


def test_the_idle_rtt_is_the_median():
    probes = idle(paths=3, idle_probes=1)
    for rtt_s in (0.001, 0.009, 0.002):
        _ev, number = probes.due(NOW)
        probes.answered(NOW + rtt_s, number)
    assert probes.idle_rtt_s == pytest.approx(0.002)


def test_an_unanswered_probe_is_given_up():
    probes = idle(initial_rtt_s=0.02)
    first, _number = probes.due(NOW)
    deadline = probes.next_deadline()
    assert probes.due(deadline - 1e-6) is None
    second, _number = probes.due(deadline)
    assert (first.index, second.index) == (0, 1)


def test_a_late_or_foreign_answer_counts_for_nothing():
    probes = idle()
    _ev, number = probes.due(NOW)
    assert probes.answered(NOW + 0.001, number + 1) is None
    probes.answered(NOW + 0.001, number)
    assert probes.answered(NOW + 0.002, number) is None
    assert probes.idle_rtt_s == pytest.approx(0.001)


def test_none_are_sent_when_none_are_asked_for():
    probes = idle(idle_probes=0)
    assert probes.due(NOW) is None
    assert probes.next_deadline() is None


def test_many_evs_are_measured_less_often():
    assert len(run(idle(paths=256, idle_probes=8), 0.001)) == MOST_PROBES
