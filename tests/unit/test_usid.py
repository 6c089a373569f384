"""Destinations and rules: what the switches are given, and how it is compared with what they say they have."""

import re

import pytest

import topologies
from topologies import addresses, usid


@pytest.fixture(scope="module")
def topology():
    return topologies.build("fat-tree", k=4)


DUMP = """\
NXST_FLOW reply (xid=0x4):
 cookie=0x0, duration=0.011s, table=0, n_packets=7, n_bytes=99, idle_age=0, priority=100,ipv6,ipv6_dst=fcbb:bb00:1001::/48 \
actions=move:NXM_NX_IPV6_DST[0..79]->NXM_NX_IPV6_DST[16..95],load:0->NXM_NX_IPV6_DST[0..15],resubmit(,1)
 reset_counts priority=0 actions=drop
 table=1, priority=100,ipv6,ipv6_dst=fcbb:bb00:8001::/48 actions=mod_dl_dst:02:00:80:01:00:00,output:1
 table=1, priority=100,ipv6,ipv6_dst=fcbb:bb00:8002::/48 actions=set_field:02:00:80:02:00:00->eth_dst,output:2
 table=1, priority=100,ipv6,ipv6_dst=fcbb:bb00:2001::/48 actions=output:3
 table=1, priority=100,ipv6,ipv6_dst=fcbb:bb00:2002::/48 actions=output:4
 table=1, priority=0 actions=drop
"""


def test_a_destination_lists_every_node_after_the_source(topology):
    path = topology.paths("h1", "h16")[2]
    usids = [f"{topology.nodes[name].usid:x}" for name in path.nodes[1:]]
    assert usid.destination(topology, path) == "fcbb:bb00:" + ":".join(usids)


def test_a_short_destination_ends_in_zeros(topology):
    assert usid.destination(topology, topology.paths("h1", "h2")[0]) == "fcbb:bb00:1001:8002::"


def test_destinations_of_all_paths_of_a_pair_differ(topology):
    paths = topology.paths("h1", "h16")
    assert len({usid.destination(topology, path) for path in paths}) == len(paths)


def test_seven_usids_do_not_fit_a_destination(topology):
    path = topology.paths("h1", "h16")[0]
    longer = topologies.Path((*path.nodes, "h15"), path.links, path.plane, path.port)
    with pytest.raises(topologies.BadTopology, match="7 uSIDs does not fit"):
        usid.destination(topology, longer)


def test_six_usids_fill_a_destination():
    assert addresses.container([1, 2, 3, 4, 5, 6]) == "fcbb:bb00:1:2:3:4:5:6"


def test_the_flow_file_of_a_t0(topology):
    assert usid.flow_file(usid.rules(topology, "t0_1_1")).splitlines() == [
        "table=0,priority=100,ipv6,ipv6_dst=fcbb:bb00:1001::/48,"
        "actions=move:NXM_NX_IPV6_DST[0..79]->NXM_NX_IPV6_DST[16..95],load:0->NXM_NX_IPV6_DST[0..15],resubmit(,1)",
        "table=0,priority=0,actions=drop",
        "table=1,priority=100,ipv6,ipv6_dst=fcbb:bb00:8001::/48,actions=set_field:02:00:80:01:00:00->eth_dst,output:1",
        "table=1,priority=100,ipv6,ipv6_dst=fcbb:bb00:8002::/48,actions=set_field:02:00:80:02:00:00->eth_dst,output:2",
        "table=1,priority=100,ipv6,ipv6_dst=fcbb:bb00:2001::/48,actions=output:3",
        "table=1,priority=100,ipv6,ipv6_dst=fcbb:bb00:2002::/48,actions=output:4",
        "table=1,priority=0,actions=drop",
    ]


@pytest.mark.parametrize("switch", ["t0_2_1", "t1_1_1", "t2_4"])
def test_a_switch_knows_itself_and_its_neighbours_only(topology, switch):
    known = [rule.prefix for rule in usid.rules(topology, switch) if rule.prefix]
    around = [switch, *(link.other(switch).node for link in topology.links_of(switch))]
    assert known == [addresses.node_prefix(topology.nodes[name]) for name in around]


def test_a_host_has_no_rules(topology):
    with pytest.raises(topologies.UnknownNode, match="h1 is a host"):
        usid.rules(topology, "h1")


def test_what_open_vswitch_prints_is_the_same(topology):
    assert usid.same(usid.rules(topology, "t0_1_1"), DUMP)


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("output:3", "output:4"),
        ("fcbb:bb00:2002::/48", "fcbb:bb00:2003::/48"),
        ("02:00:80:01:00:00", "02:00:80:01:00:01"),
        ("priority=0 actions=drop", "priority=0 actions=NORMAL"),
        (" table=1, priority=0 actions=drop\n", ""),
        ("table=1, priority=0 ", "table=2, priority=0 "),
        ("reset_counts priority=0", "priority=1"),
        ("priority=100,ipv6,ipv6_dst=fcbb:bb00:2001", "idle_timeout=9, priority=100,ipv6,ipv6_dst=fcbb:bb00:2001"),
    ],
)
def test_a_changed_flow_is_not_the_same(topology, was, becomes):
    assert was in DUMP
    assert not usid.same(usid.rules(topology, "t0_1_1"), DUMP.replace(was, becomes))


def test_a_flow_too_many_is_not_the_same(topology):
    assert not usid.same(usid.rules(topology, "t0_1_1"), DUMP + " priority=5,arp actions=output:1\n")


def test_differences_name_the_missing_and_the_unexpected(topology):
    found = usid.differences(usid.rules(topology, "t0_1_1"), DUMP.replace("output:3", "output:4"))
    assert [line.partition(":")[0] for line in found] == ["missing", "unexpected"]
    assert all("ipv6_dst=fcbb:bb00:2001::/48" in line for line in found)


def test_the_python_example_of_the_documentation_runs(repo_root):
    page = (repo_root / "docs" / "topologies.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(example, "docs/topologies.md", "exec"), {})
