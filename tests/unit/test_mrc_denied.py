"""An administrator's denial: from any state, taken back only by the administrator, never of the last EV."""

from __future__ import annotations

import pytest
from mrc_lab import NOW, Pair, World, entropy_of, on_wire, opcode_of, states, tell

from hosts import wire
from hosts.core import Transmit
from hosts.mrc.channel import Conditions
from testbed.errors import UsageError


def changes(pair: Pair) -> list[tuple[str, str, str]]:
    fields = [event.fields for event in pair.a.take_events() if event.event == "ev_state"]
    return [(field["from"], field["to"], field["reason"]) for field in fields]


def probed(transmits: list[Transmit]) -> list[int]:
    return [entropy_of(on_wire(each)) for each in transmits if opcode_of(each) == wire.PROBE]


def lose(pair: Pair, ev: int) -> None:
    """`ev` is ASSUMED_BAD."""
    qp = pair.a._send["b"].qps[0]
    qp.verdicts.leave(NOW, qp.evs.evs[ev], None, "always_skip")
    pair.a.take_events()


def test_a_denied_ev_carries_no_data() -> None:
    pair = Pair()
    assert pair.a.deny(NOW, (), {"b": [1]}, on=True) == {"b": [1]}
    assert {entropy_of(packet) for packet in pair.send(40 * 4096)} == {0, 2, 3}
    assert states(pair.a) == ["GOOD", "DENIED", "GOOD", "GOOD"]


def test_the_history_tells_of_denial_and_leave() -> None:
    pair = Pair()
    pair.a.deny(NOW, (), {"b": [1]}, on=True)
    pair.a.deny(NOW, (), {"b": [1]}, on=False)
    assert changes(pair) == [("GOOD", "DENIED", "denied"), ("DENIED", "GOOD", "allowed")]


def test_a_link_denies_the_evs_that_use_it() -> None:
    pair = Pair()
    assert pair.a.deny(NOW, ["b-path2"], {}, on=True) == {"b": [2]}
    assert states(pair.a) == ["GOOD", "GOOD", "DENIED", "GOOD"]


def test_a_link_that_no_path_uses_denies_nothing() -> None:
    pair = Pair()
    assert pair.a.deny(NOW, ["elsewhere"], {}, on=True) == {}
    assert pair.a.take_events() == []


def test_a_denied_ev_is_not_probed() -> None:
    pair = Pair()
    pair.send()
    lose(pair, 1)
    pair.a.deny(NOW, (), {"b": [1]}, on=True)
    assert probed(list(pair.a.transmit(NOW + 10))) == []


def test_a_denied_ev_has_no_idle_probe() -> None:
    world = World(idle_probes=2)
    world.a.deny(world.channel.now, (), {"b": [1]}, on=True)
    world.run_on(1.0)
    assert [row[5] for row in world.a.path_rows()] == [2, 0, 2, 2]


def test_a_denied_ev_does_not_fill_the_floor() -> None:
    pair = Pair(ev_min_active=4)
    pair.a.deny(NOW, (), {"b": [1]}, on=True)
    lose(pair, 2)
    assert {entropy_of(packet) for packet in pair.send(60 * 4096)} == {0, 2, 3}


def test_an_ev_that_was_bad_when_denied_must_prove_itself_when_allowed() -> None:
    pair = Pair()
    lose(pair, 1)
    pair.a.deny(NOW, (), {"b": [1]}, on=True)
    pair.a.deny(NOW + 1, (), {"b": [1]}, on=False)
    assert changes(pair) == [("ASSUMED_BAD", "DENIED", "denied"), ("DENIED", "ASSUMED_BAD", "allowed")]
    assert probed(list(pair.a.transmit(NOW + 1))) == [1]


def test_an_ev_whose_packets_were_lost_while_it_was_denied_must_prove_itself_when_allowed() -> None:
    pair = Pair()
    pair.a.deny(NOW, (), {"b": [1]}, on=True)
    qp = pair.a._send["b"].qps[0]
    qp.verdicts.leave(NOW, qp.evs.evs[1], None, "loss_fifo")
    assert states(pair.a)[1] == "DENIED"
    pair.a.deny(NOW + 1, (), {"b": [1]}, on=False)
    assert states(pair.a)[1] == "ASSUMED_BAD"


@pytest.mark.parametrize("number", [-1, 4, 1 << 20])
def test_an_unknown_ev_is_refused_and_nothing_changes(number: int) -> None:
    pair = Pair()
    with pytest.raises(UsageError, match="its EVs are 0 to 3"):
        pair.a.deny(NOW, (), {"b": [1, number]}, on=True)
    assert states(pair.a) == ["GOOD"] * 4


def test_an_unknown_peer_is_refused() -> None:
    with pytest.raises(UsageError, match="sends nothing to c"):
        Pair().a.deny(NOW, (), {"c": [1]}, on=True)


def test_denying_all_evs_is_refused_and_nothing_changes() -> None:
    pair = Pair()
    with pytest.raises(UsageError, match="no usable EV left"):
        pair.a.deny(NOW, (), {"b": [0, 1, 2, 3]}, on=True)
    assert (states(pair.a), pair.a.take_events()) == (["GOOD"] * 4, [])


def test_denying_the_only_ev_that_is_good_is_refused() -> None:
    pair = Pair()
    for ev in (0, 1, 2):
        lose(pair, ev)
    with pytest.raises(UsageError, match="no usable EV left"):
        pair.a.deny(NOW, (), {"b": [3]}, on=True)
    assert states(pair.a)[3] == "GOOD"


def test_denying_twice_is_no_change() -> None:
    pair = Pair()
    pair.a.deny(NOW, (), {"b": [1]}, on=True)
    pair.a.take_events()
    assert pair.a.deny(NOW, (), {"b": [1]}, on=True) == {"b": [1]}
    assert pair.a.take_events() == []


def test_probe_answers_do_not_bring_a_denied_ev_back() -> None:
    pair = Pair(probe_successes=1)
    pair.send()
    lose(pair, 1)
    (probe,) = [t for t in pair.a.transmit(NOW + 1) if opcode_of(t) == wire.PROBE and entropy_of(on_wire(t)) == 1]
    pair.a.deny(NOW + 1, (), {"b": [1]}, on=True)
    pair.b.on_datagram(NOW + 1, 0, memoryview(on_wire(probe)))
    tell(pair, *pair.b.transmit(NOW + 1), now=NOW + 1)
    assert states(pair.a)[1] == "DENIED"
    assert pair.a.report()["drops"] == {"unexpected_probe_reply": 1}


def test_nothing_but_the_administrator_restores_a_denied_ev() -> None:
    pair = Pair()
    pair.a.deny(NOW, (), {"b": [1]}, on=True)
    qp = pair.a._send["b"].qps[0]
    qp.verdicts.restore(NOW, qp.evs.evs[1], "probe")
    assert states(pair.a)[1] == "DENIED"


def test_a_job_goes_on_over_denial_and_leave() -> None:
    world = World(Conditions(), seed=5)
    world.post_row([1 << 17] * 8)
    world.run_on(0.01)
    world.a.deny(world.channel.now, (), {"b": [0, 2]}, on=True)
    world.run_on(0.01)
    world.a.deny(world.channel.now, (), {"b": [0]}, on=False)
    world.run(20)
    world.assert_delivered()
    assert [row[2] for row in world.a.path_rows()] == ["GOOD", "GOOD", "DENIED", "GOOD"]
