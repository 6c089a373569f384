"""MRC end to end in virtual time: two cores, lossy paths, and what must come out."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mrc_lab import START_S, World

from hosts.core import Transmit
from hosts.mrc import MrcParams
from hosts.mrc.channel import Conditions


def test_clean_network_needs_no_retransmission() -> None:
    world = World(Conditions(jitter_s=0.0002))
    world.post(1 << 19, 0)
    world.run(2)
    world.assert_delivered()
    assert world.a.flow_rows()[0][2] == 0


def test_sprays_evenly_over_all_paths() -> None:
    world = World(paths=8)
    world.post(1 << 20, 0)
    world.run(2)
    counts = [row[3] for row in world.a.path_rows()]
    assert len(counts) == 8
    assert max(counts) - min(counts) <= 1


def test_more_evs_than_paths_are_shared_evenly() -> None:
    world = World(paths=4, evs=10)
    used = Counter[int]()
    world.channel.on_send = lambda now, host, path, transmit: used.update([path] if host == "a" and not transmit.control else [])
    world.post(1 << 20, 0)
    world.run(2)
    world.assert_delivered()
    assert len(world.a.path_rows()) == 12
    assert max(used.values()) - min(used.values()) <= 3


def test_dead_path_is_retired_within_three_rtts_of_its_first_lost_packet() -> None:
    world = World(Conditions(jitter_s=0.0001, dead=((2, START_S + 0.02, START_S + 0.5),)))
    world.post(1 << 20, 0)
    world.post(1 << 20, 0)
    world.run(5)
    world.assert_delivered()
    (event,) = world.states("ASSUMED_BAD")
    rtt_s = world.a.flow_rows()[0][5]
    assert event.fields["ev"] == 2
    assert event.t - event.fields["first_lost_tx_s"] < 3 * rtt_s


def test_nothing_is_sent_on_a_retired_path_but_probes() -> None:
    sizes: list[tuple[float, int]] = []

    def watch(now: float, host: str, path: int, transmit: Transmit) -> None:
        if host == "a" and path == 2:
            sizes.append((now, len(transmit.payload)))

    world = World(Conditions(dead=((2, START_S + 0.02, START_S + 0.5),)))
    world.channel.on_send = watch
    world.post(1 << 20, 0)
    world.post(1 << 20, 0)
    world.run(5)
    (event,) = world.states("ASSUMED_BAD")
    assert [size for now, size in sizes if now > event.t and size] == []


def test_probes_bring_a_healed_path_back() -> None:
    world = World(Conditions(dead=((2, START_S + 0.02, START_S + 0.5),)))
    world.post(1 << 20, 0)
    world.post(1 << 20, 0)
    world.run_on(2)
    (event,) = world.states("GOOD", "probe")
    assert START_S + 0.5 < event.t < START_S + 0.5 + 5 * 0.06
    answered = [e for e in world.events if e.event == "probe" and e.fields["outcome"] == "answered"]
    assert len(answered) == MrcParams.probe_successes


def test_a_path_that_stays_dead_stays_out() -> None:
    world = World(Conditions(dead=((2, START_S + 0.02, START_S + 50),)))
    world.post(1 << 20, 0)
    world.post(1 << 20, 0)
    world.run_on(2)
    assert not world.states("GOOD")
    assert world.a.path_rows()[2][2] == "ASSUMED_BAD"


@pytest.mark.parametrize("stalled", ["a", "b"])
def test_a_stalled_process_retires_no_path(stalled: str) -> None:
    world = World(Conditions(jitter_s=0.0002))
    host = world.host_a if stalled == "a" else world.host_b
    host.stalls = [(START_S + 0.020, START_S + 0.220), (START_S + 0.25, START_S + 0.28)]
    for _ in range(4):
        world.post(1 << 20, 0)
    world.run(10)
    world.assert_delivered()
    assert world.states("ASSUMED_BAD") == []


@pytest.mark.parametrize("packets", [1, 2, 3, 4])
@pytest.mark.parametrize("dead", [0, 1, 2, 3])
def test_tail_loss_recovers_within_a_few_rtts(packets: int, dead: int) -> None:
    world = World(Conditions(dead=((dead, START_S + 0.1, START_S + 90),)), ack_delay_s=0.001)
    for _ in range(16):  # learns the RTT
        world.post(1 << 15)
        world.run(1)
    world.channel.run(START_S + 0.2)
    for _ in range(4):  # one of these meets the dead path
        start = world.channel.now
        world.post(packets * 4096)
        world.run(10)
        srtt_s = world.a.flow_rows()[0][5]
        assert world.channel.now - start < 5 * srtt_s
    world.assert_delivered()


def test_a_lost_tail_retires_its_path() -> None:
    world = World(Conditions(dead=((1, START_S + 0.1, START_S + 90),)))
    world.post(1 << 17)
    world.run(1)
    world.channel.run(START_S + 0.2)
    for _ in range(4):
        world.post(4096)
        world.run(1)
    world.assert_delivered()
    assert [event.fields["ev"] for event in world.states("ASSUMED_BAD")] == [1]


def test_all_paths_dead_is_a_qp_error_with_a_reason_within_the_budget() -> None:
    dead = tuple((path, START_S + 0.01, START_S + 900) for path in range(4))
    world = World(Conditions(dead=dead), linear_retries=5, exponential_retries=2)
    world.post(1 << 20)
    world.run(30)
    (error,) = world.errors
    assert error.peer == "b"
    assert "5 linear and 2 exponential retries" in error.reason
    assert world.channel.now < START_S + 10
    assert [event.fields["reason"] for event in world.events if event.event == "qp_error"] == [error.reason]


def test_a_failed_qp_is_silent() -> None:
    dead = tuple((path, START_S, START_S + 900) for path in range(4))
    world = World(Conditions(dead=dead), linear_retries=1, exponential_retries=0)
    world.post(8192)
    world.run(30)
    world.post(8192)
    assert list(world.a.transmit(world.channel.now)) == []
    assert world.a.next_deadline() is None


def test_all_paths_dead_for_a_while_is_survived() -> None:
    dead = tuple((path, START_S + 0.01, START_S + 2) for path in range(4))
    world = World(Conditions(dead=dead))
    world.post(1 << 20, 0)
    world.run(20)
    world.assert_delivered()


def test_every_second_ack_lost_is_survived() -> None:
    world = World(Conditions(loss=0.0, jitter_s=0.0001))
    copies, rng = world.channel._copies, Random(5)
    world.channel.on_send = lambda now, host, path, transmit: setattr(world, "ack", transmit.control)
    world.channel._copies = lambda index, path: 0 if world.ack and rng.random() < 0.5 else copies(index, path)  # type: ignore[attr-defined,method-assign]
    for _ in range(3):
        world.post(1 << 19)
        world.run(5)
    world.assert_delivered()
    assert world.a.flow_rows()[0][2] < 40


def test_psns_wrap_at_24_bits() -> None:
    world = World(Conditions(loss=0.01), initial_psn=(1 << 24) - 20)
    world.post(1 << 19)
    world.run(10)
    world.assert_delivered()


def test_a_late_path_is_restored_as_spurious() -> None:
    world = World(Conditions(jitter_s=0.0001))
    world.post(1 << 20, 0)
    world.post(1 << 20, 0)
    world.channel.run(START_S + 0.015)
    world.channel._free_at[0, 2, False] = world.channel.now + 0.030  # one switch gets no CPU for 30 ms
    world.run_on(0.2)
    world.assert_delivered()
    (bad,), (good,) = world.states("ASSUMED_BAD"), world.states("GOOD")
    assert (bad.fields["ev"], good.fields["ev"], good.fields["reason"]) == (2, 2, "spurious")
    assert world.a.report()["spurious_verdicts"] == 1


def test_a_slower_path_is_no_reason_to_retire_it() -> None:
    world = World(Conditions(extra_delay_s={1: 0.003}, jitter_s=0.0001))
    for _ in range(8):
        world.post(1 << 19)
        world.run(5)
    world.assert_delivered()
    assert len(world.states("ASSUMED_BAD")) <= 2


def test_loss_of_one_paths_packets_by_order_of_the_path() -> None:
    world = World(Conditions(path_loss={3: 0.2}))
    world.post(1 << 20, 0)
    world.post(1 << 20, 0)
    world.run(5)
    world.assert_delivered()
    retired = world.states("ASSUMED_BAD")
    assert {event.fields["ev"] for event in retired} == {3}


def test_a_cut_path_does_not_shrink_the_window() -> None:
    world = World(Conditions(dead=((2, START_S + 0.02, START_S + 5),)))
    world.post(1 << 20, 0)
    world.post(1 << 20, 0)
    world.channel.run(START_S + 0.019)
    before = world.a.flow_rows()[0][4]
    world.run(5)
    assert world.a.flow_rows()[0][4] >= before


def test_the_window_follows_a_slow_bottleneck_but_never_below_its_minimum() -> None:
    world = World(Conditions(rate_bps=4e6))
    world.post(1 << 20, 0)
    world.run(30)
    world.assert_delivered()
    rtx, cwnd = world.a.flow_rows()[0][2], world.a.flow_rows()[0][4]
    assert MrcParams.cwnd_min_packets <= cwnd < 32
    assert rtx == 0


def test_same_seed_same_packets() -> None:
    logs = []
    for _ in range(2):
        world, sent = World(Conditions(loss=0.02), seed=7), []
        world.channel.on_send = lambda now, host, path, transmit, sent=sent: sent.append((now, host, path, bytes(transmit.header)))
        world.post(1 << 18)
        world.run(5)
        logs.append(sent)
    assert logs[0] == logs[1]


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 1 << 16),
    paths=st.integers(1, 6),
    loss=st.sampled_from([0.0, 0.01, 0.1, 0.3]),
    duplication=st.sampled_from([0.0, 0.05, 0.5]),
    jitter_s=st.sampled_from([0.0, 0.001, 0.01]),
    deaths=st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1), st.floats(0, 3)), max_size=6),
    sizes=st.lists(st.integers(0, 120_000), min_size=1, max_size=8),
    first_psn=st.sampled_from([-1, (1 << 24) - 3]),
)
def test_delivered_exactly_once_or_a_qp_error(seed, paths, loss, duplication, jitter_s, deaths, sizes, first_psn) -> None:
    dead = tuple((path % paths, START_S + start, START_S + start + length) for path, start, length in deaths)
    extra = {path: 0.0005 * path for path in range(paths)}
    world = World(Conditions(0.001, jitter_s, 100e6, loss, duplication, extra, {}, dead), paths, seed, initial_psn=first_psn)
    world.post_row(sizes)
    world.run(120)
    assert world.settled()
    if not world.errors:
        world.assert_delivered()


@pytest.mark.parametrize("outage_s", [0.3, 1.7, 5.0])
@pytest.mark.parametrize("paths", [1, 4])
def test_the_first_path_that_comes_back_is_used_at_once(paths: int, outage_s: float) -> None:
    heals_s = START_S + 0.01 + outage_s
    dead = tuple((path, START_S + 0.01, heals_s if path == 0 else START_S + 900) for path in range(paths))
    world = World(Conditions(dead=dead), paths)
    world.post(1 << 20, 0)
    world.channel.run(heals_s)
    before = world.a.acked_bytes()
    world.channel.run(heals_s + 0.15)
    assert world.a.acked_bytes() > before + 10 * 4096
    world.run(20)
    world.assert_delivered()


def test_a_second_outage_is_noticed_as_soon_as_the_first() -> None:
    dead = tuple((0, START_S + start, START_S + start + 3) for start in (0.01, 6.0))
    world = World(Conditions(dead=dead), 1)
    world.post(1 << 20, 0)
    world.channel.run(START_S + 6.0 - 1e-6)
    world.post(1 << 20, 0)
    world.channel.run(START_S + 9)
    before = world.a.acked_bytes()
    world.channel.run(START_S + 9.15)
    assert world.a.acked_bytes() > before + 10 * 4096


def test_answered_probes_alone_do_not_keep_a_qp_alive() -> None:
    """A path that carries probes but no data is no path."""
    world = World(Conditions(), 1, exponential_retries=2)
    copies, last = world.channel._copies, [0]
    world.channel.on_send = lambda now, host, path, transmit: last.__setitem__(0, len(transmit.payload))
    world.channel._copies = lambda index, path: 0 if last[0] else copies(index, path)  # type: ignore[method-assign]
    world.post(1 << 16)
    world.run(60)
    assert len(world.errors) == 1
    assert world.channel.now < START_S + 20


def test_nothing_is_remembered_of_what_is_done() -> None:
    world = World(Conditions(loss=0.02))
    for _ in range(4):
        world.post(1 << 20, 0)
        world.run(20)
    sender, receiver = world.a._send["b"].qps[0], world.b._receive["a"].qps[0]
    out = sender._outgoing
    rest = (out.packets, out._messages, out._ends, out._rtx, sender._urgent, receiver._imms, receiver.ready)
    assert [len(each) for each in rest] == [0] * len(rest)
    assert sender.flight.count == 0
    assert sum(len(ev.sent) for ev in sender.evs.evs) <= 64
