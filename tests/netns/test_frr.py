"""Real zebra and bgpd on small fabrics: exact FIBs when healthy, cut, silent, stopped, booted; errors that say what is wrong."""

from __future__ import annotations

import shutil

import pytest

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(shutil.which("bgpd", path="/usr/lib/frr:/usr/libexec/frr:/usr/sbin") is None, reason="FRR is not installed"),
]


def test_k4_converges_to_the_exact_fibs_and_forwards(sandboxed):
    def body():
        from frr_lab import Lab

        from topologies import build

        lab = Lab(build("fat-tree", k=4))
        lab.routers.start()
        lab.routers.wait_converged(60)
        lab.routers.verify()
        for source, destination in (("h1", "h2"), ("h1", "h3"), ("h1", "h16"), ("h13", "h4")):
            assert lab.ping(source, destination), f"{source} does not reach {destination}"

    sandboxed(body)


def test_both_planes_of_a_multi_plane_fabric_converge(sandboxed):
    def body():
        from frr_lab import Lab

        from topologies import build

        lab = Lab(build("multi-plane", planes=2, t0s=2, t1s=2, hosts_per_t0=2))
        lab.routers.start()
        lab.routers.wait_converged(60)
        lab.routers.verify()
        assert lab.ping("h1", "h4")

    sandboxed(body)


@pytest.mark.parametrize("both_ends", [True, False], ids=["set-down-at-both-ends", "set-down-at-one-end"])
def test_fibs_follow_cut_and_mended_links_again_and_again(sandboxed, both_ends):
    """FRR issue 12239: with kernel next-hop groups IPv6 next hops do not come back (docs/decisions/0002-frr-nexthops.md)."""

    def body():
        from frr_lab import Lab

        from topologies import build

        lab = Lab(build("fat-tree", k=4))
        lab.routers.start()
        lab.routers.wait_converged(60)
        for _ in range(3):
            for link in ("t0_1_1-t1_1_1", "t1_2_1-t2_1", "h5-t0_2_1"):
                lab.set_link(link, False, BOTH_ENDS)  # noqa: F821
                lab.routers.wait_converged(30, down_links=[link])
                lab.set_link(link, True, BOTH_ENDS)  # noqa: F821
                lab.routers.wait_converged(30)

    sandboxed(with_constants(body, BOTH_ENDS=both_ends))


def test_a_host_port_works_again_after_it_was_set_down(sandboxed):
    def body():
        from frr_lab import Lab

        from topologies import build

        lab = Lab(build("multi-plane", planes=1, t0s=2, t1s=2, hosts_per_t0=2))
        lab.routers.start()
        lab.routers.wait_converged(60)
        lab.ip("t0_1_1", "link", "set", "t0_1_1-eth1", "down")
        lab.routers.wait_converged(30, down_links=["h1-t0_1_1"])
        lab.ip("t0_1_1", "link", "set", "t0_1_1-eth1", "up")
        lab.routers.restore_host_port("t0_1_1", "t0_1_1-eth1")
        lab.routers.wait_converged(30)
        port = lab.ip("t0_1_1", "-6", "addr", "show", "t0_1_1-eth1")
        assert "fe80::1/64" in port, port
        assert "PERMANENT" in lab.ip("t0_1_1", "-6", "neigh", "show", "dev", "t0_1_1-eth1")
        assert lab.ping("h4", "h1")

    sandboxed(body)


def test_a_silent_loss_is_found_by_the_hold_time_and_heals(sandboxed):
    def body():
        from frr_lab import Lab

        from testbed.routing.options import BgpOptions
        from topologies import build

        lab = Lab(build("multi-plane", planes=1, t0s=2, t1s=2, hosts_per_t0=2), BgpOptions(keepalive_s=1, hold_s=3, connect_retry_s=2))
        lab.routers.start()
        lab.routers.wait_converged(60)
        lab.set_silent("t0_1_1-t1_1_1", True)
        lab.routers.wait_converged(30, down_links=["t0_1_1-t1_1_1"])
        assert "LOWER_UP" in lab.ip("t0_1_1", "link", "show", "t0_1_1-eth3"), "the carrier should have stayed up"
        assert "hold" in {event["reason"] for event in lab.routers.events() if event.get("up") is False}
        lab.set_silent("t0_1_1-t1_1_1", False)
        lab.routers.wait_converged(30)

    sandboxed(body)


def test_bfd_finds_a_silent_loss_that_the_hold_time_would_not_and_heals(sandboxed):
    """The hold time is 180 s, so only BFD can have found it. What it sends is routing to the link program (DSCP 48), as BGP's is."""

    def body():
        from frr_lab import Lab, sent

        from testbed.routing.options import BgpOptions
        from topologies import build

        options = BgpOptions.from_mapping({"profile": "traditional-bfd-300x3", "connect_retry_s": 1})
        lab = Lab(build("multi-plane", planes=1, t0s=2, t1s=2, hosts_per_t0=1), options)
        lab.routers.start()
        lab.routers.wait_converged(60)
        lab.routers.await_detection(20)
        lab.routers.verify()
        packets = sent(lab, "t0_1_1", "t0_1_1-eth2", lambda seen: ("udp", 3784) in {packet[:2] for packet in seen})
        assert {dscp for _, port, dscp in packets if port in (179, 3784)} == {48}, packets
        lab.set_silent("t0_1_1-t1_1_1", True)
        lab.routers.wait_converged(30, down_links=["t0_1_1-t1_1_1"])
        fell = {(event["event"], event["node"], event["reason"]) for event in lab.routers.events() if event.get("up") is False}
        assert fell >= {("bfd", "t0_1_1", "control-expired"), ("session", "t0_1_1", "bfd")}
        lab.set_silent("t0_1_1-t1_1_1", False)
        lab.routers.wait_converged(30)
        lab.routers.await_detection(20)

    sandboxed(body)


def test_a_cut_is_told_by_both_ends_and_withdrawn_everywhere(sandboxed):
    """On CLOCK_MONOTONIC, with the peer's name: the sessions' ends, and the withdrawal of the pod's hosts on the T1 that lost its T0."""

    def body():
        import time

        from frr_lab import Lab

        from topologies import build

        lab = Lab(build("multi-plane", planes=1, t0s=2, t1s=2, hosts_per_t0=2))
        lab.routers.start()
        lab.routers.wait_converged(60)
        began = time.monotonic()
        lab.set_link("t0_1_1-t1_1_1", False)
        lab.routers.wait_converged(30, down_links=["t0_1_1-t1_1_1"])
        told = [event for event in lab.routers.events() if event["t"] >= began - 0.01]  # the two clocks are read one after the other
        ended = time.monotonic()  # the tables are right, but the last words may still be on their way
        assert all(event["t"] <= ended + 0.01 and event["source"] == "routing" for event in told), told
        sessions = {(event["node"], event["peer"], event["up"], event["reason"]) for event in told if event["event"] == "session"}
        assert sessions == {("t0_1_1", "t1_1_1", False, "carrier"), ("t1_1_1", "t0_1_1", False, "carrier")}
        withdrawn = {(event["node"], event["peer"], event["withdrawn"]) for event in told if event.get("withdrawn")}
        assert ("t0_1_2", "t1_1_1", 2) in withdrawn, told  # h1 and h2
        before = [event for event in lab.routers.events() if event["t"] < began - 0.01]
        assert sum(event["event"] == "session" and event["up"] for event in before) == 8
        assert sum(event.get("announced", 0) for event in before if event["node"] == "t0_1_1" and event["peer"] == "t1_1_1") >= 2

    sandboxed(body)


def test_what_a_router_did_before_it_was_killed_is_kept(sandboxed):
    def body():
        from frr_lab import Lab

        from topologies import build

        lab = Lab(build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1))
        lab.routers.start()
        lab.routers.wait_converged(60)
        before = [event for event in lab.routers.events() if event["node"] == "t1_1_1"]
        lab.routers.stop("t1_1_1", orderly=False)
        lab.routers.boot("t1_1_1")
        lab.routers.wait_converged(30)
        after = [event for event in lab.routers.events() if event["node"] == "t1_1_1"]
        assert [event["event"] for event in after[: len(before)]] == [event["event"] for event in before]
        assert sum(event["event"] == "session" and event["up"] for event in after) == 4
        assert sum(event["event"] == "bgp_message" and event["announced"] for event in after[len(before) :]) > 0

    sandboxed(body)


def test_a_bfd_daemon_that_is_late_without_a_fault_is_a_flap(sandboxed):
    """What a machine that is out of CPU does: here bfdd is frozen."""

    def body():
        import signal
        import time

        from frr_lab import Lab

        from testbed.routing.options import BgpOptions
        from testbed.run.flaps import session_flaps
        from topologies import build

        options = BgpOptions.from_mapping({"profile": "datacenter-bfd-300x3"})
        lab = Lab(build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1), options)
        lab.routers.start()
        lab.routers.wait_converged(60)
        lab.routers.await_detection(20)

        def flaps():
            now = time.monotonic()
            return session_flaps(lab.routers.events(), (), lab.topology, start=began, ended=now, grace_s=0.0)

        began = time.monotonic()
        frozen = lab.routers.daemon("t1_1_1", "bfdd").process
        frozen.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + 20
        while len(flaps()) < 2:
            assert time.monotonic() < deadline, lab.routers.events()
            time.sleep(0.05)
        frozen.send_signal(signal.SIGCONT)
        assert [flap.split()[0] for flap in flaps()] == ["t0_1_1-t1_1_1", "t0_1_2-t1_1_1"]

    sandboxed(body)


def test_bfd_with_other_intervals_than_asked_for_is_told(sandboxed):
    def body():
        import pytest
        from frr_lab import Lab

        from testbed.routing.daemons import RoutingError
        from testbed.routing.options import BgpOptions
        from testbed.routing.vty import Vty
        from topologies import build

        lab = Lab(build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1), BgpOptions(bfd_interval_ms=300))
        lab.routers.start()
        lab.routers.wait_converged(60)
        lab.routers.await_detection(20)
        with Vty(lab.routers.daemon("t1_1_1", "bfdd").vty_path) as vty:
            vty.configure(["bfd", "profile fabric", "transmit-interval 400"])
        with pytest.raises(RoutingError, match=r"BFD on t._1_1-eth.: (remote-)?transmit-interval is 400, not 300"):
            lab.routers.verify()

    sandboxed(body)


@pytest.mark.parametrize("orderly", [True, False], ids=["orderly", "killed"])
def test_a_stopped_switch_is_routed_around_does_not_forward_and_boots(sandboxed, orderly):
    def body():
        from frr_lab import Lab

        from topologies import build

        lab = Lab(build("multi-plane", planes=1, t0s=2, t1s=2, hosts_per_t0=2))
        links = [link.name for link in lab.topology.links_of("t1_1_1")]
        lab.routers.start()
        lab.routers.wait_converged(60)
        if not ORDERLY:  # noqa: F821
            for link in links:
                lab.set_link(link, False)
        lab.routers.stop("t1_1_1", ORDERLY)  # noqa: F821
        lab.routers.wait_converged(30)
        assert "proto bgp" not in lab.ip("t1_1_1", "-6", "route"), "stale routes are left"
        forwarding = "/proc/sys/net/ipv6/conf/all/forwarding"
        from pathlib import Path

        from testbed.routing.namespace import inside

        assert inside(lab.pid("t1_1_1"), lambda: Path(forwarding).read_text().strip()) == "0"
        for link in links:
            lab.set_link(link, True)
        lab.routers.boot("t1_1_1")
        lab.routers.wait_converged(30)
        lab.routers.verify()

    sandboxed(with_constants(body, ORDERLY=orderly))


def test_flows_use_every_path_of_a_pair(sandboxed):
    """With one hash on all tiers a T1 would use one of its two T2s only (polarisation)."""

    def body():
        from frr_lab import Lab

        from topologies import build

        lab = Lab(build("fat-tree", k=4))
        lab.routers.start()
        lab.routers.wait_converged(60)
        used = {lab.hops("h1", "h16", source_port)[2] for source_port in range(50000, 50064)}
        assert used == {"t2_1", "t2_2", "t2_3", "t2_4"}, used

    sandboxed(body)


def test_packets_of_kernel_sockets_use_every_uplink_on_both_tiers(sandboxed):
    """A socket's packets carry a hash that a router with hash policy 1 would take for its own: all tiers would choose alike."""

    def body():
        import socket

        from frr_lab import Lab

        from testbed.routing.namespace import inside, run
        from topologies import build
        from topologies.addresses import host_address

        lab = Lab(build("fat-tree", k=4))
        lab.routers.start()
        lab.routers.wait_converged(60)
        own, far = (host_address(lab.topology.nodes[host]) for host in ("h1", "h16"))

        def send():
            for source_port in range(50000, 50064):
                with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as opened:
                    opened.bind((own, source_port))
                    opened.sendto(bytes(32), (far, 4791))

        def sent():
            tables = {node: run(lab.pid(node), node, ["cat", "/proc/net/dev"]) for node in ("t1_1_1", "t1_1_2")}
            lines = [line.split() for table in tables.values() for line in table.splitlines()]
            return {fields[0]: int(fields[10]) for fields in lines if fields[0].endswith(("-eth3:", "-eth4:"))}

        before = sent()
        inside(lab.pid("h1"), send)
        used = {port: count - before[port] for port, count in sent().items()}
        assert sum(count >= 5 for count in used.values()) == 4, f"about 16 each would be even: {used}"

    sandboxed(body)


def test_a_width_of_one_is_one_next_hop_and_another_after_a_cut(sandboxed):
    """With other intervals and retries than any profile has, which are read back."""

    def body():
        from frr_lab import Lab

        from testbed.routing.options import BgpOptions
        from topologies import build

        options = BgpOptions(ecmp_width=1, hash_policy="l3", advertisement_interval_s=1, connect_retry_s=7)
        lab = Lab(build("multi-plane", planes=1, t0s=2, t1s=2, hosts_per_t0=1), options)
        lab.routers.start()
        lab.routers.wait_converged(60)
        lab.routers.verify()
        (port,) = lab.routers.fibs()["t0_1_1"]["fd00:0:0:8002::1"]
        link = next(link for link in lab.topology.links_of("t0_1_1") if link.end("t0_1_1").ifname == port)
        lab.set_link(link.name, False)
        lab.routers.wait_converged(30, down_links=[link.name])
        assert lab.routers.fibs()["t0_1_1"]["fd00:0:0:8002::1"] not in ({port}, set())

    sandboxed(body)


def test_a_dead_daemon_is_named_with_its_last_words(sandboxed):
    def body():
        import signal

        import pytest
        from frr_lab import Lab

        from testbed.routing.daemons import RoutingError
        from topologies import build

        lab = Lab(build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1))
        lab.routers.start()
        lab.routers.wait_converged(60)
        lab.routers.daemon("t1_1_1", "bgpd").kill(signal.SIGKILL)
        with pytest.raises(RoutingError, match=r"^t1_1_1: bgpd is not running \(status -9\)"):
            lab.routers.verify()

    sandboxed(body)


def test_what_is_missing_is_named_when_time_is_up(sandboxed):
    def body():
        import pytest
        from frr_lab import Lab

        from testbed.routing.daemons import RoutingError
        from topologies import build

        lab = Lab(build("multi-plane", planes=1, t0s=2, t1s=2, hosts_per_t0=1))
        lab.routers.start()
        lab.routers.wait_converged(60)
        lab.set_link("t0_1_1-t1_1_1", False)
        lab.routers.wait_converged(30, down_links=["t0_1_1-t1_1_1"])
        with pytest.raises(RoutingError, match="t0_1_1: fd00:0:0:8002::1: lacks t0_1_1-eth2"):
            lab.routers.wait_converged(0.2)

    sandboxed(body)


def test_nothing_of_the_machine_is_written(sandboxed):
    """All files of the daemons lie below the given folder."""

    def body():
        import subprocess
        from pathlib import Path

        from frr_lab import Lab

        from topologies import build

        lab = Lab(build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1))
        before = subprocess.run("ls -lR /etc/frr /var/log/frr", shell=True, capture_output=True, text=True, check=False).stdout
        lab.routers.start()
        lab.routers.wait_converged(60)
        after = subprocess.run("ls -lR /etc/frr /var/log/frr", shell=True, capture_output=True, text=True, check=False).stdout
        assert before == after
        strangers = [path for path in Path("/run").rglob("*") if not path.is_dir() and Path("/run/routers") not in path.parents]
        assert strangers == []

    sandboxed(body)


def test_routers_with_nothing_to_do_log_nothing(sandboxed):
    """FRR 10's zebra without mgmtd repeats an error a hundred times a second, for ever."""

    def body():
        import time

        from frr_lab import Lab

        from topologies import build

        lab = Lab(build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1))
        lab.routers.start()
        lab.routers.wait_converged(60)
        daemons = [lab.routers.daemon(router, name) for router in lab.topology.switches for name in ("zebra", "bgpd")]
        before = [daemon.log_path.stat().st_size for daemon in daemons]
        time.sleep(1.0)  # the time is what is asked about
        assert all(daemon.log_path.stat().st_size - size < 4096 for daemon, size in zip(daemons, before, strict=True))

    sandboxed(body)


def with_constants(body, **constants):
    """Source of `body` and a call of it, with these names defined."""
    import inspect
    import textwrap

    lines = [f"{name} = {value!r}" for name, value in constants.items()]
    return "\n".join([*lines, textwrap.dedent(inspect.getsource(body)), f"{body.__name__}()"])
