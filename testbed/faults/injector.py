"""Carries out a drawn fault list at absolute times, and records planned, issued and effective times.

One thread a target: what happens to one link or switch happens in order, so a switch that is still booting is not killed again before
it is up. Faults of different targets do not wait for each other, nor do faults that may be on together (a lossy link may be cut).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from testbed.errors import HostError, TestbedError
from testbed.faults.actions import ACTIONS, NO_ACTION, Act, FaultyFabric, applies, nothing
from testbed.scenario.faults import Fault
from testbed.scenario.kinds import KINDS

Record = dict[str, Any]


def by_target(faults: Iterable[Fault]) -> dict[str, list[Fault]]:
    """The faults that must wait for each other, in order of time, by the name of what they have in common."""
    grouped: dict[str, list[Fault]] = {}
    for fault in sorted(faults, key=lambda fault: fault.at_s):
        name = fault.target if KINDS[fault.kind].takes_path else f"{fault.target} ({fault.kind})"
        grouped.setdefault(name, []).append(fault)
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
        """A fault that is about something that this fabric has not is history all the same, and says so."""
        real = applies(self._fabric, fault)
        action, more = (ACTIONS[fault.kind], {}) if real else (NO_ACTION, {"applies": False})
        self._perform("fault_begin", fault, fault.at_s, action.begin, **more)
        up = self._change_over_and_over(fault)
        self._stopped_before(fault.end_s)  # then it ends early
        self._perform("fault_end", fault, fault.end_s, nothing if up else action.end, **more)

    def _change_over_and_over(self, fault: Fault) -> bool:
        """Brings a fault that flaps to its last change; whether that healed it. Does nothing for others."""
        action, up = ACTIONS[fault.kind], False
        for at_s, up_then in action.changes(fault):
            if self._stopped_before(at_s):
                break
            up = up_then
            self._perform("flap", fault, at_s, action.end if up else action.begin, up=up)
        return up

    def _stopped_before(self, at_s: float) -> bool:
        """Waits for a moment of the run, or for the run's end, whichever is first."""
        return self._stop.wait(max(0.0, self._start + at_s - time.monotonic()))

    def _perform(self, event: str, fault: Fault, planned_s: float, act: Act, **more: Any) -> None:
        try:
            issued, effective = act(self._fabric, fault)
        except HostError as error:
            raise HostError(f"{fault.kind} on {fault.target} ({fault.id}) could not be carried out: {error}") from error
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
                **more,
            }
        )
