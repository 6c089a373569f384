"""What a reader must know to judge a picture: the machine, what each side was allowed, how far the emulation can be trusted. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hosts.mrc.params import ACK_TIMEOUT_UNIT_S as MRC_ACK_TIMEOUT_UNIT_S
from hosts.mrc.params import MrcParams
from hosts.rc.params import ACK_TIMEOUT_UNIT_S as RC_ACK_TIMEOUT_UNIT_S
from hosts.rc.params import PRESETS, RcParams
from hosts.tcp.params import TcpParams
from testbed.report import effects, routing_words
from testbed.report.model import ArmRun
from testbed.report.reading import RunData
from testbed.report.routing_words import bgp_parameters, detection_s, detection_words, setting, tables
from testbed.scenario.derived_links import TRANSPORT_OF_ARM as RUN_ARMS
from testbed.units import counted

LABELS: Mapping[str, str] = {
    "mrc": "MRC", "mrc-no-trim": "MRC, switches without trimming", "rc-bgp": "RC over BGP", "rc-bgp-ovs": "RC over BGP (OVS)",
    "tcp-bgp": "TCP over BGP", "mrc-bgp": "MRC over BGP", "rc-static": "RC, static path",
}  # fmt: skip
LISTED: Mapping[str, str] = {"mrc-no-trim": "MRC without trimming", "rc-static": "RC on a static path"}
DEFAULTS: Mapping[str, type] = {"mrc": MrcParams, "rc": RcParams, "tcp": TcpParams}
TRANSPORT_OF_ARM: Mapping[str, str] = RUN_ARMS
FEW_ARMS = 3  # of more arms titles and footers tell only what fits
MRC_TIMERS = ("pto_min_s", "rto_min_s", "rto_retries", "probe_interval_s", "probe_successes")  # the second and third of old runs
TCP_SHOWN = ("connections", "congestion_control", "user_timeout_s")
SWITCHING: Mapping[str, str] = {
    "ovs": "Open vSwitch", "frr": "FRR routers", "ovs-bgp": "Open vSwitch with a controller", "ovs-ecmp": "Open vSwitch, static ECMP",
}  # fmt: skip


def label(arm: str) -> str:
    """An arm's name for people."""
    return LABELS.get(arm, arm)


def in_list(arm: str) -> str:
    """An arm's name for people, without a comma: for lists of several arms."""
    return LISTED.get(arm) or label(arm)


def transport_parameters(run: ArmRun) -> dict[str, Any]:
    """Every parameter of the arm's transport by name, as arm.json tells it; where that lost one, the transport's own default."""
    told = run.info.get("transport")
    kind = DEFAULTS.get(TRANSPORT_OF_ARM.get(run.arm, ""))
    defaults = vars(kind()) if kind else {}
    return {**defaults, **(told if isinstance(told, Mapping) else {})}


def set_by_scenario(scenario: Mapping[str, Any], arm: str) -> set[str]:
    """The names of the transport's parameters that the scenario set for this arm."""
    told = scenario.get("transport")
    given = told.get(TRANSPORT_OF_ARM.get(arm, "")) if isinstance(told, Mapping) else None
    return set(map(str, given)) if isinstance(given, Mapping) else set()


def datapath(run: ArmRun) -> str:
    """Which datapath forwarded the packets, as the fabric's manifest says."""
    for table in tables(run.info.get("fabric")):
        if isinstance(table.get("datapath"), str):
            return f"{SWITCHING.get(str(table.get('switching')), 'switches')}, {table['datapath']} datapath"
    return "datapath unknown"


def rc_timeout_s(run: ArmRun) -> float | None:
    """The RC agent's ACK timeout in seconds; None if the arm has no RC."""
    exponent = transport_parameters(run).get("timeout_exponent")
    return RC_ACK_TIMEOUT_UNIT_S * 2**exponent if isinstance(exponent, int) else None


def first_runs(data: RunData) -> list[ArmRun]:
    """The first repeat of each arm."""
    return [runs[0] for runs in data.arms.values() if runs]


# --- the footer's lines --------------------------------------------------------------------------------------------------------------


def footer(data: RunData, summary: Mapping[str, Any]) -> list[str]:
    """The lines below every picture."""
    lines = [_what(data, summary), _machine(data), fidelity_line(summary), captures_line(data), _settings(data), conservative_line(data)]
    return [line for line in lines if line]


def captures_line(data: RunData) -> str:
    """What was recorded while it ran, which costs CPU; empty when nothing was."""
    told = data.manifest.get("captures")
    targets = told.get("targets") if isinstance(told, Mapping) else None
    names = ", ".join(map(str, targets)) if isinstance(targets, list) else ""
    return f"Packets were recorded meanwhile, which costs CPU: {names}" if names else ""


def _what(data: RunData, summary: Mapping[str, Any]) -> str:
    arms = ", ".join(f"{arm} ({counted(len(runs), 'repeat')})" for arm, runs in data.arms.items())
    return f"Scenario {summary.get('scenario')}, seed {summary.get('seed')}; arms: {arms or 'none'}"


def machine_text(data: RunData) -> str:
    """CPU, cores and kernel, as the manifest tells them."""
    machine = data.manifest.get("machine")
    told = machine if isinstance(machine, Mapping) else {}
    return f"{told.get('cpu', 'unknown CPU')}, {told.get('cores', '?')} cores, kernel {told.get('kernel', 'unknown')}"


def _machine(data: RunData) -> str:
    paths = "; ".join(f"{run.arm}: {datapath(run)}" for run in first_runs(data))
    return f"Machine: {machine_text(data)}. {paths}{_links(data)}"


def _links(data: RunData) -> str:
    """The links' rate and MTU, the same in every arm."""
    told: Mapping[str, Any] = next((run.info["fabric"] for run in first_runs(data) if isinstance(run.info.get("fabric"), Mapping)), {})
    rate_bps, mtu_bytes = told.get("rate_bps"), told.get("mtu_bytes")
    return f"; links {rate_bps / 1e6:g} Mbps, MTU {mtu_bytes} B" if isinstance(rate_bps, int | float) and mtu_bytes else ""


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
    return "; ".join(line for line in (transports_line(data), bgp_line(data)) if line)


def transports_line(data: RunData) -> str:
    """What each transport of the run was allowed."""
    return "; ".join(line for line in (mrc_line(data), rc_line(data), tcp_line(data)) if line)


def mrc_line(data: RunData) -> str:
    """MRC's timers as configured, or nothing without an MRC arm. Its reaction to a loss has none: it follows the measured round trips."""
    for run in first_runs(data):
        told = transport_parameters(run)
        if TRANSPORT_OF_ARM.get(run.arm) == "mrc":
            shown = [setting(name, told[name]) for name in MRC_TIMERS if told.get(name) is not None]
            return f"MRC: {', '.join([*mrc_retries(told), *shown])}"
    return ""


def mrc_retries(told: Mapping[str, Any]) -> list[str]:
    """The ACK timeout and the retries; nothing of a run from before MRC's API named them."""
    exponent, linear, exponential = (told.get(name) for name in ("ack_timeout_exponent", "linear_retries", "exponential_retries"))
    if "rto_retries" in told or not isinstance(exponent, int | float) or not -64 <= exponent <= 64:
        return []
    return [f"ACK timeout {MRC_ACK_TIMEOUT_UNIT_S * 2.0**exponent:.2g} s, {linear} linear and {exponential} exponential retries"]


def bgp_line(data: RunData) -> str:
    """The BGP options as configured, or nothing without a BGP arm."""
    runs = first_runs(data)
    return routing_words.bgp_line(runs, {run.arm: in_list(run.arm) for run in runs})


def hold_sentence(data: RunData) -> str:
    """How many silent faults were over before BGP could find them: then it was their end that helped, not the routers."""
    found = (_hold_sentence(run) for run in first_runs(data))
    return " ".join(dict.fromkeys(sentence for sentence in found if sentence))


def _hold_sentence(run: ArmRun) -> str:
    options = bgp_parameters(run)
    needed_s = detection_s(options)
    silent = [fault for fault in run.faults if fault.kind == "silent" and fault.happened]
    lasted = [fault.end_s - fault.begin_s for fault in silent if fault.end_s is not None]
    short = sum(seconds < needed_s for seconds in lasted) if needed_s else 0
    if not short:
        return ""
    return (
        f"Of {counted(len(lasted), 'silent fault')} {short} ended before {detection_words(options)}: what ended such a stall "
        "was not the routers, but the fault's own end or the transport's giving up."
    )


def rc_line(data: RunData) -> str:
    """The RC agent's timeout and retries as configured, or nothing without an RC arm."""
    for run in first_runs(data):
        timeout_s = rc_timeout_s(run)
        if timeout_s is not None:
            told = transport_parameters(run)
            overridden = PRESETS.get(str(told.get("preset"))) != (told.get("timeout_exponent"), told.get("retries"))
            shown = ("preset", "qps", "split_data", "dcqcn")[overridden:]
            named = [setting(name, told[name]) for name in shown if told.get(name)]
            return "RC: " + ", ".join([*named, f"ACK timeout {timeout_s:.2f} s", f"{told.get('retries', '?')} retries"])
    return ""


def tcp_line(data: RunData) -> str:
    """What the job's TCP connections were allowed, or nothing without a TCP arm."""
    for run in first_runs(data):
        if TRANSPORT_OF_ARM.get(run.arm) == "tcp":
            told = transport_parameters(run)
            shown = [setting(name, told[name]) for name in TCP_SHOWN if told.get(name) not in (None, "", 0)]
            return f"TCP: {', '.join(shown)}" if shown else ""
    return ""


def conservative_line(data: RunData) -> str:
    """The round trips of each arm, named for what they are, and why the comparison is conservative for MRC."""
    runs = first_runs(data)
    told = [f"{in_list(run.arm)} {text}" for run in runs if (text := _rtt_text(run))]
    ours = ", ".join(told if len(runs) <= FEW_ARMS else _short_rtts(runs)) or "milliseconds"
    arms = {TRANSPORT_OF_ARM.get(run.arm): run for run in first_runs(data)}
    compared = "mrc" in arms and any(bgp_parameters(run) for run in first_runs(data))
    bias = " BGP's timers run in real time, so the comparison is conservative for MRC." if compared else ""
    return f"Round trips here (median of the pairs): {ours}; on hardware about 10 us.{bias}"


def _short_rtts(runs: Sequence[ArmRun]) -> list[str]:
    """The same for many arms: what is measured is said once, for all arms of which it is."""
    groups: dict[str, list[str]] = {}
    for run in runs:
        idle_s, smallest_s = (effects.median_rtt_s([run], which) for which in (effects.IDLE_RTT, effects.SMALLEST_RTT))
        if told_s := idle_s or smallest_s:
            groups.setdefault("of idle probes" if idle_s else _smallest_words(run), []).append(f"{in_list(run.arm)} {_ms(told_s)}")
    return [f"{words}: {', '.join(known)}" for words, known in groups.items()]


def _smallest_words(run: ArmRun) -> str:
    """What the smallest round trip is of, in an arm without idle probes."""
    is_tcp = TRANSPORT_OF_ARM.get(run.arm) == "tcp"
    return "smallest of handshakes and data" if is_tcp else "smallest of a data packet, with its wait in queues"


def _rtt_text(run: ArmRun) -> str:
    """Medians over the pairs: of idle probes before the job (small packets), and of the smallest that each ever saw.

    Without probes the smallest is that of a data packet, which waits in its sender's queue: that is no round trip of the fabric.
    """
    idle_s, smallest_s = (effects.median_rtt_s([run], which) for which in (effects.IDLE_RTT, effects.SMALLEST_RTT))
    parts = [f"{_ms(idle_s)} (idle probes)"] if idle_s else []
    words = "smallest" if idle_s else _smallest_words(run)
    parts += [f"{_ms(smallest_s)} ({words})"] if smallest_s else []
    return ", ".join(parts)


def _ms(seconds: float) -> str:
    """Milliseconds; of less than a tenth the hundredths count, as handshakes of TCP take."""
    return f"{seconds * 1e3:.{1 if seconds >= 1e-4 else 2}f} ms"
