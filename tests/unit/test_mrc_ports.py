"""NIC ports go down, here or at the peer: their EVs are left at once, without verdict, and come back when a probe is answered."""

from __future__ import annotations

from random import Random

import pytest
from mrc_lab import NOW, World, empty_packet, verdicts_on

from hosts.core import Event, PathSpec
from hosts.mrc.channel import Conditions
from hosts.mrc.congestion import Congestion
from hosts.mrc.evs import EvSet
from hosts.mrc.frames import Framer
from hosts.mrc.loss import Tx
from hosts.mrc.params import MrcParams
from hosts.mrc.recovery import Recoveries
from hosts.mrc.sender import SendQp
from hosts.wire import UDP_PORT

PORTS = 4


def paths_of(ports: int = PORTS, each: int = 1) -> tuple[PathSpec, ...]:
    """`each` paths out of each port; port p leads to the peer's port p + 1, the last to its first."""
    return tuple(
        PathSpec(index, port := index // each, f"fcbb::{index}", port + 1, (f"link{index}",), peer_port=(port + 1) % ports)
        for index in range(ports * each)
    )


class Bench:
    """The EVs of four ports and their verdicts."""

    def __init__(self, each: int = 1, **params: float) -> None:
        self.params = MrcParams.from_mapping(params)
        self.evs = EvSet(paths_of(each=each), self.params, Random(1))
        self.events: list[Event] = []
        self.verdicts = verdicts_on(self.evs, self.params, self.events)

    def states(self) -> list[str]:
        return [ev.state for ev in self.evs.evs]

    def changes(self) -> list[tuple[int, str, str]]:
        return [(event.fields["ev"], event.fields["to"], event.fields["reason"]) for event in self.events]

    def used(self) -> set[int]:
        return {self.evs.pick().index for _ in range(100)}

    def answer(self, now: float) -> list[int]:
        """All probes due at `now` are answered; returns which EVs they were for."""
        due = list(self.evs.due_probes(now, 0.01))
        for ev in due:
            answer = self.evs.probe_answered(now, ev.probe_id)
            assert answer is not None
            if answer[1]:
                self.verdicts.restore(now, ev, ev.proof)
        return [ev.index for ev in due]


def test_a_local_port_that_goes_down_takes_its_evs_out_at_once() -> None:
    bench = Bench()
    assert [ev.index for ev in bench.verdicts.ports(NOW, 0b0010, 0)] == [1]
    assert (bench.used(), bench.changes()) == ({0, 2, 3}, [(1, "ASSUMED_BAD", "port_down")])


def test_a_peers_port_that_goes_down_takes_out_the_evs_that_lead_to_it() -> None:
    bench = Bench()
    assert [ev.index for ev in bench.verdicts.ports(NOW, 0, 0b0010)] == [0]
    assert (bench.used(), bench.changes()) == ({1, 2, 3}, [(0, "ASSUMED_BAD", "peer_port_down")])


def test_the_same_masks_again_change_nothing() -> None:
    bench = Bench()
    bench.verdicts.ports(NOW, 1, 2)
    told = bench.changes()
    assert bench.verdicts.ports(NOW + 1, 1, 2) == []
    assert bench.changes() == told


def test_bits_of_ports_that_no_path_uses_change_nothing() -> None:
    bench = Bench()
    assert bench.verdicts.ports(NOW, 1 << 31, 1 << 40) == []
    assert bench.states() == ["GOOD"] * PORTS


def test_no_probe_is_sent_while_the_local_port_is_down() -> None:
    bench = Bench()
    bench.verdicts.ports(NOW, 0b0010, 0)
    assert bench.evs.next_probe() is None
    assert bench.answer(NOW + 100) == []


def test_the_port_is_back_its_evs_are_probed_at_once_and_one_answer_is_enough() -> None:
    bench = Bench()
    bench.verdicts.ports(NOW, 0b0010, 0)
    bench.verdicts.ports(NOW + 5, 0, 0)
    assert bench.states()[1] == "ASSUMED_BAD"
    assert bench.evs.next_probe() == NOW + 5
    assert bench.answer(NOW + 5) == [1]
    assert bench.changes()[-1] == (1, "GOOD", "port_up")
    assert bench.used() == {0, 1, 2, 3}


def test_port_up_probes_says_how_many_answers_it_takes() -> None:
    bench = Bench(port_up_probes=2)
    bench.verdicts.ports(NOW, 0b0010, 0)
    bench.verdicts.ports(NOW + 5, 0, 0)
    bench.answer(NOW + 5)
    assert bench.states()[1] == "ASSUMED_BAD"
    bench.answer(NOW + 6)
    assert bench.states()[1] == "GOOD"


def test_an_ev_with_both_ports_down_waits_for_both() -> None:
    bench = Bench()
    bench.verdicts.ports(NOW, 0b0001, 0b0010)
    bench.verdicts.ports(NOW + 1, 0, 0b0010)
    bench.answer(NOW + 1)
    assert bench.states()[0] == "ASSUMED_BAD"
    bench.verdicts.ports(NOW + 2, 0, 0)
    bench.answer(NOW + 2)
    assert bench.states()[0] == "GOOD"


def test_evs_of_a_port_that_is_down_never_fill_the_floor() -> None:
    bench = Bench(ev_min_active=4)
    bench.verdicts.ports(NOW, 0b0011, 0)
    assert bench.used() == {2, 3}


def test_with_all_ports_down_there_is_still_something_to_send_on() -> None:
    bench = Bench()
    bench.verdicts.ports(NOW, 0b1111, 0)
    assert bench.used() == {0, 1, 2, 3}


def test_a_bad_ev_whose_port_flaps_comes_back_with_the_port() -> None:
    bench = Bench()
    bench.verdicts.leave(NOW, bench.evs.evs[1], None, "loss_fifo")
    bench.verdicts.ports(NOW + 1, 0b0010, 0)
    bench.verdicts.ports(NOW + 2, 0, 0)
    bench.answer(NOW + 2)
    assert bench.changes() == [(1, "ASSUMED_BAD", "loss_fifo"), (1, "GOOD", "port_up")]


def test_a_port_does_not_touch_denied_evs() -> None:
    bench = Bench()
    bench.verdicts.deny(NOW, [bench.evs.evs[1]], on=True)
    bench.verdicts.ports(NOW + 1, 0b0010, 0)
    bench.verdicts.ports(NOW + 2, 0, 0)
    assert bench.answer(NOW + 2) == []
    assert bench.states()[1] == "DENIED"


def test_an_ev_allowed_while_its_port_is_down_is_not_used() -> None:
    bench = Bench()
    bench.verdicts.deny(NOW, [bench.evs.evs[1]], on=True)
    bench.verdicts.ports(NOW + 1, 0b0010, 0)
    bench.verdicts.deny(NOW + 2, [bench.evs.evs[1]], on=False)
    assert (bench.states()[1], bench.evs.next_probe()) == ("ASSUMED_BAD", None)
    assert bench.used() == {0, 2, 3}


def sender(events: list[Event]) -> SendQp:
    params = MrcParams(idle_probes=0, cwnd_initial_packets=0)
    qp = SendQp("b", 9, paths_of(), params, Random(1), events, Recoveries(), Congestion(params))
    qp.connect(Framer("fd00::a", "fd00::b", 9, 10, UDP_PORT), 1, 0, 1024)
    return qp


def test_what_is_under_way_on_the_port_is_sent_again_at_once_on_others() -> None:
    events: list[Event] = []
    qp = sender(events)
    qp.post(memoryview(bytes(16 * 4096)), 0, 1)
    before = list(qp.transmit(NOW))
    qp.on_ports(NOW + 0.001, 0b0100, 0)
    again = list(qp.transmit(NOW + 0.001))
    assert len(before) == 16
    assert {each.port for each in before} == {0, 1, 2, 3}
    assert len(again) == sum(each.port == 2 for each in before)
    assert {each.port for each in again} <= {0, 1, 3}


def test_a_port_down_is_no_loss() -> None:
    events: list[Event] = []
    qp = sender(events)
    qp.post(memoryview(bytes(16 * 4096)), 0, 1)
    list(qp.transmit(NOW))
    allowance_s = qp.allowance.common_s(NOW)
    qp.on_ports(NOW, 0b0100, 0)
    list(qp.transmit(NOW))
    assert [ev.lost_packets for ev in qp.evs.evs] == [0, 0, 0, 0]
    assert (qp.verdicts.spurious, qp.allowance.common_s(NOW)) == (0, allowance_s)
    assert [event.fields["reason"] for event in events] == ["port_down"]


def test_packets_that_arrive_although_their_port_went_down_widen_nothing() -> None:
    """All were delivered before the port went down here; the copies are duplicates."""
    world = World(paths=4, seed=3)
    world.post_row([1 << 17] * 8)
    world.run_on(0.004)
    qp = world.a._send["b"].qps[0]
    allowance = qp.allowance
    qp.on_ports(world.channel.now, 1, 0)  # the channel has one port: all EVs, and what is under way arrives all the same
    world.run(20)
    world.assert_delivered()
    assert allowance._widen == 1.0
    assert world.a.report()["spurious_verdicts"] == 0


def test_a_false_alarm_does_not_bring_an_ev_back_while_its_port_is_down() -> None:
    bench = Bench()
    ev = bench.evs.evs[1]
    before, after = Tx(empty_packet(), ev, 0, NOW, 0), Tx(empty_packet(), ev, 1, NOW, 0)
    bench.verdicts.leave(NOW, ev, before, "loss_fifo")
    bench.verdicts.ports(NOW, 0b0010, 0)
    bench.verdicts.leave(NOW, ev, after, "loss_fifo")
    bench.verdicts.overturn(NOW, before)
    bench.verdicts.overturn(NOW, after)
    assert bench.states()[1] == "ASSUMED_BAD"


def test_what_was_sent_into_the_dead_ports_is_sent_again_once_they_are_back() -> None:
    events: list[Event] = []
    qp = sender(events)
    qp.on_ports(NOW, 0b1111, 0)
    qp.post(memoryview(bytes(8 * 4096)), 0, 1)
    into_the_void = [each for each in qp.transmit(NOW) if each.payload]
    qp.on_ports(NOW + 1, 0, 0)
    again = [each for each in qp.transmit(NOW + 1) if each.payload]
    assert len(into_the_void) == len(again) == 8
    assert [ev.lost_packets for ev in qp.evs.evs] == [0, 0, 0, 0]


@pytest.mark.parametrize(("down", "ports"), [(0, 4), (0b0001, 3), (0b0111, 1), (0b1111, 4)])
def test_the_window_counts_the_ports_that_are_in_use(down: int, ports: int) -> None:
    """With all down, nothing is known of the time when they are back."""
    bench = Bench(each=2)
    bench.verdicts.ports(NOW, down, 0)
    assert bench.evs.count_ports() == ports


def test_a_port_whose_paths_are_all_lost_is_not_counted() -> None:
    bench = Bench(each=2)
    bench.verdicts.leave(NOW, bench.evs.evs[0], None, "loss_fifo")
    assert bench.evs.count_ports() == PORTS
    bench.verdicts.leave(NOW, bench.evs.evs[1], None, "loss_fifo")
    assert bench.evs.count_ports() == PORTS - 1


@pytest.fixture(scope="module")
def cut() -> tuple[World, list[int]]:
    """A port of four is down from 0.5 s to 1 s of full load; what was acknowledged in each 5 ms."""
    world = World(Conditions(ports=4, rate_bps=50e6, port_down=(("a", 0, 100.5, 101.0),)), paths=8, seed=2, link_rate_bps=50e6)
    for _ in range(80):
        world.post_row([1 << 18] * 4)
    steps: list[int] = []
    for _ in range(240):
        before = world.a.acked_bytes()
        world.run_on(0.005)
        steps.append(world.a.acked_bytes() - before)
    return world, steps


def test_a_port_cut_costs_its_share_and_no_more(cut: tuple[World, list[int]]) -> None:
    """From 10 RTTs on (an RTT is below 6 ms) the other three ports carry theirs."""
    world, steps = cut
    before, during = sum(steps[60:100]) / 40, sum(steps[112:200]) / 88
    assert not world.errors
    assert 0.70 * before <= during <= 0.80 * before


def test_after_a_port_cut_everything_is_as_before(cut: tuple[World, list[int]]) -> None:
    world, steps = cut
    assert sum(steps[215:240]) / 25 >= 0.95 * sum(steps[60:100]) / 40
    assert {row[2] for row in world.a.path_rows()} <= {"GOOD", "SKIP"}
    assert {event.fields["reason"] for event in world.states("ASSUMED_BAD")} == {"port_down"}
