"""Faults as written in a scenario, as drawn, and as read back: every kind with its target, links and parameters."""

from __future__ import annotations

import contextlib
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.cli.dryrun import fault_lines
from testbed.scenario import Drawn, Fault, ScenarioInvalid, draw, load_text, read_faults, write_faults
from testbed.scenario.kinds import KINDS, takes_path
from testbed.scenario.schema_faults import FAULT_KINDS

TEXT = """\
name: kinds
topology: {kind: fat-tree, k: 4}
run: {duration: 60s, warmup: 1s, settle: 1s}
arms: [mrc, rc-bgp-ovs]
"""
LINK, NIC = "t0_1_1-t1_1_1", "h1-t0_1_1"
# kind and keys as written -> (target, target_type, tier, params, links)
EXAMPLES: list[tuple[str, tuple[Any, ...]]] = [
    (f"kind: carrier, link: {LINK}", (LINK, "link", "T0-T1", {}, [LINK])),
    ("kind: silent, link: t1_1_1-t0_1_1", (LINK, "link", "T0-T1", {}, [LINK])),
    (f"kind: remote, link: {LINK}, seen_by: t1_1_1", (LINK, "link", "T0-T1", {"seen_by": "t1_1_1"}, [LINK])),
    (f"kind: one-way, link: {NIC}, from: h1", (NIC, "link", "NIC-T0", {"from": "h1"}, [NIC])),
    (f"kind: loss, link: {NIC}, share: 5%", (NIC, "link", "NIC-T0", {"share": 0.05}, [NIC])),
    (
        f"kind: loss, link: {NIC}, share: 1, from: h1, evs: [2, 3]",
        (NIC, "link", "NIC-T0", {"share": 1.0, "from": "h1", "evs": [2, 3]}, [NIC]),
    ),
    (f"kind: rate, link: {LINK}, rate: 1Mbps", (LINK, "link", "T0-T1", {"rate_bps": 1e6}, [LINK])),
    (f"kind: rate, link: {LINK}, share: 10%, from: t0_1_1", (LINK, "link", "T0-T1", {"share": 0.1, "from": "t0_1_1"}, [LINK])),
    ("kind: port, port: h1-eth0", ("h1-eth0", "port", "NIC-T0", {}, [NIC])),
    (
        f"kind: bundle, links: [{LINK}, t2_1-t1_1_1, {NIC}], of: silent",
        (f"{LINK}+2", "bundle", "T0-T1, T1-T2, NIC-T0", {"of": "silent"}, [LINK, "t1_1_1-t2_1", NIC]),
    ),
    (f"kind: bundle, links: [{LINK}]", (LINK, "bundle", "T0-T1", {"of": "carrier"}, [LINK])),
    (f"kind: flap, link: {LINK}, down: 200ms, up: 800ms", (LINK, "link", "T0-T1", {"down_s": 0.2, "up_s": 0.8, "of": "carrier"}, [LINK])),
    ("kind: switch-kill, switch: t2_4", ("t2_4", "switch", "T2", {}, [f"t1_{pod}_2-t2_4" for pod in (1, 2, 3, 4)])),
    ("kind: switch-reboot, switch: t0_1_1", ("t0_1_1", "switch", "T0", {}, [NIC, "h2-t0_1_1", LINK, "t0_1_1-t1_1_2"])),
    ("kind: switch-hang, switch: t0_1_1", ("t0_1_1", "switch", "T0", {}, [NIC, "h2-t0_1_1", LINK, "t0_1_1-t1_1_2"])),
    ("kind: host-slow, host: h3, share: 25%", ("h3", "host", "host", {"share": 0.25, "period_s": 0.02}, [])),
    ("kind: controller-kill", ("controller", "controller", "controller", {}, [])),
]


def drawn(*entries: str, at: str = "") -> Drawn:
    """Faults of two seconds; `at` has a digit for each, the second at which it begins (5)."""
    times = at or "5" * len(entries)
    lines = "".join(f"  - {{{entry}, at: {second}s, for: 2s}}\n" for entry, second in zip(entries, times, strict=True))
    return draw(load_text(f"{TEXT}faults:\n{lines}"))


def only(entry: str) -> Fault:
    (fault,) = drawn(entry).faults
    return fault


def replayed(tmp_path: Path, data: dict[str, Any], *overrides: str) -> Drawn:
    (tmp_path / "faults.json").write_text(json.dumps(data))
    return read_faults(tmp_path / "faults.json", load_text(TEXT, overrides))


def test_the_examples_are_of_all_kinds() -> None:
    kinds = {entry.split(",")[0].removeprefix("kind: ") for entry, _ in EXAMPLES}
    assert kinds == set(KINDS) == set(FAULT_KINDS)


@pytest.mark.parametrize(("entry", "record"), EXAMPLES, ids=[entry for entry, _ in EXAMPLES])
def test_a_fault_becomes_a_record(entry: str, record: tuple[Any, ...]) -> None:
    found = only(entry)
    assert (found.target, found.target_type, found.tier, dict(found.params), sorted(found.links)) == (*record[:4], sorted(record[4]))


@pytest.mark.parametrize("entry", [entry for entry, _ in EXAMPLES])
def test_a_record_is_read_back_exactly(entry: str, tmp_path: Path) -> None:
    original = drawn(entry)
    write_faults(tmp_path / "faults.json", original)
    assert read_faults(tmp_path / "faults.json", load_text(TEXT)) == original


def test_a_record_without_parameters_and_links_is_read(tmp_path: Path) -> None:
    """As runs wrote them before there were more kinds."""
    original = drawn(f"kind: silent, link: {LINK}", "kind: switch-kill, switch: t2_4")
    data = original.as_dict()
    for fault in data["faults"]:
        del fault["params"], fault["links"]
    assert replayed(tmp_path, data) == original


@pytest.mark.parametrize(
    ("entry", "change", "place"),
    [
        (f"kind: remote, link: {LINK}, seen_by: t1_1_1", {"params": {}}, "$.faults[0].params.seen_by"),
        (f"kind: remote, link: {LINK}, seen_by: t1_1_1", {"params": {"seen_by": "h1"}}, "$.faults[0].params.seen_by"),
        (f"kind: one-way, link: {LINK}, from: t1_1_1", {"params": {"from": 3}}, "$.faults[0].params.from"),
        (f"kind: loss, link: {LINK}, share: 5%", {"params": {"share": 0}}, "$.faults[0].params.share"),
        (f"kind: loss, link: {LINK}, share: 5%", {"params": {"share": True}}, "$.faults[0].params.share"),
        (f"kind: loss, link: {LINK}, share: 5%", {"params": {"share": 0.5, "evs": [-1]}}, "$.faults[0].params.evs"),
        (f"kind: loss, link: {LINK}, share: 5%", {"params": {"share": 0.5, "evs": [[1]]}}, "$.faults[0].params.evs"),
        (f"kind: loss, link: {LINK}, share: 5%", {"params": {"share": 0.5, "chance": 1}}, "$.faults[0].params.chance"),
        (f"kind: loss, link: {LINK}, share: 5%", {"params": [1]}, "$.faults[0].params"),
        (f"kind: rate, link: {LINK}, share: 5%", {"params": {}}, "$.faults[0].params"),
        (f"kind: rate, link: {LINK}, share: 5%", {"params": {"share": 0.1, "rate_bps": 1e6}}, "$.faults[0].params"),
        (f"kind: flap, link: {LINK}, down: 1s, up: 1s", {"params": {"down_s": 1, "up_s": 0, "of": "carrier"}}, "$.faults[0].params.up_s"),
        (f"kind: flap, link: {LINK}, down: 1s, up: 1s", {"params": {"down_s": 1, "up_s": 1e-9, "of": "silent"}}, "$.faults[0].params.up_s"),
        (f"kind: rate, link: {LINK}, share: 5%", {"params": {"share": 1}}, "$.faults[0].params.share"),
        ("kind: host-slow, host: h3, share: 25%", {"params": {"share": 1, "period_s": 0.02}}, "$.faults[0].params.share"),
        ("kind: host-slow, host: h3, share: 25%", {"params": {"share": 0.5, "period_s": 1e-9}}, "$.faults[0].params.period_s"),
        (f"kind: rate, link: {LINK}, share: 5%", {"params": {"share": 0.001}}, "$.f1"),
        (f"kind: rate, link: {LINK}, share: 5%", {"params": {"rate_bps": 1e9}}, "$.f1"),
        (f"kind: bundle, links: [{LINK}]", {"params": {"of": "water"}}, "$.faults[0].params.of"),
        (f"kind: bundle, links: [{LINK}]", {"links": [LINK, "x"]}, "$.faults[0].links[1]"),
        (f"kind: bundle, links: [{LINK}]", {"links": None}, "$.faults[0].links"),
        ("kind: port, port: h1-eth0", {"target": "t0_1_1-eth1"}, "$.faults[0].target"),
        ("kind: host-slow, host: h3, share: 25%", {"target": "t0_1_1"}, "$.faults[0].target"),
    ],
)
def test_a_record_that_does_not_fit_is_refused_with_its_place(tmp_path: Path, entry: str, change: dict[str, Any], place: str) -> None:
    data = drawn(entry).as_dict()
    data["faults"][0].update(change)
    with pytest.raises(ScenarioInvalid) as caught:
        replayed(tmp_path, data)
    assert [problem.as_dict()["place"] for problem in caught.value.problems] == [place]


def test_a_fault_too_short_for_the_timeline_or_too_rare_for_the_program_is_refused() -> None:
    for entry in (f"kind: silent, link: {LINK}, at: 5s, for: 400us", f"kind: loss, link: {LINK}, share: 0.0000000001, at: 5s, for: 1s"):
        with pytest.raises(ScenarioInvalid):
            load_text(f"{TEXT}faults: [{{{entry}}}]")


@pytest.mark.parametrize(
    ("entry", "override", "says"),
    [
        (f"kind: rate, link: {LINK}, rate: 5Mbps", "links.rate=4Mbps", "less than links.rate"),
        ("kind: host-slow, host: h3, share: 25%", "job.hosts=[h1, h2]", "h3 takes no part in the job"),
        ("kind: host-slow, host: h3, share: 25%", "job={kind: streams, flows: [{from: h1, to: h2}]}", "h3 takes no part in the job"),
        (f"kind: loss, link: {LINK}, share: 5%, evs: [0, 3]", "topology.k=2", "no pair has EV 3"),
        ("kind: controller-kill", "arms=[mrc, rc-bgp]", "no arm has a controller"),
    ],
)
def test_a_fault_that_a_scenario_has_no_use_for_is_refused_in_it_and_in_a_replay(
    tmp_path: Path, entry: str, override: str, says: str
) -> None:
    with pytest.raises(ScenarioInvalid, match=says):
        load_text(f"{TEXT}faults: [{{{entry}, at: 5s, for: 2s}}]", [override])
    with pytest.raises(ScenarioInvalid, match=says):
        replayed(tmp_path, drawn(entry).as_dict(), override)


@pytest.mark.parametrize(
    "entries",
    [
        (f"kind: loss, link: {LINK}, share: 5%", f"kind: carrier, link: {LINK}"),
        (f"kind: loss, link: {LINK}, share: 5%", f"kind: rate, link: {LINK}, share: 50%"),
        (f"kind: rate, link: {LINK}, share: 50%", "kind: switch-kill, switch: t1_1_1"),
        ("kind: host-slow, host: h1, share: 50%", "kind: port, port: h1-eth0"),
        ("kind: port, port: h1-eth0", "kind: port, port: h2-eth0"),
    ],
)
def test_faults_that_make_sense_together_may_be_on_together(tmp_path: Path, entries: tuple[str, ...]) -> None:
    both = drawn(*entries)
    assert len(both.faults) == 2
    assert replayed(tmp_path, both.as_dict()) == both


@pytest.mark.parametrize(
    "entries",
    [
        (f"kind: loss, link: {LINK}, share: 5%", f"kind: loss, link: {LINK}, share: 6%"),
        (f"kind: bundle, links: [{NIC}, {LINK}]", f"kind: one-way, link: {LINK}, from: t0_1_1"),
        ("kind: port, port: h1-eth0", f"kind: silent, link: {NIC}"),
        ("kind: switch-hang, switch: t1_1_1", f"kind: flap, link: {LINK}, down: 100ms, up: 100ms"),
        ("kind: switch-hang, switch: t1_1_1", "kind: switch-kill, switch: t1_1_1"),
        ("kind: host-slow, host: h1, share: 50%", "kind: host-slow, host: h1, share: 40%"),
    ],
)
def test_faults_that_make_no_sense_together_are_refused(tmp_path: Path, entries: tuple[str, ...]) -> None:
    with pytest.raises(ScenarioInvalid, match="overlaps with"):
        drawn(*entries)
    apart = drawn(*entries, at="58").as_dict()
    for fault in apart["faults"]:
        fault["at_s"] = 5.0
    with pytest.raises(ScenarioInvalid, match="overlaps with"):
        replayed(tmp_path, apart)


def test_faults_that_are_all_on_at_once_are_one_problem_each(tmp_path: Path) -> None:
    entries = [f"kind: silent, link: {LINK}"] * 20
    with pytest.raises(ScenarioInvalid) as in_scenario:
        drawn(*entries)
    record = drawn(entries[0]).as_dict()
    record["faults"] = [{**record["faults"][0], "id": f"f{number}"} for number in range(20)]
    with pytest.raises(ScenarioInvalid) as in_replay:
        replayed(tmp_path, record)
    assert [len(caught.value.problems) for caught in (in_scenario, in_replay)] == [19, 19]


@pytest.mark.parametrize(
    ("one", "other", "where"),
    [
        ("kind: switch-kill, switch: t0_1_1", "kind: switch-hang, switch: t1_1_1", LINK),
        ("kind: switch-kill, switch: t0_1_1", "kind: switch-hang, switch: t0_1_1", "t0_1_1"),
        ("kind: port, port: h1-eth0", f"kind: silent, link: {NIC}", NIC),
    ],
)
def test_what_two_faults_have_in_common_is_named(one: str, other: str, where: str) -> None:
    with pytest.raises(ScenarioInvalid, match=rf"on {where}\n"):
        drawn(one, other)


@pytest.mark.parametrize(
    ("kind", "params", "takes"),
    [
        ("loss", {"share": 0.99}, False),
        ("loss", {"share": 1.0}, True),
        ("loss", {"share": 1.0, "evs": [1]}, False),
        ("switch-hang", {}, True),
    ],
)
def test_whether_a_path_is_left(kind: str, params: dict[str, Any], takes: bool) -> None:
    assert takes_path(kind, params) is takes


CHURN = """\
faults:
  - churn: {tiers: {T0-T1: {cuts_per_minute: 40}}, kinds: {remote: 1, one-way: 1}, max_concurrent: 100}
"""


def test_churn_draws_the_end_that_sees_or_suffers() -> None:
    faults = [fault for seed in range(10) for fault in draw(load_text(TEXT + CHURN, [f"seed={seed}"])).faults]
    assert {fault.kind for fault in faults} == {"remote", "one-way"}
    ends = [(fault.params.get("seen_by") or fault.params["from"], fault.target.split("-")) for fault in faults]
    assert {of_link.index(end) for end, of_link in ends} == {0, 1}


def test_churn_keeps_hosts_connected_beside_a_hung_switch_but_minds_no_lossy_link() -> None:
    lossy = [f"t0_2_{number}-t1_2_1" for number in (1, 2)]
    more = "  - {kind: switch-hang, switch: t1_1_1, at: 1s, for: 58s}\n"
    more += "".join(f"  - {{kind: loss, link: {link}, share: 1%, at: 1s, for: 58s}}\n" for link in lossy)
    cut_once = set[str]()
    for seed in range(10):
        made = load_text(TEXT + CHURN + more, [f"seed={seed}"])
        cuts = [fault for fault in draw(made).faults if fault.source.endswith("churn")]
        for moment in {fault.at_s for fault in cuts}:
            down = [fault.target for fault in cuts if fault.at_s <= moment < fault.end_s]
            assert made.build_topology().connected(down, ["t1_1_1"])
        cut_once |= {cut.target for cut in cuts}
    assert cut_once >= set(lossy)


PLANNED = (
    "seen by t1_1_1", "from h1", "(NIC-T0), 5%", "evs 2, 3", "1 Mbps", "of silent, t1_1_1-t2_1, h1-t0_1_1", "down 200 ms, up 800 ms",
    "period 20 ms",
)  # fmt: skip


@pytest.mark.parametrize("text", PLANNED)
def test_a_plan_tells_the_parameters(text: str) -> None:
    assert any(text in fault_lines(drawn(entry))[1] for entry, _ in EXAMPLES)


def test_no_two_kinds_of_the_vocabulary_mean_the_same_record() -> None:
    assert all(only(one) != only(other) for one, other in combinations([entry for entry, _ in EXAMPLES], 2))


JUNK = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.lists(st.integers() | st.text(max_size=3), max_size=9)
)
JUNK |= st.dictionaries(st.sampled_from(["share", "from", "seen_by", "evs", "of", "x"]), JUNK, max_size=3)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(EXAMPLES), st.sampled_from(["id", "kind", "target", "links", "params", "at_s", "for_s", "target_type"]), JUNK)
def test_whatever_a_record_holds_it_is_read_or_refused(tmp_path: Path, example: tuple[str, Any], key: str, junk: Any) -> None:
    data = drawn(example[0]).as_dict()
    data["faults"][0][key] = junk
    with contextlib.suppress(ScenarioInvalid):
        replayed(tmp_path, data)
