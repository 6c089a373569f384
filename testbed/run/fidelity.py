"""May this run be believed? An emulator that is out of CPU lies, so every arm ends with a verdict and its reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from testbed.percentile import percentile

# Thresholds are ours (nobody publishes any); they are stated in docs/results.md.
SUSPECT_CPU_BUSY = 0.90  # median over the arm
INVALID_CPU_BUSY = 0.99
SUSPECT_STEAL = 0.10  # mean over the arm
SUSPECT_RATE_SHARE = 0.97  # of the asked rate, both ways
INVALID_RATE_SHARE = 0.80
SUSPECT_LATENESS_S = 0.05  # 99th percentile of our own timer
INVALID_LATENESS_S = 0.5
NAMED_FLAPS = 3

VERDICTS = ("good", "suspect", "invalid")


@dataclass(frozen=True)
class Observations:
    """What was seen of the machine during one arm. Shares are fractions; `rate_shares` holds achieved / asked rate a probed interface."""

    cpu_busy: Sequence[float]
    steal: Sequence[float]
    lateness_s: Sequence[float]
    rate_shares: Sequence[float]
    qdisc_drops: int
    socket_drops: int
    netlink_overruns: int
    session_flaps: Sequence[str] = ()
    """Sessions of the routers that fell for no fault: see `flaps`."""


@dataclass(frozen=True)
class Fidelity:
    """The verdict, with what it rests on."""

    verdict: str
    reasons: tuple[str, ...]
    cpu_busy_median: float
    cpu_busy_max: float
    steal_max: float
    achieved_rate_share: float | None
    qdisc_drops: int
    lateness_p99_s: float

    def as_dict(self) -> dict[str, Any]:
        """For arm.json."""
        return asdict(self)


def judge(seen: Observations) -> Fidelity:
    """The worst of all rules decides."""
    busy, late = percentile(seen.cpu_busy, 0.5) or 0.0, percentile(seen.lateness_s, 0.99) or 0.0
    steal = sum(seen.steal) / len(seen.steal) if seen.steal else 0.0
    worst_rate = max((abs(1 - share) for share in seen.rate_shares), default=0.0)
    findings = [
        _above(busy, SUSPECT_CPU_BUSY, INVALID_CPU_BUSY, f"CPU {busy:.0%} busy (median)"),
        _above(late, SUSPECT_LATENESS_S, INVALID_LATENESS_S, f"timers {late * 1e3:.0f} ms late (99th percentile)"),
        _above(steal, SUSPECT_STEAL, 1.0, f"{steal:.0%} of the CPU stolen by the host machine"),
        _above(worst_rate, 1 - SUSPECT_RATE_SHARE, 1 - INVALID_RATE_SHARE, f"a link's rate is off by {worst_rate:.0%}"),
        _above(seen.qdisc_drops, 0, float("inf"), f"{seen.qdisc_drops} packets dropped inside qdiscs, not by a fault or virtual queue"),
        _above(seen.socket_drops, 0, float("inf"), f"{seen.socket_drops} packets dropped at agents' sockets"),
        _above(seen.netlink_overruns, 0, float("inf"), f"{seen.netlink_overruns} netlink overruns: some link or FIB events are missing"),
        _above(len(seen.session_flaps), 0, float("inf"), _flapped(seen.session_flaps)),
    ]
    return Fidelity(
        verdict=VERDICTS[max(level for level, _ in findings)],
        reasons=tuple(reason for level, reason in findings if level),
        cpu_busy_median=round(busy, 4),
        cpu_busy_max=round(max(seen.cpu_busy, default=0.0), 4),
        steal_max=round(max(seen.steal, default=0.0), 4),
        achieved_rate_share=round(min(seen.rate_shares), 4) if seen.rate_shares else None,
        qdisc_drops=seen.qdisc_drops,
        lateness_p99_s=round(late, 5),
    )


def _flapped(flaps: Sequence[str]) -> str:
    more = f" and {len(flaps) - NAMED_FLAPS} more" if len(flaps) > NAMED_FLAPS else ""
    return f"routing sessions fell though no fault explains it: {'; '.join(flaps[:NAMED_FLAPS])}{more}"


def _above(value: float, suspect: float, invalid: float, reason: str) -> tuple[int, str]:
    return (2 if value > invalid else 1 if value > suspect else 0), reason
