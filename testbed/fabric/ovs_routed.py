"""Open vSwitch instances that route by destination: equal-cost tables that never change (`ovs-ecmp`), or that a controller changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.fabric.hosts import ROUTED_SYSCTLS
from testbed.fabric.ovs import OvsSwitch, Place
from testbed.fabric.switching import OvsSwitching
from testbed.pathvector import BgpOvsOptions, PathVector
from testbed.routing import sysctl
from topologies import Topology, ecmp


class OvsEcmpSwitching(OvsSwitching):
    """The tables that routing comes to when nothing is broken, from the boot file, for ever: the control without any reconvergence."""

    kind = "ovs-ecmp"
    source_routed = False

    def __init__(self, topology: Topology, run_dir: Path, options: Mapping[str, Any]) -> None:
        super().__init__(topology, run_dir, options)
        self._options: BgpOvsOptions = options.get("bgp_ovs") or BgpOvsOptions()
        self._seed = self._options.ecmp_seed
        settled = PathVector(topology, self._options, seed=0).settle()
        self._tables: Mapping[str, Sequence[ecmp.Rule]] = ecmp.tables(topology, settled, self._seed)
        seed = {f"net/{sysctl.SEED}": str(self._seed << 16)} if sysctl.has_seed() else {}
        self.host_sysctls = {**ROUTED_SYSCTLS, **seed}

    def _switch(self, name: str, pid: int, place: Place) -> OvsSwitch:
        return OvsSwitch(self._topology, name, pid, place, self._tables[name])

    def manifest(self) -> dict[str, Any]:
        """Datapath, version, and how flows are hashed."""
        hashing = {"fields": ecmp.HASH_FIELDS, "algorithm": ecmp.ALGORITHM, "seed": self._seed}
        bases = {switch: ecmp.basis(self._topology, switch, self._seed) for switch in self._topology.switches}
        return {**super().manifest(), "ecmp": {**hashing, "bases": bases}}
