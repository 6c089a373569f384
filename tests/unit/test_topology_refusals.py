"""What is no topology is refused with a sentence, at once and before anything is built."""

import pytest

import topologies

MULTI = {"planes": 2, "t0s": 2, "t1s": 2, "hosts_per_t0": 2}

REFUSED = [
    ("fat-tree", {"k": 5}, "k must be even, not 5"),
    ("fat-tree", {"k": 1}, "k must be at least 2, not 1"),
    ("fat-tree", {"k": 0}, "k must be at least 2"),
    ("fat-tree", {"k": -4}, "k must be at least 2"),
    ("fat-tree", {"k": 4.0}, r"k must be an integer, not 4\.0"),
    ("fat-tree", {"k": "4"}, "k must be an integer, not '4'"),
    ("fat-tree", {"k": True}, "k must be an integer, not True"),
    ("fat-tree", {"k": None}, "k .* must be given"),
    ("fat-tree", {}, "k .* must be given"),
    ("fat-tree", {"k": 4, "oversubscription": 0}, "oversubscription must be at least 1"),
    ("fat-tree", {"k": 4, "oversubscribtion": 2}, "'oversubscribtion': did you mean oversubscription"),
    ("fat-tree", {"k": 64}, "65536 hosts need more uSIDs than 16 bits"),
    ("fat-tree", {"k": 10**12}, "more uSIDs than 16 bits"),
    ("fat-tree", {"k": 4, "oversubscription": 10**9}, "more uSIDs than 16 bits"),
    ("multi-plane", MULTI | {"planes": 0}, "planes must be at least 1"),
    ("multi-plane", MULTI | {"t1s": -1}, "t1s must be at least 1"),
    ("multi-plane", {"planes": 2}, "t0s .* must be given; t1s .* must be given; hosts_per_t0 .* must be given"),
    ("multi-plane", MULTI | {"t0s": 1, "hosts_per_t0": 1}, "traffic needs two"),
    ("multi-plane", MULTI | {"planes": 100, "t0s": 100}, "10000 T0 switches need more uSIDs"),
    ("multi-plane", MULTI | {"t1s": 3000}, "6000 T1 switches need more uSIDs"),
    ("multi-plane", MULTI | {"planes": 1000, "t1s": 3, "hosts_per_t0": 10**4}, "name t0_1000_2-eth10003 has more than Linux's 15"),
    ("multi-plane", {"planes": 4, "t0s": 900, "t1s": 900, "hosts_per_t0": 1}, "links are more than"),
    ("multi-plane", {"planes": 1, "t0s": 4096, "t1s": 1, "hosts_per_t0": 1}, "4096 T0 switches need more uSIDs"),
    ("fat-three", {"k": 4}, "no topology 'fat-three': did you mean fat-tree"),
]


@pytest.mark.parametrize(("kind", "params", "sentence"), REFUSED)
def test_refused_with_a_sentence(kind, params, sentence):
    with pytest.raises(topologies.BadTopology, match=sentence):
        topologies.build(kind, **params)


def test_all_mistakes_are_told_at_once():
    with pytest.raises(topologies.BadTopology) as error:
        topologies.build("multi-plane", planes=0, t0s="a", t1s=2, host_per_t0=2)
    assert all(word in str(error.value) for word in ("planes", "t0s", "hosts_per_t0", "did you mean"))


def test_a_refusal_is_a_usage_error_of_exit_code_2():
    assert (topologies.BadTopology.exit_code, topologies.UnknownLink.exit_code) == (2, 2)


def test_the_longest_names_of_accepted_fabrics_fit_linux():
    topology = topologies.build("multi-plane", planes=9, t0s=99, t1s=10, hosts_per_t0=2)
    assert max(len(end.ifname) for link in topology.links.values() for end in (link.a, link.b)) <= 15


def test_every_usid_of_a_tier_can_be_given_out():
    assert len(topologies.build("multi-plane", planes=1, t0s=4095, t1s=1, hosts_per_t0=1).switches) == 4096
