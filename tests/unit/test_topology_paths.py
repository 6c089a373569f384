"""All shortest paths of a pair, their order, and what faults leave of them."""

from itertools import combinations, permutations

import pytest

import topologies

FABRICS = {
    "k=4": ("fat-tree", {"k": 4}),
    "k=4 oversubscribed": ("fat-tree", {"k": 4, "oversubscription": 2}),
    "4 planes": ("multi-plane", {"planes": 4, "t0s": 4, "t1s": 2, "hosts_per_t0": 2}),
}


@pytest.fixture(scope="module", params=FABRICS.values(), ids=FABRICS.keys())
def topology(request):
    kind, params = request.param
    return topologies.build(kind, **params)


@pytest.fixture(scope="module")
def fat_tree():
    return topologies.build("fat-tree", k=4)


def test_a_path_walks_along_its_links(topology):
    for src, dst in permutations(topology.hosts, 2):
        for path in topology.paths(src, dst):
            assert (path.nodes[0], path.nodes[-1]) == (src, dst)
            for link, here, there in zip(path.links, path.nodes, path.nodes[1:], strict=False):
                assert topology.links[link].other(here).node == there


def test_no_path_of_a_pair_comes_twice(topology):
    for pair in combinations(topology.hosts, 2):
        paths = topology.paths(*pair)
        assert len(set(paths)) == len(paths)


def test_the_way_back_is_the_way_there_reversed(topology):
    for a, b in combinations(topology.hosts, 2):
        assert topology.paths(b, a) == tuple(path.reverse() for path in topology.paths(a, b))


def test_the_order_does_not_depend_on_who_asks_first(topology):
    first, last = topology.hosts[0], topology.hosts[-1]
    asked_backwards = topologies.build(topology.kind, **topology.params)
    asked_backwards.paths(last, first)
    assert asked_backwards.paths(first, last) == topology.paths(first, last)


def test_a_path_knows_its_nic_ports_and_plane(topology):
    for path in topology.paths(topology.hosts[0], topology.hosts[-1]):
        first, last = topology.links[path.links[0]], topology.links[path.links[-1]]
        assert (path.port, path.far_port, path.plane) == (first.a.port, last.a.port, first.plane)


def test_counting_paths_agrees_with_listing_them(topology):
    for dst in topology.hosts:
        listed = {src: topology.paths(src, dst) for src in topology.hosts if src != dst}
        assert topology.path_shapes(dst) == {src: (len(paths), len(paths[0].links)) for src, paths in listed.items()}


@pytest.mark.parametrize(("peer", "paths", "hops"), [("h2", 1, 2), ("h3", 2, 4), ("h5", 4, 6), ("h16", 4, 6)])
def test_fat_tree_path_counts(fat_tree, peer, paths, hops):
    found = fat_tree.paths("h1", peer)
    assert (len(found), {len(path.links) for path in found}) == (paths, {hops})


def test_multi_plane_paths_never_change_plane_and_never_cross_a_host():
    topology = topologies.build("multi-plane", planes=4, t0s=4, t1s=2, hosts_per_t0=2)
    paths = topology.paths("h1", "h8")
    assert [path.plane for path in paths] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert all({topology.nodes[name].plane for name in path.nodes[1:-1]} == {path.plane} for path in paths)


def test_one_pair_of_a_large_fabric_is_found_without_the_others():
    topology = topologies.build("fat-tree", k=24)
    assert len(topology.paths("h1", topology.hosts[-1])) == 144


@pytest.mark.parametrize(("src", "dst"), [("h1", "h1"), ("h1", "t0_1_1"), ("h1", "h99")])
def test_a_path_needs_two_different_hosts(fat_tree, src, dst):
    with pytest.raises(topologies.UnknownNode):
        fat_tree.paths(src, dst)


def test_a_whole_fabric_is_connected(topology):
    assert topology.connected()


def test_connected_agrees_with_the_paths_for_every_pair_of_broken_elements(fat_tree):
    elements = [*fat_tree.links, *fat_tree.switches]
    ways = [[{*path.links, *path.nodes} for path in fat_tree.paths(*pair)] for pair in combinations(fat_tree.hosts, 2)]
    for down in combinations(elements, 2):
        expected = all(any(way.isdisjoint(down) for way in pair) for pair in ways)
        assert fat_tree.connected([x for x in down if "-" in x], [x for x in down if "-" not in x]) == expected, down


def test_two_planes_are_connected_only_where_both_hosts_still_have_the_same_one():
    topology = topologies.build("multi-plane", planes=2, t0s=2, t1s=1, hosts_per_t0=2)
    assert topology.connected({"h1-t0_1_1", "h2-t0_1_1"})
    assert not topology.connected({"h1-t0_1_1", "h2-t0_2_1"})


def test_hosts_on_a_dead_switch_are_cut_off_from_each_other():
    topology = topologies.build("multi-plane", planes=1, t0s=1, t1s=1, hosts_per_t0=2)
    assert not topology.connected(down_switches={"t0_1_1"})


def test_a_cut_nic_disconnects_a_single_port_host(fat_tree):
    assert not fat_tree.connected({"h7-t0_2_2"})


def test_a_longer_way_round_does_not_count_as_connected(fat_tree):
    assert not fat_tree.connected({"t0_1_1-t1_1_1", "t0_1_2-t1_1_2"})


def test_connected_refuses_links_that_do_not_exist(fat_tree):
    with pytest.raises(topologies.UnknownLink):
        fat_tree.connected({"t0_1_1-t2_1"})
