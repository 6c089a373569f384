"""The options of an arm's routing, and what they say in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from testbed.pathvector.session import HELLO_S
from testbed.report.model import ArmRun
from testbed.scenario.derived_links import SWITCHING_OF_ARM

# What a picture's footer tells of BGP: options of FRR (testbed/routing), and of the controller (testbed/pathvector).
BGP_TIMERS = (
    "profile", "preset", "keepalive_s", "hold_s", "connect_retry_s", "advertisement_interval_s", "coalesce_ms", "fast_external_failover",
    "carrier_delay_s", "process_s", "batch_s", "mrai_s", "fib_base_s", "fib_prefix_s", "hash_policy", "ecmp_width",
)  # fmt: skip


def bgp_parameters(run: ArmRun) -> dict[str, Any]:
    """The BGP options that the arm's fabric reports, wherever in its manifest they are; empty for an arm without BGP."""
    for table in tables(run.info.get("fabric")):
        if "hold_s" in table:
            return dict(table)
    return {}


def tables(value: Any) -> Iterator[Mapping[str, Any]]:
    """A table and all tables inside it."""
    if isinstance(value, Mapping):
        yield value
        for entry in value.values():
            yield from tables(entry)


BFD_JITTER = 0.875  # the mean interval, as a share of the nominal one


def bfd_s(options: Mapping[str, Any]) -> float | None:
    """Seconds without a packet after which BFD ends a session; None without BFD."""
    interval = _bfd_interval_s(options)
    return interval * (_number(options.get("bfd_multiplier")) or 1) if interval else None


def _bfd_interval_s(options: Mapping[str, Any]) -> float | None:
    interval_ms, interval_s = (_number(options.get(name)) for name in ("bfd_interval_ms", "bfd_interval_s"))
    return interval_ms / 1e3 if interval_ms else interval_s or None


def bfd_packets_per_s(options: Mapping[str, Any]) -> float:
    """What BFD sends on each direction of a link while its session is up: intervals are 0 to 25 % shorter by chance (RFC 5880 6.8.7)."""
    interval_s = _bfd_interval_s(options)
    return 1 / (BFD_JITTER * interval_s) if interval_s else 0.0


def calls(arm: str, options: Mapping[str, Any], seconds: float) -> float:
    """The most that routing sends into a link that silently loses all of it, on top of the few packets of keepalives and retries.

    Routers: BFD until it ends the session (then it sends one a second). The controller's switches go on calling each other.
    """
    if SWITCHING_OF_ARM.get(arm) == "ovs-bgp":
        return max(1 / HELLO_S, bfd_packets_per_s(options)) * seconds
    return bfd_packets_per_s(options) * (bfd_s(options) or 0.0)


def detection_s(options: Mapping[str, Any]) -> float | None:
    """Seconds until a session over a link that silently loses all packets goes down: BFD's, else the hold time; None without BGP."""
    return bfd_s(options) or _number(options.get("hold_s"))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def detection_words(options: Mapping[str, Any]) -> str:
    """What finds a silent failure, and after how long; empty without BGP."""
    bfd, hold_s = bfd_s(options), _number(options.get("hold_s"))
    return f"BFD ({bfd:g} s)" if bfd else f"BGP's hold timer ({hold_s:g} s)" if hold_s else ""


def setting(name: str, value: Any) -> str:
    """A parameter for people: hold_s = 9 becomes "hold 9 s"."""
    stem, _, unit = name.rpartition("_")
    if unit in ("s", "ms") and isinstance(value, int | float):
        return f"{stem.replace('_', ' ')} {value:g} {unit}"
    shown = {True: "on", False: "off"}[value] if isinstance(value, bool) else value
    return f"{name.replace('_', ' ')} {shown}"


def bgp_line(runs: Sequence[ArmRun], names: Mapping[str, str]) -> str:
    """The BGP options as configured, once for all arms that share them; nothing without a BGP arm."""
    groups: dict[str, list[str]] = {}
    for run in runs:
        if options := bgp_parameters(run):
            groups.setdefault(_options_text(options), []).append(names.get(run.arm, run.arm))
    if len(groups) == 1:
        return f"BGP: {next(iter(groups))}"
    return "; ".join(f"BGP of {', '.join(arms)}: {text}" for text, arms in groups.items())


def _options_text(options: Mapping[str, Any]) -> str:
    shown = [setting(name, options[name]) for name in BGP_TIMERS if options.get(name) not in (None, "")]
    return ", ".join([*shown, _bfd_text(options)])


def _bfd_text(options: Mapping[str, Any]) -> str:
    total_s = bfd_s(options)
    return f"BFD {total_s:g} s ({options.get('bfd_multiplier')} intervals)" if total_s else "no BFD"
