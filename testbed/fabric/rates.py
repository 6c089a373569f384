"""Links that run at less than their rate for a while: HTB's classes and the virtual queue change together, and come back exactly."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from testbed.errors import HostError
from testbed.fabric import link_parameters
from testbed.fabric.bpf import LinkProgram, row_of
from testbed.fabric.links import CONTROL_CLASS, DATA_CLASS, LINK_CLASS, ifindex, verify_port
from testbed.fabric.netlink import Netlink, TrafficObject
from testbed.link_settings import LinkSettings
from testbed.netlink_wire import attribute, attributes
from topologies import Link

_OPTIONS, _HTB_PARAMETERS = 2, 1  # TCA_OPTIONS, TCA_HTB_PARMS
_TICK_NS = 64  # of HTB's buffers: PSCHED_SHIFT in net/pkt_sched.h
# struct tc_htb_opt: rate and ceiling (8 bytes about cells and link layer, then bytes a second), buffer, cbuffer, quantum, level, priority
_HTB = struct.Struct("=8sI8sIIIIII")
Port = tuple[str, bool]
Times = tuple[float, float]


@dataclass(frozen=True)
class _Former:
    classes: tuple[tuple[TrafficObject, bytes], ...]
    parameters: link_parameters.LinkParameters


class LinkRates:
    """Slows link directions down. Each has any number of reasons to be slow; the slowest counts. Thread-safe."""

    def __init__(self, kernels: Mapping[str, Netlink], program: LinkProgram, settings: LinkSettings) -> None:
        self._kernels, self._program, self._settings = kernels, program, settings
        self._lock = threading.RLock()
        self._reasons: dict[Port, dict[str, int]] = {}
        self._former: dict[Port, _Former] = {}

    def slow(self, link: Link, reason: str, rate_bps: int, ends: Iterable[bool] = (True, False)) -> Times:
        """Limits what the ends send (True: end a). UsageError for an impossible rate; HostError if the kernel has another one after.

        (issued, effective) in CLOCK_MONOTONIC seconds.
        """
        replace(self._settings, rate_bps=rate_bps)  # refuses what a link cannot be
        with self._lock:
            issued = time.monotonic()
            for at_a in ends:
                self._reasons.setdefault((link.name, at_a), {})[reason] = rate_bps
                self._apply(link, at_a)
            return issued, time.monotonic()

    def restore(self, link: Link, reason: str) -> Times:
        """Takes a reason away from both ends; without any left, classes and virtual queue are what they were."""
        with self._lock:
            issued = time.monotonic()
            for at_a in (True, False):
                if self._reasons.get((link.name, at_a), {}).pop(reason, None) is not None:
                    self._apply(link, at_a)
            return issued, time.monotonic()

    def verify(self, link: Link, at_a: bool) -> None:
        """Compares a port with what it should be now (links.verify_port), while no rate changes; HostError names the differences."""
        with self._lock:
            verify_port(self._kernels[_node(link, at_a)], link, at_a, self.settings_of(link, at_a), self._program.program_id)

    def settings_of(self, link: Link, at_a: bool) -> LinkSettings:
        """What a port should have now: for `verify_port`."""
        reasons = self._reasons.get((link.name, at_a))
        return replace(self._settings, rate_bps=min(reasons.values())) if reasons else self._settings

    def _apply(self, link: Link, at_a: bool) -> None:
        port = (link.name, at_a)
        former = self._former.setdefault(port, self._read(link, at_a))
        if self._reasons[port]:
            self._change(link, at_a, former, self.settings_of(link, at_a))
        else:
            self._write(link, at_a, former.classes, former.parameters.rate_bps)
            del self._former[port]

    def _read(self, link: Link, at_a: bool) -> _Former:
        found = self._kernels[_node(link, at_a)].classes(ifindex(link, at_a))
        classes = {class_.handle: class_ for class_ in found}
        wanted = (LINK_CLASS, CONTROL_CLASS, DATA_CLASS)
        if missing := [f"1:{handle & 0xFFFF:x}" for handle in wanted if handle not in classes]:
            raise HostError(f"{_port(link, at_a)}: its classes {', '.join(missing)} are gone; something else changes this interface")
        ordered = [classes[handle] for handle in wanted]
        parameters = link_parameters.read(self._program.rows[row_of(link, at_a)])
        return _Former(tuple((class_, _parameters(class_)) for class_ in ordered), parameters)

    def _change(self, link: Link, at_a: bool, former: _Former, settings: LinkSettings) -> None:
        classes = tuple((class_, slowed(options, settings)) for class_, options in former.classes)
        self._write(link, at_a, classes, settings.rate_bps if former.parameters.rate_bps else 0)

    def _write(self, link: Link, at_a: bool, classes: tuple[tuple[TrafficObject, bytes], ...], virtual_bps: int) -> None:
        kernel, index = self._kernels[_node(link, at_a)], ifindex(link, at_a)
        for class_, options in classes:
            kernel.change_class(index, class_, attribute(_HTB_PARAMETERS, options))
        set_virtual_rate(self._program, row_of(link, at_a), virtual_bps)
        if tuple(options for _class, options in self._read(link, at_a).classes) != tuple(options for _class, options in classes):
            raise HostError(f"{_port(link, at_a)}: its rate is not as set; something else changes its classes")


def set_virtual_rate(program: LinkProgram, number: int, rate_bps: int) -> None:
    """Changes the virtual queue's rate; what is queued stays queued, so it now takes longer or shorter."""
    row = program.rows[number]
    before, now_ns = 8 * int(row["rate_bytes_per_s"]), time.monotonic_ns()
    waiting_ns = max(0, int(row["free_at_ns"]) - now_ns)
    link_parameters.change(row, rate_bps=rate_bps)
    if before and rate_bps and before != rate_bps:
        row["free_at_ns"] = now_ns + waiting_ns * before // rate_bps


def slowed(options: bytes, settings: LinkSettings) -> bytes:
    """`struct tc_htb_opt` of a class for the rate of `settings`: a class that was guaranteed its ceiling is guaranteed the new one."""
    rate_head, rate, ceil_head, ceiling, buffer, _cbuffer, quantum, level, priority = _HTB.unpack(options)
    new, burst = settings.rate_bytes_per_s, settings.burst_bytes
    if rate == ceiling:
        rate, buffer = new, _ticks(burst, new)
    return _HTB.pack(rate_head, rate, ceil_head, new, buffer, _ticks(burst, new), quantum, level, priority)


def _ticks(size_bytes: int, rate_bytes_per_s: int) -> int:
    return round(size_bytes * 1e9 / rate_bytes_per_s) // _TICK_NS


def _parameters(class_: TrafficObject) -> bytes:
    return attributes(class_.attributes[_OPTIONS])[_HTB_PARAMETERS]


def _node(link: Link, at_a: bool) -> str:
    return (link.a if at_a else link.b).node


def _port(link: Link, at_a: bool) -> str:
    return f"link {link.name}, port of {_node(link, at_a)}"
