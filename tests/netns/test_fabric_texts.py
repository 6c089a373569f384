"""The pure and the small parts of the fabric, without root: host texts, command errors, requirements, netlink parsing."""

from __future__ import annotations

import sys

import pytest

from testbed import requirements
from testbed.command import run
from testbed.errors import CommandFailed, HostError, UsageError
from testbed.fabric import Fabric, LinkSettings
from testbed.fabric.bpf import MAX_ROWS, SOURCE, row_of
from testbed.fabric.hosts import TUNNEL_BLOCK, host_batch, routed_host_batch, tunnel_address
from topologies import build
from topologies.addresses import host_address, usid_address


def test_a_failed_command_keeps_its_argv_status_and_output() -> None:
    argv = [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(5)"]
    with pytest.raises(CommandFailed) as failure:
        run(argv, "trying it")
    assert failure.value.argv == tuple(argv)
    assert failure.value.status == 5
    assert {"out", "err"} <= set(failure.value.output.split())
    assert str(failure.value).startswith("trying it: ")


def test_a_command_that_does_not_end_is_a_failure() -> None:
    with pytest.raises(CommandFailed, match=r"no end after 0\.2 s"):
        run([sys.executable, "-c", "import time; time.sleep(60)"], "waiting", timeout_s=0.2)


def test_a_missing_program_points_to_the_doctor() -> None:
    with pytest.raises(HostError, match="testbed doctor"):
        run(["no-such-program-here"], "trying it")


def test_a_command_gets_its_input() -> None:
    assert run([sys.executable, "-c", "print(input())"], "echoing", input_text="hello\n") == "hello\n"


def test_every_program_names_its_package_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "PROGRAMS", (("no-such-program-here", "no-such-package", "nothing", True),))
    missing = [check for check in requirements.checks() if check.name == "no-such-program-here"]
    assert [(check.ok, check.hint) for check in missing] == [(False, "apt install no-such-package")]


def test_requirements_report_all_that_is_missing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        requirements, "PROGRAMS", (("no-such-a", "pa", "x", True), ("no-such-b", "pb", "x", True), ("no-such-c", "pc", "x", False))
    )
    monkeypatch.setattr(requirements, "FEATURES", requirements.FEATURES[:1])
    with pytest.raises(HostError, match=r"no-such-a.*no-such-b") as failure:
        requirements.require(["mrc"])
    assert "no-such-c" not in str(failure.value)


def test_rows_of_a_fabric_are_all_different_and_fit_the_map() -> None:
    links = build("fat-tree", k=6).links.values()
    rows = [row_of(link, at_a) for link in links for at_a in (True, False)]
    assert len(set(rows)) == len(rows)
    assert max(rows) < MAX_ROWS


def test_the_map_has_as_many_rows_as_the_program_says() -> None:
    assert f"#define MAX_ROWS {MAX_ROWS}" in SOURCE.read_text()


def test_a_host_has_one_route_a_port_with_metrics_of_their_own() -> None:
    topology = build("multi-plane", planes=2, t0s=2, t1s=2, hosts_per_t0=1)
    routes = [line.split() for line in host_batch(topology, "h1", None).splitlines() if line.startswith("route add fcbb:")]
    assert [words[words.index("dev") + 1] for words in routes] == ["h1-eth0", "h1-eth1"]
    assert len({words[words.index("metric") + 1] for words in routes}) == 2


def test_a_host_has_a_tunnel_to_each_other_host() -> None:
    topology = build("fat-tree", k=4)
    lines = [line for line in host_batch(topology, "h1", "encap.red").splitlines() if "encap seg6 " in line]
    assert {line.split()[2].removesuffix("/128") for line in lines} == {host_address(topology.nodes[host]) for host in topology.hosts[1:]}


def test_tunnels_never_use_the_agents_source_address() -> None:
    topology = build("fat-tree", k=4)
    for host in topology.hosts:
        node = topology.nodes[host]
        assert tunnel_address(node).startswith(TUNNEL_BLOCK.partition("::")[0])
        assert tunnel_address(node) not in {usid_address(node), host_address(node)}


def test_without_srv6_in_the_kernel_a_host_has_no_tunnels() -> None:
    assert "encap" not in host_batch(build("fat-tree", k=4), "h1", None)


def test_a_routed_host_uses_all_its_ports_for_all_hosts() -> None:
    topology = build("multi-plane", planes=2, t0s=2, t1s=2, hosts_per_t0=1)
    last = routed_host_batch(topology, "h1").splitlines()[-1]
    assert last.count("nexthop via fe80::1") == 2


def test_an_unknown_kind_of_switch_is_refused() -> None:
    with pytest.raises(UsageError, match="choose one of ovs, ovs-ecmp, ovs-bgp, frr"):
        Fabric(build("fat-tree", k=2), LinkSettings(rate_bps=10**7), "magic", SOURCE.parent)


def test_a_fabric_is_refused_outside_of_a_sandbox() -> None:
    fabric = Fabric(build("fat-tree", k=2), LinkSettings(rate_bps=10**7), "ovs", SOURCE.parent / "build")
    with pytest.raises(HostError, match="sandbox"):
        fabric.deploy()
