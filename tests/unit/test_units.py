"""Human units: what is read, what is refused and how, and the way back."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.units import (
    UnitError,
    format_duration,
    format_rate,
    format_share,
    format_size,
    parse_duration,
    parse_rate,
    parse_share,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [("10Mbps", 10e6), ("10Mbit/s", 10e6), ("1Gbps", 1e9), ("2.5 Gbps", 2.5e9), ("900kbps", 900e3), ("64bps", 64), (" 1Gbit/s ", 1e9)],
)
def test_reads_rates(text: str, rate_bps: float) -> None:
    assert parse_rate(text) == rate_bps


@pytest.mark.parametrize(("text", "size_bytes"), [("256KiB", 262144), ("1MB", 10**6), ("4096B", 4096), ("1.5KiB", 1536), ("2 GiB", 2**31)])
def test_reads_sizes(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(("text", "duration_s"), [("500ms", 0.5), ("1.5s", 1.5), ("2min", 120), ("0s", 0), ("250us", 250e-6), ("1h", 3600)])
def test_reads_durations(text: str, duration_s: float) -> None:
    assert parse_duration(text) == pytest.approx(duration_s)


@pytest.mark.parametrize(("value", "share"), [("5%", 0.05), ("0.1 %", 0.001), (0.25, 0.25), (1, 1), (0, 0), ("0.5", 0.5), ("100%", 1)])
def test_reads_shares(value: object, share: float) -> None:
    assert parse_share(value) == pytest.approx(share)


@pytest.mark.parametrize("value", ["101%", -0.1, 1.5, 5, True, None, "five", "5 percent", float("nan"), 10**400, [], "-5%"])
def test_refuses_what_is_no_share(value: object) -> None:
    with pytest.raises(UnitError, match=r"share|between 0 and 1"):
        parse_share(value)


@pytest.mark.parametrize(("share", "text"), [(0.05, "5%"), (0.001, "0.1%"), (1, "100%"), (0, "0%")])
def test_writes_shares(share: float, text: str) -> None:
    assert format_share(share) == text
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize(
    ("parse", "text", "problem"),
    [
        (parse_rate, "10MB/s", "bytes a second"),
        (parse_rate, "10MBps", "bytes a second"),
        (parse_rate, "10M", "does not say bits or bytes"),
        (parse_rate, "10Mb", "does not say a second"),
        (parse_rate, "10MB", "is a size"),
        (parse_rate, "10Mibps", "binary prefix"),
        (parse_rate, 10, "bare number"),
        (parse_rate, "10", "bare number"),
        (parse_rate, "2Tbps", "more than"),
        (parse_size, "1Mb", "bits or bytes"),
        (parse_size, "1M", "does not say bytes"),
        (parse_size, "1Mbps", "is a rate"),
        (parse_size, "0.5B", "whole number of bytes"),
        (parse_size, 4096, "bare number"),
        (parse_duration, "2m", "may be minutes"),
        (parse_duration, "5", "bare number"),
        (parse_duration, 5.0, "bare number"),
        (parse_duration, "-5s", "is not a duration"),
        (parse_duration, "1min30s", "unknown unit"),
        (parse_duration, "", "is not a duration"),
        (parse_duration, None, "is not a duration"),
        (parse_duration, True, "is not a duration"),
        (parse_duration, ["5s"], "a list is not a duration"),
        (parse_duration, "\u0665s", "is not a duration"),
    ],
)
def test_refuses_what_is_ambiguous_with_a_hint(parse, text, problem) -> None:
    with pytest.raises(UnitError) as caught:
        parse(text)
    assert problem in caught.value.problem
    assert "write" in caught.value.hint


@pytest.mark.parametrize(
    ("parse", "text", "near"), [(parse_rate, "10mbps", "Mbps"), (parse_size, "1mib", "MiB"), (parse_duration, "5S", "s")]
)
def test_a_wrong_capital_is_named(parse, text: str, near: str) -> None:
    with pytest.raises(UnitError, match=f"did you mean '{near}'"):
        parse(text)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (format_rate(10e6), "10 Mbps"),
        (format_rate(1.25e9), "1.25 Gbps"),
        (format_rate(0), "0 bps"),
        (format_size(262144), "256 KiB"),
        (format_size(100), "100 B"),
        (format_duration(0.5), "500 ms"),
        (format_duration(0), "0 s"),
        (format_duration(59.996), "1 min"),
        (format_duration(90), "1 min 30 s"),
        (format_duration(-90), "-1 min 30 s"),
        (format_duration(0.9999), "999.9 ms"),
        (format_duration(250e-6), "250 us"),
    ],
)
def test_formats(written: str, text: str) -> None:
    assert written == text


@given(st.integers(1, 2**40))
def test_sizes_in_bytes_are_exact(size_bytes: int) -> None:
    assert parse_size(f"{size_bytes}B") == size_bytes


@given(st.floats(1, 1e12))
def test_a_formatted_rate_reads_back_within_rounding(rate_bps: float) -> None:
    assert parse_rate(format_rate(rate_bps)) == pytest.approx(rate_bps, rel=0.01)


@given(st.one_of(st.text(max_size=30), st.none(), st.floats(), st.integers(), st.lists(st.text())))
def test_any_value_is_read_or_refused(value: object) -> None:
    for parse in (parse_rate, parse_size, parse_duration):
        with suppress(UnitError):
            assert parse(value) >= 0
