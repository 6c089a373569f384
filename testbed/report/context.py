"""What a reader must know to judge a picture: the machine, what each side was allowed, how far the emulation can be trusted. Pure."""

from __future__ import annotations

import statistics as stdlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from hosts.mrc.params import MrcParams
from hosts.rc.params import RcParams
from testbed.report.model import ArmRun
from testbed.report.reading import RunData

LABELS: Mapping[str, str] = {
    "mrc": "MRC", "rc-bgp": "RC over BGP", "rc-bgp-ovs": "RC over BGP (OVS)", "tcp-bgp": "TCP over BGP", "mrc-bgp": "MRC over BGP",
    "rc-static": "RC, static path",
}  # fmt: skip
DEFAULTS: Mapping[str, type] = {"mrc": MrcParams, "mrc-bgp": MrcParams, "rc-bgp": RcParams, "rc-bgp-ovs": RcParams, "rc-static": RcParams}
BGP_TIMERS = (
    "profile", "keepalive_s", "hold_s", "connect_retry_s", "advertisement_interval_s", "coalesce_ms", "fast_external_failover", "bfd",
)  # fmt: skip
SWITCHING: Mapping[str, str] = {"ovs": "Open vSwitch", "frr": "FRR routers"}
ACK_TIMEOUT_UNIT_S = 4.096e-6  # InfiniBand: local ACK timeout = 4.096 us x 2^exponent


def label(arm: str) -> str:
    """An arm's name for people."""
    return LABELS.get(arm, arm)


def transport_parameters(run: ArmRun) -> dict[str, tuple[Any, bool]]:
    """Every parameter of the arm's transport as (value, whether the scenario set it); defaults come from the transport itself."""
    told = run.info.get("transport")
    given = dict(told) if isinstance(told, Mapping) else {}
    kind = DEFAULTS.get(run.arm)
    defaults = {field.name: field.default for field in fields(kind)} if kind else {}
    return {name: (given.get(name, value), name in given) for name, value in {**defaults, **given}.items()}


def bgp_parameters(run: ArmRun) -> dict[str, Any]:
    """The BGP options that the arm's fabric reports, wherever in its manifest they are; empty for an arm without BGP."""
    for table in _tables(run.info.get("fabric")):
        if "hold_s" in table:
            return dict(table)
    return {}


def _tables(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        yield value
        for entry in value.values():
            yield from _tables(entry)


def datapath(run: ArmRun) -> str:
    """Which datapath forwarded the packets, as the fabric's manifest says."""
    for table in _tables(run.info.get("fabric")):
        if isinstance(table.get("datapath"), str):
            return f"{SWITCHING.get(str(table.get('switching')), 'switches')}, {table['datapath']} datapath"
    return "datapath unknown"


def rc_timeout_s(run: ArmRun) -> float | None:
    """The RC agent's ACK timeout in seconds; None if the arm has no RC."""
    exponent = transport_parameters(run).get("timeout_exponent", (None, False))[0]
    return ACK_TIMEOUT_UNIT_S * 2**exponent if isinstance(exponent, int) else None


def first_runs(data: RunData) -> list[ArmRun]:
    """The first repeat of each arm."""
    return [runs[0] for runs in data.arms.values() if runs]


# --- the footer's lines --------------------------------------------------------------------------------------------------------------


def footer(data: RunData, summary: Mapping[str, Any]) -> list[str]:
    """The lines below every picture."""
    lines = [_what(data, summary), _machine(data), fidelity_line(summary), _settings(data), conservative_line(data)]
    return [line for line in lines if line]


def _what(data: RunData, summary: Mapping[str, Any]) -> str:
    arms = ", ".join(f"{arm} ({len(runs)} {'repeat' if len(runs) == 1 else 'repeats'})" for arm, runs in data.arms.items())
    return f"Scenario {summary.get('scenario')}, seed {summary.get('seed')}; arms: {arms or 'none'}"


def machine_text(data: RunData) -> str:
    """CPU, cores and kernel, as the manifest tells them."""
    machine = data.manifest.get("machine")
    told = machine if isinstance(machine, Mapping) else {}
    return f"{told.get('cpu', 'unknown CPU')}, {told.get('cores', '?')} cores, kernel {told.get('kernel', 'unknown')}"


def _machine(data: RunData) -> str:
    paths = "; ".join(f"{run.arm}: {datapath(run)}" for run in first_runs(data))
    return f"Machine: {machine_text(data)}. {paths}"


def fidelity_line(summary: Mapping[str, Any]) -> str:
    """The verdict on the emulation in one line, with the numbers behind it."""
    told = summary.get("fidelity", {})
    busy = _known(told, "cpu_busy_median", "cpu_busy_max")
    parts = [
        f"CPU busy {told['cpu_busy_median']:.0%} (worst median), {told['cpu_busy_max']:.0%} at most" if busy else "",
        f"achieved / asked link rate {told['achieved_rate_share']:.0%}" if _known(told, "achieved_rate_share") else "",
        f"timers late {told['lateness_p99_s'] * 1e3:.1f} ms (P99)" if _known(told, "lateness_p99_s") else "",
    ]
    return f"Fidelity of the emulation: {told.get('verdict', 'unknown')}; " + (", ".join(part for part in parts if part) or "no figures")


def _known(told: Mapping[str, Any], *names: str) -> bool:
    return all(isinstance(told.get(name), int | float) for name in names)


def _settings(data: RunData) -> str:
    return "; ".join(line for line in (bgp_line(data), rc_line(data)) if line)


def bgp_line(data: RunData) -> str:
    """The BGP timers as configured, or nothing without a BGP arm."""
    for run in first_runs(data):
        options = bgp_parameters(run)
        if options:
            shown = [f"{name} {options[name]}" for name in BGP_TIMERS if options.get(name) is not None]
            return "BGP: " + ", ".join(shown) + ("" if options.get("bfd") else ", no BFD")
    return ""


def rc_line(data: RunData) -> str:
    """The RC agent's timeout and retries as configured, or nothing without an RC arm."""
    for run in first_runs(data):
        timeout_s = rc_timeout_s(run)
        if timeout_s is not None:
            retries = transport_parameters(run).get("retries", ("?", False))[0]
            return f"RC: ACK timeout {timeout_s:.2f} s, {retries} retries"
    return ""


def median_rtt_s(runs: Sequence[ArmRun]) -> float | None:
    """Median base RTT in seconds over all agents and peers that know one."""
    known = [
        float(rtt)
        for run in runs
        for agent in run.agents.values()
        if isinstance(agent.get("base_rtt_s"), Mapping)
        for rtt in agent["base_rtt_s"].values()
        if isinstance(rtt, int | float) and rtt > 0
    ]
    return stdlib.median(known) if known else None


def conservative_line(data: RunData) -> str:
    """Why the comparison is conservative for MRC."""
    known = [(label(run.arm), rtt_s) for run in first_runs(data) if (rtt_s := median_rtt_s([run]))]
    ours = ", ".join(f"{name} {rtt_s * 1e3:.1f} ms" for name, rtt_s in known) or "milliseconds"
    return f"Base RTT here: {ours} (hardware: about 10 us), but BGP's timers run in real time: the comparison is conservative for MRC."
