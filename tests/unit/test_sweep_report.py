"""A sweep's picture, words and page."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweep_lab import SCENARIO, install_fake_arms, read, sweep_data
from synthetic_run import make_run

from testbed import report
from testbed.cli import main
from testbed.errors import UsageError
from testbed.report import plot_sweep, style, write_plots, write_report
from testbed.report.sweep_data import read_sweep, relative, shown_metric
from testbed.report.sweep_html import headline
from testbed.report.sweep_words import finding, metric_words, value_words
from testbed.reporting import SilentReporter
from testbed.run import run_sweep
from testbed.scenario import draw, load_text

LOSSES = [0, "0.1%", "1%"]


@pytest.mark.parametrize(
    ("values", "log"),
    [
        (["1Mbps", "2Mbps", "10Mbps"], True),
        (["100ms", "10ms", "1s"], False),  # not in order
        (["1s", "100ms", "10ms"], True),
        ([1, 10, 1000], True),
        (["0.1%", 0.01, "10%"], True),
        (LOSSES, False),  # no logarithm of 0
        (["5Mbps", "10Mbps"], False),
        (["1Mbps", "10KiB", "100ms"], False),
        ([True, False], False),
        (["adjacent", "strided"], False),
    ],
)
def test_the_axis_is_logarithmic_where_that_fits(values: list[object], log: bool) -> None:
    assert plot_sweep.x_scale(values).log is log


def test_relative_is_to_the_arms_own_first_point() -> None:
    data = sweep_data(LOSSES, {"mrc": [2.0, 1.0, None], "rc-bgp": [4.0, 1.0, 0.0]})
    assert relative(data, "mrc", "step_p50_s") == [1.0, 0.5, None]
    assert relative(data, "rc-bgp", "step_p50_s") == [1.0, 0.25, 0.0]


@pytest.mark.parametrize("first", [None, 0.0])
def test_there_is_no_share_of_nothing(first: float | None) -> None:
    assert relative(sweep_data(LOSSES, {"mrc": [first, 1.0, 2.0]}), "mrc", "step_p50_s") == [None] * 3


def test_the_finding_names_each_arm_and_how_far_it_was_measured() -> None:
    data = sweep_data(LOSSES, {"mrc": [0.4, 0.5, 0.8], "rc-bgp": [0.4, 4.0, None], "mrc-no-trim": [None] * 3}, relative=True)
    words = finding(data)
    assert words.startswith(
        "Step p50 over x of each link, 0 to 1%: MRC 400 ms to 800 ms (200 %); RC over BGP 400 ms to 4 s (1000 %) at 0.1%"
    )
    assert "not measured beyond" in words
    assert words.endswith("not measured")


def drawn(data: dict) -> list:
    with style.styled():
        figure = plot_sweep.draw(data)
        figure.draw_without_rendering()
    return figure.axes


def test_a_value_that_could_not_be_measured_is_a_cross_and_not_a_line() -> None:
    axes = drawn(sweep_data(LOSSES, {"mrc": [0.4, None, 0.8]}))[0]
    assert sum(line.get_marker() == "x" for line in axes.lines) == 1


def test_relative_adds_a_panel() -> None:
    data = {"mrc": [0.4, 0.5, 0.8]}
    assert len(drawn(sweep_data(LOSSES, data, relative=True))) == len(drawn(sweep_data(LOSSES, data))) + 1


@pytest.mark.parametrize("medians", [{"mrc": [0.0] * 3}, {"mrc": [None] * 3}, {"mrc": [1e-3, 1.0, 1e3]}, {}])
def test_panels_keep_their_room_whatever_they_show(medians: dict) -> None:
    axes = drawn(sweep_data(LOSSES, medians))[0]
    assert axes.get_position().height > 0.3


def test_fifty_points_have_room() -> None:
    axes = drawn(sweep_data([f"value-{number}" for number in range(50)], {"mrc": [1.0] * 50}))[0]
    assert axes.get_position().height > 0.2


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [(9.5e6, "bit/s", "9.5 Mbps"), (0.25, "s", "250 ms"), (0.5, "share", "50 %"), (None, "s", "–"), (3, "steps", "3"), (2.5, "x", "2.5 x")],
)
def test_values_carry_their_unit(value: float | None, unit: str, words: str) -> None:
    assert value_words(value, unit) == words


def test_metrics_in_words() -> None:
    told = {"step_p50_s": "step p50", "lost_job_time_share": "lost job time share", "crashes": "crashes"}
    assert {name: metric_words(name) for name in told} == told


def test_without_a_metric_the_first_that_was_measured_is_shown() -> None:
    assert shown_metric(None, sweep_data([1], {"mrc": [1.0]})["points"]) == "step_p50_s"
    assert shown_metric("crashes", []) == "crashes"


def test_the_headline_is_that_of_the_worst_point() -> None:
    data = sweep_data(LOSSES, {"mrc": [1.0] * 3})
    assert headline(data)[0] == "unsure"
    data["points"][1]["expectations"] = [{"met": True, "sentence": "x"}]
    assert headline(data) == ("good", "All 1 expectations of all points were met.")
    data["points"][2]["expectations"] = [{"met": False, "sentence": "x"}]
    assert headline(data)[0] == "bad"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sweep")
    scenario = load_text(SCENARIO.replace("A sweep of nothing", "'<b>bold</b>'"), ["sweep.only=[10Mbps, 5Mbps]"])
    with pytest.MonkeyPatch.context() as patch:
        install_fake_arms(patch, root / "synthetic")
        return run_sweep(scenario, [draw(single) for single in scenario.single_runs()], root / "results", reporter=SilentReporter()).folder


def test_the_page_leads_to_the_points_and_is_escaped(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    assert 'href="1-10Mbps/report.html"' in page
    assert "<b>bold</b>" not in page
    assert "crashes &gt;= 1: NOT met" in page


def test_every_metric_of_every_point_is_in_the_json(folder: Path) -> None:
    told = read(folder / "sweep.json")
    for point in told["points"]:
        summary = read(folder / point["folder"] / "summary.json")
        assert point["arms"]["rc-bgp"]["step_p99_s"] == summary["arms"]["rc-bgp"]["step_p99_s"]
        assert point["arms"]["mrc"].keys() == told["metrics"].keys()


def test_reasons_against_the_fidelity_name_their_point(folder: Path) -> None:
    told = read(folder / "sweep.json")["fidelity"]
    assert told["verdict"] == "suspect"
    assert {reason.split(":")[0] for reason in told["reasons"]} == {"10Mbps", "5Mbps"}


def test_report_and_plots_can_be_made_again(folder: Path) -> None:
    before = read(folder / "sweep.json")
    for path in (folder / "report.html", folder / "sweep.json", *write_plots(folder)):
        path.unlink()
    assert main(["report", str(folder)]) == 0
    assert read(folder / "sweep.json") == before
    assert (folder / "plots" / "sweep.svg").is_file()


def test_a_sweep_whose_points_are_gone_is_still_told(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text((folder / "manifest.json").read_text())
    assert "not measured" in write_report(tmp_path).read_text()


def test_a_point_outside_of_the_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"kind": "sweep", "points": [{"folder": "../x"}]}')
    with pytest.raises(UsageError, match="names no points"):
        read_sweep(tmp_path)


def test_the_pages_of_a_sweep_and_of_a_run_share_their_looks(folder: Path, tmp_path: Path) -> None:
    looks = (Path(report.__file__).parent / "templates" / "style.css").read_text().strip()
    assert all(looks in page.read_text() for page in (folder / "report.html", write_report(make_run(tmp_path, repeats=1))))
