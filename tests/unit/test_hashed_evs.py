"""The EVs that `mrc-bgp` gives a pair of hosts: their number, their numbers, their NIC ports."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from hosts.commands import Fields, parse_config
from hosts.mrc.evs import spread
from hosts.wire import DYNAMIC_PORTS
from testbed.errors import UsageError
from testbed.run.hashed_evs import EVS_A_PATH, paths
from testbed.run.plan import agent_configs
from testbed.scenario import Scenario, ScenarioInvalid, load
from topologies import addresses, build

FAT_TREE = build("fat-tree", k=4)
PLANES = build("multi-plane", planes=3, t0s=2, t1s=2, hosts_per_t0=2)


def given(tmp_path: Path, **sections: Any) -> Scenario:
    """A scenario of this arm."""
    path = tmp_path / "scenario.yaml"
    whole = {"name": "x", "topology": {"kind": "fat-tree", "k": 4}, "run": {"duration": "20s"}, "arms": ["mrc-bgp"], **sections}
    path.write_text(yaml.safe_dump(whole))
    return load(path)


def configs(scenario: Scenario, arm: str = "mrc-bgp", seed: int = 1, **params: int) -> dict[str, dict[str, Any]]:
    """What its agents are told."""
    return agent_configs(scenario, FAT_TREE, arm, params=params, seed=seed, folder=Path("/x"), send_buffer_bytes=9000)


@pytest.mark.parametrize(("target", "shortest"), [("h2", 1), ("h3", 2), ("h5", 4)])
def test_a_pair_has_so_many_evs_for_each_of_its_shortest_paths(target: str, shortest: int) -> None:
    assert len(paths(FAT_TREE, "h1", target, 0, 1, 1)) == EVS_A_PATH * shortest


@pytest.mark.parametrize(("evs", "count"), [(1, 3), (3, 3), (10, 12), (256, 255)])
def test_as_many_as_asked_and_the_same_number_on_every_plane(evs: int, count: int) -> None:
    told = paths(PLANES, "h1", "h3", evs, 1, 1)
    assert Counter((path["plane"], path["port"], path["peer_port"]) for path in told) == {
        (plane, plane - 1, plane - 1): count // 3 for plane in (1, 2, 3)
    }


def test_nobody_knows_the_links_of_an_ev_and_all_go_to_the_peers_own_address() -> None:
    assert {(path["destination"], *path["links"]) for path in paths(FAT_TREE, "h1", "h5", 0, 1, 1)} == {
        (str(addresses.host_address(FAT_TREE.nodes["h5"])),)
    }


@pytest.mark.parametrize("qps", [1, 16])
def test_all_evs_of_all_qps_are_source_ports_that_nobody_listens_on(qps: int) -> None:
    for seed in range(200):
        first = paths(FAT_TREE, "h1", "h5", 256, qps, seed)[0]["ev"]
        assert first in DYNAMIC_PORTS
        assert first + 256 * qps - 1 in DYNAMIC_PORTS


def test_both_directions_of_a_pair_have_the_same_numbers_and_another_seed_has_others() -> None:
    def first(source: str, target: str, seed: int) -> int:
        return int(paths(FAT_TREE, source, target, 0, 1, seed)[0]["ev"])

    assert first("h1", "h5", 1) == first("h5", "h1", 1)
    assert len({first("h1", "h5", seed) for seed in range(50)}) > 40
    assert len({first("h1", f"h{peer}", 1) for peer in range(5, 17)}) > 6


def test_an_agent_takes_what_it_is_told_and_gives_a_qp_exactly_these_evs(tmp_path: Path) -> None:
    config = configs(given(tmp_path), evs=16, qps=2)["h1"]
    assert config["forwarding"] == "ecmp"
    peer = parse_config(Fields(config, "$")).send_to[0]
    first = peer.paths[0].ev
    numbers = [[ev.index for ev in spread(peer.paths, 16, place)] for place in (0, 1)]
    assert numbers == [list(range(first, first + 16)), list(range(first + 16, first + 32))]


@pytest.mark.parametrize("arm", ["mrc", "rc-bgp"])
def test_other_arms_have_no_hashed_evs(tmp_path: Path, arm: str) -> None:
    config = configs(given(tmp_path), arm)["h1"]
    assert "forwarding" not in config
    assert [path["ev"] for path in config["send_to"][0]["paths"]] == list(range(len(config["send_to"][0]["paths"])))


def test_a_denylist_means_nothing_to_evs_without_links(tmp_path: Path) -> None:
    scenario = given(tmp_path, deny={"links": ["t0_1_1-t1_1_1"]})
    assert "deny" not in configs(scenario)["h1"]
    assert "deny" in configs(scenario, "mrc")["h1"]


@pytest.mark.parametrize("numbers", [[1, 2], [0, 2], [2, 2], [4, 3]])
def test_an_agent_refuses_evs_whose_path_their_number_does_not_tell(tmp_path: Path, numbers: list[int]) -> None:
    config = configs(given(tmp_path))["h1"]
    config["send_to"][0]["paths"] = [{**config["send_to"][0]["paths"][0], "ev": ev} for ev in numbers]
    with pytest.raises(UsageError, match=r"\$\.send_to\[0\]\.paths have the EVs .*: number them on from a multiple of 2"):
        parse_config(Fields(config, "$"))


def test_an_agent_refuses_forwarding_that_it_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\$\.forwarding is 'mpls': give one of usid, ecmp"):
        parse_config(Fields({**configs(given(tmp_path))["h1"], "forwarding": "mpls"}, "$"))


@pytest.mark.parametrize("transport", ["rc", "tcp"])
def test_an_agent_refuses_forwarding_where_no_transport_of_its_own_looks_at_it(tmp_path: Path, transport: str) -> None:
    with pytest.raises(UsageError, match=rf"\$\.forwarding is for MRC only: leave it out with transport '{transport}'"):
        parse_config(Fields({**configs(given(tmp_path))["h1"], "transport": transport}, "$"))


def test_a_fault_that_names_evs_is_refused_where_their_numbers_are_drawn(tmp_path: Path) -> None:
    fault = {"kind": "loss", "link": "t0_1_1-t1_1_1", "share": 1, "evs": [1], "at": "6s", "for": "1s"}
    with pytest.raises(ScenarioInvalid, match=r"\$\.faults\[0\]\.evs: the EVs of mrc-bgp have drawn numbers"):
        given(tmp_path, faults=[fault])
    assert given(tmp_path, faults=[fault], arms=["mrc", "rc-bgp"]).faults
