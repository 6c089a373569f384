"""How long the fuzzers and the property tests run, and from which seed: FUZZ_FACTOR and FUZZ_SEED in the environment (docs/testing.md)."""

from __future__ import annotations

import os
from collections.abc import Sequence
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


def mutated(packet: bytes, others: Sequence[bytes], draw: Random) -> bytes:
    """A packet after one to four of: a bit, a byte, a word of extremes, a cut, a repetition, a part of another packet."""
    changed = bytearray(packet)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(changed) + 1)
        match draw.randrange(6):
            case 0 if at < len(changed):
                changed[at] ^= 1 << draw.randrange(8)
            case 1 if at < len(changed):
                changed[at] = draw.randrange(256)
            case 2:
                changed[at : at + 2] = draw.choice((b"\0\0", b"\xff\xff", b"\x7f\xff", b"\x80\0"))
            case 3:
                del changed[at:]
            case 4:
                changed[at:at] = changed[at : at + draw.randrange(60)]
            case _:
                changed[at:] = draw.choice(others)[at:]
    return bytes(changed)
