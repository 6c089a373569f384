"""Planes stay equal: as many EVs on each, and stand-ins from the same plane for those out of use."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mrc_lab import NOW, World, verdicts_on

from hosts.core import Event, PathSpec
from hosts.mrc.channel import Conditions
from hosts.mrc.ev import ASSUMED_BAD, Ev
from hosts.mrc.evs import EvSet, numbers_text, spread
from hosts.mrc.params import MrcParams
from testbed.errors import UsageError


def paths_of(*each: int) -> tuple[PathSpec, ...]:
    """Paths of planes 1, 2 ..., so many of each."""
    planes = [plane for plane, count in enumerate(each, 1) for _ in range(count)]
    return tuple(PathSpec(index, plane - 1, f"fcbb::{index}", plane, (f"link{index}",)) for index, plane in enumerate(planes))


def ev_set(*each: int, seed: int = 1, **params: float) -> EvSet:
    return EvSet(paths_of(*each), MrcParams.from_mapping(params), Random(seed))


def lose(evs: EvSet, *indices: int) -> None:
    for index in indices:
        evs.retire(NOW, evs.evs[index], None)


def turns(evs: EvSet, rotations: int = 1) -> Counter[int]:
    return Counter(evs.pick().index for _ in range(rotations * len(evs)))


def by_plane(evs: EvSet, rotations: int = 1) -> Counter[int]:
    counted: Counter[int] = Counter()
    for index, times in turns(evs, rotations).items():
        counted[evs.evs[index].path.plane] += times
    return counted


# The set


def planes_of(evs: tuple[Ev, ...]) -> list[int]:
    return sorted(Counter(ev.path.plane for ev in evs).values())


@given(each=st.lists(st.integers(1, 9), min_size=1, max_size=8), wanted=st.integers(0, 256))
def test_every_plane_has_as_many_evs_whatever_its_paths(each: list[int], wanted: int) -> None:
    evs = spread(paths_of(*each), wanted)
    assert len(set(planes_of(evs))) == 1
    assert {ev.path.ev for ev in evs} == set(range(sum(each)))
    assert len(evs) <= 256


@given(each=st.lists(st.integers(1, 9), min_size=1, max_size=8), wanted=st.integers(0, 256))
def test_the_paths_of_a_plane_differ_by_one_ev_at_most(each: list[int], wanted: int) -> None:
    for plane in range(1, len(each) + 1):
        counts = Counter(ev.path.ev for ev in spread(paths_of(*each), wanted) if ev.path.plane == plane).values()
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    ("each", "wanted", "got"), [((4,), 0, 4), ((4,), 5, 8), ((4, 4), 128, 128), ((2, 4), 0, 8), ((3,), 256, 255), ((1,), 256, 256)]
)
def test_the_number_of_evs(each: tuple[int, ...], wanted: int, got: int) -> None:
    assert len(spread(paths_of(*each), wanted)) == got


def test_with_equal_planes_evs_are_numbered_without_a_gap() -> None:
    assert [ev.index for place in range(2) for ev in spread(paths_of(2, 2), 12, place)] == list(range(24))


@given(each=st.lists(st.integers(1, 9), min_size=1, max_size=8), wanted=st.integers(0, 256), qps=st.integers(1, 4))
def test_ev_i_takes_path_i_mod_paths(each: list[int], wanted: int, qps: int) -> None:
    evs = [ev for place in range(qps) for ev in spread(paths_of(*each), wanted, place)]
    assert [ev.path.ev for ev in evs] == [ev.index % sum(each) for ev in evs]
    assert len({ev.index for ev in evs}) == len(evs)


def test_numbers_that_are_left_out_are_nobodys() -> None:
    evs = ev_set(2, 1)
    assert [ev.index for ev in evs.evs] == [0, 1, 2, 5]
    assert [evs.numbered(number) for number in range(7)] == [*evs.evs[:3], None, None, evs.evs[3], None]
    assert numbers_text(evs.evs) == "0 to 2, 5"


def test_more_paths_than_evs_are_refused() -> None:
    with pytest.raises(UsageError, match="at most 256 EVs"):
        spread(paths_of(257), 0)


def test_more_than_256_evs_are_refused() -> None:
    with pytest.raises(UsageError, match=r"evs must be 0 .* to 256"):
        MrcParams(evs=257)


# Stand-ins


def test_a_plane_keeps_its_turns_when_it_loses_an_ev() -> None:
    evs = ev_set(4, 4)
    lose(evs, 0)
    assert by_plane(evs, 5) == {1: 20, 2: 20}


def test_a_plane_with_one_ev_left_keeps_its_turns() -> None:
    evs = ev_set(4, 4)
    lose(evs, 0, 1, 2)
    assert turns(evs, 3)[3] == 12


def test_a_plane_without_a_usable_ev_has_no_turns() -> None:
    evs = ev_set(2, 2, 2)
    lose(evs, 0, 1)
    assert by_plane(evs, 3).keys() == {2, 3}


def test_the_turn_passes_from_one_ev_of_the_plane_to_the_next() -> None:
    """For good, one EV would carry twice what the others do."""
    evs = ev_set(4)
    lose(evs, 2)
    assert turns(evs, 30) == {0: 40, 1: 40, 3: 40}


def test_no_stand_in_is_on_the_path_that_lost_a_packet() -> None:
    """With eight EVs a path the other seven are probably on the same dead path."""
    evs = ev_set(4, evs=32)
    lose(evs, 0)
    counted = turns(evs, 3 * 24)
    assert {counted[ev.index] for ev in evs.evs if ev.path.ev == 0 and ev.index} == {3 * 24}
    assert {counted[ev.index] for ev in evs.evs if ev.path.ev != 0} == {3 * 25}


def test_within_a_rotation_the_stand_ins_are_on_as_many_paths_as_there_are() -> None:
    evs = ev_set(4, evs=32)
    lose(evs, 0, 4, 8)
    counted = Counter(evs.evs[index].path.ev for index in turns(evs).elements())
    assert [counted[path] for path in range(4)] == [5, 9, 9, 9]


def test_where_every_path_lost_something_the_others_stand_in_all_the_same() -> None:
    evs = ev_set(2, 2, evs=8)
    lose(evs, 0, 1)
    assert by_plane(evs, 4) == {1: 16, 2: 16}


def test_an_ev_that_comes_back_takes_its_turns_back() -> None:
    evs = ev_set(4, 4)
    lose(evs, 0)
    turns(evs, 3)
    evs.restore(evs.evs[0])
    assert set(turns(evs, 2).values()) == {2}


def test_an_avoided_ev_has_its_turn_next() -> None:
    twin, evs = ev_set(4, 4), ev_set(4, 4)
    order = [twin.pick().index for _ in range(3)]
    avoided = [evs.pick(evs.evs[order[0]]).index, evs.pick().index, evs.pick().index]
    assert avoided == [order[1], order[0], order[2]]


def test_avoiding_an_ev_takes_no_turn_away() -> None:
    evs = ev_set(2, 2)
    counted = Counter(evs.pick(evs.evs[0] if step % 5 == 0 else None).index for step in range(400))
    assert max(counted.values()) - min(counted.values()) <= 2


def test_an_ev_that_was_avoided_for_long_gets_no_row_of_turns() -> None:
    evs = ev_set(4)
    for _ in range(40):
        assert evs.pick(evs.evs[0]) is not evs.evs[0]
    order = [evs.pick().index for _ in range(8)]
    assert order[0] == 0
    assert order.count(0) <= 3


def test_the_same_seed_gives_the_same_turns() -> None:
    rows = []
    for _ in range(2):
        evs = ev_set(4, 4, seed=7)
        lose(evs, 3)
        rows.append([evs.pick().index for _ in range(40)])
    assert rows[0] == rows[1]


# The floor


def test_the_floor_may_be_a_quarter_of_the_set() -> None:
    evs = ev_set(8, ev_min_active=0)
    lose(evs, *range(7))
    assert turns(evs, 4) == {7: 28, 0: 4}


def test_those_who_help_below_the_floor_have_but_their_own_turn() -> None:
    evs = ev_set(8, ev_min_active=3)
    lose(evs, *range(7))
    assert turns(evs, 2) == {7: 12, 0: 2, 1: 2}


def test_a_floor_above_the_set_is_the_set() -> None:
    evs = ev_set(2, ev_min_active=200)
    lose(evs, 0)
    assert turns(evs, 3) == {0: 3, 1: 3}


# The history


def left(events: list[Event]) -> list[tuple[int, int, int | None]]:
    return [(event.fields["ev"], event.fields["plane"], event.fields["stand_in"]) for event in events]


def test_the_history_says_who_stands_in() -> None:
    evs, params, events = ev_set(2, 2), MrcParams(), list[Event]()
    verdicts = verdicts_on(evs, params, events)
    verdicts.leave(NOW, evs.evs[2], None, "loss_fifo")
    verdicts.leave(NOW, evs.evs[3], None, "loss_fifo")
    assert left(events) == [(2, 2, 3), (3, 2, None)]


def test_an_ev_that_comes_back_has_no_stand_in_in_the_history() -> None:
    evs, params, events = ev_set(2), MrcParams(), list[Event]()
    verdicts = verdicts_on(evs, params, events)
    verdicts.leave(NOW, evs.evs[0], None, "loss_fifo")
    verdicts.restore(NOW, evs.evs[0], "probe")
    assert ["stand_in" in event.fields for event in events] == [True, False]


# Over the channel


def carried(world: World, since: list[int]) -> list[int]:
    return [row[3] - before for row, before in zip(world.a.path_rows(), since, strict=True)]


@pytest.fixture(scope="module")
def lame() -> tuple[World, list[int]]:
    """Two planes of four paths at full load; path 0, of plane 1, is dead. What each EV carried after that had settled."""
    dead = ((0, 0.0, 1e9),)
    world = World(Conditions(ports=2, dead=dead), paths=8, seed=3, cwnd_max_packets=32)
    for _ in range(40):
        world.post_row([1 << 18] * 4)
    world.run_on(0.2)
    assert [event.fields["ev"] for event in world.states(ASSUMED_BAD)] == [0]
    since = [row[3] for row in world.a.path_rows()]
    world.run(60)
    world.assert_delivered()
    return world, carried(world, since)


def test_planes_carry_as_many_packets_when_one_has_lost_a_path(lame: tuple[World, list[int]]) -> None:
    _, packets = lame
    planes = sum(packets[0::2]), sum(packets[1::2])
    assert min(planes) > 2000
    assert max(planes) - min(planes) <= 0.01 * min(planes)


def test_the_live_paths_of_the_lame_plane_share_its_packets(lame: tuple[World, list[int]]) -> None:
    _, packets = lame
    assert packets[0] == 0
    assert max(packets[2::2]) - min(packets[2::2]) <= 0.02 * min(packets[2::2])
