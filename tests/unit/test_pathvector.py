"""BGP as a controller runs it for its switches: what its tables come to, whatever happens on the way."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pathvector_lab import QUICK, World, valley

import topologies
from topologies import Topology

FABRICS: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = (
    ("fat-tree", (("k", 4),)),
    ("fat-tree", (("k", 4), ("oversubscription", 2))),
    ("multi-plane", (("planes", 2), ("t0s", 3), ("t1s", 2), ("hosts_per_t0", 2))),
)
SETTLE_S = 30.0
PRESETS: dict[str, dict[str, Any]] = {
    "frr": QUICK,
    "bfd": {**QUICK, "bfd_interval_s": 0.1},
    "no repair": {**QUICK, "local_repair": False},
    "large": {"preset": "large-fabric", **QUICK, "fib_prefix_s": 0.01},
}


@cache
def fabric(number: int) -> Topology:
    """One of FABRICS."""
    kind, params = FABRICS[number]
    return topologies.build(kind, **dict(params))


@pytest.mark.parametrize("number", range(len(FABRICS)))
def test_a_fabric_begins_with_what_bgp_comes_to(number: int) -> None:
    world = World(fabric(number))
    assert world.settled() == world.expected()


@pytest.mark.parametrize("number", range(len(FABRICS)))
def test_a_controller_that_comes_back_begins_with_what_bgp_comes_to_without_the_ports_that_are_down(number: int) -> None:
    world = World(fabric(number))
    switch, link = world.topology.switches[-1], next(link for link in world.topology.links.values() if link.tier == "T0-T1")
    again = World(fabric(number)).model
    again = type(again)(world.topology, again.options, 1)
    world.dead.add(switch)
    assert again.settle(ports_down={link.b.ifname}, switches_down={switch}) == world.expected(link.name)


def test_nothing_is_installed_while_nothing_happens() -> None:
    world = World(fabric(0), **QUICK)
    world.run(60)
    assert world.installs == []
    assert world.history == []


class Fate:
    """Draws what happens to a fabric, and knows how to undo all of it."""

    def __init__(self, world: World, data: st.DataObject) -> None:
        self.world, self.data = world, data
        self.cut, self.silent = set[str](), set[str]()

    def step(self) -> None:
        """One more thing breaks or is mended, and some time passes."""
        topology = self.world.topology
        link = self.data.draw(st.sampled_from(sorted(topology.links)))
        between = topology.links[link].tier != "NIC-T0"
        what = self.data.draw(st.sampled_from(["carrier", "switch", *(["silent", "one-way"] if between else [])]))
        if what == "carrier":
            self.world.carrier(link, link in self.cut)
            self.cut ^= {link}
        elif what == "switch":
            switch = self.data.draw(st.sampled_from(topology.switches))
            (self.world.boot if switch in self.world.dead else self.world.kill)(switch)
        else:
            self.world.silent(link, False) if link in self.silent else self.lose(link, what)
            self.silent ^= {link}
        self.world.run(self.data.draw(st.sampled_from([0.0, 0.005, 0.06, 0.3, 1.5, 4.0])))

    def lose(self, link: str, what: str) -> None:
        """Both ways, or what one end sends."""
        if what == "silent":
            self.world.silent(link, True)
        else:
            self.world.one_way(
                self.data.draw(st.sampled_from([self.world.topology.links[link].a, self.world.topology.links[link].b])).ifname, True
            )


@pytest.mark.parametrize("preset", PRESETS)
@given(number=st.sampled_from(range(len(FABRICS))), seed=st.integers(0, 99), steps=st.integers(1, 8), data=st.data())
@settings(max_examples=25, deadline=None)
def test_after_any_faults_and_enough_time_the_tables_are_what_the_topology_demands(
    preset: str, number: int, seed: int, steps: int, data: st.DataObject
) -> None:
    def watch(world: World) -> None:
        assert valley(world) is None

    world = World(fabric(number), seed, watch, **PRESETS[preset])
    fate = Fate(world, data)
    for _ in range(steps):
        fate.step()
    world.run(SETTLE_S * (4 if preset == "large" else 1))
    assert world.settled() == world.expected(*fate.cut | fate.silent)


@given(steps=st.lists(st.tuples(st.sampled_from(["t0_1_1-t1_1_1", "t1_1_1-t2_1", "h1-t0_1_1"]), st.floats(0, 0.2)), max_size=12))
@settings(max_examples=25, deadline=None)
def test_a_link_that_flaps_faster_than_anything_is_noticed_ends_right(steps: list[tuple[str, float]]) -> None:
    world, down = World(fabric(0), **QUICK), set[str]()
    for link, for_s in steps:
        world.carrier(link, link in down)
        down ^= {link}
        world.run(for_s)
    world.run(SETTLE_S)
    assert world.settled() == world.expected(*down)


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    def run(seed: int) -> list[Any]:
        world = World(fabric(0), seed)
        world.run(1)
        world.carrier("t0_1_1-t1_1_1", False)
        world.run(3)
        return [*world.installs, *world.history]

    assert run(1) == run(1) != run(2)


def test_no_more_than_the_width_is_used() -> None:
    world = World(fabric(0), ecmp_width=1)
    assert {len(ports) for table in world.tables.values() for ports in table.values()} == {1}
