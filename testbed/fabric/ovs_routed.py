"""Open vSwitch instances that route by destination: equal-cost tables that never change (`ovs-ecmp`), or a controller's (`ovs-bgp`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testbed.controller import keepalive, openflow
from testbed.controller.config import Config
from testbed.errors import HostError
from testbed.fabric.admin import LinkAdmin, Times
from testbed.fabric.controller import ControllerProcess
from testbed.fabric.hosts import ROUTED_SYSCTLS
from testbed.fabric.ovs import Controller, OvsSwitch, Place
from testbed.fabric.switching import InParallel, OvsSwitching
from testbed.pathvector import BgpOvsOptions, PathVector
from testbed.routing import sysctl
from topologies import Topology, ecmp, usid

SETTLE_TIMEOUT_S = 30.0
_POLL_S = 0.1
_MOST_TOLD = 4


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


class OvsBgpSwitching(OvsEcmpSwitching):
    """The same tables to begin with, but a controller writes them, and goes on as BGP in each switch would."""

    kind = "ovs-bgp"
    static = False

    def __init__(self, topology: Topology, run_dir: Path, options: Mapping[str, Any]) -> None:
        super().__init__(topology, run_dir, options)
        self._controller = ControllerProcess(run_dir / "controller", self._config(int(options.get("seed", 0))))
        self._boot_rules = (*ecmp.base_rules(), keepalive.RULE)
        self._lock = threading.Lock()  # of what follows, and of starting and killing the controller
        self._killed = 0
        self._since = time.monotonic()
        self._off: set[str] = set()

    def start(self, pid_of: Callable[[str], int], in_parallel: InParallel) -> None:
        """Starts the controller, boots all instances, and waits for the tables."""
        with self._lock:
            self._controller.launch(self._topology.switches)
            super().start(pid_of, in_parallel)
            self._controller.wait_ready()
        self._require_settled()
        self._since = time.monotonic()

    def verify(self) -> None:
        """Ports as asked, tables settled, the controller alive."""
        for switch in self._switches.values():
            switch.verify_ports()
        self._require_settled()
        self.require_alive()

    def require_alive(self) -> None:
        """HostError if a switch's daemon or the controller ended though nobody asked it to."""
        super().require_alive()
        with self._lock:
            self._controller.require_alive()

    def set_controller(self, up: bool) -> Times:
        """Kills the controller, or starts it with the last of several kills to end; effective when the tables are right again."""
        with self._lock:
            issued = time.monotonic()
            self._killed = max(0, self._killed + (-1 if up else 1))
            if up and not self._killed:
                self._controller.launch([name for name in self._topology.switches if name not in self._off])
                self._controller.wait_ready()
            elif not up and self._killed == 1:
                self._controller.require_alive()  # else a death of its own would pass for this one
                self._controller.kill()
            return issued, time.monotonic()

    def stop(self, node: str, orderly: bool, admin: LinkAdmin) -> Times:
        """As every Open vSwitch; the controller hears of it by the end of the connection."""
        with self._lock:
            self._off.add(node)
        return super().stop(node, orderly, admin)

    def boot(self, node: str, admin: LinkAdmin) -> Times:
        """With empty tables, which the controller fills as its neighbours' routes come in."""
        times = super().boot(node, admin)
        with self._lock:
            self._off.discard(node)
        return times

    def differences(self) -> dict[str, list[str]] | None:
        """None: routing changes tables by design."""
        return None

    def events(self) -> list[dict[str, Any]]:
        """What the controller wrote since the first tables were there."""
        return [event for event in self._controller.events() if event["t"] >= self._since]

    def manifest(self) -> dict[str, Any]:
        """Also BGP's parameters, and what speaks OpenFlow."""
        controller = {"openflow": self._controller.library, "cpu_s": round(self._controller.total_cpu_s(), 2)}
        return {**super().manifest(), "routing": asdict(self._options), "controller": controller}

    def close(self) -> None:
        """The controller first: it need not see its switches die."""
        self._controller.kill()
        super().close()

    def _switch(self, name: str, pid: int, place: Place) -> OvsSwitch:
        controller = Controller(self._controller.socket, self._topology.nodes[name].usid)
        return OvsSwitch(self._topology, name, pid, place, self._boot_rules, controller)

    def _config(self, seed: int) -> Config:
        kind, params = self._topology.kind, self._topology.params
        return Config(kind, params, asdict(self._options), seed, socket="", events="", switches=(), library=openflow.asked())

    def unsettled(self) -> list[str]:
        """Every flow that differs from the settled tables."""
        return [f"{name}: {line}" for name, switch in self._switches.items() for line in self._differences(name, switch)]

    def _differences(self, name: str, switch: OvsSwitch) -> list[str]:
        if not switch.running:
            return ["it is not running"]
        return usid.differences((*self._tables[name], keepalive.RULE), switch.ask(["dump-flows"]))

    def _require_settled(self) -> None:
        """HostError unless every switch has exactly the settled tables; the controller may still be at it."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while wrong := self.unsettled():
            if time.monotonic() > deadline:
                told = f"{'; '.join(wrong[:_MOST_TOLD])} ({len(wrong)} in all); see {self._controller.log}"
                raise HostError(f"tables are not as BGP settles, {SETTLE_TIMEOUT_S:g} s after the start: {told}")
            time.sleep(_POLL_S)
