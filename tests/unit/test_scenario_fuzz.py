"""Whatever a file holds: either a scenario, or ScenarioInvalid. Nothing else, and not slowly."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.scenario import Scenario, ScenarioInvalid, draw, load_text

VALID: dict[str, Any] = {
    "name": "fuzz",
    "title": "t",
    "topology": {"kind": "fat-tree", "k": 4, "oversubscription": 1},
    "links": {"rate": "10Mbps", "mtu": "4352B", "queue": "128KiB"},
    "job": {"hosts": ["h1", "h5"], "ring": "strided", "vector": "64KiB", "compute": "0s", "checkpoint_every": 2, "restart": "1s"},
    "run": {"duration": "60s", "warmup": "5s", "settle": "5s"},
    "faults": [
        {"kind": "carrier", "link": "t0_1_1-t1_1_1", "at": "6s", "for": "2s"},
        {"kind": "switch-reboot", "switch": "t1_2_1", "at": "6s", "for": "2s"},
        {
            "churn": {
                "tiers": {"T0-T1": {"cuts_per_minute": 6}},
                "down": {"distribution": "lognormal", "mean": "3s", "sigma": 0.5, "min": "1s", "max": "9s"},
                "kinds": {"carrier": 0.5, "silent": 0.5},
                "from": "6s",
                "to": "50s",
                "keep_connected": True,
                "max_concurrent": 3,
            }
        },
        {"kind": "remote", "link": "t0_1_1-t1_1_1", "seen_by": "t0_1_1", "at": "10s", "for": "2s"},
        {"kind": "loss", "link": "h1-t0_1_1", "from": "h1", "share": "5%", "evs": [1, 2], "at": "10s", "for": "2s"},
        {"kind": "rate", "link": "h1-t0_1_1", "rate": "1Mbps", "at": "10s", "for": "2s"},
        {"kind": "flap", "link": "t0_2_1-t1_2_1", "down": "200ms", "up": "1s", "of": "silent", "at": "10s", "for": "2s"},
        {"kind": "bundle", "links": ["h3-t0_1_2", "h4-t0_1_2"], "of": "carrier", "at": "10s", "for": "2s"},
        {"kind": "port", "port": "h5-eth0", "at": "10s", "for": "2s"},
        {"kind": "host-slow", "host": "h5", "share": 0.5, "period": "20ms", "at": "10s", "for": "2s"},
    ],
    "deny": {"links": ["t0_1_1-t1_1_2"], "evs": [{"host": "h1", "peer": "h5", "evs": [0]}]},
    "transport": {"mrc": {}, "rc": {"retries": 7}},
    "bgp": {"profile": "datacenter", "hold_s": 9},
    "arms": ["mrc", "rc-bgp"],
    "repeats": 1,
    "seed": 1,
    "expect": [{"arm": "mrc", "metric": "crashes", "equals": 0}],
}


def places(data: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [place, *(inner for key, value in children for inner in places(value, (*place, key)))]


SWEPT: dict[str, Any] = {
    **{key: VALID[key] for key in ("name", "topology", "run", "transport")},
    "links": {"rate": "10Mbps", "ecn": True, "trimming": False, "base_rtt": "4ms", "loss": {"NIC-T0": "1%", "T0-T1": 0.1}},
    "faults": [{"kind": "host-slow", "host": "h5", "share": 0.5, "at": "10s", "for": "2s"}],
    "arms": ["mrc", "mrc-no-trim"],
    "expect": [{"arm": "mrc", "metric": "crashes", "at_most": 0, "at": "5%"}],
    "sweep": {"key": "links.loss.NIC-T0", "values": [0, "5%"], "label": "x", "metric": "crashes", "relative": True, "only": ["5%"]},
}
STREAMS: dict[str, Any] = {"kind": "streams", "message": "64KiB", "outstanding": 4, "restart": "1s"}
JOBS: list[dict[str, Any]] = [
    {**STREAMS, "flows": [{"from": "h1", "to": "h5", "at": "1s", "for": "3s"}, {"from": "h5", "to": "h1"}]},
    {**STREAMS, "pattern": "permutation", "hosts": ["h1", "h2", "h5", "h6"]},
    {**STREAMS, "pattern": "incast", "to": "h1", "from": ["h5"], "at": "1s", "for": "9s", "victim": {"from": "h9", "to": "h6"}},
    {**STREAMS, "pattern": "incast", "to": "h1", "senders": 7, "victim": {"from": "h9", "to": "h2"}},
    {"kind": "all-to-all", "hosts": ["h1", "h5", "h9"], "vector": "64KiB", "compute": "0s"},
]
SEEDS = [VALID, *({**SWEPT, "job": job} for job in JOBS)]
PLACES = [(seed, place) for seed, data in enumerate(SEEDS) for place in places(data) if place]
WORDS = [
    "",
    "all",
    "h1",
    "t0_1_1-t1_1_1",
    "t1_1_1",
    "5s",
    "-1s",
    "1e9s",
    "9999min",
    "10Mbps",
    "1B",
    "99999GiB",
    "fat-tree",
    "churn",
    "mrc",
    "<link>",
    "[key]",
]
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.integers(-3, 20), st.floats(), st.text(max_size=12), st.sampled_from(WORDS))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(st.text(max_size=8), st.sampled_from(WORDS)), inner, max_size=3)
    ),
    max_leaves=6,
)
QUICK = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def scenario_or_problems(text: str, overrides: list[str] | None = None) -> Scenario | ScenarioInvalid:
    try:
        return load_text(text, overrides or [])
    except ScenarioInvalid as error:
        invalid = error
    assert invalid.problems
    assert all(problem.message for problem in invalid.problems)
    return invalid


def put(data: Any, place: tuple[Any, ...], value: Any) -> None:
    for step in place[:-1]:
        data = data[step]
    data[place[-1]] = value


@pytest.mark.parametrize("seed", range(len(SEEDS)))
def test_the_seeds_of_the_fuzzing_are_valid(seed: int) -> None:
    outcome = scenario_or_problems(yaml.safe_dump(SEEDS[seed]))
    assert isinstance(outcome, Scenario), str(outcome)


@QUICK
@given(st.sampled_from(PLACES), VALUES)
def test_any_value_at_any_place(place: tuple[int, tuple[Any, ...]], value: Any) -> None:
    data = copy.deepcopy(SEEDS[place[0]])
    put(data, place[1], value)
    outcome = scenario_or_problems(yaml.safe_dump(data, allow_unicode=True))
    if isinstance(outcome, Scenario):
        for single in outcome.single_runs():
            draw(single)
            single.resolved()


@QUICK
@given(st.sampled_from(PLACES), st.text(max_size=8), VALUES)
def test_any_key_at_any_place(place: tuple[int, tuple[Any, ...]], key: str, value: Any) -> None:
    data = copy.deepcopy(SEEDS[place[0]])
    put(data, place[1], {key: value})
    scenario_or_problems(yaml.safe_dump(data, allow_unicode=True))


@QUICK
@given(st.sampled_from(PLACES))
def test_any_place_left_out(place: tuple[int, tuple[Any, ...]]) -> None:
    data = copy.deepcopy(SEEDS[place[0]])
    target = data
    for step in place[1][:-1]:
        target = target[step]
    del target[place[1][-1]]
    scenario_or_problems(yaml.safe_dump(data))


@QUICK
@given(st.text(alphabet=st.sampled_from("abn:[]{}-,&*!?|>%@`\"'# \n\t\\0~<\x00\u2028"), max_size=60))
def test_any_text(text: str) -> None:
    assert isinstance(scenario_or_problems(text), ScenarioInvalid)


@QUICK
@given(st.text(max_size=40))
def test_any_override(override: str) -> None:
    scenario_or_problems(yaml.safe_dump(VALID), [override])


@QUICK
@given(st.sampled_from(["job.vector", "faults[0].at", "faults[2].churn.down", "topology", "run"]), st.text(max_size=20))
def test_any_value_of_an_override(place: str, value: str) -> None:
    scenario_or_problems(yaml.safe_dump(VALID), [f"{place}={value}"])


@pytest.mark.parametrize(
    "text",
    ["\ud800", "x: \x07", "a: !!int x", "--- a\n--- b", "? ? ?", "&a *a", "<<: {name: a}", "1: 2", "null: 3", "{}", "%YAML 9.9\n--- {}"],
)
def test_odd_texts(text: str) -> None:
    assert isinstance(scenario_or_problems(text), ScenarioInvalid)
