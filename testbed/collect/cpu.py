"""What the machine was doing: CPU busy, steal, run queue, and how late our own timer woke up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CpuTimes:
    """Cumulative clock ticks of all cores, from the first line of /proc/stat (proc(5))."""

    idle: int
    steal: int
    total: int


def parse_cpu_times(text: str) -> CpuTimes:
    """Reads the `cpu` line of /proc/stat; guest time is already part of user time."""
    user, nice, system, idle, iowait, irq, softirq, steal = (int(field) for field in text.split("\n", 1)[0].split()[1:9])
    return CpuTimes(idle + iowait, steal, user + nice + system + idle + iowait + irq + softirq + steal)


def shares(before: CpuTimes, after: CpuTimes) -> tuple[float, float]:
    """(busy, steal) between two readings, each a fraction of all cores; busy contains steal, as both are lost to the idle loop."""
    total = after.total - before.total
    if total <= 0:
        return 0.0, 0.0
    return 1.0 - (after.idle - before.idle) / total, (after.steal - before.steal) / total


def read_cpu_times() -> CpuTimes:
    """The reading of this moment."""
    return parse_cpu_times(Path("/proc/stat").read_text())


def read_run_queue() -> int:
    """Runnable tasks at this moment, from /proc/loadavg."""
    return int(Path("/proc/loadavg").read_text().split()[3].split("/")[0])
