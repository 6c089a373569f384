"""Reports of runs and sweeps whose JSON somebody changed: any value may have any type, and the page is still written."""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from synthetic_streams import make_streams

from testbed.errors import UsageError
from testbed.report import html, judge, plot_sweep, sweep_html
from testbed.report.reading import read_run
from testbed.report.summary import summarise_data
from testbed.report.sweep_data import read_sweep

ODD = [None, 3, -5, 1e308, math.nan, math.inf, True, "x", "\0<b>", [], {}, [[]], [1, {}], {"a": [1]}]
POINT = {"value": "1Mbps", "text": "1Mbps", "folder": "1-a", "state": "failed", "exit_code": 1, "problems": ["it failed"]}
SWEEP = {
    "kind": "sweep", "arms": ["mrc"], "repeats": 2, "seed": 1, "machine": {}, "command": ["a"], "interrupted": False, "complete": True,
    "scenario": {"name": "x", "sweep": {"key": "k", "label": "l", "metric": "crashes", "relative": True}, "overrides": ["a=b"]},
    "points": [POINT, POINT | {"folder": "2-b"}],
}  # fmt: skip
EXPECTED = [{"arm": "mrc", "metric": "jain", "at_least": 0.5}]
PROGRAM = {"base_rtt_s": 0.02, "bdp_bytes": 3, "loss_by_tier": {"NIC-T0": 0.1}, "host": {"trim_bytes": 3}}


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a JSON document has values, from the outermost to the innermost."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in inner:
        yield (*place, key)
        yield from places(entry, (*place, key))


def changed(document: Any) -> Iterator[Any]:
    """The document with one value after the other replaced by each odd one."""
    for *outer, last in places(document):
        for odd in ODD:
            other = copy.deepcopy(document)
            holder = other
            for key in outer:
                holder = holder[key]
            holder[last] = odd
            yield other


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one arm with little in it, so that reading it is quick, and with all kinds of values in its JSON."""
    folder = make_streams(tmp_path_factory.mktemp("hostile"), "permutation")
    shutil.rmtree(folder / "rc-bgp")
    for name in ("flows.csv", "links.csv", "paths.csv"):
        path = folder / "mrc" / "1" / name
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:50]))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["scenario"] |= {"expect": EXPECTED, "overrides": ["a=b"], "transport": {"mrc": {"payload_bytes": 4096}}}
    arm = json.loads((folder / "mrc" / "1" / "arm.json").read_text())
    arm["fabric"]["link_program"] = PROGRAM
    arm["job"]["flows"] = arm["job"]["flows"][:1]
    agents = json.loads((folder / "mrc" / "1" / "agents.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"versions": {"a": "b"}, "command": ["a"]}))
    (folder / "mrc" / "1" / "arm.json").write_text(json.dumps(arm))
    (folder / "mrc" / "1" / "agents.json").write_text(json.dumps({"h1": agents["h1"]}))
    return folder


@pytest.mark.parametrize("name", ["manifest.json", "faults.json", "mrc/1/arm.json", "mrc/1/agents.json"])
def test_any_value_of_a_runs_json_may_be_anything(run: Path, name: str) -> None:
    sound = (run / name).read_text()
    try:
        for document in changed(json.loads(sound)):
            (run / name).write_text(json.dumps(document))
            data = read_run(run)
            summary = summarise_data(data)
            json.dumps(summary, allow_nan=False)
            assert html.page(data, summary)["findings"]
    finally:
        (run / name).write_text(sound)


def test_any_value_of_a_sweeps_manifest_may_be_anything(tmp_path: Path) -> None:
    for document in changed(SWEEP):
        (tmp_path / "manifest.json").write_text(json.dumps(document))
        try:
            data = read_sweep(tmp_path)
        except UsageError:
            continue
        json.dumps(data, allow_nan=False, default=str)
        assert sweep_html.page(tmp_path, data)["finding"]
        assert plot_sweep.x_scale([point["value"] for point in data["points"]]).positions


def test_an_expectation_without_a_sound_bound_is_not_met(run: Path) -> None:
    data = read_run(run)
    verdict = judge([{"arm": "mrc", "metric": "jain", "at_least": "x"}], summarise_data(data))[0]
    assert (verdict.met, verdict.bounds) == (False, "(no bound given)")
