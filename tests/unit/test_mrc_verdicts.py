"""A path is left at once; it is called bad when its packet can lie in no queue any more, and taken back when the packet comes."""

from __future__ import annotations

from random import Random

import pytest
from mrc_lab import Pair, answers, empty_packet, entropy_of, ev_set, on_wire, psn_of, states, tell, verdicts_on

from hosts.core import Event, PathSpec
from hosts.mrc.ev import Ev
from hosts.mrc.evs import EvSet
from hosts.mrc.loss import Allowance, Flight, Packet, Tx
from hosts.mrc.params import MrcParams
from hosts.mrc.window import RttEstimator

NOW = 100.0
PATIENCE_S = 15 * 4096 * 8 / 10e6  # the deepest queue at 10 Mbit/s


class Case:
    """Four paths at 10 Mbit/s; a packet sent at NOW on the first is missing."""

    def __init__(self, **params: float) -> None:
        self.params = MrcParams.from_mapping({"link_rate_bps": 10e6, **params})
        paths = tuple(PathSpec(index, 0, f"fcbb::{index}", 1, (f"link{index}",)) for index in range(4))
        self.evs = EvSet(paths, self.params, Random(1))
        self.events: list[Event] = []
        self.verdicts = verdicts_on(self.evs, self.params, self.events)
        self.ev: Ev = self.evs.evs[0]
        packet = Packet(5, 0xC7, (0, 0), 0, memoryview(b""), None)
        self.missing = Tx(packet, self.ev, 0, NOW, 9)

    def picked(self) -> set[int]:
        return {self.evs.pick().index for _ in range(20)}

    def changes(self) -> list[tuple[str, str]]:
        return [(event.fields["to"], event.fields["reason"]) for event in self.events]


@pytest.fixture
def case() -> Case:
    suspected = Case()
    suspected.verdicts.leave(NOW + 0.01, suspected.ev, suspected.missing, "loss_rack")
    return suspected


def test_the_path_is_left_at_once_but_not_called_bad(case: Case) -> None:
    assert case.picked() == {1, 2, 3}
    assert (case.ev.state, case.changes()) == ("SKIP", [])


def test_an_arrival_that_no_queue_explains_convicts(case: Case) -> None:
    case.verdicts.convict(NOW + 1, NOW + PATIENCE_S * 0.99)
    assert case.changes() == []
    case.verdicts.convict(NOW + 1, NOW + PATIENCE_S * 1.01)
    case.verdicts.convict(NOW + 1, NOW + PATIENCE_S * 2)
    assert case.changes() == [("ASSUMED_BAD", "loss_rack")]
    assert case.events[0].fields["first_lost_tx_s"] == NOW


def test_the_clock_alone_convicts_nobody(case: Case) -> None:
    case.verdicts.convict(NOW + 3600, NOW + 0.01)
    assert case.changes() == []


def test_a_probe_without_answer_convicts(case: Case) -> None:
    assert list(case.evs.due_probes(NOW + 1, 0.01)) == [case.ev]
    case.verdicts.convict(NOW + 1, NOW)
    assert case.changes() == []
    assert list(case.evs.due_probes(NOW + 2, 0.01)) == [case.ev]
    case.verdicts.convict(NOW + 2, NOW)
    assert case.changes() == [("ASSUMED_BAD", "loss_rack")]


def test_a_late_packet_brings_the_path_back_without_a_word(case: Case) -> None:
    case.verdicts.overturn(NOW + 0.03, case.missing)
    assert case.picked() == {0, 1, 2, 3}
    assert (case.ev.state, case.changes(), case.verdicts.spurious) == ("GOOD", [], 0)
    case.verdicts.convict(NOW + 9, NOW + 9)
    assert case.changes() == []


def test_a_packet_later_than_any_queue_is_a_mistake_that_counts(case: Case) -> None:
    case.verdicts.convict(NOW + 1, NOW + 1)
    case.verdicts.overturn(NOW + 1.1, case.missing)
    assert case.changes() == [("ASSUMED_BAD", "loss_rack"), ("GOOD", "spurious")]
    assert case.verdicts.spurious == 1


@pytest.mark.parametrize("reason", ["loss_fifo", "always_skip"])
def test_what_no_queue_can_explain_convicts_at_once_also_a_suspect(case: Case, reason: str) -> None:
    fresh = Case()
    fresh.verdicts.leave(NOW, fresh.ev, fresh.missing, reason)
    case.verdicts.leave(NOW + 0.02, case.ev, case.missing, reason)
    assert fresh.changes() == case.changes() == [("ASSUMED_BAD", reason)]


def test_probes_that_are_answered_clear_a_suspect(case: Case) -> None:
    for turn in range(case.params.probe_successes):
        (ev,) = case.evs.due_probes(NOW + 1 + turn, 0.01)
        answer = case.evs.probe_answered(NOW, ev.probe_id)
    assert answer == (case.ev, True)
    case.verdicts.restore(NOW + 9, case.ev, "probe")
    assert (case.ev.state, case.ev.out, case.changes()) == ("GOOD", False, [])


@pytest.mark.parametrize("params", [{"link_rate_bps": 0}, {"late_packets": 0}])
def test_without_a_known_queue_a_path_is_bad_at_once(params: dict[str, float]) -> None:
    case = Case(**params)
    case.verdicts.leave(NOW, case.ev, case.missing, "loss_rack")
    assert case.changes() == [("ASSUMED_BAD", "loss_rack")]


def test_a_suspect_in_the_reserve_stays_a_suspect() -> None:
    case = Case(ev_min_active=4)
    case.verdicts.leave(NOW, case.ev, case.missing, "loss_rack")
    assert case.picked() == {0, 1, 2, 3}
    assert case.ev.state == "SKIP"


def test_a_packet_that_is_missing_keeps_new_data_off_its_path_before_any_verdict() -> None:
    pair = Pair(paths=4)
    missing, *others = pair.send(3 * 4096)
    tell(pair, *answers(pair, *others), now=NOW)
    assert states(pair.a) == ["GOOD"] * 4
    named = entropy_of(missing)
    assert named not in [entropy_of(packet) for packet in pair.send(12 * 4096) if psn_of(packet) > 1002]


def test_an_ev_that_is_slower_than_others_by_so_much_is_not_late() -> None:
    params = MrcParams(initial_rtt_s=0.01)
    rtt, evs = RttEstimator(params), ev_set(2)
    flight = Flight(Allowance(params, rtt))
    slow, quick = evs.evs
    rtt.srtt_s, slow.rtt_s, quick.rtt_s = 0.01, 0.02, 0.01

    def late(apart_s: float) -> Ev | None:
        """Whose packet is late when one that was sent so much later arrives."""
        packets = [empty_packet(psn) for psn in (0, 1)]
        first = flight.send(packets[0], slow, NOW, 1)
        flight.send(packets[1], quick, NOW + apart_s, 2)
        flight.arrived(packets[1], NOW + 1, None)
        flight.outrun(NOW + 1, lambda psn: True)
        found = flight.late
        flight.arrived(packets[0], NOW + 1, first)
        return found

    assert late(0.009) is None
    assert late(0.011) is slow


def test_verdicts_come_in_the_order_of_arrivals() -> None:
    """Not in that of addresses in memory: a run can be repeated."""
    params, evs = MrcParams(), ev_set(32)
    flight = Flight(Allowance(params, RttEstimator(params)))
    missing = [flight.send(empty_packet(ev.index), ev, NOW, 1) for ev in evs.evs]
    for ev in evs.evs:
        packet = empty_packet(100 + ev.index)
        flight.send(packet, ev, NOW, 2)
        flight.arrived(packet, NOW, None)
    assert flight.overtaken(lambda psn: True) == missing


def test_the_first_timeout_asks_with_the_newest_packet_and_not_on_its_own_path() -> None:
    pair = Pair(paths=4)
    newest = pair.send(3 * 4096)[-1]
    copies = list[bytes]()
    while len(copies) < 2 and (now := pair.a.next_deadline()) is not None:  # in the end the QP fails, and has no deadline
        pair.a.on_timer(now)
        copies += [packet for each in pair.a.transmit(now) if len(packet := on_wire(each)) > 4096]
    first, second = copies
    assert psn_of(first) == psn_of(newest)
    assert entropy_of(first) != entropy_of(newest)
    assert psn_of(second) == 1000


def test_a_retransmission_keeps_off_the_path_of_a_missing_packet_too() -> None:
    evs = ev_set(4)
    failed, late, *others = evs.evs
    assert {evs.pick_again(failed, late) for _ in range(40)} == set(others)


def test_a_retransmission_with_two_paths_rather_goes_where_a_packet_is_missing_than_where_it_was_lost() -> None:
    evs = ev_set(2)
    failed, late = evs.evs
    assert {evs.pick_again(failed, late) for _ in range(10)} == {late}
