"""FRR and the `frr` preset of the controller's BGP on the same faults: both see them in the same way, and end with the same tables.

How far apart their medians are is a measurement on a quiet machine (benchmarks/rival_presets.py); the bounds here are those that only
another way of seeing a fault would break: a carrier's loss without any timer, a silent loss by the hold timer and nothing else.
"""

from __future__ import annotations

from typing import Any

import pytest
from netns.fabric_lab import ask

from testbed.pathvector import BgpOvsOptions
from testbed.routing.options import BgpOptions

pytestmark = pytest.mark.fabric

SLACK_S = 4.0  # of a busy machine


def tell(switching: str) -> dict[str, Any]:
    """Seconds from each fault to the last change of a table, at its ends and anywhere; after each all tables were as they must be."""
    import sys

    sys.path.insert(0, "benchmarks")
    from rival_presets import measure, rival

    import topologies

    with rival(topologies.build("fat-tree", k=4), switching) as found:
        return measure(found, ("T0-T1", "T1-T2"), rounds=1, silent_rounds=1, seed=1)


@pytest.fixture(scope="module", params=["frr", "ovs-bgp"])
def seconds(request: pytest.FixtureRequest) -> dict[str, list[float]]:
    found: dict[str, list[float]] = ask(tell, request.param, timeout_s=180)
    return found


def test_both_have_the_same_session_timers() -> None:
    assert (BgpOptions().keepalive_s, BgpOptions().hold_s) == (BgpOvsOptions().keepalive_s, BgpOvsOptions().hold_s)


@pytest.mark.parametrize("tier", ["T0-T1", "T1-T2"])
def test_a_loss_of_carrier_is_seen_without_any_timer(seconds: dict[str, list[float]], tier: str) -> None:
    (near,), (far,) = seconds[f"{tier} cut, at its ends"], seconds[f"{tier} cut, anywhere"]
    assert 0 < near <= far < BgpOptions().hold_s - BgpOptions().keepalive_s


def test_a_silent_loss_is_seen_by_the_hold_timer(seconds: dict[str, list[float]]) -> None:
    hold_s, keepalive_s = BgpOptions().hold_s, BgpOptions().keepalive_s
    (seen,) = seconds["T0-T1 silent, anywhere"]
    assert hold_s - keepalive_s - 0.5 < seen < hold_s + SLACK_S


@pytest.mark.parametrize("name", ["T0-T1 mended", "T1-T2 mended", "T0-T1 silence ended"])
def test_a_link_that_is_back_is_used_again_after_one_retry_at_most(seconds: dict[str, list[float]], name: str) -> None:
    (back,) = seconds[f"{name}, anywhere"]
    assert 0 < back < BgpOptions().connect_retry_s + SLACK_S  # FRR's ends may connect at the same moment, and then both give up
