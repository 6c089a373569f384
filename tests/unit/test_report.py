"""From a run's folder to summary, verdict, plots and report; on the synthetic run of synthetic_run.py."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_run import make_run

from testbed.errors import UsageError
from testbed.report import (
    METRIC_NAMES,
    METRICS,
    context,
    findings,
    findings_head,
    html,
    judge,
    plot_steps,
    plots,
    style,
    summarise,
    write_plots,
    write_report,
    write_results,
    write_summary,
)
from testbed.report.reading import read_run
from testbed.report.summary import summarise_data


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("run"))


@pytest.fixture
def run(whole, tmp_path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(whole, tmp_path / "construction-site" / whole.name))


@pytest.fixture(scope="module")
def page(whole) -> str:
    return write_report(whole).read_text()


# --- summary ---------------------------------------------------------------------------------------------------------------------------


def test_every_metric_is_there_for_every_arm(whole):
    summary = summarise(whole)
    assert {arm: set(METRIC_NAMES) - set(told) for arm, told in summary["arms"].items()} == {"mrc": set(), "rc-bgp": set()}


def test_every_metric_lists_a_value_a_repeat(whole):
    arms = summarise(whole)["arms"]
    assert {len(told[name]["values"]) for told in arms.values() for name in METRIC_NAMES} == {3}


def test_the_crash_is_found_in_the_repeat_that_had_it(whole):
    assert summarise(whole)["arms"]["rc-bgp"]["crashes"]["values"] == [0.0, 1.0, 0.0]


def test_summary_json_is_what_summarise_returns(run):
    summary = write_summary(run)
    assert json.loads((run / "summary.json").read_text()) == json.loads(json.dumps(summary))


def test_a_whole_run_has_no_problems(whole):
    assert summarise(whole)["problems"] == []


def test_arms_keep_the_order_that_was_asked_for(whole):
    assert list(summarise(whole)["arms"]) == ["mrc", "rc-bgp"]


def test_the_worst_fidelity_counts(whole):
    assert summarise(whole)["fidelity"]["verdict"] == "suspect"


def test_packets_before_the_jobs_start_do_not_count(run):
    path = run / "mrc" / "1" / "links.csv"
    header = path.read_text().splitlines()[0]
    path.write_text(f"{header}\n-5,a-b,a,10,100,7\n-1,a-b,a,20,200,9\n5,a-b,a,30,300,12\n")
    assert summarise(run)["arms"]["mrc"]["packets_lost"]["values"][0] == 3.0


def test_the_jobs_time_ends_when_the_job_was_stopped(run):
    info = json.loads((run / "mrc" / "1" / "arm.json").read_text())
    (run / "mrc" / "1" / "arm.json").write_text(json.dumps({**info, "duration_s": 75.0}))
    assert summarise(run)["arms"]["mrc"]["repeats"][0]["duration_s"] == 60.0


# --- verdict ---------------------------------------------------------------------------------------------------------------------------


def fake_summary(*values: float | None) -> dict:
    repeats = [{"repeat": number} for number in range(1, len(values) + 1)]
    return {"arms": {"mrc": {"crashes": {"values": list(values)}, "repeats": repeats}}}


@pytest.mark.parametrize(
    ("bound", "values", "met", "worst"),
    [
        ({"at_most": 2}, (1.0, 2.0), True, 2),
        ({"at_most": 2}, (1.0, 2.1, 0.0), False, 2),
        ({"at_least": 2}, (3.0, 1.0), False, 2),
        ({"equals": 0}, (0.0, 0.0), True, 1),
        ({"equals": True}, (1.0, 0.0), False, 2),
        ({"at_most": 2, "at_least": 1}, (1.5, 0.5), False, 2),
        ({"at_most": 2}, (1.0, None), False, 2),
        ({"at_most": 2}, (), False, None),
    ],
)
def test_an_expectation_is_judged_on_its_worst_repeat(bound, values, met, worst):
    verdict = judge([{"arm": "mrc", "metric": "crashes", **bound}], fake_summary(*values))[0]
    assert (verdict.met, verdict.repeat) == (met, worst)


def test_an_unknown_metric_is_never_met():
    assert not judge([{"arm": "mrc", "metric": "beauty", "at_most": 1}], fake_summary(1.0))[0].met


def test_an_expectation_of_an_arm_that_was_not_run_is_left_out():
    assert judge([{"arm": "rc-bgp", "metric": "crashes", "at_most": 1}], fake_summary(1.0)) == []


def test_expectations_may_be_objects():
    class Expectation:
        arm, metric, at_most, at_least, equals = "mrc", "crashes", 0.0, None, None

    assert judge([Expectation()], fake_summary(1.0))[0].sentence == "mrc: crashes <= 0: NOT met; it was 1 in repeat 1, the worst"


# --- findings --------------------------------------------------------------------------------------------------------------------------


def titles(tmp_path: Path, **story: object) -> tuple[str, str]:
    summary = summarise(make_run(tmp_path, repeats=2, **story))
    return findings.stalls_title(summary), findings.lost_title(summary)


def test_the_title_names_mrc_when_mrc_is_better(tmp_path):
    assert re.search(r"MRC (over )?\d+x shorter than RC over BGP$", titles(tmp_path)[0])


def test_the_title_names_bgp_when_bgp_is_better(tmp_path):
    assert re.search(r"RC over BGP [\d.]+x shorter than MRC$", titles(tmp_path, mrc_stall_s=8.0, rc_stalls={"f1": 0.2})[0])


def test_equal_arms_are_called_equal():
    same = {"values": [5.0, 5.2], "median": 5.1}
    summary = {"arms": {arm: {"lost_job_time_s": same} for arm in ("mrc", "rc-bgp")}}
    assert findings.lost_title(summary).endswith("about the same")


def test_times_lost_against_unlike_healthy_steps_are_not_compared():
    """An arm that is slow all the time loses nothing against its own median."""
    arms = {
        arm: {
            "lost_job_time_s": {"values": [0.0], "median": 0.0},
            "healthy_median_s": {"median": median},
            "job_goodput_bps": {"median": bps},
        }
        for arm, median, bps in (("mrc", 2.0, 7.7596e6), ("rc-bgp", 21.6, None))
    }
    assert findings.lost_title({"arms": arms}).endswith("0 s; not comparable, a healthy step takes MRC 2 s, RC over BGP 21.6 s")
    assert findings.job_goodput_sentence({"arms": arms}).endswith(": MRC 7.76 Mbps.")


def test_overlapping_ranges_are_no_clear_difference():
    arms = {"mrc": {"values": [1.0, 6.0], "median": 3.5}, "rc-bgp": {"values": [5.0, 9.0], "median": 7.0}}
    assert "ranges overlap" in findings.lost_title({"arms": {arm: {"lost_job_time_s": told} for arm, told in arms.items()}})


def test_an_arm_without_steps_is_not_called_free_of_crashes(run):
    for repeat in "123":
        (run / "rc-bgp" / repeat / "steps.csv").unlink()
    assert findings.steps_title(summarise(run)).endswith("RC over BGP: not measured")


def test_nothing_measured_claims_nothing():
    assert findings_head.findings({"arms": {}}) == ["No arm was measured."]


def unrendered(run: Path) -> dict:
    """The report's content, and all figures made but not drawn: drawing takes most of the time."""
    data = read_run(run)
    summary = summarise_data(data)
    with style.styled():
        assert len(list(plots.draw(data, summary))) >= 5
    return html.page(data, summary)


PICTURES = ("steps", "stalls", "lost", "faults", "paths", "evs", "detection", "links")


def test_a_large_ratio_is_not_told_to_the_digit():
    arms = {arm: {"lost_job_time_s": {"values": [lost_s], "median": lost_s}} for arm, lost_s in (("mrc", 0.0503), ("rc-bgp", 23.8))}
    assert findings.lost_title({"arms": arms}).endswith(": MRC over 100x less than RC over BGP")


def test_no_ratio_to_next_to_nothing(tmp_path):
    summary = summarise(make_run(tmp_path, repeats=1))
    summary["arms"]["mrc"]["stall_p100_s"]["values"] = [0.01]
    assert findings.stalls_title(summary).endswith("MRC under 5% of a step")


def test_the_healthy_sentence_tells_how_far_steps_stray_without_a_fault():
    repeats = [{"healthy_slowest_s": 0.9, "metrics": {"healthy_median_s": 0.75}}]
    summary = {"arms": {"mrc": {"healthy_median_s": {"median": 0.75}, "repeats": repeats}}}
    assert findings.healthy_sentence(summary).endswith("above it by: MRC 20.0%.")


def kinds(mrc_s: float, rc_s: float) -> dict:
    def group(stall_s: float) -> dict:
        told = {"faults": 2, "hit": 1, "stall_median_s": stall_s, "stall_max_s": stall_s}
        return {"healthy_median_s": {"median": 0.7}, "by_kind": {"carrier": {**told, "alone": {**told, "faults": 1}}}}

    return {"arms": {"mrc": group(mrc_s), "rc-bgp": group(rc_s)}}


def test_a_kind_of_fault_that_stalls_no_arm_is_called_so():
    assert "so neither stalled" in findings.kinds_sentence(kinds(0.01, 0.3))[0]


def test_a_kind_of_fault_that_stalls_one_arm_names_the_better():
    assert findings.kinds_sentence(kinds(2.0, 0.3))[0].endswith("RC over BGP 6.67x less than MRC.")


def test_a_kind_of_fault_tells_how_many_hit_traffic():
    assert "1 of 2 hit its traffic" in findings.kinds_sentence(kinds(2.0, 0.3))[0]


def test_retirements_without_a_fault_are_among_the_findings(run):
    path = run / "mrc" / "1" / "events.jsonl"
    event = {"t_s": 1.0, "source": "h1", "event": "ev_state", "peer": "h5", "ev": 0, "path": ["a-b"], "from": "GOOD", "to": "ASSUMED_BAD"}
    path.write_text(json.dumps(event) + "\n" + path.read_text())
    told = summarise(run)
    words = "MRC retired an EV 1 time in 3 repeats without a fault or random loss on its path"
    assert f"{words}." in findings.detection_sentence(told)
    told["arms"]["mrc"]["queue_dropped_packets"] = {"values": [7]}
    assert f"{words}, while links dropped packets because their queues were full." in findings.detection_sentence(told)


def test_a_title_keeps_a_number_and_its_unit_together():
    assert style._held_together("stall: 4.28 s") == "stall: 4.28\N{NO-BREAK SPACE}s"
    words = "9.4 Mbps, 684 kbps, 4352 B, 256 KiB, 20 us, 80 %"
    assert style._held_together(words).count("\N{NO-BREAK SPACE}") == 6


def test_a_title_breaks_at_the_end_of_a_clause():
    assert style._balanced("one two three four; five six seven", 30) == ["one two three four;", "five six seven"]


# --- plots and report ------------------------------------------------------------------------------------------------------------------


def test_what_a_run_writes_at_its_end_is_what_summary_plots_and_report_write_apart(run):
    together = write_results(run)
    page = (run / "report.html").read_text()
    assert sorted(path.name for path in (run / "plots").iterdir()) == sorted(path.name for path in write_plots(run))
    assert (together, page) == (write_summary(run), write_report(run).read_text())


def test_every_picture_comes_as_png_and_svg(run):
    names = {path.name for path in write_plots(run)}
    assert names == {f"{name}.{kind}" for name in PICTURES for kind in ("png", "svg")}


@pytest.mark.parametrize(("verdict", "marks"), [("good", 0), ("suspect", 0), ("invalid", 1)])
def test_pictures_of_an_invalid_run_are_marked(verdict, marks):
    figure = style.frame("title", ["footer"], 2.0)
    before = len(figure.texts)
    style.stamp(figure, verdict)
    assert len(figure.texts) - before == marks


def test_a_step_that_a_crash_cut_short_lies_within_the_axes(whole):
    data = read_run(whole)
    summary = summarise_data(data)
    slowest = max(value for told in summary["arms"].values() for value in told["step_p100_s"]["values"])
    figure = plot_steps.step_times(data, summary, [])
    assert figure.axes[0].get_ylim()[1] > slowest


def test_an_arm_that_ended_with_an_error_is_told_at_the_top(run):
    path = run / "rc-bgp" / "2" / "arm.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "error": "AgentError: h4 died"}))
    page = unrendered(run)
    assert (page["headline"][0], page["errors"]) == ("bad", ["RC over BGP, repeat 2, ended early: AgentError: h4 died"])


def test_a_whole_run_tells_no_error(whole):
    assert unrendered(whole)["errors"] == []


def test_the_footer_has_the_timers_of_both_sides(whole):
    data = read_run(whole)
    text = " ".join(context.footer(data, summarise_data(data)))
    told = ("pto min 0.004 s", "hold 9 s", "no BFD", "ACK timeout 0.54 s, 7 retries", "3.0 ms (idle probes)", "seed 7")
    assert [words for words in told if words not in text] == []


def test_a_run_outside_of_results_is_repeated_from_where_it_lies(whole):
    data = read_run(whole)
    assert f"run {whole}/scenario.yaml --seed 7" in html.again(data, summarise_data(data))


def test_a_run_in_results_is_repeated_by_its_usual_name(whole, tmp_path):
    data = read_run(Path(shutil.copytree(whole, tmp_path / "results" / "construction-site" / whole.name)))
    assert f"run results/construction-site/{whole.name}/scenario.yaml" in html.again(data, summarise_data(data))


def test_a_faults_row_tells_how_long_it_lasted(whole):
    rows = html.fault_rows(read_run(whole), summarise(whole))
    assert next(row["lasted"] for row in rows if row["fault"] == "f2").startswith(("4.9", "5"))


def test_silent_faults_shorter_than_the_hold_timer_are_counted(whole):
    assert context.hold_sentence(read_run(whole)).startswith("Of 2 silent faults 2 ended before BGP's hold timer (9 s)")


def test_without_a_fault_shorter_than_the_hold_timer_nothing_is_said_of_it(whole, monkeypatch):
    monkeypatch.setattr(context, "bgp_parameters", lambda _run: {"hold_s": 0.1})
    assert context.hold_sentence(read_run(whole)) == ""


def test_hostile_text_is_escaped(page):
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_the_report_asks_the_network_for_nothing(page):
    assert re.findall(r"""(?:src|href)\s*=\s*["'](?!data:|\#)[^"']*|@import|url\(""", page) == []


def test_the_report_shows_verdict_seed_and_settings(page):
    for text in ("2 of 4 expectations were not met", "seed 7", "hold_s", "timeout_exponent", "conservative for MRC", "Imaginary CPU 3000"):
        assert text in page


def test_the_report_shows_the_links_with_their_thresholds(page):
    rows = {"rate": "20 Mbit/s", "base RTT": "14 ms", "BDP": "43,660 B", "switch to switch: trims above": "43,660 B"}
    assert [name for name, value in rows.items() if f"<td>{name}</td><td>{value}</td>" not in page] == []


def test_every_fault_has_its_row(page):
    assert [name for name in ("f1", "f2", "f3", "f4", "f5", "f6") if f"<td>{name}</td>" not in page] == []


def test_the_parameters_that_the_scenario_set_are_marked(page):
    assert re.search(r"timeout_exponent</code></td><td>17 <small>\(set by the scenario\)", page)


@pytest.mark.parametrize(
    "name",
    ["manifest.json", "faults.json", "scenario.yaml", "mrc/1/events.jsonl", "mrc/2/steps.csv", "mrc/1/links.csv", "rc-bgp/3/arm.json"],
)
def test_a_missing_file_is_named_in_the_report(run, name):
    (run / name).unlink()
    assert f"{name} is missing" in unrendered(run)["problems"]


@pytest.mark.parametrize(
    "name",
    ["manifest.json", "faults.json", "scenario.yaml", "mrc/1/arm.json", "mrc/1/agents.json", "mrc/1/steps.csv", "mrc/1/events.jsonl"],
)
@pytest.mark.parametrize("content", [b"", b"[1, 2]", b"\xff\xfe\x00", b'{"faults": 3, "fidelity": 5, "machine": [], "arms": 1}'])
def test_a_damaged_file_never_breaks_the_report(run, name, content):
    (run / name).write_bytes(content)
    assert unrendered(run)["findings"]


def test_an_interrupted_run_says_what_is_missing(run):
    shutil.rmtree(run / "rc-bgp" / "3")
    assert any(problem.startswith("arm rc-bgp: 2 of 3 repeats are there") for problem in unrendered(run)["problems"])


def test_a_run_that_ended_before_its_first_arm_gives_a_report(run):
    shutil.rmtree(run / "mrc")
    shutil.rmtree(run / "rc-bgp")
    assert "No arm was measured." in write_report(run).read_text()


def test_an_arm_without_a_step_gives_plots(run):
    for repeat in "123":
        path = run / "mrc" / repeat / "steps.csv"
        path.write_text(path.read_text().splitlines()[0] + "\n")
    assert len(write_plots(run)) == 2 * len(PICTURES)


def test_a_folder_that_is_no_run_is_a_usage_error_with_a_way_out(tmp_path):
    with pytest.raises(UsageError, match=r"no run.*give the folder"):
        write_report(tmp_path)


def test_a_folder_that_does_not_exist_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no such folder"):
        summarise(tmp_path / "nowhere")


def test_no_clear_step_is_said_aloud(run):
    faults = json.loads((run / "faults.json").read_text())
    (run / "faults.json").write_text(json.dumps(faults))
    for repeat in "123":
        path = run / "mrc" / repeat / "events.jsonl"
        times = {"issued_s": 0.0, "effective_s": 0.0}
        events = [json.loads(line) for line in path.read_text().splitlines()]
        kept = [event | (times if event["event"] == "fault_begin" else {}) for event in events if event["event"] != "fault_end"]
        path.write_text("".join(json.dumps(event) + "\n" for event in kept))
    data = read_run(run)
    assert summarise_data(data)["arms"]["mrc"]["repeats"][0]["healthy_is_clear"] is False
    assert "no step was clear of faults" in write_report(run).read_text()


def test_the_documentation_lists_every_metric_as_it_is():
    text = (Path(__file__).parents[2] / "docs" / "results.md").read_text()
    assert [m.name for m in METRICS if f"| `{m.name}` | {m.unit} | {m.meaning} |" not in text] == []


def test_summarising_does_not_load_the_drawing_library():
    code = "import sys, testbed.report; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False).returncode == 0
