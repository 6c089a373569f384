"""A short run of the benchmark that sends a million packets through a bad network, and one of its healthy network."""

from __future__ import annotations

import pytest
from fuzzing import SEED, times

from benchmarks import million
from benchmarks.soak_lab import Broken, Soak
from hosts.mrc import MrcParams
from hosts.mrc.channel import Conditions

RATE_BPS = 5e6


def test_thousands_of_packets_through_a_bad_network_arrive_as_they_should() -> None:
    found = million.bad(times(50_000), 64, 32, SEED)
    assert found["packets"] >= times(50_000)
    assert found["path_deaths"] > 0
    for fault, share in (("lost", million.LOSS), ("duplicated", million.DUPLICATION), ("reordered", million.REORDER)):
        drawn = share * found["channel"]["sent"]
        assert found["channel"][fault] == pytest.approx(drawn, abs=5 * drawn**0.5)  # by chance once in a million


def test_a_healthy_network_under_full_load_has_no_path_called_bad() -> None:
    found = million.healthy(0.01 * times(1), RATE_BPS, SEED)
    assert found["goodput_share"] > 0.7
    assert found["trimmed"] > 0
    assert found["marked"] > 0
    assert found["retirements"] == {}


def soak(**conditions: float) -> Soak:
    return Soak(Conditions(**conditions), MrcParams(payload_bytes=64), [4000] * 50, 4000, 4, 1)


def test_a_wrong_byte_in_a_message_is_found() -> None:
    bad = soak()
    bad.run(bad.start_s + 0.0035)
    assert bad.completed < 50
    bad.slots.expected[bad.slots.offset(0) + 7] ^= 1
    with pytest.raises(Broken, match="wrong bytes"):
        bad.run()


def test_a_changed_guard_is_found() -> None:
    bad = soak()
    bad.slots.region[bad.slots.offset(1) - 1] ^= 1
    with pytest.raises(Broken, match="slot"):
        bad.run()


def test_a_completion_that_is_missing_is_a_hang() -> None:
    bad = soak()
    take = bad.b.take_completions
    bad.b.take_completions = lambda: take()[:0]  # type: ignore[method-assign]
    with pytest.raises(Broken, match="no progress"):
        bad.run()


def test_a_message_that_is_completed_twice_is_found() -> None:
    bad = soak()
    take = bad.b.take_completions
    bad.b.take_completions = lambda: [each for completion in take() for each in (completion, completion)]  # type: ignore[method-assign]
    with pytest.raises(Broken, match="was next"):
        bad.run()
