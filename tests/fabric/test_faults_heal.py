"""Every kind of fault on every tier, alone and overlapping in every order: what is left behind afterwards is nothing, in both arms.

Before and after are compared as the kernels tell it: interfaces, addresses, routes of all tables (the FIBs), neighbours, queues, classes,
filters, the link program's parameters, and Open vSwitch's tables.
"""

from __future__ import annotations

from typing import Any

import pytest
from netns.fabric_lab import ask

pytestmark = pytest.mark.fabric


def tell(switching: str) -> dict[str, Any]:
    """All faults on a k=2 fat-tree (three tiers, one path): what each changed meanwhile, and what it left."""
    import time
    from pathlib import Path

    from fabric_snapshot import differences, settles_to, snapshot

    from testbed.fabric import Fabric, LinkSettings
    from testbed.faults.actions import ACTIONS
    from testbed.faults.injector import Injector
    from testbed.routing.options import BgpOptions
    from testbed.scenario.faults import Fault
    from testbed.scenario.targets import resolve
    from topologies import build

    # Sessions come back within a second: what is healed is compared when BGP has settled, and that is waited for after every fault.
    bgp = {"bgp": BgpOptions(connect_retry_s=1)}
    settings = LinkSettings(rate_bps=50_000_000)
    fabric = Fabric(build("fat-tree", k=2), settings, switching, Path("/run/testbed/x"), bgp if switching == "frr" else {})
    fabric.deploy()
    fabric.verify()
    healthy = snapshot(fabric)
    nic, lower, upper = "h1-t0_1_1", "t0_1_1-t1_1_1", "t1_1_1-t2_1"

    def fault(name: str, kind: str, target: Any, params: dict[str, Any], at_s: float = 0.0, for_s: float = 1.0) -> Fault:
        found = resolve(fabric.topology, kind, target)
        return Fault(name, kind, found.name, found.type, found.tier, at_s, for_s, "", params, found.links)

    def words(kind: str, target: Any, params: dict[str, Any]) -> str:
        return " ".join([kind, target if isinstance(target, str) else "+".join(target), *map(str, params.values())])

    def carry_out(sequence: str, described: dict[str, Any]) -> dict[str, Any]:
        """`sequence` names faults by a letter: its first occurrence begins it, the second ends it."""
        faults = {letter: fault(letter, *description) for letter, description in described.items()}
        changed = 0
        for place, letter in enumerate(sequence):
            action = ACTIONS[faults[letter].kind]
            (action.end if letter in sequence[:place] else action.begin)(fabric, faults[letter])
            changed = changed or (len(differences(healthy, snapshot(fabric))) if place == 0 else 0)
        return {"changed": changed, "left": settles_to(fabric, healthy)}

    def at_once() -> list[str]:
        """Faults of all kinds on the same few links and switches, each in a thread of its own, ending in another order than they began."""
        faults = [
            fault(f"f{number}", *description, 0.02 * (number % 5), 0.1 + 0.3 * (number % 4)) for number, description in enumerate(alone)
        ]
        injectors = [Injector(fabric, [one], time.monotonic(), lambda _event: None) for one in faults]
        for injector in injectors:
            injector.start()
        time.sleep(0.2 + max(one.end_s for one in faults))
        for injector in injectors:
            injector.finish()
        return settles_to(fabric, healthy)

    def ends(link: str) -> list[Any]:
        """(is up, has carrier, packets dropped by a fault meanwhile) of end a and end b while h1 pings h2."""
        found = fabric.topology.link(link)
        before = fabric.link_counters()["dropped_packets"].copy()
        for source, peer in (("h1", "h2"), ("h2", "h1")):
            fabric.net[source].cmd(f"ping -c 1 -W 0.2 {fabric.net[peer].IP()}")
        dropped = fabric.link_counters()["dropped_packets"] - before
        states = []
        for end, row in ((found.a, 2 * found.index), (found.b, 2 * found.index + 1)):
            flags = fabric.net[end.node].cmd(f"ip link show {end.ifname}")
            states.append([",UP" in flags, "LOWER_UP" in flags, int(dropped[row]) > 0])
        return states

    story: dict[str, Any] = {"ends": {}, "overlapping": {}}
    for kind in ("carrier", "silent"):
        for target in (nic, lower, upper):
            only = fault("f1", kind, target, {})
            ACTIONS[kind].begin(fabric, only)
            story["ends"][f"{kind} {target}"] = ends(target)
            ACTIONS[kind].end(fabric, only)
            settles_to(fabric, healthy)
    flap = {"down_s": 0.05, "up_s": 0.05, "of": "carrier"}
    alone: list[tuple[str, Any, dict[str, Any]]] = [(kind, target, {}) for kind in ("carrier", "silent") for target in (nic, lower, upper)]
    alone += [(kind, switch, {}) for kind in ("switch-kill", "switch-reboot", "switch-hang") for switch in ("t0_1_1", "t1_1_1", "t2_1")]
    alone += [("remote", nic, {"seen_by": "h1"}), ("remote", nic, {"seen_by": "t0_1_1"}), ("remote", lower, {"seen_by": "t1_1_1"})]
    alone += [("one-way", nic, {"from": "t0_1_1"}), ("one-way", upper, {"from": "t1_1_1"}), ("port", "h1-eth0", {})]
    alone += [("loss", lower, {"share": 0.05}), ("loss", upper, {"share": 1.0, "from": "t2_1", "evs": [1, 2]})]
    alone += [("rate", nic, {"rate_bps": 1e6}), ("rate", lower, {"share": 0.5, "from": "t0_1_1"})]
    alone += [("bundle", (nic, lower), {"of": "carrier"}), ("bundle", (lower, upper), {"of": "silent"}), ("flap", upper, flap)]
    story["alone"] = {words(*description): carry_out("aa", {"a": description}) for description in alone}
    every, some = ("abab", "abba", "baba", "baab"), ("abab", "abba")
    remote, port = ("remote", lower, {"seen_by": "t1_1_1"}), ("port", "h1-eth0", {})
    for sequences, first, second in (
        (every, ("carrier", nic, {}), ("switch-kill", "t0_1_1", {})),
        (every, ("carrier", lower, {}), ("switch-reboot", "t1_1_1", {})),
        (every, ("carrier", upper, {}), ("silent", upper, {})),
        (every, ("switch-kill", "t1_1_1", {}), ("switch-reboot", "t1_1_1", {})),
        (every, ("switch-kill", "t1_1_1", {}), ("switch-kill", "t2_1", {})),
        (every, port, ("carrier", nic, {})),
        (some, port, ("switch-kill", "t0_1_1", {})),
        (some, remote, ("carrier", lower, {})),
        (some, remote, ("switch-reboot", "t1_1_1", {})),
        (some, ("one-way", lower, {"from": "t0_1_1"}), remote),
        (some, ("rate", lower, {"share": 0.1}), ("switch-kill", "t1_1_1", {})),
        (some, ("rate", lower, {"share": 0.1}), ("rate", lower, {"rate_bps": 1e6, "from": "t1_1_1"})),
        (some, ("loss", lower, {"share": 0.1}), ("loss", lower, {"share": 0.2, "from": "t1_1_1"})),
        (some, ("switch-hang", "t1_1_1", {}), ("silent", lower, {})),
    ):
        for sequence in sequences:
            name = f"{sequence}: a {words(*first)}, b {words(*second)}"
            story["overlapping"][name] = carry_out(sequence, {"a": first, "b": second})
    story["at_once"] = at_once()
    fabric.verify()
    fabric.remove()
    return story


@pytest.fixture(scope="module", params=["ovs", "frr"])
def story(request: pytest.FixtureRequest) -> dict[str, Any]:
    answer: dict[str, Any] = ask(tell, request.param, timeout_s=420)
    return answer


def test_a_fault_alone_leaves_nothing(story: dict[str, Any]) -> None:
    assert {name: found["left"] for name, found in story["alone"].items() if found["left"]} == {}


def test_overlapping_faults_leave_nothing_in_whatever_order_they_end(story: dict[str, Any]) -> None:
    assert {name: found["left"] for name, found in story["overlapping"].items() if found["left"]} == {}


def test_faults_that_begin_and_end_at_the_same_time_leave_nothing(story: dict[str, Any]) -> None:
    assert story["at_once"] == []


def test_every_fault_changed_something_that_the_comparison_sees(story: dict[str, Any]) -> None:
    assert [name for group in ("alone", "overlapping") for name, found in story[group].items() if not found["changed"]] == []


def test_both_ends_of_a_cut_link_are_without_carrier_and_the_upper_one_is_set_down(story: dict[str, Any]) -> None:
    states = {name: [end[:2] for end in ends] for name, ends in story["ends"].items() if name.startswith("carrier")}
    assert list(states.values()) == [[[True, False], [False, False]]] * 3


def test_both_ends_of_a_silent_link_keep_their_carrier(story: dict[str, Any]) -> None:
    states = {name: [end[:2] for end in ends] for name, ends in story["ends"].items() if name.startswith("silent")}
    assert list(states.values()) == [[[True, True], [True, True]]] * 3


def test_a_silent_link_counts_what_it_loses_in_both_directions(story: dict[str, Any]) -> None:
    assert [[end[2] for end in ends] for name, ends in story["ends"].items() if name.startswith("silent")] == [[True, True]] * 3
