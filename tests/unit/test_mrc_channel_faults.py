"""What the channel of the tests does to packets: each fault hits what it names, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from mrc_lab import START_S, World, psn_of

from hosts.mrc.channel import Conditions


def watch_arrivals(world: World, saw: Callable[[float, int, bytes], object]) -> None:
    """Has `saw` told of the time, the port and the bytes of all that reaches host b."""
    take = world.b.on_datagram

    def watch(now: float, port: int, datagram: memoryview) -> None:
        saw(now, port, bytes(datagram))
        take(now, port, datagram)

    world.b.on_datagram = watch  # type: ignore[method-assign]


def test_a_path_dead_one_way_still_carries_the_other_way() -> None:
    world = World(Conditions(dead_one_way=(("b", 2, START_S, START_S + 90),)), idle_probes=0)
    sent = []
    world.channel.on_send = lambda now, host, path, transmit: sent.append((host, path))
    world.post(1 << 20, 0)
    world.run(5)
    world.assert_delivered()
    assert 0 < world.channel.log["dead"] <= sent.count(("b", 2))


def test_a_port_that_is_down_carries_nothing_either_way_and_comes_back() -> None:
    world = World(Conditions(ports=2, port_down=(("b", 1, START_S + 0.01, START_S + 1),)))
    seen: set[int] = set()
    watch_arrivals(world, lambda now, port, packet: seen.add(port))
    world.post(1 << 20, 0)
    world.channel.run(START_S + 0.01)
    assert seen == {0, 1}
    seen.clear()
    world.channel.run(START_S + 1 - 1e-6)
    assert seen == {0}
    assert world.channel.log["port_down"] > 0
    world.run_on(0.5)
    seen.clear()
    world.post(1 << 18, 1 << 18)
    world.run(5)
    world.assert_delivered()
    assert seen == {0, 1}


def test_a_host_is_told_of_its_own_ports_and_of_no_other() -> None:
    conditions = Conditions(ports=2, port_down=(("b", 1, START_S + 0.25, START_S + 0.5),), port_news_s=0.125)
    world = World(conditions, idle_probes=0)
    told: list[tuple[str, float, int, bool]] = []
    for host in (world.host_a, world.host_b):
        host.core.on_port = lambda now, port, up, name=host.name: told.append((name, now, port, up))  # type: ignore[method-assign]
    world.run_on(1)
    assert told == [("b", START_S + 0.375, 1, False), ("b", START_S + 0.625, 1, True)]


def test_paths_lie_on_the_ports_by_turns() -> None:
    world = World(Conditions(ports=4), paths=8)
    used = set()
    world.channel.on_send = lambda now, host, path, transmit: used.add((path, transmit.port))
    world.post(1 << 18, 0)
    world.run(5)
    assert used == {(path, path % 4) for path in range(8)}


@pytest.mark.parametrize(
    ("fault", "counter"), [("reorder", "reordered"), ("corruption", "corrupted"), ("truncation", "truncated"), ("replay", "replayed")]
)
def test_a_fault_of_chance_one_hits_every_packet(fault: str, counter: str) -> None:
    world = World(replace(Conditions(), **{fault: 1.0}))
    world.post(1 << 16, 0)
    world.channel.run(START_S + 1)
    log = world.channel.log
    assert log[counter] >= log["sent"] - 2 > 0  # of each host's first packet nothing older can be replayed


def test_reordering_happens_within_a_path_and_is_bounded() -> None:
    conditions = Conditions(reorder=0.3, reorder_s=0.004)
    world = World(conditions, paths=1, idle_probes=0, cwnd_initial_packets=32, initial_psn=0)
    left: dict[int, float] = {}
    late: dict[int, float] = {}
    world.channel.on_send = lambda now, host, path, t: left.setdefault(psn_of(t.header), now) and None if host == "a" else None
    watch_arrivals(world, lambda now, port, packet: late.setdefault(psn_of(packet), now - left[psn_of(packet)]))
    world.post(32 * 4096, 0)
    world.run(5)
    world.assert_delivered()
    assert list(late) != sorted(late)
    backlog_s = 32 * 4300 * 8 / conditions.rate_bps
    assert max(late.values()) < conditions.delay_s + conditions.reorder_s + backlog_s
