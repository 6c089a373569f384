"""The shape of the fabrics: counts, names, ports, uSIDs."""

import json
import subprocess
import sys

import pytest

import topologies
from topologies import addresses


@pytest.fixture(scope="module")
def fat_tree():
    return topologies.build("fat-tree", k=4)


@pytest.fixture(scope="module")
def multi_plane():
    return topologies.build("multi-plane", planes=4, t0s=4, t1s=2, hosts_per_t0=2)


@pytest.mark.parametrize("k", [2, 4, 6, 8])
def test_a_fat_tree_has_the_textbook_counts(k):
    topology = topologies.build("fat-tree", k=k)
    assert (len(topology.hosts), len(topology.switches), len(topology.links)) == (k**3 // 4, 5 * k**2 // 4, 3 * k**3 // 4)


def test_oversubscription_multiplies_the_hosts_only():
    topology = topologies.build("fat-tree", k=4, oversubscription=3)
    assert (len(topology.hosts), len(topology.switches)) == (48, 20)


def test_hosts_fill_the_first_t0_first(fat_tree):
    assert [link.other("t0_1_1").node for link in fat_tree.links_of("t0_1_1")] == ["h1", "h2", "t1_1_1", "t1_1_2"]


def test_a_t1_serves_its_own_group_of_t2s(fat_tree):
    assert [link.other("t1_3_2").node for link in fat_tree.links_of("t1_3_2")] == ["t0_3_1", "t0_3_2", "t2_3", "t2_4"]


def test_a_t2_has_one_port_a_pod(fat_tree):
    assert [link.other("t2_2").node for link in fat_tree.links_of("t2_2")] == ["t1_1_1", "t1_2_1", "t1_3_1", "t1_4_1"]


def test_a_host_has_a_port_on_every_plane(multi_plane):
    assert [link.name for link in multi_plane.links_of("h3")] == ["h3-t0_1_2", "h3-t0_2_2", "h3-t0_3_2", "h3-t0_4_2"]


def test_host_port_is_plane_minus_one(multi_plane):
    assert all(link.a.port == link.plane - 1 for link in multi_plane.links.values() if link.tier == "NIC-T0")


def test_every_t0_meets_every_t1_of_its_plane_and_no_other(multi_plane):
    found = {(link.a.node, link.b.node) for link in multi_plane.links.values() if link.tier == "T0-T1"}
    assert found == {(f"t0_{p}_{a}", f"t1_{p}_{b}") for p in range(1, 5) for a in range(1, 5) for b in range(1, 3)}


@pytest.mark.parametrize("name", ["fat_tree", "multi_plane"])
class TestBoth:
    @pytest.fixture
    def topology(self, request, name):
        return request.getfixturevalue(name)

    def test_ports_count_without_a_gap_from_0_at_hosts_and_1_at_switches(self, topology):
        for name, node in topology.nodes.items():
            first = 0 if node.kind == "host" else 1
            ports = [link.end(name).port for link in topology.links_of(name)]
            assert ports == list(range(first, first + len(ports)))

    def test_down_ports_come_before_up_ports(self, topology):
        for switch in topology.switches:
            tiers = [topology.nodes[link.other(switch).node].tier for link in topology.links_of(switch)]
            assert tiers == sorted(tiers)

    def test_usids_are_unique_and_16_bits(self, topology):
        usids = [node.usid for node in topology.nodes.values()]
        assert len(set(usids)) == len(usids)
        assert all(0 < usid < 1 << 16 for usid in usids)

    def test_link_numbers_count_from_one(self, topology):
        assert [link.index for link in topology.links.values()] == list(range(1, len(topology.links) + 1))

    def test_links_are_named_and_directed_lower_tier_first(self, topology):
        for name, link in topology.links.items():
            assert name == f"{link.a.node}-{link.b.node}"
            assert topology.nodes[link.a.node].tier == topology.nodes[link.b.node].tier - 1

    def test_macs_are_unique_local_and_unicast(self, topology):
        macs = [addresses.mac(end) for link in topology.links.values() for end in (link.a, link.b)]
        assert len(set(macs)) == len(macs)
        assert all(int(mac[:2], 16) & 3 == 2 for mac in macs)

    def test_building_twice_gives_the_same(self, topology):
        again = topologies.build(topology.kind, **topology.params)
        assert topologies.to_dict(again) == topologies.to_dict(topology)


def test_a_link_is_found_by_its_ends_in_both_orders(fat_tree):
    assert fat_tree.link("t1_1_2-t0_1_1") is fat_tree.link("t0_1_1-t1_1_2")


def test_an_unknown_link_names_the_nearest(fat_tree):
    with pytest.raises(topologies.UnknownLink, match=r"t0_1_1-t1_1_9.*did you mean t0_1_1-t1_1_"):
        fat_tree.link("t0_1_1-t1_1_9")


def test_two_nodes_without_a_link_say_what_they_are_linked_to(fat_tree):
    with pytest.raises(topologies.UnknownLink, match="t0_1_1 is linked to h1, h2, t1_1_1, t1_1_2"):
        fat_tree.link("t0_1_1-t1_2_1")


def test_an_unknown_node_names_the_nearest(fat_tree):
    with pytest.raises(topologies.UnknownNode, match="did you mean"):
        fat_tree.links_of("t0_1_3")


def test_a_mac_needs_an_end_of_a_topology():
    with pytest.raises(topologies.BadTopology, match="h1-eth0"):
        addresses.mac(topologies.End("h1", 0))


def test_addresses_are_those_of_the_contract(fat_tree):
    h1 = fat_tree.nodes["h1"]
    found = addresses.usid_address(h1), addresses.node_prefix(h1), addresses.host_address(h1)
    assert found == ("fcbb:bb00:8001::", "fcbb:bb00:8001::/48", "fd00:0:0:8001::1")


def test_the_summary_counts(multi_plane):
    assert topologies.summary(multi_plane) == {
        "kind": "multi-plane",
        "params": {"planes": 4, "t0s": 4, "t1s": 2, "hosts_per_t0": 2},
        "hosts": 8,
        "switches": {"T0": 16, "T1": 8},
        "links": {"NIC-T0": 32, "T0-T1": 32},
        "planes": 4,
        "paths_min": 4,
        "paths_max": 8,
        "usids_max": 4,
    }


def test_the_whole_topology_survives_json(fat_tree):
    data = json.loads(json.dumps(topologies.to_dict(fat_tree)))
    assert (len(data["nodes"]), len(data["links"])) == (36, 48)
    assert data["links"][0]["a"] == {"node": "h1", "port": 0, "ifname": "h1-eth0", "mac": "02:00:80:01:00:00"}


def test_the_pure_data_needs_no_mininet():
    code = "import sys, topologies; topologies.build('fat-tree', k=4); sys.exit('mininet' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
