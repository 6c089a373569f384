"""What `run --pcap` names: links, nodes and ports of the topology, refused with a hint before anything starts."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from captures import pcapng_file
from wire_samples import FRAMES

from testbed.capture.plan import NO_CAPTURE, CapturePlan, Target, names_of, resolve
from testbed.capture.session import Captures
from testbed.cli import main
from testbed.errors import UsageError
from testbed.report.context import captures_line
from testbed.report.reading import RunData
from topologies import build

TOPOLOGY = build("fat-tree", k=4)


@pytest.mark.parametrize(
    ("named", "target"),
    [
        ("h1-t0_1_1", Target("h1-t0_1_1", "h1", ("h1-eth0",))),
        ("t0_1_1-h1", Target("h1-t0_1_1", "h1", ("h1-eth0",))),
        ("t1_1_2-t2_3", Target("t1_1_2-t2_3", "t1_1_2", ("t1_1_2-eth3",))),
        ("h1", Target("h1", "h1", ("h1-eth0",))),
        ("t2_1", Target("t2_1", "t2_1", tuple(f"t2_1-eth{port}" for port in (1, 2, 3, 4)))),
        ("h1:0", Target("h1-eth0", "h1", ("h1-eth0",))),
        ("t2_1-eth3", Target("t2_1-eth3", "t2_1", ("t2_1-eth3",))),
    ],
)
def test_each_way_to_name_what_is_heard(named: str, target: Target) -> None:
    assert resolve(TOPOLOGY, named) == target


@pytest.mark.parametrize(
    ("named", "hint"),
    [
        ("h1-t0_1_3", "did you mean `h1-t0_1_1`?"),
        ("t2_l", "did you mean `t2_4`?"),
        ("h1:7", "did you mean `h1:0`?"),
        ("", "links, nodes and ports: "),
        ("::", "links, nodes and ports: "),
    ],
)
def test_what_there_is_not_is_refused_with_a_hint(named: str, hint: str) -> None:
    with pytest.raises(UsageError, match=r"there is no link, node or port") as refused:
        resolve(TOPOLOGY, named)
    assert hint in str(refused.value)


def test_the_same_target_is_recorded_once() -> None:
    assert len(CapturePlan(("h1:0", "h1-eth0", "h1-t0_1_1", "t0_1_1-h1")).targets(TOPOLOGY)) == 2


def test_the_words_beside_a_capture_are_never_held_whole(tmp_path: Path) -> None:
    file = tmp_path / "h1.pcapng"
    file.write_bytes(pcapng_file(list(FRAMES.values()) * 100, snaplen=64))
    captures = Captures(NO_CAPTURE, TOPOLOGY, lambda node: 0, tmp_path)
    tracemalloc.start()
    try:
        tally = captures._explain(file)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert file.with_suffix(".txt").read_text().count("\n") == tally.packets == len(FRAMES) * 100
    assert peak_bytes < file.with_suffix(".txt").stat().st_size / 2


def test_a_limit_that_holds_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--pcap-limit of 96\.68 KiB: give 128 KiB or more"):
        CapturePlan(("h1",), limit_bytes=99_000)


def test_a_dry_run_tells_what_would_be_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "quick", "--dry-run"]) == 0
    assert "captures" not in capsys.readouterr().out
    assert main(["run", "quick", "--dry-run", "--pcap", "h1", "--pcap", "t0_1_1", "--pcap-limit", "1MiB", "--pcap-snaplen", "256"]) == 0
    told = "captures: h1, t0_1_1; each of 1 MiB at most, 256 B of a packet, in every arm and repeat"
    assert capsys.readouterr().out.splitlines()[-1] == told


@pytest.mark.parametrize("limit", ["0", "-1MB", "x", "1TB", ""])
def test_a_limit_that_is_no_size_is_refused_with_the_options_name(limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "quick", "--dry-run", "--pcap", "h1", "--pcap-limit", limit]) == 2
    assert capsys.readouterr().err.startswith("error: --pcap-limit: ")


def test_every_node_has_a_name_by_its_usid_and_every_host_by_its_address() -> None:
    names = names_of(TOPOLOGY)
    assert sorted(set(names.values())) == sorted(TOPOLOGY.nodes)
    assert len(names) == len(TOPOLOGY.nodes) + len(TOPOLOGY.hosts)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--pcap", "h1-t0_1_9"], "did you mean `h1-t0_1_1`?"),
        (["--pcap", "h1", "--pcap-limit", "1 parsec"], "1 parsec"),
        (["--pcap", "h1", "--pcap-snaplen", "10"], "--pcap-snaplen"),
    ],
)
def test_a_run_is_refused_before_anything_starts(options: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "quick", "--dry-run", "--results", str(tmp_path), *options]) == 2
    assert says in capsys.readouterr().err


def test_a_target_of_the_topology_is_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "quick", "--dry-run", "--pcap", "h1-t0_1_1", "--pcap-limit", "1MB", "--pcap-snaplen", "128"]) == 0


@pytest.mark.parametrize(
    ("manifest", "line"),
    [
        ({}, ""),
        ({"captures": {"targets": []}}, ""),
        ({"captures": "all"}, ""),
        ({"captures": {"targets": ["h1", "t0_1_1"]}}, "Packets were recorded meanwhile, which costs CPU: h1, t0_1_1"),
    ],
)
def test_the_report_says_that_packets_were_recorded(manifest: dict[str, object], line: str) -> None:
    assert captures_line(RunData(Path(), manifest, {}, None, {}, ())) == line
