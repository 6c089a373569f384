"""Equal-cost tables: what they are for a FIB, that every choice of the hashes delivers, and what a fault takes away."""

import pytest

from testbed.routing.expected import expected_fibs
from topologies import build, ecmp, ecmp_model, usid
from topologies.addresses import host_address
from topologies.model import BadTopology, UnknownNode

SEED = 7
FABRICS = {
    "fat-tree": {"k": 4},
    "multi-plane": {"planes": 2, "t0s": 3, "t1s": 2, "hosts_per_t0": 2},
}


@pytest.fixture(params=list(FABRICS))
def topology(request):
    return build(request.param, **FABRICS[request.param])


def tables(topology, **down):
    return ecmp.tables(topology, expected_fibs(topology, **down), SEED)


def spread(topology, src, dst, of=None, **options):
    return ecmp_model.spread(of or tables(topology), topology, src, host_address(topology.nodes[dst]), **options)


def test_every_choice_of_the_hashes_delivers(topology):
    of = tables(topology)
    for src in topology.hosts:
        for dst in topology.hosts:
            if src != dst:
                found = spread(topology, src, dst, of)
                assert (found.delivered_to, found.lost) == ({dst}, frozenset())


def test_all_shortest_paths_of_the_port_are_used(topology):
    src, dst = topology.hosts[0], topology.hosts[-1]
    links = {link for path in topology.paths(src, dst) if path.port == 0 for link in path.links}
    assert spread(topology, src, dst, port=0).links == links


def test_tables_that_do_not_know_of_a_cut_lose_packets_at_it_and_others_do_not(topology):
    src, dst = topology.hosts[0], topology.hosts[-1]
    cut = topology.paths(src, dst)[0].links[1]
    assert spread(topology, src, dst, down_links={cut}).lost
    assert spread(topology, src, dst, tables(topology, down_links=[cut]), down_links={cut}).lost == frozenset()


def test_a_loop_is_found():
    topology = build("multi-plane", planes=1, t0s=2, t1s=2, hosts_per_t0=1)
    there = host_address(topology.nodes["h2"])
    fibs = {"t0_1_1": {there: ["t0_1_1-eth2"]}, "t1_1_1": {there: ["t1_1_1-eth2"]}}
    fibs |= {"t0_1_2": {there: ["t0_1_2-eth3"]}, "t1_1_2": {there: ["t1_1_2-eth1"]}}
    found = spread(topology, "h1", "h2", ecmp.tables(topology, fibs, SEED))
    assert found.lost == {"it comes back to t0_1_1: a loop"}


def test_a_set_whose_rows_are_missing_loses_what_chooses_them(topology):
    of = {switch: [rule for rule in rules if rule.choice is None] for switch, rules in tables(topology).items()}
    assert spread(topology, topology.hosts[0], topology.hosts[-1], of).delivered_to == frozenset()


def test_one_host_is_one_rule_of_the_route_table(topology):
    for switch, fib in expected_fibs(topology).items():
        routes = [rule for rule in ecmp.rules(topology, switch, fib, SEED) if rule.table == ecmp.ROUTE_TABLE and rule.destination]
        assert sorted(rule.destination for rule in routes) == sorted(fib)


def test_the_text_of_a_rule_is_open_vswitchs_own():
    topology = build("fat-tree", k=4)
    rules = ecmp.rules(topology, "t0_1_1", expected_fibs(topology)["t0_1_1"], 0)
    texts = [rule.text() for rule in rules]
    basis = ecmp.basis(topology, "t0_1_1", 0)
    assert "table=0,priority=100,ipv6,ipv6_dst=fd00:0:0:8001::1,actions=dec_ttl,set_field:02:00:80:01:00:00->eth_dst,output:1" in texts
    assert (
        "table=0,priority=100,ipv6,ipv6_dst=fd00:0:0:8010::1,actions=dec_ttl,"
        f"multipath(symmetric_l3l4+udp,{basis},modulo_n,2,0,NXM_NX_REG0[]),load:0xc->NXM_NX_REG1[],resubmit(,1)" in texts
    )
    assert "table=1,priority=100,reg0=0,reg1=0xc,actions=output:3" in texts
    assert len(rules) == 2 + 2 + 16


def test_no_two_switches_hash_alike(topology):
    bases = [ecmp.basis(topology, switch, SEED) for switch in topology.switches]
    assert len(set(bases)) == len(bases)


def test_a_removed_next_hop_is_another_set_and_differs_in_the_text(topology):
    fib = dict(expected_fibs(topology)["t0_1_1"])
    before = ecmp.rules(topology, "t0_1_1", fib, SEED)
    address = next(address for address, ports in fib.items() if len(ports) > 1)
    after = ecmp.rules(topology, "t0_1_1", {**fib, address: sorted(fib[address])[:1]}, SEED)
    changed = usid.differences(after, usid.flow_file(before))
    assert len(changed) == 2
    assert all(address in line for line in changed)


def test_an_interface_of_another_switch_is_refused():
    topology = build("fat-tree", k=4)
    with pytest.raises(UnknownNode, match="t0_1_1 has no interface t0_1_2-eth1"):
        ecmp.ports_to(topology, "t0_1_1", ["t0_1_2-eth1"])


def test_a_port_that_has_no_bit_is_refused():
    with pytest.raises(BadTopology, match="port 33"):
        ecmp.set_number([33])
