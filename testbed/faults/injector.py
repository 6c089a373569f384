"""Carries out a drawn fault list at absolute times, and records planned, issued and effective times.

One thread a target: what happens to one link or switch happens in order, so a switch that is still booting is not killed again before
it is up. Faults of different targets do not wait for each other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from testbed.errors import TestbedError
from testbed.scenario.faults import Fault

Times = tuple[float, float]
Record = dict[str, Any]


class FaultyFabric(Protocol):
    """What a fabric must be able to do to its links and switches. Each returns (issued, effective) in CLOCK_MONOTONIC seconds."""

    def set_carrier(self, link: str, up: bool) -> Times:
        """Cuts or mends the fibre; both ends see it."""
        ...

    def set_silent(self, link: str, on: bool) -> Times:
        """Loses everything on the link, both ways, or stops doing so; nobody sees it."""
        ...

    def stop_switch(self, node: str, orderly: bool) -> Times:
        """Takes a switch out: with a goodbye to its neighbours, or as if power went."""
        ...

    def boot_switch(self, node: str) -> Times:
        """Boots it from its boot-time configuration; effective when it forwards again."""
        ...


Act = Callable[[FaultyFabric, str], Times]

# kind -> (begin, end): the whole vocabulary of faults.
ACTIONS: dict[str, tuple[Act, Act]] = {
    "carrier": (lambda fabric, link: fabric.set_carrier(link, False), lambda fabric, link: fabric.set_carrier(link, True)),
    "silent": (lambda fabric, link: fabric.set_silent(link, True), lambda fabric, link: fabric.set_silent(link, False)),
    "switch-kill": (lambda fabric, node: fabric.stop_switch(node, orderly=False), lambda fabric, node: fabric.boot_switch(node)),
    "switch-reboot": (lambda fabric, node: fabric.stop_switch(node, orderly=True), lambda fabric, node: fabric.boot_switch(node)),
}


def by_target(faults: Iterable[Fault]) -> dict[str, list[Fault]]:
    """The faults of each target, in order of time."""
    grouped: dict[str, list[Fault]] = {}
    for fault in sorted(faults, key=lambda fault: fault.at_s):
        grouped.setdefault(fault.target, []).append(fault)
    return grouped


class Injector:
    """Runs the faults of one arm and repeat. `record` takes one history event a call and must be thread-safe."""

    def __init__(self, fabric: FaultyFabric, faults: Iterable[Fault], start_mono: float, record: Callable[[Record], None]) -> None:
        self._fabric, self._start, self._record = fabric, start_mono, record
        self._stop = threading.Event()
        self._errors: list[Exception] = []
        self._threads = [
            threading.Thread(target=self._run, args=(of_target,), name=target, daemon=True)
            for target, of_target in by_target(faults).items()
        ]

    def start(self) -> None:
        """Starts the clocks of all targets; returns at once."""
        for thread in self._threads:
            thread.start()

    def finish(self, timeout_s: float = 60.0) -> None:
        """Ends every fault that is still on, now, and waits until all is healed. Raises what went wrong in any of them."""
        self._stop.set()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.1, deadline - time.monotonic()))
        stuck = [thread.name for thread in self._threads if thread.is_alive()]
        if stuck:
            raise TestbedError(f"not healed within {timeout_s:g} s: {', '.join(stuck)}; the fabric's state is unknown, discard this run")
        self.check()

    def check(self) -> None:
        """Raises the first error that any fault met so far."""
        if self._errors:
            raise self._errors[0]

    def _run(self, faults: Iterable[Fault]) -> None:
        try:
            for fault in faults:
                if self._stopped_before(fault.at_s):
                    return
                self._carry_out(fault)
        except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to: `check` does it in the main thread
            self._errors.append(error)

    def _carry_out(self, fault: Fault) -> None:
        begin, end = ACTIONS[fault.kind]
        self._perform("fault_begin", fault, fault.at_s, begin)
        self._stopped_before(fault.end_s)  # then it ends early
        self._perform("fault_end", fault, fault.end_s, end)

    def _stopped_before(self, at_s: float) -> bool:
        """Waits for a moment of the run, or for the run's end, whichever is first."""
        return self._stop.wait(max(0.0, self._start + at_s - time.monotonic()))

    def _perform(self, event: str, fault: Fault, planned_s: float, act: Act) -> None:
        issued, effective = act(self._fabric, fault.target)
        self._record(
            {
                "t": effective,
                "source": "faults",
                "event": event,
                "fault": fault.id,
                "kind": fault.kind,
                "target": fault.target,
                "tier": fault.tier,
                "planned_s": round(planned_s, 6),
                "issued_s": round(issued - self._start, 6),
                "effective_s": round(effective - self._start, 6),
            }
        )
