"""Interfaces set down for several reasons at once: each comes up again with its last reason, so overlapping faults heal exactly."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping

from testbed.errors import HostError
from testbed.fabric.links import ifindex
from testbed.fabric.losses import Losses, both
from testbed.fabric.netlink import Netlink
from testbed.fabric.reasons import count
from topologies import Link, Topology

EFFECT_TIMEOUT_S = 5.0
_POLL_S = 0.0005
Times = tuple[float, float]
"""(issued, effective) in CLOCK_MONOTONIC seconds."""


class LinkAdmin:
    """Cuts and mends links: at end b (a fibre), at end a (a NIC), at all ends of a switch, or as one end sees it. Thread-safe."""

    def __init__(self, topology: Topology, kernels: Mapping[str, Netlink], losses: Losses) -> None:
        self._topology, self._kernels, self._losses = topology, kernels, losses
        self._lock = threading.RLock()
        self._down: Counter[tuple[str, bool]] = Counter()  # (link, at end a) -> number of reasons to be down
        self._dormant: Counter[tuple[str, bool]] = Counter()

    def cut(self, *links: Link) -> Times:
        """One more reason for each fibre to be cut: end b goes down, end a loses its carrier."""
        return self._change([(link, False) for link in links], up=False)

    def mend(self, *links: Link) -> Times:
        """One reason less; a mend without a cut changes nothing."""
        return self._change([(link, False) for link in links], up=True)

    def unplug(self, link: Link) -> Times:
        """End a goes down (of a host's link: the NIC port), end b loses its carrier."""
        return self._change([(link, True)], up=False)

    def plug(self, link: Link) -> Times:
        """One reason less for end a to be down."""
        return self._change([(link, True)], up=True)

    def power_off(self, node: str) -> Times:
        """All interfaces of a switch go down: without power there is no carrier."""
        return self._change(self.own_ends(node), up=False)

    def power_on(self, node: str) -> Times:
        """All come up again but those with another reason to be down."""
        return self._change(self.own_ends(node), up=True)

    def cut_as_seen_by(self, link: Link, at_a: bool) -> Times:
        """That end is told that the link is down, the other end is not; packets of both directions are lost, the goodbye among them."""
        issued, _ = self._losses.drop("drop_all", both(link), True)
        self._set_dormant(link, at_a, True)
        return issued, time.monotonic()

    def mend_as_seen_by(self, link: Link, at_a: bool) -> Times:
        """One reason less for that end to believe so; packets pass again before it knows."""
        issued, _ = self._losses.drop("drop_all", both(link), False)
        self._set_dormant(link, at_a, False)
        return issued, time.monotonic()

    def is_down(self, link: Link, at_a: bool) -> bool:
        """Whether that end is set down for any reason."""
        with self._lock:
            return self._down[link.name, at_a] > 0

    def is_cut(self, link: Link) -> bool:
        """Whether one of its ends is down for any reason."""
        with self._lock:
            return any(self._down[link.name, at_a] for at_a in (True, False))

    def own_ends(self, node: str) -> list[tuple[Link, bool]]:
        """(link, whether it is end a) for each port of a node."""
        return [(link, link.a.node == node) for link in self._topology.links_of(node)]

    def _change(self, ends: list[tuple[Link, bool]], up: bool) -> Times:
        with self._lock:
            issued = time.monotonic()
            for link, at_a in ends:
                if count(self._down, (link.name, at_a), more=not up):
                    self._set(link, at_a, up)
        self._await_carriers([link for link, _at_a in ends])
        return issued, time.monotonic()

    def _set_dormant(self, link: Link, at_a: bool, dormant: bool) -> None:
        """Counts, and tells the kernel of the first and of the last; HostError if it does not do it."""
        kernel = self._kernels[(link.a if at_a else link.b).node]
        with self._lock:
            if not count(self._dormant, (link.name, at_a), more=dormant):
                return
            kernel.set_dormant(ifindex(link, at_a), dormant)
            found = kernel.interface(ifindex(link, at_a))
            if found.has_carrier and found.is_running is dormant:
                raise HostError(
                    f"{found.name}: the kernel does not let its operational state be set; this kernel cannot do `remote` faults"
                )

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
