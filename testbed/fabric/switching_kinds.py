"""The kinds of switches by name, as arms ask for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from testbed.errors import UsageError
from testbed.fabric.ovs_routed import OvsBgpSwitching, OvsEcmpSwitching
from testbed.fabric.switching import OvsSwitching, RoutedSwitching, Switching
from topologies import Topology

KINDS: Mapping[str, Callable[[Topology, Path, Mapping[str, Any]], Switching]] = {
    "ovs": OvsSwitching,
    "ovs-ecmp": OvsEcmpSwitching,
    "ovs-bgp": OvsBgpSwitching,
    "frr": RoutedSwitching,
}


def make(kind: str, topology: Topology, run_dir: Path, options: Mapping[str, Any]) -> Switching:
    """The switches of a fabric, not started yet. UsageError for a kind that there is not."""
    if kind not in KINDS:
        raise UsageError(f"switching {kind!r}: choose one of {', '.join(KINDS)}")
    return KINDS[kind](topology, run_dir, options)
