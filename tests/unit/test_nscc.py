"""NSCC: what each signal does to the window, and what comes of it when many hosts share a link (real cores in virtual time)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mrc_lab import NOW, Pair, tell
from nscc_lab import BDP_FRAMES, FRAME_S, LAST_HOP_FRAMES, RATE_BPS, Flow, Incast, Link, Network, Permutation, jain, parameters

from hosts import wire
from hosts.mrc.frames import PSN_OFFSET
from hosts.mrc.nscc import NsccWindow
from hosts.mrc.params import MrcParams
from hosts.mrc.window import RttEstimator
from testbed.errors import UsageError

IDLE_RTT_S = 0.002
BASE_S = BDP_FRAMES * FRAME_S
TARGET_S = 0.75 * BASE_S
MARKED, UNMARKED = True, False
WIRE_S = BDP_FRAMES * FRAME_S / 6  # of each of three links: the base RTT holds 10 frames without the floor of bdp_min_packets
EMULATED_S = 0.0002  # what a software switch takes


class Driven:
    """A window that is told things, `step_s` apart."""

    def __init__(self, params: MrcParams | None = None, ports: int = 1, step_s: float = FRAME_S, **given: float) -> None:
        self.params = params or parameters(**given)
        rtt = RttEstimator(self.params)
        rtt.sample(NOW, IDLE_RTT_S)
        self.window = NsccWindow(self.params, rtt, lambda: ports)
        self.now, self.step_s = NOW, step_s

    @property
    def packets(self) -> float:
        return self.window.cwnd_packets

    def sack(self, delay_s: float, marked: bool = UNMARKED, times: int = 1, acked: int = 1, limited: bool = True) -> float:
        """SACKs that tell a queueing delay; returns the window after them."""
        for _ in range(times):
            self.now += self.step_s
            self.window.on_sack(self.now, acked, IDLE_RTT_S + delay_s, limited, marked)
        return self.packets


def small(packets: int = 4, **given: float) -> Driven:
    """A window with room to grow."""
    return Driven(cwnd_initial_packets=packets, **given)


# The quadrants


def test_without_mark_and_delay_the_window_grows_in_proportion_to_what_the_target_leaves() -> None:
    near, far = small().sack(0.2 * TARGET_S), small().sack(0.8 * TARGET_S)
    assert near > far > 4


def test_without_mark_above_the_target_the_increase_is_fair() -> None:
    slightly_above = 1.1 * TARGET_S
    assert small(4).sack(slightly_above, times=4) == pytest.approx(4 + (0.025 + 0.0041) * BDP_FRAMES, rel=0.05)


def test_a_mark_below_the_target_holds_the_window() -> None:
    assert small().sack(0.9 * TARGET_S, MARKED, times=50) == 4


def test_a_mark_above_the_target_shrinks_the_window_once_a_base_rtt() -> None:
    driven = small(8, step_s=BASE_S / 20, delay_gain=1000.0)
    first = driven.sack(2 * TARGET_S, MARKED, times=10)
    assert 4 <= first < 8
    assert driven.sack(2 * TARGET_S, MARKED, times=9) == first
    assert driven.sack(2 * TARGET_S, MARKED, times=20) < first


def test_a_decrease_takes_half_at_most() -> None:
    driven = small(15, delay_gain=1000.0)
    assert 7.5 <= driven.sack(100 * TARGET_S, MARKED) < 15


def test_far_above_the_target_the_window_shrinks_without_a_mark_because_the_last_hop_does_not_mark() -> None:
    driven = small(8)
    driven.sack(2 * TARGET_S, times=200)
    assert driven.packets < 4


def test_small_windows_bear_more_delay_than_large_ones() -> None:
    delay_s = 1.4 * TARGET_S
    assert small(2).sack(delay_s, times=200) > 2
    assert small(14).sack(delay_s, times=200) < 14


def test_one_slow_path_of_four_does_not_speak_for_all() -> None:
    driven = small(8)
    for _ in range(50):
        driven.sack(0.3 * TARGET_S, times=3)
        driven.sack(40 * TARGET_S)
    assert driven.packets > 8


# Bounds


def test_an_application_limited_sender_does_not_grow() -> None:
    assert small().sack(0.0, times=100, limited=False) == 4


def test_the_window_ends_at_one_and_a_half_bdp_and_may_begin_there() -> None:
    assert Driven(cwnd_initial_packets=0).packets == pytest.approx(1.5 * BDP_FRAMES, rel=0.01)
    driven = Driven()
    assert driven.packets == 2
    assert driven.sack(0.0, times=200) == pytest.approx(1.5 * BDP_FRAMES, rel=0.01)


def test_each_port_adds_a_bdp() -> None:
    assert Driven(ports=4, cwnd_initial_packets=0).packets == pytest.approx(4 * 1.5 * BDP_FRAMES, rel=0.01)


def test_without_a_rate_the_window_is_bounded_in_packets() -> None:
    driven = Driven(MrcParams(cwnd_initial_packets=4))
    assert driven.sack(0.0, times=500) == 64


def test_a_minimum_above_one_and_a_half_bdp_counts() -> None:
    assert Driven(cwnd_min_packets=32, cwnd_initial_packets=0).sack(9 * TARGET_S, MARKED, times=50) == 32


def test_the_window_never_falls_below_one_packet() -> None:
    driven = small()
    for _ in range(50):
        driven.window.on_trimmed(driven.now)
    assert driven.sack(9 * TARGET_S, MARKED, times=500) == 1


def test_an_empty_queue_for_a_windows_worth_makes_it_grow_fast() -> None:
    slow, fast = small(4).sack(0.3 * TARGET_S, times=12), small(4).sack(0.0, times=12)
    assert fast > slow + 1


@pytest.mark.parametrize(("trimming", "share"), [(True, 0.75), (False, 1.0)])
def test_the_target_is_larger_where_switches_drop(trimming: bool, share: float) -> None:
    assert Driven(parameters(trimming)).window.target_s == pytest.approx(share * BASE_S, rel=0.01)


def test_the_target_is_never_below_what_a_software_switch_is_late() -> None:
    assert Driven(replace(parameters(), link_rate_bps=10e9)).window.target_s == pytest.approx(max(0.75 * IDLE_RTT_S, 0.001))


def test_windows_out_of_order_are_refused() -> None:
    with pytest.raises(UsageError, match="min <= initial <= max"):
        MrcParams(cwnd_min_packets=9, cwnd_max_packets=8)


# Trims, losses, the receiver


def test_a_trimmed_packet_gives_up_its_place() -> None:
    driven = small(8)
    driven.window.on_trimmed(driven.now)
    assert driven.packets == 7


def test_quick_adapt_takes_the_window_to_what_arrived_and_then_waits_for_what_was_in_flight() -> None:
    driven = small(15, step_s=BASE_S / 2)
    driven.sack(TARGET_S, times=1)
    driven.window.on_trimmed(driven.now)
    adapted = driven.sack(TARGET_S, times=4)  # a period is 1.75 base RTTs: 4 packets arrived in it
    assert 3 <= adapted <= 5
    for _ in range(8):
        driven.window.on_trimmed(driven.now)
    assert driven.packets == adapted
    for _ in range(8):
        driven.window.on_trimmed(driven.now)
    assert driven.packets < adapted


def test_quick_adapt_does_not_take_silence_for_a_rate() -> None:
    driven = small(15)
    driven.sack(TARGET_S, times=2)
    driven.window.on_trimmed(driven.now)
    driven.now += 10.0
    assert driven.sack(TARGET_S) > 13


def test_without_trimming_mass_loss_halves_the_window_once_a_base_rtt() -> None:
    driven = Driven(parameters(trimming=False, cwnd_initial_packets=8))
    for _ in range(3):
        driven.window.on_mass_loss(driven.now)
    assert driven.packets == 4


def test_where_switches_trim_losses_tell_nothing_of_queues() -> None:
    driven = small(8)
    driven.window.on_mass_loss(driven.now)
    assert driven.packets == 8


def test_the_receivers_penalty_takes_its_share_and_gives_it_back() -> None:
    driven = small(8)
    driven.sack(0.9 * TARGET_S, MARKED)
    driven.window.on_penalty(64)
    assert driven.packets == 4
    driven.window.on_penalty(127)
    assert driven.packets == 1
    driven.window.on_penalty(0)
    assert driven.packets == 8


# Samples: a SACK that was held back tells little


def test_with_few_packets_in_flight_packets_ask_for_a_sack_at_once_and_get_one_that_was_not_held() -> None:
    pair = Pair(cwnd_initial_packets=2)
    first, second = pair.send(12_288)
    assert pair.give(first, second) == []
    pair.b.on_timer(NOW + 0.01)
    (third,) = tell(pair, *pair.b.transmit(NOW + 0.01), now=NOW + 0.01)
    assert [asks(packet) for packet in (first, second, third)] == [False, False, True]
    (say,) = pair.give(third)
    assert not say.cc_flags & wire.HELD


def asks(packet: bytes) -> bool:
    return bool(int.from_bytes(packet[PSN_OFFSET : PSN_OFFSET + 4], "big") & wire.A_BIT)


@pytest.mark.parametrize("samples_a_rtt", [2, 16])
def test_the_variation_is_forgotten_by_time_not_by_the_number_of_samples(samples_a_rtt: int) -> None:
    rtt = RttEstimator(parameters())
    rtt.sample(NOW, 0.020)
    for i in range(1, 10 * samples_a_rtt + 1):
        rtt.sample(NOW + i * 0.020 / samples_a_rtt, 0.020)
    assert rtt.var_s == pytest.approx(0.010 / 2.72, rel=0.1)


# Many hosts, one link


@pytest.mark.parametrize("wire_s", [WIRE_S, EMULATED_S])
def test_one_flow_fills_its_link_with_a_queue_of_the_target_and_two_frames_at_most(wire_s: float) -> None:
    world = Incast(1, wire_s=wire_s)
    world.run(8)
    assert world.shares(2, 8)[0] >= 0.95
    assert world.own[0].mean_queue(world.start_s + 2) - 1 <= 0.75 * BDP_FRAMES + 2  # the bucket's burst passes a frame early


@pytest.mark.parametrize("wire_s", [WIRE_S, EMULATED_S])
@pytest.mark.parametrize("seed", [1, 2])
def test_incast_of_seven_fills_the_last_hop_fairly_and_trims_little(wire_s: float, seed: int) -> None:
    world = Incast(7, wire_s=wire_s, seed=seed)
    world.run(2)
    settled_at = world.trimmed
    world.run(12)
    for start_s in (2, 7):
        shares = world.shares(start_s, start_s + 5)
        assert sum(shares) >= 0.95
        assert jain(shares) >= 0.95
    delivered = sum(world.shares(2, 12)) * 10 / FRAME_S
    assert (world.trimmed - settled_at) / delivered < 0.10
    assert world.lost_packets == 0
    assert world.count("spurious_verdicts") == 0


@pytest.mark.parametrize("senders", [7, 16])
def test_without_trimming_the_last_hop_stays_full_and_nobody_starves(senders: int) -> None:
    world = Incast(senders, trimming=False, wire_s=EMULATED_S)
    world.run(12)
    for start_s in (2, 7):
        shares = world.shares(start_s, start_s + 5)
        assert sum(shares) >= 0.85
        assert min(shares) > 0.2 / senders


def test_more_senders_than_the_last_hop_holds_packets_still_fill_it() -> None:
    world = Incast(20, wire_s=EMULATED_S)
    world.run(7)
    assert sum(world.shares(2, 7)) >= 0.85


@pytest.mark.parametrize("wire_s", [WIRE_S, EMULATED_S])
def test_a_flow_that_joins_gets_its_half(wire_s: float) -> None:
    world = Incast(2, wire_s=wire_s, every_s=3.0)
    world.run(10)
    assert world.shares(1, 3)[0] >= 0.95
    first, second = world.shares(5, 10)
    assert first + second >= 0.95
    assert 0.8 < first / second < 1.25


def test_random_loss_leaves_the_window_alone_where_switches_trim() -> None:
    """One packet in twenty is lost on each end's link: most paths are out of use most of the time."""
    world = Incast(1, wire_s=WIRE_S)
    world.own[0].loss = world.last.loss = 0.05
    world.run(8)
    assert world.shares(2, 8)[0] >= 0.8


def test_a_permutation_at_full_load_fills_every_link_and_queues_are_hardly_ever_taken_for_dead_paths() -> None:
    """Paths differ by what queues on them. With half of `rack_rttvar` (1 instead of 2) 16 paths leave use here."""
    world = Permutation(8)
    world.run(8)
    assert min(world.shares(2, 8)) >= 0.97
    assert world.retired() <= 3


def test_after_a_blackout_of_a_second_the_rate_is_back_within_a_quarter_of_one() -> None:
    world = Incast(1, wire_s=EMULATED_S)
    world.last.dead = (world.start_s + 3, world.start_s + 4)
    world.run(6)
    assert world.shares(3.1, 3.9)[0] == 0
    assert world.shares(4.25, 6)[0] >= 0.95


def test_after_the_link_slows_to_a_fifth_the_window_follows() -> None:
    world = Incast(1, wire_s=EMULATED_S)
    world.run(3)
    world.last.rate_bps = RATE_BPS / 5
    world.run(9)
    trimmed = world.trimmed
    world.run(12)
    assert world.shares(6, 12)[0] >= 0.95 / 5
    assert (world.trimmed - trimmed) / (3 / FRAME_S / 5) < 0.10


def test_the_receivers_penalty_slows_a_flow_of_a_long_way() -> None:
    rates = []
    for penalty in (0, 96):
        world = Incast(1, wire_s=4 * WIRE_S, receiver_penalty=penalty)
        world.run(4)
        rates.append(world.shares(2, 4)[0])
    assert rates[1] < 0.6 * rates[0]


def test_many_flows_of_one_host_share_its_own_link_which_neither_marks_nor_trims() -> None:
    world = Network()
    own = Link(world.clock, EMULATED_S)
    for i in range(8):
        last = Link(world.clock, EMULATED_S, trim_frames=LAST_HOP_FRAMES)
        world.flows.append(Flow(world.clock, f"h{i}", [(own, last)], parameters()))
    world.run(7)
    shares = world.shares(2, 7)
    assert sum(shares) >= 0.95
    assert jain(shares) >= 0.9  # whole packets: some windows are 1, others 2
    assert own.mean_queue(world.start_s + 2) < 2 * BDP_FRAMES
