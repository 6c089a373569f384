"""Faults by hand: the prompt is one reason for each, so that what is said twice is one fault, and what is not on cannot be taken away."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.fabric.fabric import Fabric

REASON = "prompt"


class PromptFaults:
    """What the prompt has on. Links by name; a fault of one end names its node."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._on: set[str] = set()

    def set_link(self, link: str, up: bool) -> None:
        """Cuts or mends a fibre."""
        self._toggle(f"carrier {link}", not up, lambda: self._fabric.set_carrier(link, up))

    def set_power(self, switch: str, on: bool) -> None:
        """Pulls a switch's plug, or boots it."""
        stop, boot = lambda: self._fabric.stop_switch(switch, orderly=False), lambda: self._fabric.boot_switch(switch)
        self._toggle(f"power {switch}", not on, boot if on else stop)

    def set_silent(self, link: str, on: bool) -> None:
        """Loses all packets of a link while its carrier stays."""
        self._toggle(f"silent {link}", on, lambda: self._fabric.set_silent(link, on))

    def set_one_way(self, link: str, sender: str, on: bool) -> None:
        """Loses what one end sends."""
        self._toggle(f"one-way {link} {sender}", on, lambda: self._fabric.set_one_way(link, sender, on))

    def set_remote(self, link: str, seen_by: str, on: bool) -> None:
        """Cuts a link so that only one end knows."""
        self._toggle(f"remote {link} {seen_by}", on, lambda: self._fabric.set_remote(link, seen_by, on))

    def set_port(self, port: str, up: bool) -> None:
        """Sets a NIC port down or up."""
        self._toggle(f"port {port}", not up, lambda: self._fabric.set_port(port, up))

    def set_hang(self, switch: str, on: bool) -> None:
        """Makes a switch forward nothing while its sessions stay up."""
        self._toggle(f"hang {switch}", on, lambda: self._fabric.set_hang(switch, on))

    def set_controller(self, up: bool) -> None:
        """Kills the controller of all switches, or starts it again."""
        self._toggle("controller", not up, lambda: self._fabric.set_controller(up))

    def set_loss(self, link: str, share: float) -> None:
        """Loses a share of what both ends send; 0 ends it, and of several the newest counts."""
        self._toggle(f"loss {link}", False, lambda: self._fabric.stop_losing(link, REASON))
        self._toggle(f"loss {link}", share > 0, lambda: self._fabric.lose(link, REASON, share))

    def set_rate(self, link: str, rate_bps: float) -> None:
        """Another rate for both directions; 0 brings the link's own back, and of several the newest counts."""
        self._toggle(f"rate {link}", False, lambda: self._fabric.restore_rate(link, REASON))
        self._toggle(f"rate {link}", rate_bps > 0, lambda: self._fabric.slow_link(link, REASON, rate_bps))

    def _toggle(self, what: str, on: bool, act: Callable[[], object]) -> None:
        """Acts if that changes what is on."""
        if on == (what in self._on):
            return
        act()
        (self._on.add if on else self._on.discard)(what)
