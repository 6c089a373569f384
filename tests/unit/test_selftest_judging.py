"""What the self-test calls good, on packets and counts made up here; and what the command says and ends with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hosts.wire import DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP
from testbed import sandbox
from testbed.cli import main
from testbed.cli import selftest as command
from testbed.fabric import selftest
from testbed.fabric.probe import data_frame, full_payload, traffic_class
from testbed.fabric.selftest import Check, Overload, default_settings, judged_overload, judged_share, sample
from testbed.link_settings import LinkSettings
from topologies import build

WHOLE = data_frame(1024, 4)


def trimmed(dscp: int = DSCP_TRIMMED) -> bytes:
    return data_frame(0, dscp)


def overload(
    found: list[bytes], *, dropped: int = 0, qdisc_drops: int = 0, count: int = 4, last_hop: bool = False, trims: bool = True
) -> bool:
    return judged_overload("x", Overload(count, len(WHOLE), tuple(found), dropped, qdisc_drops), last_hop, trims).good


def test_every_packet_whole_or_trimmed_is_good() -> None:
    assert overload([WHOLE, WHOLE, trimmed(), trimmed()])


@pytest.mark.parametrize(
    "found",
    [
        [WHOLE, WHOLE, trimmed()],  # one vanished
        [WHOLE] * 4,  # none trimmed, though the queue was too long
        [trimmed()] * 4,  # not even the first came through
        [WHOLE, trimmed(), trimmed(), trimmed(DSCP_TRIMMED_LASTHOP)],
        [WHOLE, WHOLE, trimmed(), trimmed(), trimmed()],  # one too many
    ],
)
def test_what_trimming_must_not_do(found: list[bytes]) -> None:
    assert not overload(found)


def test_drops_inside_a_qdisc_are_bad() -> None:
    assert not overload([WHOLE, WHOLE, trimmed(), trimmed()], qdisc_drops=1)


def test_a_link_that_trims_must_not_drop() -> None:
    assert not overload([WHOLE, WHOLE, trimmed()], dropped=1)


def test_a_link_that_does_not_trim_counts_what_it_drops() -> None:
    assert overload([WHOLE, WHOLE], trims=False, dropped=2)
    assert not overload([WHOLE, WHOLE], trims=False, dropped=1)
    assert not overload([WHOLE, WHOLE, trimmed()], trims=False, dropped=1)


def test_the_last_hop_has_its_own_dscp_and_no_marks() -> None:
    marked = data_frame(1024, 4, ecn=3)
    assert overload([WHOLE, trimmed(DSCP_TRIMMED_LASTHOP)], last_hop=True, count=2)
    assert not overload([WHOLE, trimmed(DSCP_TRIMMED)], last_hop=True, count=2)
    assert not overload([marked, trimmed(DSCP_TRIMMED_LASTHOP)], last_hop=True, count=2)


@pytest.mark.parametrize(("hits", "good"), [(500, True), (440, True), (430, False), (570, False)])
def test_a_share_must_lie_within_four_standard_deviations(hits: int, good: bool) -> None:
    assert judged_share("x", hits, 1000, 0.5).good is good  # sigma is 1.58 %


def test_a_share_of_nothing_is_bad() -> None:
    assert not judged_share("x", 0, 0, 0.0).good


def test_the_sample_has_both_directions_of_every_tier() -> None:
    topology = build("fat-tree", k=4)
    ends = sample(topology)
    tiers = [(link.tier, end == link.a) for end in ends for link in topology.links.values() if end in (link.a, link.b)]
    assert sorted(tiers) == sorted((tier, up) for tier in ("NIC-T0", "T0-T1", "T1-T2") for up in (True, False))


@pytest.mark.parametrize("mtu", [1280, 1500, 4352, 9216])
def test_a_full_packet_fits_the_mtu(mtu: int) -> None:
    payload = full_payload(LinkSettings(10**7, mtu_bytes=mtu, queue_bytes=10**6))
    assert 0 < payload <= 4096
    assert len(data_frame(payload, 4)) <= mtu + 14


def test_the_traffic_class_is_read_from_the_outer_header() -> None:
    assert traffic_class(data_frame(0, 46, ecn=2)) == (46, 2)


def test_the_self_tests_own_links_have_all_that_can_be_checked() -> None:
    assert default_settings().ecn
    assert default_settings().trimming


@pytest.fixture
def fake_selftest(monkeypatch: pytest.MonkeyPatch):
    """A sandbox in which the self-test finds what it is told; returns how it was called."""

    def install(*checks: Check) -> list[Any]:
        calls: list[Any] = []

        def run(folder: Any, topology: Any, settings: Any, reporter: Any) -> list[Check]:
            calls.append((topology, settings))
            return list(checks)

        monkeypatch.setattr(selftest, "run", run)
        monkeypatch.setattr(sandbox, "inside", lambda: True)
        monkeypatch.setattr(sandbox, "prepare", lambda: None)
        monkeypatch.setattr(sandbox, "runtime_dir", lambda: Path("/nonexistent"))
        return calls

    return install


GOOD, BAD = Check("rate of h1-eth0", "100 %", "100 %", good=True), Check("trimming", "3 sent, 2 whole", "3", good=False)


def test_good_links_are_exit_code_0(fake_selftest, capsys: pytest.CaptureFixture[str]) -> None:
    fake_selftest(GOOD)
    assert main(["selftest"]) == 0
    assert "all 1 checks are good" in capsys.readouterr().out


def test_a_bad_link_is_exit_code_4_and_named(fake_selftest, capsys: pytest.CaptureFixture[str]) -> None:
    fake_selftest(GOOD, BAD)
    assert main(["selftest"]) == 4
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["good", "BAD"]
    assert lines[-2:] == ["1 of 2 checks failed: trimming", "docs/troubleshooting.md says what each of them means"]


def test_json_has_every_figure(fake_selftest, capsys: pytest.CaptureFixture[str]) -> None:
    fake_selftest(GOOD, BAD)
    assert main(["selftest", "--json"]) == 4
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert answer["checks"][1] == {"name": "trimming", "measured": "3 sent, 2 whole", "expected": "3", "good": False}


def test_a_scenario_brings_its_own_topology_and_links(fake_selftest) -> None:
    calls = fake_selftest(GOOD)
    main(["selftest", "quick", "--arm", "mrc-no-trim"])
    ((topology, settings),) = calls
    assert len(topology.hosts) == 16
    assert settings.tail_drop


def test_a_topology_alone_has_the_self_tests_links(fake_selftest) -> None:
    calls = fake_selftest(GOOD)
    main(["selftest", "fat-tree", "--param", "k=2"])
    ((topology, settings),) = calls
    assert (len(topology.hosts), settings) == (2, None)


def test_without_a_topology_it_is_the_small_fabric(fake_selftest) -> None:
    calls = fake_selftest(GOOD)
    main(["selftest"])
    assert calls == [(None, None)]


@pytest.mark.parametrize(("arguments", "said"), [(["selftest", "fattree"], "did you mean"), (["selftest", "--arm", "rc-bgp"], "rc-bgp")])
def test_wrong_usage_is_exit_code_2(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_arms_with_routing_daemons_are_not_offered() -> None:
    assert "rc-bgp" not in command.ARMS
