"""Whatever becomes of EVs, in whatever order: losses, false alarms, probes, ports, the administrator."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from mrc_lab import World, empty_packet, verdicts_on

from hosts.core import Event, PathSpec
from hosts.mrc.channel import Conditions
from hosts.mrc.ev import ASSUMED_BAD, DENIED, GOOD, SKIP
from hosts.mrc.evs import EvSet
from hosts.mrc.loss import Tx
from hosts.mrc.params import MrcParams
from testbed.errors import UsageError

PLANES = 3
REASONS = ("loss_fifo", "loss_rack", "always_skip")
MASKS = st.integers(0, (1 << PLANES) - 1)


class Life(RuleBasedStateMachine):
    """Three planes, a NIC port each, that lead to the peer's ports the other way round."""

    @initialize(each=st.integers(1, 3), evs=st.integers(0, 20), floor=st.integers(0, 4), seed=st.integers(0, 99), rate=st.booleans())
    def begin(self, each: int, evs: int, floor: int, seed: int, rate: bool) -> None:
        self.params = MrcParams(evs=evs, ev_min_active=floor, link_rate_bps=1e9 if rate else 0.0)
        paths = tuple(PathSpec(i, i % PLANES, f"d{i}", 1 + i % PLANES, (f"l{i}",), PLANES - 1 - i % PLANES) for i in range(PLANES * each))
        self.evs, self.events = EvSet(paths, self.params, Random(seed)), list[Event]()
        self.verdicts = verdicts_on(self.evs, self.params, self.events)
        self.now, self.lost = 100.0, list[Tx]()
        self.denied: set[int] = set()
        self.ports = (0, 0)

    @rule(which=st.integers(0, 99), reason=st.sampled_from(REASONS))
    def lose(self, which: int, reason: str) -> None:
        ev = self.evs.evs[which % len(self.evs)]
        self.lost.append(Tx(empty_packet(), ev, 0, self.now, 0))
        self.verdicts.leave(self.now, ev, self.lost[-1], reason)

    @rule(which=st.integers(0, 99))
    def overturn(self, which: int) -> None:
        if self.lost:
            self.verdicts.overturn(self.now, self.lost.pop(which % len(self.lost)))

    @rule(which=st.integers(0, 99))
    def skip(self, which: int) -> None:
        self.evs.skip(self.evs.evs[which % len(self.evs)])

    @rule(local=MASKS, peer=MASKS)
    def on_ports(self, local: int, peer: int) -> None:
        before, self.ports = self.ports, (local, peer)
        newly = [local & ~before[0], peer & ~before[1]]
        changed = self.verdicts.ports(self.now, local, peer)
        for ev in self.evs.evs:
            if newly[0] >> ev.path.port & 1 or newly[1] >> ev.path.peer_port & 1:
                assert ev in changed
                assert ev.out

    @rule(numbers=st.sets(st.integers(0, 19), max_size=8), on=st.booleans())
    def deny(self, numbers: set[int], on: bool) -> None:
        meant = {number for number in numbers if number < len(self.evs)}
        before = [ev.state for ev in self.evs.evs]
        try:
            self.verdicts.deny(self.now, [self.evs.evs[number] for number in meant], on)
        except UsageError:
            assert on
            assert [ev.state for ev in self.evs.evs] == before
            return
        self.denied = self.denied | meant if on else self.denied - meant

    @rule(passed_s=st.floats(0.0, 1.0), answered=st.booleans())
    def probe(self, passed_s: float, answered: bool) -> None:
        self.now += passed_s
        for ev in list(self.evs.due_probes(self.now, 0.01)):
            assert not ev.is_mute
            answer = self.evs.probe_answered(self.now, ev.probe_id) if answered else None
            if answer is not None and answer[1]:
                self.verdicts.restore(self.now, ev, ev.proof)
        self.verdicts.convict(self.now, self.now - 0.5)

    @rule()
    def send(self) -> None:
        free = [ev for ev in self.evs.evs if not ev.out]
        for ev in (self.evs.pick() for _ in range(2 * len(self.evs))):
            assert not free or ev.state != DENIED
            assert not free or not ev.down

    @invariant()
    def the_denied_are_denied_and_no_others(self) -> None:
        assert {ev.index for ev in self.evs.evs if ev.state == DENIED} == self.denied

    @invariant()
    def an_ev_whose_port_is_down_here_is_out_of_use(self) -> None:
        assert all(ev.out for ev in self.evs.evs if self.ports[0] >> ev.path.port & 1)

    @invariant()
    def what_is_out_of_use_is_listed_once(self) -> None:
        assert sorted(ev.index for ev in self.evs.out) == [ev.index for ev in self.evs.evs if ev.out]
        assert all(ev.out or ev.state in (GOOD, SKIP) for ev in self.evs.evs)
        assert all(ev.state != GOOD for ev in self.evs.out)

    @invariant()
    def planes_with_a_usable_ev_have_as_many_turns_each(self) -> None:
        self.evs.arrange()
        turns = Counter(ev.path.plane for ev in self.evs.rotation._turns)
        usable = {ev.path.plane for ev in self.evs.evs if not ev.out}
        assert {turns[plane] for plane in usable} <= {len(self.evs) // PLANES}
        assert turns.total() > 0

    @invariant()
    def the_history_tells_every_state(self) -> None:
        told = {ev.index: GOOD for ev in self.evs.evs}
        for event in self.events:
            assert event.fields["from"] == told[event.fields["ev"]]
            assert event.fields["to"] != event.fields["from"]
            told[event.fields["ev"]] = event.fields["to"]
        now = {ev.index: ev.state if ev.state in (ASSUMED_BAD, DENIED) else GOOD for ev in self.evs.evs}
        assert told == now


TestLife = Life.TestCase
TestLife.settings = settings(deadline=None, max_examples=150, stateful_step_count=40)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 1 << 20), evs=st.sampled_from((0, 24)))
def test_a_job_gets_through_whatever_is_denied_and_whichever_ports_flap(seed: int, evs: int) -> None:
    """Paths die and lose packets, ports go down at either end, and the administrator denies and allows at random."""
    rng = Random(f"administrator {seed}")
    flaps = tuple((rng.choice("ab"), rng.randrange(3), at := 100.0 + rng.random() * 0.3, at + rng.random() * 0.2) for _ in range(4))
    dead = tuple((rng.randrange(6), at := 100.0 + rng.random() * 0.3, at + rng.random()) for _ in range(3))
    conditions = Conditions(rate_bps=5e6, loss=0.01, duplication=0.01, trimming=0.01, ports=3, port_down=flaps, dead=dead)
    world = World(conditions, paths=6, seed=seed, evs=evs, ports_down_s=5)
    world.post_row([1 << 17] * 8)
    for _ in range(30):
        world.run_on(0.01)
        links = [f"b-path{path}" for path in range(6) if rng.random() < 0.3]
        with suppress(UsageError):  # the last usable EV
            world.a.deny(world.channel.now, links, {}, on=rng.random() < 0.5)
    world.a.deny(world.channel.now, [f"b-path{path}" for path in range(6)], {}, on=False)
    world.run(60)
    world.assert_delivered()
