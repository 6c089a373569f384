"""Drawing faults: repeatable, apart on each link, connected, within the run, at the asked rate."""

from __future__ import annotations

import json
import random
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.scenario import Drawn, Scenario, ScenarioInvalid, draw, load_text, read_faults, write_faults
from testbed.scenario.churn import HEAL_GUARD_S, down_time_s
from testbed.scenario.schema_faults import ExponentialDown, FixedDown, LognormalDown, UniformDown

TEXT = """\
name: churn
topology: {kind: fat-tree, k: 4}
run: {duration: 120s, warmup: 10s, settle: 10s}
faults:
  - churn:
      tiers: {T0-T1: {cuts_per_minute: 20}, T1-T2: {cuts_per_minute: 20}}
      down: {distribution: exponential, mean: 6s, min: 1s, max: 20s}
"""
CHURN = "faults[0].churn"
SEEDS = st.integers(0, 2**32)
FEW = settings(max_examples=40, deadline=None)


def scenario(*overrides: str) -> Scenario:
    return load_text(TEXT, overrides)


def drawn(seed: int, *overrides: str) -> Drawn:
    return draw(scenario(f"seed={seed}", *overrides))


@FEW
@given(SEEDS)
def test_the_same_seed_draws_the_same_list(seed: int) -> None:
    assert drawn(seed) == drawn(seed)


def test_another_seed_draws_another_list() -> None:
    assert drawn(1).faults != drawn(2).faults


def test_the_list_of_a_seed_stays_the_same_across_versions() -> None:
    """Results that were published with a seed must stay reproducible: change this only with a note in the changelog."""
    first = drawn(1).faults[0]
    assert (first.id, first.kind, first.target, first.at_s, first.for_s) == ("f1", "silent", "t0_3_2-t1_3_2", 14.568, 16.127)


@FEW
@given(SEEDS)
def test_ids_count_in_order_of_time(seed: int) -> None:
    faults = drawn(seed).faults
    assert [fault.id for fault in faults] == [f"f{number}" for number in range(1, len(faults) + 1)]
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)


@FEW
@given(SEEDS)
def test_cuts_of_a_link_never_overlap(seed: int) -> None:
    for one, other in combinations(drawn(seed, f"{CHURN}.max_concurrent=100").faults, 2):
        if one.target == other.target:
            assert one.end_s + HEAL_GUARD_S <= other.at_s


@FEW
@given(SEEDS)
def test_cuts_stay_within_the_window(seed: int) -> None:
    assert all(fault.at_s >= 10 and fault.end_s <= 110 and fault.for_s > 0 for fault in drawn(seed).faults)


@FEW
@given(SEEDS)
def test_hosts_stay_connected_at_every_moment(seed: int) -> None:
    made = scenario(f"seed={seed}", f"{CHURN}.max_concurrent=100")
    topology, faults = made.build_topology(), draw(made).faults
    for moment in {fault.at_s for fault in faults}:
        down = [fault.target for fault in faults if fault.at_s <= moment < fault.end_s]
        assert topology.connected(down_links=down)


def test_without_the_promise_hosts_may_be_cut_off() -> None:
    counts = drawn(
        3, f"{CHURN}.keep_connected=false", f"{CHURN}.max_concurrent=100", f"{CHURN}.tiers={{NIC-T0: {{cuts_per_minute: 5}}}}"
    ).counts
    assert counts["drawn"] > 0


def test_a_cut_that_must_disconnect_is_dropped_and_counted() -> None:
    result = drawn(3, f"{CHURN}.tiers={{NIC-T0: {{cuts_per_minute: 5}}}}")
    assert not result.faults
    assert result.counts["dropped_disconnects"] == result.counts["asked"] > 0


def test_links_that_the_job_does_not_need_may_be_cut() -> None:
    result = drawn(3, "job.hosts=[h1, h16]", f"{CHURN}.tiers={{NIC-T0: {{cuts_per_minute: 5}}}}")
    assert result.faults
    assert not {"h1-t0_1_1", "h16-t0_4_2"} & {fault.target for fault in result.faults}


@FEW
@given(SEEDS, st.integers(1, 3))
def test_no_more_cuts_at_once_than_allowed(seed: int, limit: int) -> None:
    faults = drawn(seed, f"{CHURN}.max_concurrent={limit}").faults
    for fault in faults:
        assert sum(other.at_s <= fault.at_s < other.end_s for other in faults) <= limit


@FEW
@given(SEEDS)
def test_every_arrival_is_accounted_for(seed: int) -> None:
    counts = drawn(seed).counts
    dropped = sum(count for name, count in counts.items() if name.startswith("dropped"))
    assert counts["asked"] == counts["drawn"] + dropped


def test_the_rate_is_as_asked() -> None:
    asked = [drawn(seed, f"{CHURN}.tiers={{T0-T1: {{cuts_per_minute: 12}}}}").counts["asked"] for seed in range(100)]
    # 20 a run expected: the mean of 100 Poisson counts is within 5 standard errors of it.
    assert sum(asked) / 100 == pytest.approx(20, abs=5 * (20 / 100) ** 0.5)


def test_kinds_follow_their_weights() -> None:
    faults = [fault for seed in range(30) for fault in drawn(seed, f"{CHURN}.kinds={{carrier: 3, silent: 1}}").faults]
    share = sum(fault.kind == "carrier" for fault in faults) / len(faults)
    assert share == pytest.approx(0.75, abs=5 * (0.75 * 0.25 / len(faults)) ** 0.5)


def test_a_weight_of_zero_is_never_drawn() -> None:
    assert {fault.kind for fault in drawn(1, f"{CHURN}.kinds={{carrier: 0, silent: 1}}").faults} == {"silent"}


def test_all_links_of_a_tier_are_drawn() -> None:
    targets = {fault.target for seed in range(20) for fault in drawn(seed).faults}
    assert len(targets) == 32


def test_one_tiers_rate_leaves_the_times_of_the_other_alone() -> None:
    one = drawn(5, f"{CHURN}.max_concurrent=100", f"{CHURN}.tiers={{T0-T1: {{cuts_per_minute: 6}}}}").faults
    both = drawn(5, f"{CHURN}.max_concurrent=100", f"{CHURN}.tiers={{T0-T1: {{cuts_per_minute: 6}}, T1-T2: {{cuts_per_minute: 6}}}}").faults
    assert [fault.at_s for fault in one] == [fault.at_s for fault in both if fault.tier == "T0-T1"]


def test_cuts_avoid_explicit_faults() -> None:
    fault = "{kind: switch-kill, switch: t1_1_1, at: 10s, for: 100s}"
    text = TEXT + f"  - {fault}\n"
    topology = load_text(text).build_topology()
    dead = {link.name for link in topology.links_of("t1_1_1")}
    for seed in range(20):
        cuts = [fault for fault in draw(load_text(text, [f"seed={seed}"])).faults if fault.target_type == "link"]
        assert not dead & {cut.target for cut in cuts}


def test_cuts_stay_connected_with_an_explicit_fault_that_begins_later() -> None:
    text = TEXT + "  - {kind: switch-kill, switch: t1_1_1, at: 60s, for: 40s}\n"
    for seed in range(20):
        made = load_text(text, [f"seed={seed}"])
        topology, faults = made.build_topology(), draw(made).faults
        for moment in {fault.at_s for fault in faults}:
            on = [fault for fault in faults if fault.at_s <= moment < fault.end_s]
            links = [fault.target for fault in on if fault.target_type == "link"]
            hosts_connected = topology.connected(links, [fault.target for fault in on if fault.target_type == "switch"])
            assert hosts_connected


def test_explicit_faults_are_taken_as_written() -> None:
    (fault,) = draw(scenario("faults=[{kind: silent, link: t1_1_1-t0_1_1, at: 12.5s, for: 3s}]")).faults
    assert (fault.target, fault.tier, fault.at_s, fault.for_s, fault.source) == ("t0_1_1-t1_1_1", "T0-T1", 12.5, 3.0, "$.faults[0]")


@given(st.integers(0, 2**32), st.sampled_from([
    UniformDown.model_validate({"distribution": "uniform", "min": "2s", "max": "5s"}),
    ExponentialDown.model_validate({"distribution": "exponential", "mean": "60s", "min": "2s", "max": "5s"}),
    LognormalDown.model_validate({"distribution": "lognormal", "mean": "1ms", "min": "2s", "max": "5s"}),
]))  # fmt: skip
def test_down_times_keep_their_bounds(seed: int, down: object) -> None:
    assert 2 <= down_time_s(down, random.Random(seed)) <= 5


def test_a_drawn_fixed_down_time_is_exact() -> None:
    cuts = drawn(1, f"{CHURN}.down={{distribution: fixed, value: 4s}}").faults
    assert {cut.for_s for cut in cuts if cut.at_s < 100} == {4.0}


def test_a_fixed_down_time_is_fixed() -> None:
    assert down_time_s(FixedDown.model_validate({"distribution": "fixed", "value": "4s"}), random.Random(1)) == 4


@pytest.mark.parametrize("kind", [ExponentialDown, LognormalDown])
def test_the_mean_is_the_asked_mean(kind) -> None:
    name = "exponential" if kind is ExponentialDown else "lognormal"
    down, rng = kind.model_validate({"distribution": name, "mean": "6s", "min": "1us"}), random.Random(1)
    assert sum(down_time_s(down, rng) for _ in range(20000)) / 20000 == pytest.approx(6, rel=0.05)


def test_a_written_list_is_read_back_exactly(tmp_path: Path) -> None:
    made = scenario()
    original = draw(made)
    write_faults(tmp_path / "faults.json", original)
    assert read_faults(tmp_path / "faults.json", made) == original


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"kind": "cut"}, "$.faults[0].kind"),
        ({"target": "t9"}, "$.faults[0].target"),
        ({"at_s": "now"}, "$.faults[0].at_s"),
        ({"for_s": -1}, "$.faults[0].for_s"),
        ({"for_s": 0}, "$.faults[0].for_s"),
        ({"for_s": 500}, "$.f1"),
        ({"id": "f2"}, "$.faults[1].id"),
        ({"id": None}, "$.faults[0].id"),
        ({"id": "\x1b[2J"}, "$.faults[0].id"),
        ({"id": "$\\frac$"}, "$.faults[0].id"),
        ({"id": ""}, "$.faults[0].id"),
    ],
)
def test_a_list_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, object], place: str) -> None:
    made = scenario()
    data = draw(made).as_dict()
    data["faults"][0].update(change)
    (tmp_path / "faults.json").write_text(json.dumps(data))
    with pytest.raises(ScenarioInvalid) as caught:
        read_faults(tmp_path / "faults.json", made)
    assert place in {problem.as_dict()["place"] for problem in caught.value.problems}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"faults": 3}', '{"faults": [3]}', "\x00", '{"faults": [], "seed": "x"}'])
def test_a_file_that_is_no_list_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "faults.json").write_text(text)
    with pytest.raises(ScenarioInvalid):
        read_faults(tmp_path / "faults.json", scenario())
