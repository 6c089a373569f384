"""The one parser for human units, and the way back. A quantity without a unit, or with one that can be read two ways, is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NoReturn

from testbed.errors import UsageError


class UnitError(UsageError, ValueError):
    """A quantity that cannot be read; `problem` is a sentence and `hint` says what to write instead."""

    def __init__(self, problem: str, hint: str) -> None:
        self.problem, self.hint = problem, hint
        super().__init__(f"{problem} ({hint})")


# Rates are decimal and in bits (IEEE 802.3's habit), sizes in bytes with decimal and binary prefixes (IEC 80000-13).
RATE_UNITS: Mapping[str, float] = {
    f"{prefix}{suffix}": factor
    for prefix, factor in {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.items()
    for suffix in ("bps", "bit/s")
}
SIZE_UNITS: Mapping[str, int] = {
    "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
}  # fmt: skip
DURATION_UNITS: Mapping[str, float] = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}

RATE_HINT = 'write bits a second, as "10Mbps" or "10Mbit/s"'
SIZE_HINT = 'write bytes, as "4096B", "256KiB" or "1MB"'
SHARE_HINT = 'write a share of 0 to 1, as 0.05 or "5%"'
DURATION_HINT = 'write a time with its unit, as "500ms", "1.5s" or "2min"'

# Bounds that keep every later computation finite; far outside of what an emulated fabric can do.
MAX_RATE_BPS = 1e12
MAX_SIZE_BYTES = 2**40
MAX_DURATION_S = 7 * 86400.0
MIN_SHARE = 1e-9  # the link program draws 32 bits: less would be nothing

_QUANTITY = re.compile(r"\s*(?P<number>\d{1,18}(?:\.\d{1,18})?)\s*(?P<unit>[^\s\d.][^\s]*)?\s*", re.ASCII)
_PERCENT = re.compile(r"\s*(?P<number>\d{1,18}(?:\.\d{1,18})?)\s*(?P<percent>%)?\s*", re.ASCII)
# Readings that look right and are not: unit -> what is wrong with it.
_RATE_TRAPS = {
    "B/s": "is in bytes a second; rates here are in bits", "Bps": "is in bytes a second; rates here are in bits",
    "b": "does not say a second", "bit": "does not say a second", "B": "is a size, not a rate", "iB": "is a size, not a rate",
    "iB/s": "is in bytes a second; rates here are in bits", "ib/s": "has a binary prefix; rates here are decimal",
    "ibps": "has a binary prefix; rates here are decimal", "ibit/s": "has a binary prefix; rates here are decimal",
    "": "does not say bits or bytes",
}  # fmt: skip
_SIZE_TRAPS = {
    "b": "may be bits or bytes", "bit": "is in bits; sizes here are in bytes", "ib": "may be bits or bytes", "i": "does not say bytes",
    "": "does not say bytes, nor whether it is decimal or binary", "bps": "is a rate, not a size", "bit/s": "is a rate, not a size",
}  # fmt: skip
_DURATION_TRAPS = {"m": "may be minutes, metres or milli", "M": "may be minutes or months"}


def parse_rate(text: object) -> float:
    """Reads a rate, as "10Mbps" or "10Mbit/s", into bits a second. Raises UnitError."""
    return _bounded(_scaled("rate", text, RATE_UNITS, _RATE_TRAPS, RATE_HINT), MAX_RATE_BPS, text, "1Tbps", RATE_HINT)


def parse_size(text: object) -> int:
    """Reads a size, as "256KiB", "1MB" or "4096B", into whole bytes. Raises UnitError."""
    size_bytes = _bounded(_scaled("size", text, SIZE_UNITS, _SIZE_TRAPS, SIZE_HINT), MAX_SIZE_BYTES, text, "1TiB", SIZE_HINT)
    if size_bytes != int(size_bytes):
        raise UnitError(f"{text!r} is not a whole number of bytes", SIZE_HINT)
    return int(size_bytes)


def parse_duration(text: object) -> float:
    """Reads a duration, as "500ms", "1.5s" or "2min", into seconds. Raises UnitError."""
    duration_s = _scaled("duration", text, DURATION_UNITS, _DURATION_TRAPS, DURATION_HINT)
    return _bounded(duration_s, MAX_DURATION_S, text, "7 days", DURATION_HINT)


def parse_share(value: object) -> float:
    """Reads a share, as 0.05 or "5%", into 0, or MIN_SHARE to 1. Raises UnitError."""
    share = _plain_share(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else _percent(value)
    if not 0 <= share <= 1:
        raise UnitError(f"{_shown(value)} is not between 0 and 1", SHARE_HINT)
    if 0 < share < MIN_SHARE:
        raise UnitError(f"{_shown(value)} is less than {MIN_SHARE:g}", "use more, or 0")
    return share


def counted(number: int, noun: str) -> str:
    """A count for people: "0 faults", "1 fault", "2 faults"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_rate(rate_bps: float) -> str:
    """Writes bits a second for people: 10e6 -> "10 Mbps"."""
    return _format(rate_bps, (("Gbps", 1e9), ("Mbps", 1e6), ("kbps", 1e3), ("bps", 1.0)))


def format_size(size_bytes: float) -> str:
    """Writes bytes for people, with binary prefixes from 1 KiB up: 262144 -> "256 KiB"."""
    return _format(size_bytes, (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0)))


def format_duration(duration_s: float) -> str:
    """Writes seconds for people: 0.5 -> "500 ms", 90 -> "1 min 30 s"."""
    if abs(duration_s) < 1:
        return _format(duration_s, (("ms", 1e-3), ("us", 1e-6))) if duration_s else "0 s"
    if round(abs(duration_s), 2) < 60:
        return f"{_number(duration_s)} s"
    minutes, seconds = divmod(round(abs(duration_s)), 60)
    sign = "-" if duration_s < 0 else ""
    return sign + (f"{minutes} min {seconds} s" if seconds else f"{minutes} min")


def format_share(share: float) -> str:
    """Writes a share for people, in percent: 0.001 -> "0.1%"."""
    return f"{100 * share:.6g}%"


def _plain_share(value: float) -> float:
    return float(value) if abs(value) <= 1 else math.inf


def _percent(value: object) -> float:
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise UnitError(f"{_shown(value)} is not a share", SHARE_HINT)
    return float(match["number"]) / (100 if match["percent"] else 1)


def _scaled(kind: str, text: object, units: Mapping[str, float], traps: Mapping[str, str], hint: str) -> float:
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        raise UnitError(f"a bare number has no unit: {_shown(text)}", hint)
    if not isinstance(text, str):
        raise UnitError(f"{_shown(text)} is not a {kind}", hint)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UnitError(f"{_shown(text)} is not a {kind}", hint)
    unit = match["unit"] or ""
    if unit not in units:
        _refuse_unit(kind, text, unit, units, traps, hint)
    return float(match["number"]) * units[unit]


def _refuse_unit(kind: str, text: str, unit: str, units: Mapping[str, float], traps: Mapping[str, str], hint: str) -> NoReturn:
    if not unit:
        raise UnitError(f"a bare number has no unit: {_shown(text)}", hint)
    cased = [known for known in units if known.lower() == unit.lower()]
    if unit in traps:
        raise UnitError(f"{_shown(text)} {traps[unit]}", hint)
    if unit[0] in "kKMGT" and unit[1:] in traps:
        raise UnitError(f"{_shown(text)} {traps[unit[1:]]}", hint)
    if len(cased) == 1:
        raise UnitError(f"{_shown(text)} has an unknown unit {unit!r}", f"did you mean {cased[0]!r}? Capitals matter; {hint}")
    raise UnitError(f"{_shown(text)} has an unknown unit for a {kind}", hint)


def _bounded(value: float, limit: float, text: object, limit_text: str, hint: str) -> float:
    if value > limit:
        raise UnitError(f"{_shown(text)} is more than {limit_text}", hint)
    return value


def _shown(value: object) -> str:
    """The value as the reader typed it, cut short."""
    shown = repr(value) if not isinstance(value, (dict, list)) else f"a {'mapping' if isinstance(value, dict) else 'list'}"
    return shown if len(shown) <= 40 else shown[:37] + "..."


def _format(value: float, scales: tuple[tuple[str, float], ...]) -> str:
    for unit, factor in scales:
        if abs(value) >= factor:
            return f"{_number(value / factor)} {unit}"
    unit, factor = scales[-1]
    return f"{_number(value / factor)} {unit}"


def _number(value: float) -> str:
    """Up to two decimals, without trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if math.isfinite(value) else str(value)
