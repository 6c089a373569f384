"""The scenario's `bgp_ovs`: a preset, named delays on top of it, and what is refused, with its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.errors import UsageError
from testbed.fabric.ovs_routed import OvsEcmpSwitching
from testbed.pathvector import BgpOvsOptions
from testbed.run.plan import fabric_options
from testbed.scenario import Scenario
from testbed.scenario.load import load_text
from testbed.scenario.problems import ScenarioInvalid, place_text
from topologies import BadTopology

GOOD = "name: try\ntopology: {kind: fat-tree, k: 4}\nrun: {duration: 20s}\narms: [mrc, rc-bgp, rc-bgp-ovs, rc-static]\n"


def load(*overrides: str) -> Scenario:
    return load_text(GOOD, overrides)


def problem(*overrides: str) -> tuple[str, str]:
    """Place and message of the one problem that there is."""
    with pytest.raises(ScenarioInvalid) as refused:
        load(*overrides)
    (found,) = refused.value.problems
    return place_text(found.place), f"{found.message} {found.hint}"


def test_a_preset_gives_what_is_not_given() -> None:
    options = BgpOvsOptions.from_mapping({"preset": "large-fabric", "hold_s": 30.0})
    assert (options.preset, options.hold_s) == ("large-fabric", 30.0)
    assert options.fib_prefix_s > BgpOvsOptions().fib_prefix_s
    assert BgpOvsOptions.from_mapping({}) == BgpOvsOptions() == BgpOvsOptions.from_mapping({"preset": "frr"})


def test_the_arms_that_route_over_open_vswitch_take_the_section() -> None:
    scenario = load("bgp_ovs.preset=large-fabric", "bgp_ovs.mrai_s=1")
    assert scenario.resolved()["bgp_ovs"] == {"preset": "large-fabric", "mrai_s": 1}
    asked = BgpOvsOptions.from_mapping({"preset": "large-fabric", "mrai_s": 1})
    assert [fabric_options(scenario, arm).get("bgp_ovs") for arm in scenario.arms] == [None, None, asked, asked]


def test_what_is_drawn_follows_the_scenarios_seed_and_the_repeat() -> None:
    assert [fabric_options(load("seed=7"), "rc-bgp-ovs", repeat)["seed"] for repeat in (1, 2)] == [7, 8]


def test_a_sweep_may_go_over_presets() -> None:
    scenario = load('sweep={"key": "bgp_ovs.preset", "values": ["frr", "large-fabric"]}')
    assert [single.bgp_ovs["preset"] for single in scenario.single_runs()] == ["frr", "large-fabric"]


@pytest.mark.parametrize(
    ("override", "place", "says"),
    [
        ("bgp_ovs.preset=fast", "$.bgp_ovs.preset", "unknown value"),
        ("bgp_ovs.mrai=1", "$.bgp_ovs.mrai", "mrai_s"),
        ("bgp_ovs.mrai_s=soon", "$.bgp_ovs.mrai_s", "must be a number"),
        ("bgp_ovs.local_repair=1", "$.bgp_ovs.local_repair", "true or false"),
        ("bgp_ovs.hold_s=2", "$.bgp_ovs", "keepalive_s"),
        ("bgp_ovs.bfd_interval_s=0.01", "$.bgp_ovs", "0.05 or more"),
        ("bgp_ovs.bfd_multiplier=1", "$.bgp_ovs", "2 to 255"),
        ("bgp_ovs.process_s=-1", "$.bgp_ovs", "0 to 3600"),
        ("bgp_ovs.session_max_s=0.1", "$.bgp_ovs", "session_min_s"),
    ],
)
def test_what_no_switch_could_be_is_refused_at_its_place(override: str, place: str, says: str) -> None:
    where, text = problem(override)
    assert where == place
    assert says in text


@pytest.mark.parametrize(
    ("planes", "t1s", "hosts", "fits"),
    [(1, 4, 28, True), (1, 4, 29, False), (1, 2, 40, False), (1, 1, 40, True), (2, 30, 2, True), (2, 31, 2, False)],
)
def test_a_switch_with_more_ports_than_its_tables_can_name_is_refused_before_any_arm_runs(
    planes: int, t1s: int, hosts: int, fits: bool, tmp_path: Path
) -> None:
    """And only where the tables could not be made."""
    kind = f"topology={{kind: multi-plane, planes: {planes}, t0s: 2, t1s: {t1s}, hosts_per_t0: {hosts}}}"
    if fits:
        OvsEcmpSwitching(load(kind).build_topology(), tmp_path, {})
        return
    with pytest.raises(ScenarioInvalid) as refused:
        load(kind)
    assert [place_text(found.place) for found in refused.value.problems] == ["$.arms[2]", "$.arms[3]"]
    assert "rc-bgp-ovs: t0_1_1 has uplinks up to port" in refused.value.problems[0].message
    with pytest.raises(BadTopology):
        OvsEcmpSwitching(load(kind, "arms=[mrc]").build_topology(), tmp_path, {})


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean large-fabric"):
        BgpOvsOptions.from_mapping({"preset": "large-fabrik"})
    with pytest.raises(UsageError, match="did you mean fib_prefix_s"):
        BgpOvsOptions.from_mapping({"fib_prefix": 1})


def test_the_page_tells_every_parameter_with_the_values_of_both_presets() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "bgp-ovs.md").read_text(encoding="utf-8")
    presets = [vars(BgpOvsOptions.from_mapping({"preset": name})) for name in ("frr", "large-fabric")]
    found: dict[str, list[str]] = {}
    for names, *cells in re.findall(r"^\| (`[^|]*`) \| ([^|]*) \| ([^|]*) \| ", text, re.MULTILINE):
        for place, name in enumerate(re.findall(r"`(\w+)`", names)):
            found[name] = [cell.split(", ")[place] for cell in cells]
    wanted = {name: [_text(preset[name]) for preset in presets] for name in presets[0] if name != "preset"}
    assert {name: cells for name, cells in found.items() if name in wanted} == wanted


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"
