"""An agent sleeps until the next deadline of its core: one that has passed, and stays, would have it spin."""

from __future__ import annotations

from typing import Any

import mrc_lab
import pytest
from mrc_lab import START_S, World

from hosts.core import Transmit
from hosts.mrc.channel import Conditions, Host

DEAD = Conditions(dead=tuple((path, START_S + 0.05, START_S + 0.4) for path in range(4)))
CONDITIONS: dict[str, tuple[Conditions, dict[str, Any]]] = {
    "healthy": (Conditions(), {}),
    "lossy": (Conditions(loss=0.05, duplication=0.05, reorder=0.05, trimming=0.02), {"qps": 3, "evs": 12}),
    "a dead path": (Conditions(dead=((1, START_S + 0.02, START_S + 1.0),)), {}),
    "an outage": (DEAD, {}),
    "a dead way back": (Conditions(dead_one_way=(("b", 1, START_S, START_S + 1.0),)), {}),
    "ports": (Conditions(ports=2, port_down=(("a", 1, START_S + 0.02, START_S + 0.3), ("b", 0, START_S + 0.1, START_S + 0.5))), {}),
    "denied": (Conditions(dead=((3, START_S, START_S + 1.0),)), {}),
}


class Sleeper(Host):
    """Notes turns that neither sent anything nor moved a deadline that had passed into the future."""

    idle_turns = 0

    def step(self, now: float) -> list[Transmit]:
        out = super().step(now)
        due = self.core.next_deadline()
        type(self).idle_turns += not out and due is not None and due <= now
        return out


@pytest.mark.parametrize("name", CONDITIONS)
def test_no_turn_leaves_a_deadline_that_has_passed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mrc_lab, "Host", Sleeper)
    monkeypatch.setattr(Sleeper, "idle_turns", 0)
    conditions, params = CONDITIONS[name]
    world = World(conditions, **params)
    if name == "denied":
        world.a.deny(START_S, (), {"b": [2]}, on=True)
    for _ in range(20):
        world.post(1 << 15)
        world.run_on(0.1)
    world.assert_delivered()
    assert Sleeper.idle_turns == 0
