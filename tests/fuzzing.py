"""How long the fuzzers and the property tests run, and from which seed: FUZZ_FACTOR and FUZZ_SEED in the environment (docs/testing.md)."""

from __future__ import annotations

import os
from random import Random

from hypothesis import HealthCheck, settings

FACTOR = int(os.environ.get("FUZZ_FACTOR", "1"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))


def examples(count: int) -> settings:
    """So many examples of a property, always the same ones, times FUZZ_FACTOR; with another FUZZ_SEED than 1 others each time."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    return settings(max_examples=count * FACTOR, deadline=None, derandomize=SEED == 1, print_blob=True, suppress_health_check=slow)


def times(count: int) -> int:
    """So many rounds of a fuzzer, times FUZZ_FACTOR."""
    return count * FACTOR


def seeded(what: str) -> Random:
    """The random source of the fuzzer `what`; says its seed, which pytest shows when the test fails."""
    print(f"{what}: FUZZ_SEED={SEED}")  # noqa: T201
    return Random(f"{what} {SEED}")
