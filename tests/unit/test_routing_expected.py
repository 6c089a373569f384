"""What BGP must come to, worked out from the topology: healthy, with cut links, with dead switches."""

from __future__ import annotations

import pytest

from testbed.routing.expected import expected_fibs, expected_next_hops
from topologies import build
from topologies.addresses import host_address
from topologies.model import UnknownLink, UnknownNode

K4 = build("fat-tree", k=4)
PLANES = build("multi-plane", planes=2, t0s=2, t1s=3, hosts_per_t0=2)


def neighbours(router: str, host: str, down_links=(), down_switches=(), topology=K4) -> set[str]:
    """Names of the nodes behind the expected next hops."""
    ports = expected_next_hops(topology, router, host, down_links, down_switches)
    return {link.other(router).node for link in topology.links_of(router) if link.end(router).ifname in ports}


def test_t0_has_its_own_host_on_one_port():
    assert neighbours("t0_1_1", "h1") == {"h1"}


@pytest.mark.parametrize("host", ["h3", "h16"])
def test_t0_balances_over_its_t1s_for_all_other_hosts(host):
    assert neighbours("t0_1_1", host) == {"t1_1_1", "t1_1_2"}


def test_t1_goes_down_for_its_pod():
    assert neighbours("t1_1_1", "h3") == {"t0_1_2"}


def test_t1_goes_up_for_other_pods():
    assert neighbours("t1_1_1", "h16") == {"t2_1", "t2_2"}


def test_t2_has_one_way_to_each_pod():
    assert neighbours("t2_3", "h5") == {"t1_2_2"}


def test_a_t1_that_lost_its_t0_has_no_route_instead_of_a_valley():
    """Its pod's AS number in the path forbids the way down and up again."""
    assert neighbours("t1_1_1", "h1", ["t0_1_1-t1_1_1"]) == set()


def test_the_loss_of_a_t0_link_reaches_the_t2s_and_the_other_pods():
    cut = ["t0_1_1-t1_1_1"]
    assert neighbours("t2_1", "h1", cut) == set()
    assert neighbours("t1_4_1", "h1", cut) == set()
    assert neighbours("t0_4_1", "h1", cut) == {"t1_4_2"}
    assert neighbours("t0_1_2", "h1", cut) == {"t1_1_2"}


def test_the_loss_of_a_t0_link_leaves_other_hosts_alone_elsewhere():
    assert neighbours("t0_4_1", "h3", ["t0_1_1-t1_1_1"]) == {"t1_4_1", "t1_4_2"}


def test_the_cut_t0_sends_everything_through_its_other_t1():
    assert neighbours("t0_1_1", "h16", ["t0_1_1-t1_1_1"]) == {"t1_1_2"}


def test_a_cut_between_t1_and_t2_takes_one_of_two_next_hops():
    assert neighbours("t1_1_1", "h16", ["t1_1_1-t2_1"]) == {"t2_2"}
    assert neighbours("t1_4_1", "h1", ["t1_1_1-t2_1"]) == {"t2_2"}
    assert neighbours("t0_4_1", "h1", ["t1_1_1-t2_1"]) == {"t1_4_1", "t1_4_2"}


def test_a_cut_host_is_nowhere():
    fibs = expected_fibs(K4, ["h1-t0_1_1"])
    assert all(host_address(K4.nodes["h1"]) not in fib for fib in fibs.values())


def test_a_dead_switch_has_no_fib_and_is_nobodys_next_hop():
    fibs = expected_fibs(K4, down_switches=["t1_1_1"])
    assert "t1_1_1" not in fibs
    assert neighbours("t0_1_1", "h16", down_switches=["t1_1_1"]) == {"t1_1_2"}


def test_a_healthy_fabric_has_every_host_in_every_fib():
    assert all(len(fib) == len(K4.hosts) for fib in expected_fibs(K4).values())


def test_next_hops_are_the_first_links_of_the_shortest_paths():
    """An independent account of the same: the topology's own path search, from every T0 of a host."""
    for dst in ("h2", "h7", "h16"):
        for path in (path for src in K4.hosts if src != dst for path in K4.paths(src, dst)):
            for node, link in zip(path.nodes[1:], path.links[1:], strict=False):
                assert K4.link(link).end(node).ifname in expected_next_hops(K4, node, dst)


def test_planes_stay_apart():
    assert neighbours("t0_1_1", "h4", topology=PLANES) == {"t1_1_1", "t1_1_2", "t1_1_3"}


def test_a_cut_in_one_plane_does_not_touch_the_other():
    cut = ["t0_1_1-t1_1_1"]
    assert neighbours("t0_1_2", "h1", cut, topology=PLANES) == {"t1_1_2", "t1_1_3"}
    assert neighbours("t0_2_2", "h1", cut, topology=PLANES) == {"t1_2_1", "t1_2_2", "t1_2_3"}


def test_both_orders_of_a_links_ends_are_the_same_cut():
    assert expected_fibs(K4, ["t1_1_1-t0_1_1"]) == expected_fibs(K4, ["t0_1_1-t1_1_1"])


def test_unknown_names_are_refused():
    with pytest.raises(UnknownLink):
        expected_fibs(K4, ["t0_1_1-t9_9_9"])
    with pytest.raises(UnknownNode):
        expected_fibs(K4, down_switches=["t9_9_9"])
