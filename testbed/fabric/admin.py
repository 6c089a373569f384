"""Interfaces set down for several reasons at once: each comes up again with its last reason, so overlapping faults heal exactly."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping

from testbed.errors import HostError
from testbed.fabric.bpf import LinkProgram, row_of
from testbed.fabric.links import ifindex
from testbed.fabric.netlink import Netlink
from topologies import Link, Topology

EFFECT_TIMEOUT_S = 5.0
_POLL_S = 0.0005
Times = tuple[float, float]
"""(issued, effective) in CLOCK_MONOTONIC seconds."""


class LinkAdmin:
    """Cuts and mends links, by carrier (end b down), by switch (its ends down) and silently (the link program drops). Thread-safe."""

    def __init__(self, topology: Topology, kernels: Mapping[str, Netlink], program: LinkProgram) -> None:
        self._topology, self._kernels, self._program = topology, kernels, program
        self._lock = threading.RLock()
        self._down: Counter[tuple[str, bool]] = Counter()  # (link, at end a) -> number of reasons to be down
        self._silent: Counter[str] = Counter()

    def cut(self, link: Link) -> Times:
        """One more reason for the fibre to be cut: end b goes down, end a loses its carrier."""
        return self._change([(link, False)], up=False)

    def mend(self, link: Link) -> Times:
        """One reason less; a mend without a cut changes nothing."""
        return self._change([(link, False)], up=True)

    def power_off(self, node: str) -> Times:
        """All interfaces of a switch go down: without power there is no carrier."""
        return self._change(self._own_ends(node), up=False)

    def power_on(self, node: str) -> Times:
        """All come up again but those with another reason to be down."""
        return self._change(self._own_ends(node), up=True)

    def silence(self, link: Link, on: bool) -> Times:
        """Both directions lose everything (or one reason less to). Effective with the memory write: the next packet is judged by it."""
        with self._lock:
            issued = time.monotonic()
            self._silent[link.name] = max(0, self._silent[link.name] + (1 if on else -1))
            rows = [row_of(link, True), row_of(link, False)]
            if on and self._silent[link.name] == 1:
                self._program.rows["first_drop_ns"][rows] = 0
            self._program.rows["drop_all"][rows] = self._silent[link.name]
            return issued, time.monotonic()

    def is_cut(self, link: Link) -> bool:
        """Whether one of its ends is down for any reason."""
        with self._lock:
            return any(self._down[link.name, at_a] for at_a in (True, False))

    def _own_ends(self, node: str) -> list[tuple[Link, bool]]:
        return [(link, link.a.node == node) for link in self._topology.links_of(node)]

    def _change(self, ends: list[tuple[Link, bool]], up: bool) -> Times:
        with self._lock:
            issued = time.monotonic()
            for link, at_a in ends:
                key = (link.name, at_a)
                before = self._down[key]
                self._down[key] = max(0, before + (-1 if up else 1))
                if (before == 0) != (self._down[key] == 0):
                    self._set(link, at_a, self._down[key] == 0)
        self._await_carriers([link for link, _at_a in ends])
        return issued, time.monotonic()

    def _await_carriers(self, links: list[Link]) -> None:
        """Until the kernel says at both ends of each link what is wanted now: another fault may change that meanwhile.

        HostError names the ends that do not come to it.
        """
        deadline = time.monotonic() + EFFECT_TIMEOUT_S
        ends = [(link, at_a) for link in links for at_a in (True, False)]
        while ends := [(link, at_a) for link, at_a in ends if self._has_carrier(link, at_a) is self.is_cut(link)]:
            if time.monotonic() > deadline:
                names = ", ".join((link.a if at_a else link.b).ifname for link, at_a in ends)
                raise HostError(f"carrier of {names}: not as set after {EFFECT_TIMEOUT_S:g} s; something else changes these interfaces")
            time.sleep(_POLL_S)

    def _has_carrier(self, link: Link, at_a: bool) -> bool:
        end = link.a if at_a else link.b
        return self._kernels[end.node].interface(ifindex(link, at_a)).has_carrier

    def _set(self, link: Link, at_a: bool, up: bool) -> None:
        end = link.a if at_a else link.b
        self._kernels[end.node].set_up(ifindex(link, at_a), up)
