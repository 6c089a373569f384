"""The `sweep` section: its points, and the messages about bad ones."""

from __future__ import annotations

import json

import pytest
from sweep_lab import SCENARIO

from testbed.scenario import ScenarioInvalid, draw, load_text, total_duration_s
from testbed.scenario.sweep import value_text, yaml_text
from testbed.scenario.yamltext import read_yaml


def problems(*overrides: str) -> dict[str, str]:
    with pytest.raises(ScenarioInvalid) as caught:
        load_text(SCENARIO, overrides)
    return {str(problem.as_dict()["place"]): problem.message for problem in caught.value.problems}


def test_each_point_has_its_value_and_everything_else_as_written() -> None:
    points = load_text(SCENARIO).points
    assert [point.scenario.links.rate_bps for point in points] == [10e6, 5e6, 2e6]
    assert [point.folder for point in points] == ["1-10Mbps", "2-5Mbps", "3-2Mbps"]
    assert {point.scenario.run.duration_s for point in points} == {6.0}
    assert {point.scenario.sweep for point in points} == {None}


def test_a_scenario_without_a_sweep_is_its_own_single_run() -> None:
    scenario = load_text(SCENARIO, ["sweep=null"])
    assert scenario.single_runs() == (scenario,)


def test_the_time_is_that_of_all_points() -> None:
    assert total_duration_s(load_text(SCENARIO)) == 3 * total_duration_s(load_text(SCENARIO, ["sweep=null"]))


def test_a_swept_duration_is_added_up() -> None:
    swept = load_text(SCENARIO, ["sweep.key=run.duration", "sweep.values=[6s, 16s]", "expect=[]"])
    assert total_duration_s(swept) - 2 * total_duration_s(load_text(SCENARIO, ["sweep=null"])) == 2 * 10.0


def test_an_expectation_at_a_value_belongs_to_its_point_alone() -> None:
    points = load_text(SCENARIO).points
    assert [[entry.metric for entry in point.scenario.expect] for point in points] == [
        ["wrong_sums"],
        ["wrong_sums", "crashes"],
        ["wrong_sums"],
    ]


def test_without_the_sweep_nothing_is_expected_of_a_point() -> None:
    assert [entry.metric for entry in load_text(SCENARIO, ["sweep=null"]).expect] == ["wrong_sums"]


def test_a_points_overrides_lead_to_that_point_again() -> None:
    point = load_text(SCENARIO, ["repeats=2"]).points[1]
    (again,) = load_text(SCENARIO, point.scenario.overrides).points
    assert (again.folder, again.scenario) == (
        point.folder,
        point.scenario.__class__(**{**vars(point.scenario), "overrides": again.scenario.overrides}),
    )


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("seed", "[1, 2]"),
        ("topology.planes", "[1, 2, 4]"),
        ("bgp.hold_s", "[9, 30]"),
        ("transport.mrc.probe_interval_s", "[0.1, 0.25]"),
        ("links.loss.NIC-T0", "[0, 0.1%, 1%]"),
        ("links.queue", "[null, 256KiB]"),
        ("links.ecn", "[true, false]"),
    ],
)
def test_any_scalar_can_be_swept(key: str, values: str) -> None:
    scenario = load_text(SCENARIO, [f"sweep.key={key}", f"sweep.values={values}", "expect=[]"])
    assert len({json.dumps(point.scenario.resolved() | {"overrides": [], "title": ""}) for point in scenario.points}) == len(
        scenario.points
    )


def test_a_key_inside_a_list_can_be_swept() -> None:
    fault = "faults=[{kind: silent, link: t0_1_1-t1_1_1, at: 2s, for: 1s}]"
    points = load_text(SCENARIO, [fault, "sweep.key=faults[0].for", "sweep.values=[500ms, 1s]", "expect=[]"]).points
    assert [draw(point.scenario).faults[0].for_s for point in points] == [0.5, 1.0]


def test_resolved_is_json_with_the_sweep() -> None:
    resolved = json.loads(json.dumps(load_text(SCENARIO).resolved()))
    assert resolved["sweep"]["values"] == ["10Mbps", "5Mbps", "2Mbps"]


def test_a_bad_value_is_told_with_its_place() -> None:
    found = problems("sweep.values=[10Mbps, 5M, 3]", "expect=[]")
    assert found.keys() == {"$.sweep.values[1]", "$.sweep.values[2]"}
    assert found["$.sweep.values[1]"].startswith("with links.rate=5M: $.links.rate: ")


def test_what_is_wrong_at_every_value_is_told_once_at_the_key() -> None:
    assert problems("sweep.key=link.rate") == {"$.sweep.key": "with any value: $.link: unknown key `link`"}


@pytest.mark.parametrize(
    ("override", "place"),
    [
        ("sweep.key=arms", "$.sweep.key"),
        ("sweep.key=sweep.key", "$.sweep.key"),
        ("sweep.key='a b'", "$.sweep.key"),
        ("sweep.metric=step_p51_s", "$.sweep.metric"),
        ("sweep.values=[10Mbps, 5Mbps, 10Mbps]", "$.sweep.values[2]"),
        ("sweep.values=[5Mbps, [1]]", "$.sweep.values[1]"),
        ("sweep.values=[5Mbps, .inf]", "$.sweep.values[1]"),
        ("sweep.values=[]", "$.sweep.values"),
        ("sweep.only=[7Mbps]", "$.sweep.only[0]"),
        ("expect[1].at=7Mbps", "$.expect[1].at"),
        ("sweep.value=1", "$.sweep.value"),
        ("links.rate=5Mbps", "$.links.rate"),
    ],
)
def test_a_bad_sweep_is_refused_with_its_place(override: str, place: str) -> None:
    assert problems(override).keys() == {place}


def test_more_than_fifty_points_are_refused() -> None:
    assert problems(f"sweep.values={list(range(1, 52))}", "sweep.key=seed", "expect=[]").keys() == {"$.sweep.values"}


def test_at_needs_a_sweep() -> None:
    text = "\n".join(line for line in SCENARIO.splitlines() if not line.startswith("sweep"))
    with pytest.raises(ScenarioInvalid, match=r"\$\.expect\[1\]\.at"):
        load_text(text)


def test_the_swept_key_may_be_set_to_the_value_of_the_only_point() -> None:
    assert len(load_text(SCENARIO, ["sweep.only=[5Mbps]", "links.rate=5Mbps"]).points) == 1


@pytest.mark.parametrize("value", ["1%", "10Mbps", "a, b", "[x]", "true", "5", 5, 0.25, 1e-07, True, None, "ä\N{SNOWMAN}", "on: off", "#x"])
def test_a_value_written_into_yaml_is_read_back(value: object) -> None:
    assert read_yaml(f"[{yaml_text(value)}]", "test").data == [value]


def test_folders_hold_only_harmless_letters() -> None:
    points = load_text(SCENARIO, ["sweep.key=job.ring", "sweep.values=[adjacent, strided]", "expect=[]"]).points
    assert [point.folder for point in points] == ["1-adjacent", "2-strided"]
    losses = load_text(SCENARIO, ["sweep.key=links.loss.NIC-T0", "sweep.values=[0, 0.1%]", "expect=[]"]).points
    assert [point.folder for point in losses] == ["1-0", "2-0.1pct"]


def test_folders_of_ten_points_sort_as_they_run() -> None:
    folders = [point.folder for point in load_text(SCENARIO, ["sweep.key=seed", f"sweep.values={list(range(5, 16))}", "expect=[]"]).points]
    assert folders == sorted(folders)


@pytest.mark.parametrize(("value", "text"), [(None, "default"), (True, "true"), (1.0, "1"), (0.1, "0.1"), ("1%", "1%"), (7, "7")])
def test_values_in_words(value: object, text: str) -> None:
    assert value_text(value) == text
