"""The `deny` section of a scenario: what it may say, what about it is refused, and what the agents and the reader are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.cli.dryrun import plan_lines
from testbed.run.plan import agent_configs
from testbed.scenario import Drawn, Scenario, ScenarioInvalid, draw, load_text
from testbed.scenario.deny import Evs, deny_text
from topologies import build

PLANES = """\
name: planes
topology: {kind: multi-plane, planes: 2, t0s: 2, t1s: 2, hosts_per_t0: 2}
job: {ring: strided}
run: {duration: 30s}
"""
TWO_PORTS = "deny.links=[h1-t0_1_1, h1-t0_2_1]"


def problems(*overrides: str) -> dict[str, str]:
    with pytest.raises(ScenarioInvalid) as caught:
        load_text(PLANES, overrides)
    return {problem.as_dict()["place"]: f"{problem.message} / {problem.hint}" for problem in caught.value.problems}


def denied(scenario: Scenario, arm: str = "mrc") -> dict[str, Any]:
    topology = scenario.build_topology()
    configs = agent_configs(scenario, topology, arm, params={}, seed=1, folder=Path("agents"), send_buffer_bytes=4096)
    return {host: config.get("deny") for host, config in configs.items()}


def test_without_the_section_nothing_is_denied() -> None:
    scenario = load_text(PLANES)
    assert not scenario.deny
    assert set(map(str, denied(scenario).values())) == {"None"}
    assert scenario.resolved()["deny"] == {"links": [], "evs": []}


def test_every_agent_is_told_the_links_and_its_own_evs() -> None:
    scenario = load_text(PLANES, ["deny.links=[t0_1_1-h1]", "deny.evs=[{host: h1, peer: h3, evs: [2]}]"])
    told = denied(scenario)
    assert told["h1"] == {"links": ["h1-t0_1_1"], "evs": {"h3": [2]}}
    assert told["h2"] == {"links": ["h1-t0_1_1"], "evs": {}}


def test_an_arm_without_evs_is_told_nothing_and_the_reader_why() -> None:
    scenario = load_text(PLANES, ["deny.links=h1-t0_1_1"])
    assert set(map(str, denied(scenario, "rc-bgp").values())) == {"None"}
    assert scenario.resolved()["deny"]["ignored_by"] == ["rc-bgp"]
    assert "denylist, from the first packet: link h1-t0_1_1; rc-bgp has no EVs with known paths and will ignore it" in lines(scenario)


def lines(scenario: Scenario) -> list[str]:
    drawn: Drawn = draw(scenario)
    return plan_lines(scenario, scenario.build_topology(), drawn, verbose=False)


def test_a_dry_run_tells_nothing_of_a_denylist_that_is_not_there() -> None:
    assert not [line for line in lines(load_text(PLANES)) if "denylist" in line]


@pytest.mark.parametrize("given", ["none", "null", "[]"])
def test_no_link_can_be_written_as_a_single_value_so_that_a_sweep_may_begin_with_it(given: str) -> None:
    assert not load_text(PLANES, [f"deny.links={given}"]).deny


def test_a_sweep_over_the_denylist_has_a_point_without_and_one_with_it() -> None:
    swept = load_text(PLANES + "sweep: {key: deny.links, values: [none, h1-t0_1_1]}\n")
    assert [point.scenario.deny.links for point in swept.points] == [(), ("h1-t0_1_1",)]


@pytest.mark.parametrize(
    ("given", "place", "words"),
    [
        ("deny.links=[h1-t0_1_9]", "$.deny.links[0]", "did you mean `h1-t0_1_1`?"),
        ("deny.links=h1", "$.deny.links[0]", "there is no link 'h1'"),
        ("deny.links=[h1-t0_1_1, t0_1_1-h1]", "$.deny.links[1]", "twice"),
        ("deny.links=[7]", "$.deny.links[0]", "text"),
        ("deny.link=h1-t0_1_1", "$.deny.link", "did you mean `links`?"),
        ("deny=h1-t0_1_1", "$.deny", "mapping"),
        ("deny.evs=[{host: h0, peer: h3, evs: [1]}]", "$.deny.evs[0].host", "there is no host 'h0'"),
        ("deny.evs=[{host: h1, peer: h33, evs: [1]}]", "$.deny.evs[0].peer", "did you mean `h3`?"),
        ("deny.evs=[{host: h1, peer: h2, evs: [1]}]", "$.deny.evs[0].peer", "h1 sends nothing to h2 in this job / it sends to: h3"),
        ("deny.evs=[{host: h1, peer: h1, evs: [1]}]", "$.deny.evs[0].peer", "h1 sends nothing to h1"),
        ("deny.evs=[{host: h1, peer: h3, evs: [1, 4]}]", "$.deny.evs[0].evs[1]", "no EV 4 from h1 to h3: they are numbered from 0 to 3"),
        ("deny.evs=[{host: h1, peer: h3, evs: [1, 1]}]", "$.deny.evs[0].evs[1]", "twice"),
        ("deny.evs=[{host: h1, peer: h3, evs: []}]", "$.deny.evs[0].evs", "empty"),
        ("deny.evs=[{host: h1, peer: h3, evs: [1]}, {host: h1, peer: h3, evs: [2]}]", "$.deny.evs[1]", "twice"),
        (TWO_PORTS, "$.deny", "leaves h1 no path to h3, nor 1 more pair of the job any"),
        ("deny.evs=[{host: h1, peer: h3, evs: [0, 1, 2, 3]}]", "$.deny", "leaves h1 no path to h3"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(given: str, place: str, words: str) -> None:
    found = problems(given)
    assert list(found) == [place]
    assert words in found[place]


def test_links_and_evs_together_may_leave_no_path() -> None:
    assert "leaves h1 no path" in problems("deny={links: [h1-t0_1_1], evs: [{host: h1, peer: h3, evs: [2, 3]}]}")["$.deny"]


def test_a_pair_that_the_job_does_not_use_may_lose_all_its_paths() -> None:
    assert load_text(PLANES, [TWO_PORTS, "job={kind: streams, flows: [{from: h2, to: h3}]}"]).deny


def test_more_evs_than_paths_can_be_denied_by_number() -> None:
    assert load_text(PLANES, ["transport.mrc.evs=8", "deny.evs=[{host: h1, peer: h3, evs: [7]}]"]).deny


def test_each_qp_of_a_pair_needs_an_ev() -> None:
    of_second = "deny.evs=[{host: h1, peer: h3, evs: [4, 5, 6, 7]}]"
    assert "leaves h1 no path" in problems("transport.mrc.qps=2", of_second)["$.deny"]
    assert load_text(PLANES, ["transport.mrc.qps=2", "deny.evs=[{host: h1, peer: h3, evs: [0, 1, 2, 4, 5, 6]}]"]).deny


def test_evs_take_the_paths_in_turn() -> None:
    topology = build("multi-plane", planes=2, t0s=2, t1s=2, hosts_per_t0=1)
    first, second = Evs(evs=6, qps=2).links(topology, "h1", "h2")
    assert list(first.values()) == [path.links for path in topology.paths("h1", "h2") * 2] == list(second.values())
    assert (list(first), list(second)) == (list(range(8)), list(range(8, 16)))


def test_a_denylist_in_words() -> None:
    told = deny_text({"links": ["h1-t0_1_1"], "evs": [{"host": "h1", "peer": "h3", "evs": [2, 3]}]})
    assert told == "link h1-t0_1_1, EV 2, 3 from h1 to h3"


def test_a_host_is_cut_off_when_every_shortest_path_has_a_link_that_is_down() -> None:
    topology = build("fat-tree", k=4)
    assert topology.cut_off("h1", ["h1-t0_1_1"]) == set(topology.hosts) - {"h1"}
    assert topology.cut_off("h1", ["t0_1_1-t1_1_1"]) == set()
    assert topology.cut_off("h1", ["t0_1_1-t1_1_1", "t0_1_1-t1_1_2"]) == set(topology.hosts) - {"h1", "h2"}
