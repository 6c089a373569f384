"""A short sweep on the real fabric: two rates, one arm, and a slower link makes slower steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_lab import RAN, run

pytestmark = pytest.mark.fabric
SWEPT = {
    "name": "swept",
    "topology": {"kind": "multi-plane", "planes": 1, "t0s": 2, "t1s": 1, "hosts_per_t0": 1},
    "job": {"vector": "256KiB", "compute": "100ms"},
    "run": {"duration": "6s", "warmup": "1s", "settle": "1s"},
    "arms": ["mrc"],
    "expect": [{"arm": "mrc", "metric": "wrong_sums", "equals": 0}],
    "sweep": {"key": "links.rate", "values": ["20Mbps", "4Mbps"], "metric": "healthy_median_s", "relative": True},
}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any], Path]:
    return run(tmp_path_factory.mktemp("swept"), SWEPT)


def test_every_point_ran_to_its_end(swept: tuple[int, dict[str, Any], Path]) -> None:
    status, answer, folder = swept
    assert status in RAN
    assert [point["state"] for point in answer["summary"]["points"]] == ["complete"] * 2
    assert all((folder / name / "mrc" / "1" / "steps.csv").is_file() for name in ("1-20Mbps", "2-4Mbps"))
    assert (folder.parent.parent / "latest").resolve() == folder


def test_each_point_had_its_own_rate(swept: tuple[int, dict[str, Any], Path]) -> None:
    medians = [point["arms"]["mrc"]["healthy_median_s"]["median"] for point in swept[1]["summary"]["points"]]
    assert medians[1] > 1.5 * medians[0]


def test_picture_and_page_are_there(swept: tuple[int, dict[str, Any], Path]) -> None:
    folder = swept[2]
    assert {path.name for path in (folder / "plots").iterdir()} == {"sweep.png", "sweep.svg"}
    assert 'href="2-4Mbps/report.html"' in (folder / "report.html").read_text()
    assert json.loads((folder / "sweep.json").read_text())["points"] == swept[1]["summary"]["points"]
