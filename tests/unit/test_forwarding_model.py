"""The rules deliver every path of every pair as asked, and a fault kills exactly the paths that contain it."""

from itertools import permutations

import pytest

import topologies
from topologies import forwarding, usid
from topologies.usid import Output, Resubmit, Rule, Shift

FABRICS = {
    "k=4": ("fat-tree", {"k": 4}),
    "k=6": ("fat-tree", {"k": 6}),
    "4 planes": ("multi-plane", {"planes": 4, "t0s": 4, "t1s": 2, "hosts_per_t0": 2}),
}


class Fabric:
    """A topology with its compiled tables and every path of every ordered pair, with the path's destination."""

    def __init__(self, kind, params):
        self.topology = topologies.build(kind, **params)
        self.tables = forwarding.compile_tables(usid.tables(self.topology))
        pairs = permutations(self.topology.hosts, 2)
        self.ways = [(p, usid.destination(self.topology, p)) for pair in pairs for p in self.topology.paths(*pair)]
        self.links, self.switches = frozenset(self.topology.links), frozenset(self.topology.switches)

    def send(self, path, destination, **faults):
        return forwarding.forward(self.tables, self.topology, path.nodes[0], destination, path.port, **faults)


@pytest.fixture(scope="module", params=FABRICS.values(), ids=FABRICS.keys())
def fabric(request):
    return Fabric(*request.param)


@pytest.fixture(scope="module")
def small():
    return Fabric("fat-tree", {"k": 4})


def test_all_ways_of_the_fabric_are_tried(fabric):
    expected = {16: 16 * (1 * 1 + 2 * 2 + 12 * 4), 54: 54 * (2 * 1 + 6 * 3 + 45 * 9), 8: 8 * (1 * 4 + 6 * 8)}
    assert len(fabric.ways) == expected[len(fabric.topology.hosts)]


def test_every_path_of_every_pair_delivers_over_its_own_nodes_and_links(fabric):
    for path, destination in fabric.ways:
        trace = fabric.send(path, destination)
        assert (trace.delivered_to, trace.nodes, trace.links) == (path.nodes[-1], path.nodes, path.links)


def test_each_link_of_a_path_kills_it_just_before_that_link(fabric):
    for path, destination in fabric.ways:
        for place, link in enumerate(path.links):
            trace = fabric.send(path, destination, down_links={link})
            assert (trace.delivered_to, trace.links) == (None, path.links[:place])


def test_each_switch_of_a_path_kills_it_just_before_that_switch(fabric):
    for path, destination in fabric.ways:
        for place, switch in enumerate(path.nodes[1:-1], start=1):
            trace = fabric.send(path, destination, down_switches={switch})
            assert (trace.delivered_to, trace.nodes) == (None, path.nodes[:place])


def test_no_other_fault_kills_a_path_even_if_all_the_rest_is_down(fabric):
    for path, destination in fabric.ways:
        rest = {"down_links": fabric.links.difference(path.links), "down_switches": fabric.switches.difference(path.nodes)}
        assert fabric.send(path, destination, **rest).delivered_to == path.nodes[-1]


def test_each_single_fault_of_a_small_fabric_kills_exactly_its_paths(small):
    faults = [({"down_links": {link}}, link) for link in small.links] + [({"down_switches": {name}}, name) for name in small.switches]
    for fault, element in faults:
        dead = {way for way, (path, destination) in enumerate(small.ways) if small.send(path, destination, **fault).delivered_to is None}
        assert dead == {way for way, (path, _) in enumerate(small.ways) if element in path.links or element in path.nodes}, element


def send_by_hand(fabric, destination, tables=None, port=0):
    return forwarding.forward(tables or fabric.tables, fabric.topology, "h1", destination, port)


def test_a_packet_for_somebody_elses_switch_is_dropped_at_once(small):
    trace = send_by_hand(small, "fcbb:bb00:1002:8003::")
    assert (trace.delivered_to, trace.nodes, trace.reason) == (None, ("h1", "t0_1_1"), "t0_1_1 drops it")


def test_a_packet_for_a_node_that_is_no_neighbour_is_dropped(small):
    assert send_by_hand(small, "fcbb:bb00:1001:3001::").reason == "t0_1_1 drops it"


def test_a_packet_does_not_go_back_where_it_came_from(small):
    assert send_by_hand(small, "fcbb:bb00:1001:8001::").reason == "t0_1_1 does not send it back"


def test_a_host_takes_nothing_with_ids_left_over(small):
    trace = send_by_hand(small, "fcbb:bb00:1001:8002:2001::")
    assert (trace.delivered_to, trace.nodes[-1], trace.reason) == (None, "h2", "h2 is not fcbb:bb00:8002:2001::")


def test_a_host_takes_no_frame_with_another_mac(small):
    without_mac = [
        Rule(0, 100, "fcbb:bb00:1001::/48", (Shift(), Resubmit(1))),
        Rule(1, 100, "fcbb:bb00:8002::/48", (Output(2),)),
    ]
    tables = small.tables | forwarding.compile_tables({"t0_1_1": without_mac})
    assert send_by_hand(small, "fcbb:bb00:1001:8002::", tables).reason == "h2 takes no frame for None"


def test_an_unused_nic_port_leads_nowhere(small):
    assert send_by_hand(small, "fcbb:bb00:1001:8002::", port=1).reason == "h1 has nothing on port 1"


def test_rules_that_send_in_circles_end_as_a_loop(small):
    next_port = {"t0_1_1": 3, "t1_1_1": 2, "t0_1_2": 4, "t1_1_2": 1}
    tables = forwarding.compile_tables({name: [Rule(0, 1, None, (Output(port),))] for name, port in next_port.items()})
    assert send_by_hand(small, "fcbb:bb00:1001::", tables).reason.endswith("a loop")


def test_the_rule_of_higher_priority_wins_whatever_the_order(small):
    drop = Rule(0, 200, "fcbb:bb00:1001::/48", ())
    for rules in ((drop, *usid.rules(small.topology, "t0_1_1")), (*usid.rules(small.topology, "t0_1_1"), drop)):
        tables = small.tables | forwarding.compile_tables({"t0_1_1": rules})
        assert send_by_hand(small, "fcbb:bb00:1001:8002::", tables).reason == "t0_1_1 drops it"
