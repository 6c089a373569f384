"""The preset `large-fabric` gives what operators of large fabrics tell: seconds, and in the tail tens of seconds (docs/bgp-ovs.md)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from large_fabric import FAULTS, seconds


@pytest.mark.parametrize(("k", "fault"), [(4, "T0-T1 cut"), (4, "T1-T2 cut"), (4, "T1 killed"), (6, "T1-T2 cut")])
def test_a_carrier_cut_takes_seconds(k: int, fault: str) -> None:
    assert 1 < seconds(k, FAULTS[fault], seed=1) < 10


@pytest.mark.parametrize(("k", "fault"), [(4, "T0-T1 silent"), (4, "T0 booted"), (4, "T1 booted"), (6, "T2 booted")])
def test_the_tail_takes_tens_of_seconds(k: int, fault: str) -> None:
    assert 9 < seconds(k, FAULTS[fault], seed=1) < 60


def test_the_preset_of_frr_takes_a_fraction_of_a_second() -> None:
    assert seconds(4, FAULTS["T0-T1 cut"], seed=1, preset="frr") < 0.5
