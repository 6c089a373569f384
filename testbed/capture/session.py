"""The captures of one arm: a recorder in each target's namespace while the job runs, and afterwards the words beside each file."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from testbed.capture.explain import Tally, explained
from testbed.capture.plan import CapturePlan, Target, names_of
from testbed.capture.reading import Capture
from testbed.capture.recorder import READY, Order
from testbed.command import in_net
from testbed.errors import HostError
from testbed.files import write_lines
from testbed.reporting import Reporter
from testbed.units import format_size
from topologies import Topology

START_S, END_S, LAST_WORDS_S = 30.0, 30.0, 2.0


@dataclass
class Running:
    """One recorder; `told` is its last word."""

    target: Target
    file: Path
    process: subprocess.Popen[bytes]
    told: dict[str, Any] = field(default_factory=dict)

    def answer(self, timeout_s: float) -> str:
        """Its next line; HostError with what it said instead."""
        stream = self.process.stdout
        if stream is None:
            raise AssertionError("the recorder's stdout is a pipe")
        line = stream.readline() if select.select([stream], [], [], timeout_s)[0] else b""
        if not line:
            raise self.broken()
        return line.decode().strip()

    def broken(self) -> HostError:
        """What its end says."""
        try:
            status = self.process.wait(LAST_WORDS_S)
            ending = f"its process ended with status {status}" if status >= 0 else f"its process was killed by signal {-status}"
        except subprocess.TimeoutExpired:
            ending = "it did not answer in time"
            self.process.kill()
            self.process.wait()
        errors = self.process.stderr.read() if self.process.stderr is not None else b""
        last = (errors.decode(errors="replace").strip().splitlines() or [ending])[-1]
        return HostError(f"the capture {self.target.name} broke off: {last}")


class Captures:
    """Starts, watches and ends them. Nothing happens when nothing is asked for."""

    def __init__(self, plan: CapturePlan, topology: Topology, pid: Callable[[str], int], folder: Path) -> None:
        self._plan, self._topology, self._pid, self._folder = plan, topology, pid, folder
        self._running: list[Running] = []
        self._zero_ns = 0
        self._broken: HostError | None = None

    def start(self) -> None:
        """Returns when all of them listen. HostError names the one that does not."""
        targets = self._plan.targets(self._topology)
        if targets:
            self._folder.mkdir(parents=True, exist_ok=True)
        self._running = [self._started(target) for target in targets]
        for running in self._running:
            running.answer(START_S)

    def _started(self, target: Target) -> Running:
        """Not through `Fabric.popen`, for the programs of a slow host are stopped, and this is none of them."""
        file = self._folder / f"{target.name}.pcapng"
        order = Order(str(file), list(target.interfaces), self._plan.limit_bytes, self._plan.snaplen, dict(names_of(self._topology)))
        process = subprocess.Popen(
            in_net(self._pid(target.node), [sys.executable, "-m", "testbed.capture.recorder"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        running = Running(target, file, process)
        _tell(process, json.dumps(asdict(order)))
        return running

    def zero(self, start_s: float) -> None:
        """Time 0 of the run, CLOCK_MONOTONIC seconds: the files say what the wall clock was."""
        self._zero_ns = time.time_ns() - round((time.monotonic() - start_s) * 1e9)
        for running in self._running:
            _tell(running.process, f"zero {self._zero_ns}")

    def check(self) -> None:
        """HostError if one has ended by itself."""
        for running in self._running:
            if running.process.poll() is not None and not running.told:
                raise running.broken()

    def stop(self) -> None:
        """Ends them all, in whatever state they are; `explain` tells what went wrong with them."""
        for running in self._running:
            if running.process.stdin is not None:
                running.process.stdin.close()
        for running in self._running:
            try:
                self._end(running)
            except HostError as error:
                self._broken = self._broken or error

    def _end(self, running: Running) -> None:
        try:
            while (line := running.answer(END_S)) == READY:  # not read yet when the start of another one failed
                continue
            running.told = json.loads(line)
            running.process.wait(END_S)
        except (ValueError, subprocess.TimeoutExpired) as error:
            raise running.broken() from error

    def records(self) -> list[dict[str, Any]]:
        """What arm.json says of them; times are seconds of the run."""
        return [
            {
                "target": running.target.name,
                "file": f"captures/{running.file.name}",
                "interfaces": list(running.target.interfaces),
                "packets": running.told.get("packets", 0),
                "bytes": running.told.get("bytes", 0),
                "dropped": running.told.get("dropped", 0),
                "limit_reached_s": self._seconds(running.told.get("limit_ns")),
            }
            for running in self._running
        ]

    def _seconds(self, wall_ns: int | None) -> float | None:
        return None if wall_ns is None else round((wall_ns - self._zero_ns) / 1e9, 6)

    def explain(self, reporter: Reporter) -> HostError | None:
        """Writes the .txt beside each file, and tells what is in it. Returns what went wrong, if a capture broke off."""
        for running, told in zip(self._running, self.records(), strict=True):
            if running.told:
                tally = self._explain(running.file)
                reporter.note(f"capture {running.target.name}: {'; '.join(tally.sentences())}")
                for text in self._warnings(told):
                    reporter.warn(f"capture {running.target.name}: {text}")
        return self._broken

    def _explain(self, file: Path) -> Tally:
        tally = Tally()
        with file.open("rb") as stream:
            write_lines(file.with_suffix(".txt"), (f"{line}\n" for line in explained(Capture(stream, file.name), tally)))
        return tally

    def _warnings(self, told: dict[str, Any]) -> list[str]:
        limit = f"its limit of {format_size(self._plan.limit_bytes)} was reached at {told['limit_reached_s']} s: nothing later is in it"
        found = [
            (not told["packets"], "it is empty: no packet passed while the job ran"),
            (told["limit_reached_s"] is not None, limit),
            (told["dropped"] > 0, f"the kernel dropped {told['dropped']} packets that it should hold"),
        ]
        return [text for is_so, text in found if is_so]


def _tell(process: subprocess.Popen[bytes], line: str) -> None:
    """A recorder that has ended does not listen; `check` and `stop` tell why."""
    if process.stdin is None:
        raise AssertionError("the recorder's stdin is a pipe")
    try:
        process.stdin.write(line.encode() + b"\n")
    except BrokenPipeError:
        return
