"""One thread that reads link counters and the CPU twice a second, on absolute deadlines, and writes links.csv and cpu.csv."""

from __future__ import annotations

import csv
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.collect.cpu import CpuTimes, read_cpu_times, read_run_queue, shares
from testbed.files import named
from topologies import Topology

PERIOD_S = 0.5
LINK_COUNTERS = (
    "tx_packets",
    "tx_bytes",
    "dropped_packets",
    "lost_packets",
    "ev_dropped_packets",
    "queue_dropped_packets",
    "marked_packets",
    "trimmed_packets",
    "trimmed_bytes",
)
"""Fields of a row of the link program's map, as `testbed.fabric.bpf.OUTCOMES` explains them. Drops inside a qdisc are in none of them."""
LINK_COLUMNS = ("t_s", "link", "from_node", *LINK_COUNTERS)
CPU_COLUMNS = ("t_s", "busy", "steal", "run_queue", "lateness_s")


class Sampler:
    """Samples until stopped. `counters` is the live view of the BPF map: one row a link direction."""

    def __init__(self, topology: Topology, counters: Callable[[], Any], folder: Path, start_mono: float) -> None:
        self._topology, self._counters, self._folder, self._start = topology, counters, folder, start_mono
        self._link_file = (folder / "links.csv").open("w", newline="")
        self._cpu_file = (folder / "cpu.csv").open("w", newline="")
        self._links, self._cpu = csv.writer(self._link_file), csv.writer(self._cpu_file)
        self._links.writerow(LINK_COLUMNS)
        self._cpu.writerow(CPU_COLUMNS)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._error: Exception | None = None
        self.cpu_rows: list[tuple[float, float, float, int, float]] = []

    def start(self) -> None:
        """Starts sampling."""
        self._thread.start()

    def check(self) -> None:
        """Raises what kept the sampler from going on, if anything did."""
        if self._error is not None:
            raise named(self._error, self._folder) if isinstance(self._error, OSError) else self._error

    def stop(self) -> None:
        """Takes a last sample and closes the files; OSError if they are not complete."""
        self._stop.set()
        self._thread.join()
        with self._link_file, self._cpu_file:
            self.check()

    def _run(self) -> None:
        try:
            self._sample_until_stopped()
        except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to: `check` does it in the main thread
            self._error = error

    def _sample_until_stopped(self) -> None:
        before, due = read_cpu_times(), time.monotonic() + PERIOD_S
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            before = self._sample(before, due)
            due = max(due + PERIOD_S, time.monotonic())
        self._sample(before, time.monotonic())

    def _sample(self, before: CpuTimes, due: float) -> CpuTimes:
        now, after = time.monotonic(), read_cpu_times()
        busy, steal = shares(before, after)
        row = (round(now - self._start, 4), round(busy, 4), round(steal, 4), read_run_queue(), round(now - due, 5))
        self.cpu_rows.append(row)
        self._cpu.writerow(row)
        self._write_links(row[0])
        return after

    def _write_links(self, t_s: float) -> None:
        counters = self._counters()
        for link in self._topology.links.values():
            for side, end in enumerate((link.a, link.b)):
                row = counters[2 * link.index + side]
                self._links.writerow((t_s, link.name, end.node, *(int(row[name]) for name in LINK_COUNTERS)))
