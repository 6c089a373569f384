"""The tables, sentences, pictures and page of a measurement of convergence, from synthetic samples; and the command without root."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_converge_analysis import sample

from testbed.cli import main
from testbed.converge.analysis import NO_IMPACT, NOT_REPAIRED, NOTHING_LOST, REPAIRED
from testbed.converge.classes import LOCAL, REMOTE
from testbed.converge.profiles import PROFILES
from testbed.converge.summary import rows
from testbed.errors import UsageError
from testbed.report import converge_html, converge_words, write_converge, write_plots, write_report
from testbed.scenario.derived_links import SWITCHING_OF_ARM

SCENARIO = """
name: tiny
topology: {kind: fat-tree, k: 4}
run: {duration: 20s, warmup: 1s, settle: 1s}
faults:
  - {kind: carrier, link: t0_1_1-t1_1_1, at: 2s, for: 2s}
  - {kind: rate, link: t0_1_1-t1_1_1, share: 0.5, at: 6s, for: 2s}
arms: [rc-bgp]
"""


def timers(profile: str) -> dict:
    """As a fabric of that profile reports them."""
    hold_s = 180 if profile.startswith("traditional") else 9
    bfd_ms = 50 if profile.endswith("bfd-50x3") else 0
    return {"keepalive_s": hold_s // 3, "hold_s": hold_s, "bfd_interval_ms": bfd_ms, "bfd_multiplier": 3, "advertisement_interval_s": 0}


def content(samples: list[dict], profiles: tuple[str, ...] = ("datacenter", "traditional"), **more) -> dict:
    fidelity = {"verdict": "good", "reasons": []}
    fabrics = [{"profile": name, "repeat": 1, "fidelity": fidelity, "fabric": {"routing": {"options": timers(name)}}} for name in profiles]
    return {
        "scenario": "tiny", "title": "Tiny <b>", "hypothesis": "", "seed": 1, "profiles": list(profiles), "faults": [], "repeats": 1,
        "flows": 32, "probe_rate_per_s": 50, "resolution_s": 0.02, "skipped": [], "machine": {"cpu": "x", "cores": 2, "kernel": "6"},
        "complete": True, "interrupted": False, "problems": [], "rows": rows(samples, profiles), "samples": samples, "fabrics": fabrics,
        **more,
    }  # fmt: skip


def both(state: str, last_s: float | None) -> list[dict]:
    return [sample(state, last_s, profile) for profile in ("datacenter", "traditional")]


def folder_of(tmp_path: Path, told: dict) -> Path:
    (tmp_path / "converge.json").write_text(json.dumps(told))
    (tmp_path / "manifest.json").write_text(json.dumps({"kind": "converge", "command": ["testbed", "converge", "tiny"]}))
    return tmp_path


@pytest.mark.parametrize(
    ("samples", "cell"),
    [
        ([sample(REPAIRED, 0.1), sample(REPAIRED, 0.3)], "100 ms [100 ms to 300 ms]"),
        ([sample(NOTHING_LOST, None)], "nothing lost"),
        ([sample(NO_IMPACT, None)], "no impact"),
        ([sample(NOT_REPAIRED, 4.0)], "not detected while it lasted"),
        ([sample(REPAIRED, 0.1), sample(NOT_REPAIRED, 4.0)], "100 ms [100 ms to 4 s] (1 of 2 not detected while it lasted)"),
    ],
)
def test_the_cell_of_an_outage_says_what_is_no_time_in_words(samples: list[dict], cell: str) -> None:
    assert converge_words.outage_cell(rows(samples, ["datacenter"])[0]) == cell


def test_what_was_lost_until_the_healing_had_settled_is_not_called_undetected() -> None:
    found = rows([sample(NOT_REPAIRED, 4.0)], ["datacenter"])
    end = next(row for row in found if row["phase"] == "begin") | {"phase": "end"}
    assert converge_words.outage_cell(end) == "lost until all had settled"


def test_the_page_tells_how_to_measure_the_same_again(tmp_path: Path) -> None:
    told = content(both(REPAIRED, 0.05))
    given = {"scenario": {"overrides": ["bgp.hold_s=6", "bgp.profile=datacenter"]}}
    words = converge_html.again(tmp_path, told, given).split()
    assert words[4:] == [
        "--profile", "datacenter", "--profile", "traditional", "--repeats", "1", "--flows", "32", "--probe-rate", "50", "--seed", "1",
        "--set", "bgp.hold_s=6",
    ]  # fmt: skip


def alike(samples: list[dict], profiles: tuple[str, ...] = ("datacenter", "traditional")) -> list[str]:
    return [sentence for sentence in converge_words.findings(content(samples, profiles)) if "whatever their timers" in sentence]


def test_where_no_timer_takes_part_the_page_says_so() -> None:
    (sentence,) = alike(both(REPAIRED, 0.05))
    assert "local flows of f1" in sentence
    assert "could save no more than that" in sentence


def test_profiles_with_the_same_timers_do_not_show_that_timers_do_not_matter() -> None:
    """FRR's hold time of 9 s and the controller's: both wait for it. With BFD both wait for BFD, whatever their hold times."""
    for profiles, last_s in ((("datacenter", "ovs-frr"), 8.9), (("datacenter-bfd-50x3", "traditional-bfd-50x3"), 0.2)):
        assert alike([sample(REPAIRED, last_s, profile) for profile in profiles], profiles) == []
        assert alike([sample(REPAIRED, 0.05, profile) for profile in profiles], profiles) == []


def test_where_all_wait_alike_for_others_to_be_told_the_page_says_so_and_does_not_call_it_good() -> None:
    (sentence,) = alike([sample(REPAIRED, 0.2, "datacenter", name=REMOTE), sample(REPAIRED, 0.25, "traditional", name=REMOTE)])
    assert "200 ms to 250 ms" in sentence
    assert "others must be told" in sentence
    assert "as good" not in sentence


@pytest.mark.parametrize(
    "samples",
    [
        [sample(REPAIRED, 0.9, "datacenter"), sample(REPAIRED, 6.3, "traditional")],
        [sample(REPAIRED, 0.05, "datacenter"), sample(NOT_REPAIRED, 4.0, "traditional")],
        both(NOT_REPAIRED, 4.0),
        both(NO_IMPACT, None),
        [sample(REPAIRED, 0.05, "datacenter")],
    ],
)
def test_where_profiles_differ_or_nothing_was_repaired_nobody_is_called_alike(samples: list[dict]) -> None:
    assert alike(samples) == []


def test_a_finding_names_the_fastest_and_the_slowest_profile_and_who_found_nothing() -> None:
    samples = [
        sample(REPAIRED, 0.9, "datacenter", name=REMOTE),
        sample(REPAIRED, 6.3, "traditional", name=REMOTE),
        *both(NOT_REPAIRED, 4.0),
    ]
    sentence = converge_words.findings(content(samples))[0]
    assert "remote flows 900 ms (datacenter) to 6.3 s (traditional)" in sentence
    assert "local flows not detected while it lasted: datacenter, traditional" in sentence


def test_the_page_and_the_pictures_are_written_and_can_be_written_again(tmp_path: Path) -> None:
    mixed = [
        *both(REPAIRED, 0.2),
        *both(NOT_REPAIRED, 4.0),
        sample(NO_IMPACT, None, name=REMOTE),
        sample(NOTHING_LOST, None, "traditional", name=REMOTE),
    ]
    folder = folder_of(tmp_path, content(mixed, skipped=[{"fault": "f2", "kind": "rate", "target": "x", "why": "because"}]))
    text = write_converge(folder).read_text()
    assert "Tiny &lt;b&gt;" in text
    assert "hold 9 s" in text
    assert "datacenter 3/9 s, no BFD" in text
    assert "Not measured: f2" in text
    assert sorted(path.name for path in write_plots(folder)) == [f"converge-{p}.{k}" for p in ("begin", "end") for k in ("png", "svg")]
    assert write_report(folder) == folder / "report.html"


def test_an_unfinished_or_unbelievable_measurement_says_so_on_top(tmp_path: Path) -> None:
    from testbed.report.converge_html import headline

    told = content(both(REPAIRED, 0.2))
    assert headline(told)[0] == "good"
    assert headline({**told, "complete": False})[0] == "bad"
    invalid = [{**fabric, "fidelity": {"verdict": "invalid", "reasons": ["CPU"]}} for fabric in told["fabrics"]]
    assert headline({**told, "fabrics": invalid})[0] == "bad"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": 3}', '{"rows": []}'])
def test_a_damaged_measurement_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    folder = folder_of(tmp_path, {})
    (folder / "converge.json").write_text(text)
    with pytest.raises(UsageError, match=r"damaged|can be read"):
        write_converge(folder)


def test_every_profile_has_switches_and_its_own_name() -> None:
    assert {profile.switching for profile in PROFILES.values()} == {"frr", "ovs-bgp", "ovs-ecmp"}
    assert all(profile.arm in SWITCHING_OF_ARM for profile in PROFILES.values())
    assert [name for name, profile in PROFILES.items() if name != profile.name] == []


def answer(tmp_path: Path, capsys: pytest.CaptureFixture[str], *arguments: str, scenario: str = SCENARIO) -> tuple[int, str, str]:
    path = tmp_path / "tiny.yaml"
    path.write_text(scenario)
    status = main(["converge", str(path), *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_a_dry_run_tells_profiles_faults_time_and_what_is_not_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--profile", "datacenter", "--profile", "static", "--repeats", "2", "--dry-run")
    status, out, _ = answer(tmp_path, capsys, *arguments)
    assert status == 0
    assert "profiles: datacenter, static; repeats: 2" in out
    assert "not measured: f2 (rate on t0_1_1-t1_1_1)" in out
    assert "4 fabrics, 1 fault on each: about" in out
    status, out, _ = answer(tmp_path, capsys, *arguments, "--json")
    assert json.loads(out)["expected_s"] > 60


def test_a_scenario_without_anything_to_converge_on_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nothing = SCENARIO.replace("  - {kind: carrier, link: t0_1_1-t1_1_1, at: 2s, for: 2s}\n", "")
    status, _, err = answer(tmp_path, capsys, "--profile", "datacenter", "--dry-run", scenario=nothing)
    assert status == 2
    assert "nothing to converge on" in err


def test_an_unknown_profile_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = answer(tmp_path, capsys, "--profile", "datacentre", "--dry-run")
    assert status == 2
    assert "datacenter" in err


def test_local_and_remote_flows_are_never_put_together() -> None:
    found = rows([*both(REPAIRED, 0.2), sample(REPAIRED, 6.0, name=REMOTE)], ["datacenter", "traditional"])
    assert {row["class"]: row["outage_s"]["max"] for row in found} == {LOCAL: 0.2, REMOTE: 6.0}
