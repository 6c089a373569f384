"""May these figures be believed? The machine as in every run, and the probes themselves. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.run.fidelity import VERDICTS, Observations, judge

# Ours, as those of testbed.run.fidelity; docs/converge.md states them.
SUSPECT_RATE_SHARE = 0.97
LATE_GAPS = 1.0  # a 99th percentile later than one gap of a stream blurs every time


@dataclass(frozen=True)
class ProbeHealth:
    """The worst of all faults on one fabric: share of the asked rate, 99th percentile of lateness; how many probes were lost without a
    fault, and how many the sender's own kernel refused (no fault breaks a sender's own link, so this is the machine's doing)."""

    rate_share: float
    late_p99_s: float
    lost_before: int
    gap_s: float
    refused: int = 0

    @classmethod
    def of(cls, reports: Sequence[Mapping[str, Any]], lost_before: int, gap_s: float) -> ProbeHealth:
        """From what the probing processes said of themselves."""
        shares, late = [one["rate_share"] for one in reports], [one["late_p99_s"] for one in reports]
        refused = sum(one["refused"] for one in reports)
        return cls(min(shares, default=1.0), max(late, default=0.0), lost_before, gap_s, refused)

    def reasons(self) -> list[str]:
        """What makes the figures suspect."""
        told = [
            (self.rate_share < SUSPECT_RATE_SHARE, f"only {self.rate_share:.0%} of the probes were sent in time"),
            (self.late_p99_s > LATE_GAPS * self.gap_s, f"probes {self.late_p99_s * 1e3:.0f} ms late (99th percentile)"),
            (self.lost_before > 0, f"{self.lost_before} probes lost before a fault began"),
            (self.refused > 0, f"{self.refused} probes refused by the sender's kernel count as lost"),
        ]
        return [reason for wrong, reason in told if wrong]


def judged(
    cpu_rows: Sequence[Sequence[float]], qdisc_drops: int, overruns: int, health: ProbeHealth, flaps: Sequence[str] = ()
) -> dict[str, Any]:
    """The verdict on one fabric, as `arm.json` has it, with the probes' own reasons."""
    machine = judge(
        Observations(
            cpu_busy=[row[1] for row in cpu_rows],
            steal=[row[2] for row in cpu_rows],
            lateness_s=[row[4] for row in cpu_rows],
            rate_shares=[],
            qdisc_drops=qdisc_drops,
            socket_drops=0,
            netlink_overruns=overruns,
            session_flaps=flaps,
        )
    ).as_dict()
    reasons = health.reasons()
    verdict = max(machine["verdict"], VERDICTS[1] if reasons else VERDICTS[0], key=VERDICTS.index)
    probes = {
        "probe_rate_share": health.rate_share, "probe_late_p99_s": health.late_p99_s, "lost_before": health.lost_before,
        "probes_refused": health.refused,
    }  # fmt: skip
    return {**machine, "verdict": verdict, "reasons": [*machine["reasons"], *reasons], **probes}
