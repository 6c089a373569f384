"""Which host sends to which: patterns, their draws, and what each agent is told."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from docs_blocks import contents
from hypothesis import given, settings
from hypothesis import strategies as st

import topologies
from hosts.commands import parse_config, parse_line
from hosts.jobs import make_job
from hosts.jobs.streams import MAX_WINDOW_BYTES, ROTATIONS
from testbed.cli.dryrun import plan_lines
from testbed.run.plan import agent_configs, shares
from testbed.scenario import Scenario, ScenarioInvalid, draw, load_text, schema_job
from testbed.scenario.traffic import Flow, group_of, permutation

HEAD = "name: t\ntopology: {kind: fat-tree, k: 4}\nrun: {duration: 30s, warmup: 1s, settle: 1s}\n"
FAT_TREE = topologies.build("fat-tree", k=4)
PLANES = topologies.build("multi-plane", planes=2, t0s=2, t1s=2, hosts_per_t0=4)


def scenario(job: str, *overrides: str) -> Scenario:
    return load_text(f"{HEAD}job: {job}\n", overrides)


def flows(job: str) -> list[Flow]:
    return list(scenario(job).flows())


def problems(job: str) -> dict[str, str]:
    with pytest.raises(ScenarioInvalid) as caught:
        scenario(job)
    return {problem.as_dict()["place"]: problem.message for problem in caught.value.problems}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
@pytest.mark.parametrize("topology", [FAT_TREE, PLANES])
def test_permutation_of_all_hosts_leaves_every_group(topology: topologies.Topology, seed: int) -> None:
    pairs = permutation(topology.hosts, topology, seed)
    assert sorted(source for source, _ in pairs) == sorted(target for _, target in pairs) == sorted(topology.hosts)
    assert all(group_of(topology, source) != group_of(topology, target) for source, target in pairs)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(FAT_TREE.hosts), min_size=2, unique=True), st.integers(0, 2**32))
def test_permutation_of_any_hosts_stays_in_a_group_only_as_often_as_it_must(hosts: list[str], seed: int) -> None:
    pairs = permutation(hosts, FAT_TREE, seed)
    largest = max(Counter(group_of(FAT_TREE, host) for host in hosts).values())
    inside = sum(group_of(FAT_TREE, source) == group_of(FAT_TREE, target) for source, target in pairs)
    assert sorted(source for source, _ in pairs) == sorted(target for _, target in pairs) == sorted(hosts)
    assert all(source != target for source, target in pairs)
    assert inside == max(0, 2 * largest - len(hosts))


def test_permutation_follows_the_seed() -> None:
    drawn = [permutation(FAT_TREE.hosts, FAT_TREE, seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_permutation_runs_all_the_time() -> None:
    found = flows("{kind: streams, pattern: permutation}")
    assert {(flow.at_s, flow.for_s, flow.role) for flow in found} == {(0.0, 30.0, "flow")}
    assert len(found) == 16


def test_listed_flows_have_their_times() -> None:
    found = flows("{kind: streams, flows: [{from: h1, to: h5}, {from: h5, to: h1, at: 10s}, {from: h1, to: h2, at: 3s, for: 4s}]}")
    assert found == [Flow("h1", "h5", 0.0, 30.0), Flow("h5", "h1", 10.0, 20.0), Flow("h1", "h2", 3.0, 4.0)]


def test_incast_takes_other_pods_first_and_leaves_the_victim_out() -> None:
    found = flows("{kind: streams, pattern: incast, to: h1, senders: 13, at: 5s, for: 10s, victim: {from: h6, to: h2}}")
    sources = [flow.source for flow in found if flow.role == "incast"]
    assert sources == ["h5", *(f"h{number}" for number in range(7, 17)), "h3", "h4"]
    assert {(flow.target, flow.at_s, flow.for_s) for flow in found if flow.role == "incast"} == {("h1", 5.0, 10.0)}
    assert found[-1] == Flow("h6", "h2", 0.0, 30.0, "victim")


def test_incast_may_list_its_senders() -> None:
    found = flows("{kind: streams, pattern: incast, to: h1, from: [h9, h2]}")
    assert [(flow.source, flow.target, flow.for_s) for flow in found] == [("h9", "h1", 30.0), ("h2", "h1", 30.0)]


def test_hosts_without_a_flow_take_no_part() -> None:
    found = scenario("{kind: streams, flows: [{from: h9, to: h5}]}")
    assert found.job_hosts() == ("h5", "h9")
    assert list(shares(found, FAT_TREE)) == ["h5", "h9"]


def test_resolved_and_record_tell_the_drawn_flows() -> None:
    found = scenario("{kind: streams, pattern: incast, to: h1, from: [h9], victim: {from: h6, to: h2}}")
    record = found.job_record()
    assert record["flows"][0] == {"from": "h9", "to": "h1", "at_s": 0.0, "for_s": 30.0, "role": "incast"}
    assert (record["kind"], record["message_bytes"], record["outstanding"]) == ("streams", 65536, 4)
    assert found.resolved()["job"]["flows"] == record["flows"]
    assert found.resolved()["job"]["hosts"] == ["h1", "h2", "h6", "h9"]


def test_record_of_a_lockstep_job_has_no_flows() -> None:
    assert scenario("{kind: all-to-all, hosts: [h1, h5]}").job_record() == {
        "kind": "all-to-all", "flows": [], "vector_bytes": 262144, "ranks": 2,
    }  # fmt: skip


@pytest.mark.parametrize("job", [
    "{}", "{ring: strided}", "{kind: all-reduce, hosts: [h1, h5, h9]}", "{kind: all-to-all}", "{kind: all-to-all, hosts: [h1, h5, h9]}",
    "{kind: streams, pattern: permutation}", "{kind: streams, pattern: permutation, hosts: [h1, h2]}",
    "{kind: streams, flows: [{from: h1, to: h5}, {from: h5, to: h1}, {from: h1, to: h2}]}",
    "{kind: streams, pattern: incast, to: h1, senders: 7, victim: {from: h3, to: h2}}",
])  # fmt: skip
@pytest.mark.parametrize("arm", ["mrc", "mrc-no-trim", "rc-bgp"])
def test_every_agent_understands_what_it_is_told(job: str, arm: str) -> None:
    found = scenario(job)
    configs = agent_configs(found, FAT_TREE, arm, params={}, seed=1, folder=Path("/x"), send_buffer_bytes=9000)
    parsed = {host: parse_config(parse_line(json.dumps(config).encode())[1]) for host, config in configs.items()}
    assert sorted(parsed) == sorted(found.job_hosts())
    for host, config in parsed.items():
        assert make_job(config)
        for peer in config.send_to:
            assert host in {source.name for source in parsed[peer.name].receive_from}


def test_senders_to_one_host_have_places_of_their_own() -> None:
    found = shares(scenario("{kind: streams, pattern: incast, to: h1, senders: 5, victim: {from: h3, to: h2}}"), FAT_TREE)
    places = {host: flow["place"] for host, share in found.items() for flow in share.job.get("outgoing", ()) if flow["to"] == "h1"}
    incoming = [flow["from"] for flow in found["h1"].job["incoming"]]
    assert [places[source] for source in incoming] == [0, 1, 2, 3, 4]


def test_all_to_all_sends_to_the_next_ranks_first() -> None:
    found = shares(scenario("{kind: all-to-all, hosts: [h1, h5, h9]}"), FAT_TREE)
    assert [list(share.send_to) for share in found.values()] == [["h5", "h9"], ["h9", "h1"], ["h1", "h5"]]


def test_the_scenario_knows_what_an_agent_takes() -> None:
    assert (schema_job.MOST_OUTSTANDING, schema_job.MAX_WINDOW_BYTES) == (ROTATIONS - 1, MAX_WINDOW_BYTES)


@pytest.mark.parametrize(
    ("job", "place"),
    [
        ("{kind: alltoall}", "$.job.kind"),
        ("{kind: [streams]}", "$.job.kind"),
        ("{kind: streams}", "$.job"),
        ("[h1]", "$.job"),
        ("{kind: streams, pattern: incats, to: h1}", "$.job.pattern"),
        ("{kind: streams, pattern: null}", "$.job.pattern"),
        ("{kind: all-to-all, ring: strided}", "$.job.ring"),
        ("{kind: all-to-all, hosts: [h1, h17]}", "$.job.hosts[1]"),
        ("{kind: all-to-all, hosts: [h1]}", "$.job.hosts"),
        ("{kind: all-to-all, vector: 15B}", "$.job.vector"),
        ("{kind: streams, flows: []}", "$.job.flows"),
        ("{kind: streams, flows: [{from: h1}]}", "$.job.flows[0]"),
        ("{kind: streams, flows: [{from: h1, too: h2}]}", "$.job.flows[0].too"),
        ("{kind: streams, flows: [{from: h1, to: h99}]}", "$.job.flows[0].to"),
        ("{kind: streams, flows: [{from: t0_1_1, to: h2}]}", "$.job.flows[0].from"),
        ("{kind: streams, flows: [{from: h1, to: h1}]}", "$.job.flows[0].to"),
        ("{kind: streams, flows: [{from: h1, to: h2}, {from: h1, to: h2, at: 3s}]}", "$.job.flows[1]"),
        ("{kind: streams, flows: [{from: h1, to: h2, at: 30s}]}", "$.job.flows[0].at"),
        ("{kind: streams, flows: [{from: h1, to: h2, at: 20s, for: 11s}]}", "$.job.flows[0].for"),
        ("{kind: streams, flows: [{from: h1, to: h2}], message: 1GiB}", "$.job.message"),
        ("{kind: streams, flows: [{from: h1, to: h2}], message: 16MiB, outstanding: 5}", "$.job.outstanding"),
        ("{kind: streams, flows: [{from: h1, to: h2}], outstanding: 251}", "$.job.outstanding"),
        ("{kind: streams, flows: [{from: h1, to: h2}], checkpoint_every: 3}", "$.job.checkpoint_every"),
        ("{kind: streams, pattern: permutation, hosts: [h1]}", "$.job.hosts"),
        ("{kind: streams, pattern: permutation, hosts: [h1, h1]}", "$.job.hosts[1]"),
        ("{kind: streams, pattern: permutation, flows: []}", "$.job.flows"),
        ("{kind: streams, pattern: incast, to: h1}", "$.job"),
        ("{kind: streams, pattern: incast, to: h1, senders: 0}", "$.job.senders"),
        ("{kind: streams, pattern: incast, to: h1, senders: 16}", "$.job.senders"),
        ("{kind: streams, pattern: incast, to: h1, senders: 2, from: [h2]}", "$.job"),
        ("{kind: streams, pattern: incast, to: h1, from: []}", "$.job.from"),
        ("{kind: streams, pattern: incast, to: h1, from: [h2, h1]}", "$.job.from[1]"),
        ("{kind: streams, pattern: incast, to: h1, from: [h2, h2]}", "$.job.from[1]"),
        ("{kind: streams, pattern: incast, to: h77, senders: 2}", "$.job.to"),
        ("{kind: streams, pattern: incast, to: h1, senders: 2, at: 40s}", "$.job.at"),
        ("{kind: streams, pattern: incast, to: h1, senders: 2, at: 4s, for: 27s}", "$.job.for"),
        ("{kind: streams, pattern: incast, to: h1, from: [h2], victim: {from: h2, to: h3}}", "$.job.victim.from"),
        ("{kind: streams, pattern: incast, to: h1, from: [h2], victim: {from: h3, to: h1}}", "$.job.victim.to"),
        ("{kind: streams, pattern: incast, to: h1, from: [h2], victim: {from: h3, to: h3}}", "$.job.victim.to"),
        ("{kind: streams, pattern: incast, to: h1, from: [h2], victim: h3}", "$.job.victim"),
    ],
)
def test_a_mistake_is_told_with_its_place(job: str, place: str) -> None:
    assert place in problems(job)


def test_an_unknown_host_has_a_hint() -> None:
    with pytest.raises(ScenarioInvalid, match="did you mean `h1`"):
        scenario("{kind: streams, flows: [{from: h1x, to: h2}]}")


def test_overrides_reach_flows() -> None:
    found = scenario("{kind: streams, flows: [{from: h1, to: h5}]}", "job.flows[0].to=h6", "job.message=4KiB")
    assert (found.flows()[0].target, found.job_record()["message_bytes"]) == ("h6", 4096)


def test_documented_jobs_are_valid(repo_root: Path) -> None:
    drawn = [load_text(HEAD + text).flows() for text in contents(repo_root, "job.md", "yaml")]
    assert [len(flows) for flows in drawn] == [2, 16, 8]


def test_a_dry_run_lists_the_flows() -> None:
    found = scenario("{kind: streams, pattern: incast, to: h1, from: [h9], at: 5s, victim: {from: h6, to: h2}}")
    lines = plan_lines(found, FAT_TREE, draw(found), verbose=False)
    assert lines[2:5] == [
        "job: 2 streams between 4 hosts, 4 messages of 64 KiB under way on each",
        "  incast h9 to h1, on from 5 s to 30 s",
        "  victim h6 to h2, on from 0 s to 30 s",
    ]
