"""Who must act after a fault: pairs are `local` or `remote` by topology alone, and streams are drawn from pairs that can be hit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.converge.classes import LOCAL, REMOTE, crossings, ends, probe_flows, why_not
from testbed.routing.expected import expected_next_hops
from testbed.scenario.faults import Fault
from topologies import build

FAT_TREE = build("fat-tree", k=4)
PLANES = build("multi-plane", planes=2, t0s=2, t1s=2, hosts_per_t0=2)
FABRIC_LINKS = [link.name for link in FAT_TREE.links.values() if link.tier != "NIC-T0"]


def cut(link: str, kind: str = "carrier", **params: object) -> Fault:
    return Fault("f1", kind, link, "link", "T0-T1", 1.0, 2.0, "$.faults[0]", params, (link,))


def broken(switch: str, topology=FAT_TREE, kind: str = "switch-kill") -> Fault:
    links = tuple(link.name for link in topology.links_of(switch))
    return Fault("f1", kind, switch, "switch", "T1", 1.0, 2.0, "$.faults[0]", {}, links)


def test_who_sends_up_over_a_cut_uplink_has_another_and_who_sends_down_has_none() -> None:
    found = crossings(FAT_TREE, cut("t0_1_1-t1_1_1"))
    assert found["h1", "h16"].flow_class == LOCAL
    assert found["h1", "h16"].rows == {("t0_1_1-t1_1_1", "t0_1_1")}
    assert found["h16", "h1"].flow_class == REMOTE
    assert found["h16", "h1"].rows == {("t0_1_1-t1_1_1", "t1_1_1")}


def test_pairs_that_no_path_of_crosses_the_fault_are_left_out() -> None:
    found = crossings(FAT_TREE, cut("t0_1_1-t1_1_1"))
    assert ("h1", "h2") not in found, "same T0"
    assert ("h5", "h16") not in found, "other pods"


def test_a_cut_between_pods_is_local_up_and_remote_down() -> None:
    found = crossings(FAT_TREE, cut("t1_2_1-t2_1"))
    assert found["h5", "h16"].flow_class == LOCAL
    assert found["h16", "h5"].flow_class == REMOTE


def test_a_dead_t1_is_local_for_its_own_pod_and_remote_for_the_t2s() -> None:
    found = crossings(FAT_TREE, broken("t1_1_1"))
    assert found["h1", "h3"].flow_class == LOCAL
    assert found["h1", "h16"].flow_class == LOCAL
    assert found["h16", "h1"].flow_class == REMOTE
    assert {node for _, node in found["h16", "h1"].rows} == {"t2_1", "t2_2"}


def test_hosts_that_are_cut_off_have_no_class() -> None:
    assert crossings(FAT_TREE, cut("h1-t0_1_1")) == {}
    assert not any("h1" in pair for pair in crossings(FAT_TREE, broken("t0_1_1")))


def test_a_one_way_fault_is_met_only_that_way() -> None:
    found = crossings(FAT_TREE, cut("t0_1_1-t1_1_1", "one-way", **{"from": "t0_1_1"}))
    assert ("h1", "h16") in found
    assert ("h16", "h1") not in found


def test_a_plane_that_has_no_way_left_cuts_off_although_the_other_plane_works() -> None:
    assert crossings(PLANES, cut("h1-t0_1_1")) == {}
    assert crossings(PLANES, cut("t0_1_1-t1_1_1"))["h1", "h4"].flow_class == LOCAL


@given(st.sampled_from(FABRIC_LINKS), st.sampled_from(FAT_TREE.hosts), st.sampled_from(FAT_TREE.hosts))
def test_local_means_that_the_sender_of_every_row_keeps_a_next_hop(link: str, source: str, target: str) -> None:
    crossing = crossings(FAT_TREE, cut(link)).get((source, target))
    if crossing is None:
        assert source == target or not any(link in path.links for path in FAT_TREE.paths(source, target))
        return
    left = [bool(expected_next_hops(FAT_TREE, node, target, [link])) for _, node in crossing.rows]
    assert (crossing.flow_class == LOCAL) == all(left)


def test_streams_are_half_local_half_remote_on_sockets_of_their_own_and_the_seed_decides() -> None:
    flows = probe_flows(FAT_TREE, cut("t0_1_1-t1_1_1"), 32, seed=1)
    assert [sum(flow.flow_class == name for flow in flows) for name in (LOCAL, REMOTE)] == [16, 16]
    assert len({flow.port for flow in flows}) == 32
    assert flows == probe_flows(FAT_TREE, cut("t0_1_1-t1_1_1"), 32, seed=1)
    assert flows != probe_flows(FAT_TREE, cut("t0_1_1-t1_1_1"), 32, seed=2)


def test_no_stream_for_a_fault_that_nobody_can_go_around() -> None:
    assert probe_flows(FAT_TREE, cut("h1-t0_1_1"), 32, seed=1) == ()


def test_the_routers_at_a_broken_switch_are_its_neighbours() -> None:
    assert ends(FAT_TREE, cut("t0_1_1-t1_1_1")) == {"t0_1_1", "t1_1_1"}
    assert ends(FAT_TREE, broken("t1_1_1")) == {"t0_1_1", "t0_1_2", "t2_1", "t2_2"}


@pytest.mark.parametrize(
    ("kind", "params", "measured"),
    [
        ("carrier", {}, True),
        ("silent", {}, True),
        ("switch-hang", {}, True),
        ("flap", {"down_s": 1, "up_s": 1, "of": "carrier"}, False),
        ("rate", {"share": 0.5}, False),
        ("loss", {"share": 0.1}, False),
        ("loss", {"share": 1}, True),
    ],
)
def test_only_faults_that_take_the_path_are_measured(kind: str, params: dict, measured: bool) -> None:
    assert (why_not(cut("t0_1_1-t1_1_1", kind, **params)) == "") is measured
