"""Reports of jobs of streams: goodput and fair shares against values worked out by hand, and whole reports of made-up runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_run import make_run
from synthetic_streams import make_streams

from testbed.report import (
    context,
    fair_share,
    fault_goodput,
    findings_head,
    findings_streams,
    goodput,
    html,
    metrics,
    plot_congestion,
    plot_paths,
    plots,
    step_goodput,
    style,
    summarise,
    write_report,
)
from testbed.report.model import ArmRun, FaultInterval, LinkCounter, QpSeries, StepRow, StreamFlow
from testbed.report.reading import read_run
from testbed.report.statistics import job_steps
from testbed.report.summary import summarise_data

PAYLOAD = 4096


@pytest.fixture(scope="module")
def incast(tmp_path_factory) -> Path:
    return make_streams(tmp_path_factory.mktemp("incast"), "incast")


@pytest.fixture(scope="module")
def permutation(tmp_path_factory) -> Path:
    return make_streams(tmp_path_factory.mktemp("permutation"), "permutation")


# --- fair shares -----------------------------------------------------------------------------------------------------------------------


def test_flows_alone_get_their_links_rate():
    assert fair_share.max_min([("a", "b"), ("b", "a")], {}) == {("a", "b"): 1.0, ("b", "a"): 1.0}


def test_an_incast_shares_the_receivers_link():
    assert fair_share.max_min([("a", "d"), ("b", "d"), ("c", "d")], {"d": 3.0, "a": 9.0, "b": 9.0, "c": 9.0}) == {
        ("a", "d"): 1.0, ("b", "d"): 1.0, ("c", "d"): 1.0,
    }  # fmt: skip


def test_what_a_crowded_link_leaves_goes_to_the_other_flow():
    rates = fair_share.max_min([("a", "d"), ("b", "d"), ("c", "d"), ("a", "e")], {})
    assert rates == pytest.approx({("a", "d"): 1 / 3, ("b", "d"): 1 / 3, ("c", "d"): 1 / 3, ("a", "e"): 2 / 3})


hosts = st.sampled_from("abcdef")


@given(st.lists(st.tuples(hosts, hosts).filter(lambda pair: pair[0] != pair[1]), min_size=1, max_size=20, unique=True))
def test_max_min_never_overloads_a_link_and_leaves_none_of_a_flows_links_free(pairs):
    rates = fair_share.max_min(pairs, {})
    out = {host: sum(rate for pair, rate in rates.items() if pair[0] == host) for host in "abcdef"}
    into = {host: sum(rate for pair, rate in rates.items() if pair[1] == host) for host in "abcdef"}
    assert max(*out.values(), *into.values()) <= 1 + 1e-9
    assert all(max(out[source], into[target]) == pytest.approx(1.0) for source, target in pairs)


def test_the_fair_rate_is_the_mean_over_the_time_with_and_without_others():
    flows = [StreamFlow("a", "c", 0.0, None), StreamFlow("b", "c", 5.0, 5.0)]
    spans = fair_share.fair_spans(flows, {}, 20.0)
    assert fair_share.mean_rate(("a", "c"), spans, 0.0, 20.0) == pytest.approx((15 * 1.0 + 5 * 0.5) / 20)


@pytest.mark.parametrize(("values", "index"), [([1, 1, 1], 1.0), ([3, 0, 0], 1 / 3), ([1], None), ([0, 0], None)])
def test_jains_index(values, index):
    assert fair_share.jain(values) == pytest.approx(index)


# --- goodput ---------------------------------------------------------------------------------------------------------------------------


def qp(host: str, peer: str, *points: tuple[float, float]) -> QpSeries:
    """A QP whose acknowledged Mbit over time are given."""
    t_s, mbit = (np.array(column, dtype=float) for column in zip(*points, strict=True))
    zero = np.zeros_like(t_s)
    return QpSeries(host, peer, t_s, zero, zero, mbit * 1e6 / 8, zero)


def run(flows: list[StreamFlow], qps: list[QpSeries], **more: object) -> ArmRun:
    info = {"fabric": {"rate_bps": 10e6}, "transport": {"payload_bytes": PAYLOAD}}
    return ArmRun("rc-bgp", 1, 20.0, flows=tuple(flows), qps=qps, info=info, job={"kind": "streams"}, **more)  # type: ignore[arg-type]


VICTIM = StreamFlow("v", "w", 0.0, None, "victim")
INCAST = [StreamFlow("a", "r", 8.0, 6.0, "incast"), StreamFlow("b", "r", 8.0, 6.0, "incast")]


def test_a_flow_is_judged_without_its_first_two_seconds():
    arm = run([StreamFlow("a", "b", 0.0, None)], [qp("a", "b", (0, 0), (2, 0), (20, 90))])
    assert goodput.flow_goodputs(arm)[0].goodput_bps == pytest.approx(5e6)


def test_a_short_flow_is_judged_in_the_second_half_of_its_time():
    assert goodput.settled((10.0, 12.0)) == (11.0, 12.0)


def test_the_payload_share_leaves_headers_out():
    assert 0.9 < (goodput.payload_share(run([], [])) or 0) < 0.99


def test_a_flow_at_full_payload_rate_has_a_share_of_one():
    arm = run([StreamFlow("a", "b", 0.0, None)], [])
    full = 10 * (goodput.payload_share(arm) or 0)
    arm = run([StreamFlow("a", "b", 0.0, None)], [qp("a", "b", (0, 0), (20, 20 * full))])
    assert goodput.flow_goodputs(arm)[0].share == pytest.approx(1.0)


def test_a_host_with_two_ports_may_have_twice_the_rate():
    links = [LinkCounter(name, "a", 0, 0) for name in ("a-t0_1_1", "a-t0_2_1", "b-t0_1_1")]
    rates = goodput.host_rates_bps(run([StreamFlow("a", "b", 0.0, None)], [], links=links))
    assert rates["a"] == pytest.approx(2 * rates["b"])


def test_a_flow_that_left_no_trace_got_nothing():
    arm = run([StreamFlow("a", "b", 0.0, None), StreamFlow("c", "d", 0.0, None)], [qp("c", "d", (0, 0), (20, 9))])
    assert goodput.stream_metrics(arm)["flow_goodput_min_share"] == 0.0


def test_without_flows_csv_nothing_is_known():
    assert set(goodput.stream_metrics(run([StreamFlow("a", "b", 0.0, None)], [])).values()) == {None}


def test_the_bottlenecks_share_is_that_of_all_flows_into_the_receiver():
    arm = run(INCAST, [qp("a", "r", (0, 0), (8, 0), (14, 24), (20, 24)), qp("b", "r", (0, 0), (8, 0), (14, 30), (20, 30))])
    assert goodput.bottleneck_share(arm) == pytest.approx(0.9 / (goodput.payload_share(arm) or 0))


def test_the_victim_is_compared_with_itself_before_and_after_the_incast():
    arm = run([VICTIM, *INCAST], [qp("v", "w", (0, 0), (8, 80), (14, 104), (16, 120), (20, 160))])
    assert goodput.victim_share(arm) == pytest.approx(0.4)


def test_a_victim_that_only_runs_beside_the_incast_has_nothing_to_be_compared_with():
    victim = StreamFlow("v", "w", 8.0, 6.0, "victim")
    assert goodput.victim_share(run([victim, *INCAST], [qp("v", "w", (0, 0), (20, 160))])) is None


def test_fairness_is_judged_among_flows_of_the_same_role():
    arm = run([VICTIM, *INCAST], [qp("v", "w", (0, 0), (20, 200)), qp("a", "r", (8, 0), (14, 30)), qp("b", "r", (8, 0), (14, 30))])
    assert goodput.stream_metrics(arm)["jain"] == pytest.approx(1.0)


def test_a_counter_that_starts_anew_after_a_crash_goes_on(incast, tmp_path):
    copy = Path(shutil.copytree(incast, tmp_path / "run"))
    rows = ["0,h12,h2,1,0,1000,4,0.01,0,0", "1,h12,h2,9,0,9000,4,0.01,0,0", "2,h12,h2,3,0,3000,4,0.01,0,0"]
    path = copy / "mrc" / "1" / "flows.csv"
    path.write_text("\n".join([path.read_text().splitlines()[0], *rows]) + "\n")
    assert list(read_run(copy).arms["mrc"][0].qps[0].acked_bytes) == [1000, 9000, 12000]


# --- goodput under a fault, goodput of steps -------------------------------------------------------------------------------------------


def test_goodput_under_a_fault_is_compared_with_that_of_the_time_without():
    fault = FaultInterval("f1", "rate", "a-b", "link", "T0-T1", 10.0, 14.0, 10.0, 10.0, 14.0)
    flows, qps = [StreamFlow("a", "b", 0.0, None), StreamFlow("c", "d", 0.0, None)], [qp("a", "b", (0, 0), (20, 20))]
    qps.append(qp("c", "d", (0, 0), (10, 10), (14, 12), (20, 18)))
    told = fault_goodput.fault_goodputs(run(flows, qps, faults=[fault]))[0]
    assert (told.goodput_share, told.worst_flow_share) == pytest.approx((0.75, 0.5))


def test_a_fault_over_the_whole_run_leaves_nothing_to_compare_with():
    fault = FaultInterval("f1", "rate", "a-b", "link", "T0-T1", 0.0, 20.0, 0.0, 0.0, 20.0)
    arm = run([StreamFlow("a", "b", 0.0, None)], [qp("a", "b", (0, 0), (20, 20))], faults=[fault])
    assert fault_goodput.fault_goodputs(arm)[0].goodput_share is None


@pytest.mark.parametrize(("kind", "bits"), [("all-reduce", 2 * 3 / 4 * 8000), ("all-to-all", 3 / 4 * 8000)])
def test_goodput_of_steps_leaves_the_compute_time_out(kind, bits):
    steps = [StepRow(1, number, rank, float(number), number + 1.0, True, number + 0.5) for number in range(4) for rank in range(4)]
    arm = ArmRun("mrc", 1, 4.0, steps=steps, job={"kind": kind, "vector_bytes": 1000})
    assert step_goodput.job_goodput_bps(arm, job_steps(arm)) == pytest.approx(bits / 0.5)


# --- whole runs ------------------------------------------------------------------------------------------------------------------------


def test_a_run_of_streams_has_no_problems(incast, permutation):
    assert summarise(incast)["problems"] + summarise(permutation)["problems"] == []


def test_streams_may_have_no_steps_csv_at_all(incast, tmp_path):
    copy = Path(shutil.copytree(incast, tmp_path / "run"))
    (copy / "mrc" / "1" / "steps.csv").unlink()
    assert summarise(copy)["problems"] == []


def test_a_report_of_streams_tells_nothing_of_steps(incast):
    data = read_run(incast)
    page = html.page(data, summarise_data(data))
    assert [name for name, *_ in page["metric_rows"] if "step_" in name] + page["weak"] == []


def test_an_incasts_metrics_are_all_measured(incast):
    told = summarise(incast)["arms"]["mrc"]
    names = ("flow_goodput_min_share", "jain", "bottleneck_share", "victim_share", "trimmed_packets", "recovery_median_srtt", "wrong_sums")
    assert [name for name in names if told[name]["median"] is None] == []


def test_steps_are_not_asked_of_streams(incast):
    assert summarise(incast)["arms"]["mrc"]["step_p50_s"]["median"] is None


def test_wrong_messages_are_counted(incast, tmp_path):
    copy = Path(shutil.copytree(incast, tmp_path / "run"))
    path = copy / "mrc" / "1" / "events.jsonl"
    wrong = {"t_s": 3.0, "source": "h2", "event": "wrong_sum", "peer": "h12", "step": 4}
    path.write_text(json.dumps(wrong) + "\n" + path.read_text())
    assert summarise(copy)["arms"]["mrc"]["wrong_sums"]["values"] == [1.0]


@pytest.mark.parametrize("name", ["flows.csv", "links.csv", "paths.csv", "agents.json", "arm.json"])
@pytest.mark.parametrize("content", [None, b"", b"\xff\x00,", b"[1]"])
def test_a_damaged_or_missing_file_never_breaks_the_report(incast, tmp_path, name, content):
    copy = Path(shutil.copytree(incast, tmp_path / "run"))
    path = copy / "mrc" / "1" / name
    path.unlink() if content is None else path.write_bytes(content)
    data = read_run(copy)
    summary = summarise_data(data)
    with style.styled():
        assert len(list(plots.draw(data, summary))) >= 4
    assert html.page(data, summary)["findings"]


@pytest.mark.parametrize(("story", "pictures"), [
    ("incast", ["flows", "shares", "paths", "congestion", "links"]),
    ("permutation", ["flows", "shares", "paths", "evs", "detection", "links"]),
])  # fmt: skip
def test_streams_have_pictures_of_their_own(story, pictures, request):
    data = read_run(request.getfixturevalue(story))
    with style.styled():
        assert [name for name, _ in plots.draw(data, summarise_data(data))] == pictures


def test_flows_that_arm_json_does_not_tell_are_named_as_a_problem(incast, tmp_path):
    copy = Path(shutil.copytree(incast, tmp_path / "run"))
    path = copy / "mrc" / "1" / "arm.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "job": {"kind": "streams", "flows": 7}}))
    assert any("tells no flow" in problem for problem in summarise(copy)["problems"])


def cut_short(run: Path, arm: str, at_s: float) -> Path:
    """The arm's first repeat as a kill leaves it: no job_stop, and no sample after `at_s`."""
    folder = run / arm / "1"
    info = json.loads((folder / "arm.json").read_text())
    (folder / "arm.json").write_text(json.dumps({**info, "interrupted": True}))
    events = (folder / "events.jsonl").read_text().splitlines(keepends=True)
    (folder / "events.jsonl").write_text("".join(line for line in events if "job_stop" not in line))
    for name in ("flows.csv", "links.csv", "paths.csv"):
        header, *rows = (folder / name).read_text().splitlines()
        (folder / name).write_text("\n".join([header, *(row for row in rows if float(row.split(",")[0]) <= at_s)]) + "\n")
    return folder


def test_an_interrupted_run_of_streams_is_judged_up_to_its_last_sample(incast, tmp_path):
    copy = Path(shutil.copytree(incast, tmp_path / "run"))
    cut_short(copy, "mrc", 11.0)
    told, whole = summarise(copy)["arms"]["mrc"]["repeats"][0], summarise(incast)["arms"]["mrc"]["repeats"][0]
    assert told["duration_s"] == 11.0
    for name in ("flow_goodput_min_share", "bottleneck_share", "victim_share"):
        assert told["metrics"][name] == pytest.approx(whole["metrics"][name], abs=0.02)


def test_without_a_history_nothing_is_known_of_retirements_crashes_and_wrong_messages(incast, tmp_path):
    copy = Path(shutil.copytree(incast, tmp_path / "run"))
    (copy / "mrc" / "1" / "events.jsonl").unlink()
    told = summarise(copy)["arms"]["mrc"]
    assert [told[name]["values"] for name in ("false_retirements", "crashes", "wrong_sums")] == [[None]] * 3


def test_streams_of_which_no_arm_is_left_are_still_streams(incast, tmp_path):
    copy = Path(shutil.copytree(incast, tmp_path / "run"))
    for arm in ("mrc", "mrc-no-trim", "rc-bgp"):
        shutil.rmtree(copy / arm)
    assert summarise(copy)["job"] == "streams"


@pytest.mark.parametrize("story", ["incast", "permutation"])
def test_a_job_that_claims_to_last_for_ever_does_not_take_the_memory(story, request, tmp_path):
    copy = Path(shutil.copytree(request.getfixturevalue(story), tmp_path / "run"))
    with (copy / "mrc" / "1" / "events.jsonl").open("a") as file:
        file.write('{"t_s": 1e12, "source": "run", "event": "job_stop"}\n')
    data = read_run(copy)
    assert any("claims to have lasted 1e+12 s" in problem for problem in data.all_problems)
    with style.styled():
        assert len(list(plots.draw(data, summarise_data(data)))) >= 5


def test_windows_are_those_of_the_incasts_senders_while_they_send(incast):
    run = read_run(incast).arms["mrc"][0]
    bands = plot_congestion.window_bands(run)
    assert bands is not None
    t_s, low, middle, high = bands
    assert not np.isfinite(middle[(t_s < 6.0) | (t_s > 14.5)]).any()
    senders = [qp for qp in run.qps if qp.peer == "h1"]
    seen = np.concatenate([qp.cwnd_packets[(qp.t_s >= 8.0) & (qp.t_s < 8.5)] for qp in senders])
    assert [band[16] for band in (low, middle, high)] == pytest.approx(list(np.percentile(seen, (10, 50, 90))))


def test_a_run_without_bgp_does_not_speak_of_it(permutation, tmp_path):
    copy = Path(shutil.copytree(permutation, tmp_path / "run"))
    shutil.rmtree(copy / "rc-bgp")
    assert "BGP" not in context.conservative_line(read_run(copy))


def test_without_retirements_all_arms_show_the_paths_of_the_same_pair(permutation, tmp_path):
    copy = Path(shutil.copytree(permutation, tmp_path / "run"))
    path = copy / "rc-bgp" / "1" / "paths.csv"
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *(row.replace(",h1,h5,", ",h2,h6,") for row in rows), *rows]) + "\n")
    for arm in ("mrc", "rc-bgp"):
        events = copy / arm / "1" / "events.jsonl"
        events.write_text("".join(line for line in events.read_text().splitlines(keepends=True) if "ev_state" not in line))
    data = read_run(copy)
    with style.styled():
        figure = plot_paths.paths_of_pair(data, ())
    titles = [axes.get_title(loc="left") for axes in figure.axes if " to " in axes.get_title(loc="left")]
    pairs = {title.split(": ")[1].split(" (")[0] for title in titles}
    assert (len(titles), len(pairs)) == (2, 1)


def test_metrics_of_other_jobs_are_those_that_were_never_measured(incast, permutation, tmp_path):
    """What a scenario refuses as an expectation must be what its job cannot have."""
    had = {"an incast": incast, "streams": permutation, "a job of steps": make_run(tmp_path, repeats=1)}
    known = {kind: summarise(run)["arms"]["mrc"] for kind, run in had.items()}
    of_streams = {"", "streams"}
    for entry in metrics.METRICS:
        wanted = metrics.needs(entry.name)
        for kind, told in known.items():
            able = wanted in {"", kind} or (wanted in of_streams and kind == "an incast")
            assert able or set(told[entry.name]["values"]) == {None}, (entry.name, kind)
        assert not wanted or wanted in known


def test_the_round_trip_of_a_data_packet_is_not_called_the_fabrics(incast):
    words = context.conservative_line(read_run(incast))
    assert "RC over BGP" in words
    assert "smallest of a data packet, with its wait in queues" in words


def test_what_is_the_worst_of_several_repeats_is_called_so(incast):
    summary = summarise(incast)
    words = findings_streams
    titles = [words.flows_title, words.shares_title, words.fairness_sentence, words.incast_sentence]
    for told in summary["arms"].values():
        told["repeats"] = told["repeats"][:1]
    assert not any("worst repeat" in title(summary) for title in titles)
    summary["arms"]["mrc"]["repeats"] *= 2
    assert all("(worst repeat)" in title(summary) for title in titles)


@pytest.mark.parametrize(("value", "words"), [(0.0, "0%"), (0.00039, "0.04%"), (0.0063, "0.6%"), (0.94, "94%")])
def test_a_small_share_is_not_called_none(value, words):
    assert findings_streams.share(value) == words


def test_the_findings_name_victim_fairness_slowest_flow_and_hot_spot(incast):
    text = " ".join(findings_head.findings(summarise(incast)))
    told = ("Slowest flow", "h5 to h1", "Jain", "victim", "MRC without trimming 9", "Busiest link direction", "trimmed")
    assert [words for words in told if words not in text] == []


def test_the_report_of_streams_shows_what_a_fault_left_of_the_goodput(permutation):
    page = write_report(permutation).read_text()
    assert "worst flow" in page
    assert "has no steps" in page
