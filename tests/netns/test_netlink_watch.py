"""The watch of links and FIBs: events on real changes, nothing else, and counted overruns."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.netns


def test_a_cut_and_mended_link_gives_events_of_both_ends(sandboxed):
    def body():
        from frr_lab import Watched

        from topologies import build

        watched = Watched(build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1))
        watched.lab.set_link("t0_1_1-t1_1_1", False, both_ends=False)
        ends = {("t0_1_1", "t0_1_1-eth2"), ("t1_1_1", "t1_1_1-eth1")}
        watched.wait_for("link", lambda events: {(e["node"], e["ifname"]) for e in events if not e["up"]} == ends)
        watched.lab.set_link("t0_1_1-t1_1_1", True, both_ends=False)
        watched.wait_for("link", lambda events: {(e["node"], e["ifname"]) for e in events if e["up"]} == ends)

    sandboxed(body)


def test_a_route_gives_events_with_node_prefix_and_change(sandboxed):
    def body():
        from frr_lab import Watched

        from topologies import build

        watched = Watched(build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1))
        for verb in ("add", "replace", "del"):
            watched.lab.ip("t1_1_1", "-6", "route", verb, "fd00:9::1/128", "dev", "t1_1_1-eth1")
        watched.wait_for("fib", lambda events: [e["change"] for e in events if e["prefix"] == "fd00:9::1/128"] == ["add", "replace", "del"])
        assert {e["node"] for e in watched.events if e.get("prefix") == "fd00:9::1/128"} == {"t1_1_1"}

    sandboxed(body)


def test_times_lie_between_cause_and_now(sandboxed):
    def body():
        import time

        from frr_lab import Watched

        from topologies import build

        watched = Watched(build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1))
        before = time.monotonic()
        watched.lab.ip("t1_1_1", "-6", "route", "add", "fd00:9::1/128", "dev", "t1_1_1-eth1")
        event = watched.wait_for("fib", lambda events: len(events) == 1)[0]
        assert before <= event["t"] <= time.monotonic()
        assert event["source"] == "netlink"

    sandboxed(body)


def test_what_changes_without_carrier_is_no_link_event(sandboxed):
    def body():
        from frr_lab import Watched

        from topologies import build

        watched = Watched(build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1))
        watched.lab.ip("t1_1_1", "link", "set", "t1_1_1-eth1", "mtu", "4000")
        watched.lab.ip("t1_1_1", "-6", "route", "add", "fd00:9::1/128", "dev", "t1_1_1-eth1")
        watched.wait_for("fib", lambda events: len(events) == 1)
        assert [e for e in watched.events if e["event"] == "link"] == []

    sandboxed(body)


def test_overruns_are_counted(sandboxed):
    def body():
        import testbed.collect.netlink as module

        module.BUFFER_BYTES = 1
        from frr_lab import Watched

        from topologies import build

        watched = Watched(build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1), slow_s=0.2)
        lines = "\n".join(f"route add fd00:9::{number:x}/128 dev t1_1_1-eth1" for number in range(1, 500))
        watched.batch("t1_1_1", lines)
        watched.until(lambda: watched.watch.overruns > 0)

    sandboxed(body)


def test_stop_takes_what_was_sent_before_it(sandboxed):
    def body():
        from frr_lab import Watched

        from topologies import build

        watched = Watched(build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1))
        watched.batch("t1_1_1", "\n".join(f"route add fd00:9::{number:x}/128 dev t1_1_1-eth1" for number in range(1, 300)))
        watched.watch.stop()
        assert len([e for e in watched.events if e["event"] == "fib"]) == 299
        assert watched.watch.overruns == 0

    sandboxed(body)
