"""The two kinds of switch behind one interface: Open vSwitch with static tables, and FRR with kernel forwarding."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from testbed.command import run
from testbed.errors import HostError
from testbed.fabric.admin import LinkAdmin, Times
from testbed.fabric.hosts import ROUTED_SYSCTLS, SWITCH_SYSCTLS, SYSCTLS
from testbed.fabric.ovs import OvsSwitch, Place, detect_datapath, make_template
from topologies import Link, Topology, usid

if TYPE_CHECKING:
    from testbed.routing.frr import Routers
    from testbed.routing.options import BgpOptions

CONVERGE_TIMEOUT_S = 60.0
MRAI_HOPS = 4  # T0, T1, T2, T1, T0: each may hold a route back for an MRAI
InParallel = Callable[[Callable[[str], None], Iterable[str]], None]


def patience_s(options: BgpOptions) -> float:
    """How long a fabric may take until its first FIBs are right: on top of the work two connect retries and the MRAIs of a route's way."""
    return CONVERGE_TIMEOUT_S + 2 * options.connect_retry_s + MRAI_HOPS * options.advertisement_interval_s


def nothing_done() -> Times:
    """The times of what was carried out as nothing."""
    now = time.monotonic()
    return now, now


class Switching(Protocol):
    """What a fabric wants of its switches."""

    question: str
    """An example for `ask`."""
    static: bool
    """Whether tables never change."""
    source_routed: bool
    """Whether hosts write the whole path into a packet (uSID), or the switches route by its destination."""
    sysctls: Mapping[str, str]
    host_sysctls: Mapping[str, str]

    def start(self, pid_of: Callable[[str], int], in_parallel: InParallel) -> None:
        """Starts all switches; their interfaces are up."""

    def verify(self) -> None:
        """HostError unless all is as asked."""

    def stop(self, node: str, orderly: bool, admin: LinkAdmin) -> Times:
        """Takes a switch out, with its interfaces."""
        ...

    def boot(self, node: str, admin: LinkAdmin) -> Times:
        """Boots a stopped switch."""
        ...

    def require_alive(self) -> None:
        """HostError if a daemon of a switch, or one that all switches need, ended though nobody asked it to."""

    def set_controller(self, up: bool) -> Times:
        """Kills the central controller, or starts it again; nothing where there is none."""
        ...

    def link_restored(self, link: Link) -> None:
        """After a link came back: what the kernel forgot when an end was set down."""

    def ask(self, node: str, command: str) -> str:
        """What the daemons of a switch say to a command."""
        ...

    def differences(self) -> dict[str, list[str]] | None:
        """Changed tables by switch; None where they change by design."""
        ...

    def unsettled(self) -> list[str]:
        """Where tables are not (yet) those that the whole topology demands, one line each; all faults must be healed."""
        ...

    def events(self) -> list[dict[str, Any]]:
        """What routing said and did since the start, as history events (docs/architecture.md, source `routing`); `t` is CLOCK_MONOTONIC."""
        ...

    def manifest(self) -> dict[str, Any]:
        """Datapath, versions, options."""
        ...

    def close(self) -> None:
        """Ends all daemons; never raises for what is gone already."""


class OvsSwitching:
    """One Open vSwitch instance a switch, with static uSID tables; `kind` is the name of the switching."""

    kind = "ovs"
    question = "dump-flows"
    static = True
    source_routed = True
    sysctls = SWITCH_SYSCTLS
    host_sysctls: Mapping[str, str] = SYSCTLS

    def __init__(self, topology: Topology, run_dir: Path, options: Mapping[str, Any]) -> None:
        self._topology, self._run_dir = topology, run_dir
        self._asked, self._datapath = str(options.get("datapath", "auto")), ""
        self._switches: dict[str, OvsSwitch] = {}

    def start(self, pid_of: Callable[[str], int], in_parallel: InParallel) -> None:
        """Boots all instances."""
        self._datapath = detect_datapath(self._asked, pid_of(self._topology.switches[0]))
        place = Place(self._run_dir, make_template(self._run_dir), self._datapath)
        for name in self._topology.switches:
            self._switches[name] = self._switch(name, pid_of(name), place)
        in_parallel(lambda name: self._switches[name].boot(), self._topology.switches)

    def _switch(self, name: str, pid: int, place: Place) -> OvsSwitch:
        """One switch, not booted yet."""
        return OvsSwitch(self._topology, name, pid, place, usid.rules(self._topology, name))

    def verify(self) -> None:
        """Compares every switch's tables and ports with its boot file."""
        for switch in self._switches.values():
            switch.verify()

    def stop(self, node: str, orderly: bool, admin: LinkAdmin) -> Times:
        """Without power there is no carrier: the interfaces go down first, as they would while the daemons still do their last things."""
        self._switches[node].require_alive()
        if orderly:
            self._switches[node].stop(orderly=True)
            return admin.power_off(node)
        times = admin.power_off(node)
        self._switches[node].stop(orderly=False)
        return times

    def boot(self, node: str, admin: LinkAdmin) -> Times:
        """Forwarding is verified before the neighbours see a carrier."""
        self._switches[node].boot()
        return admin.power_on(node)

    def require_alive(self) -> None:
        """HostError if a daemon of a switch ended by itself."""
        for switch in self._switches.values():
            switch.require_alive()

    def set_controller(self, up: bool) -> Times:
        """Nothing: there is no controller."""
        return nothing_done()

    def link_restored(self, link: Link) -> None:
        """Nothing: Open vSwitch's ports are still there."""

    def ask(self, node: str, command: str) -> str:
        """A command of ovs-ofctl, without the switch's name."""
        return self._switches[node].ask(command.split())

    def differences(self) -> dict[str, list[str]] | None:
        """Tables against boot files."""
        found = {name: switch.differences() for name, switch in self._switches.items()}
        return {name: lines for name, lines in found.items() if lines}

    def unsettled(self) -> list[str]:
        """Tables against boot files: they are always settled."""
        return [f"{name}: {line}" for name, lines in (self.differences() or {}).items() for line in lines]

    def events(self) -> list[dict[str, Any]]:
        """None: nothing routes."""
        return []

    def manifest(self) -> dict[str, Any]:
        """Datapath and version."""
        version = run(["ovs-vswitchd", "--version"], "asking Open vSwitch for its version").splitlines()[0].split()[-1]
        datapath = {"datapath": self._datapath, "datapath_asked": self._asked}
        return {"switching": self.kind, **datapath, "ovs_version": version, "fail_mode": "secure"}

    def close(self) -> None:
        """SIGKILL to all, then waits for all: nothing of theirs is kept."""
        for switch in self._switches.values():
            switch.signal(signal.SIGKILL)
        for switch in self._switches.values():
            switch.stop(orderly=False)
        self._switches.clear()


class RoutedSwitching:
    """FRR in every switch's namespace, the kernel forwards."""

    question = "show bgp summary"
    static = False
    source_routed = False
    sysctls: Mapping[str, str] = {}
    host_sysctls: Mapping[str, str]

    def __init__(self, topology: Topology, run_dir: Path, options: Mapping[str, Any]) -> None:
        from testbed.routing import sysctl
        from testbed.routing.options import BgpOptions

        self._topology, self._run_dir = topology, run_dir
        self._options: BgpOptions = options.get("bgp") or BgpOptions()
        seed = {f"net/{sysctl.SEED}": str(self._options.ecmp_seed << 16)} if sysctl.has_seed() else {}
        fields = {} if self._options.hash_policy == "l4" else {f"net/{sysctl.FIELDS}": str(sysctl.ADDRESS_FIELDS)}
        self.host_sysctls = {**ROUTED_SYSCTLS, **fields, **seed}
        self._timeout_s = float(options.get("converge_timeout_s", patience_s(self._options)))
        self._routers: Routers | None = None

    @property
    def routers(self) -> Routers:
        """The routers; only after `start`."""
        if self._routers is None:
            raise HostError("the routers were not started: deploy the fabric first")
        return self._routers

    def start(self, pid_of: Callable[[str], int], in_parallel: InParallel) -> None:
        """Starts all routers and waits until every host prefix is in every FIB with all its next hops."""
        from testbed.routing.frr import Routers

        del in_parallel
        self._routers = Routers(self._topology, pid_of, self._run_dir, self._options)
        self._routers.start()
        self._routers.wait_converged(self._timeout_s)
        self._routers.await_detection(self._timeout_s)

    def verify(self) -> None:
        """Daemons, configuration, sessions, kernel settings, FIBs."""
        self.routers.verify()

    def stop(self, node: str, orderly: bool, admin: LinkAdmin) -> Times:
        """Orderly: bgpd says goodbye before the links go. Killed: links first, else the kernel's closing of TCP sessions would be seen."""
        if orderly:
            self.routers.stop(node, orderly=True)
            return admin.power_off(node)
        times = admin.power_off(node)
        self.routers.stop(node, orderly=False)
        return times

    def boot(self, node: str, admin: LinkAdmin) -> Times:
        """The daemons want their interfaces up."""
        times = admin.power_on(node)
        self.routers.boot(node)
        return times

    def require_alive(self) -> None:
        """HostError if a daemon of a running router ended by itself: without its zebra a router forwards on as if nothing had happened."""
        if self._routers is not None:
            self._routers.require_alive()

    def set_controller(self, up: bool) -> Times:
        """Nothing: every router has its own daemons."""
        return nothing_done()

    def link_restored(self, link: Link) -> None:
        """The kernel forgot the T0's addresses and neighbour on a host port."""
        if link.tier == "NIC-T0":
            self.routers.restore_host_port(link.b.node, link.b.ifname)

    def ask(self, node: str, command: str) -> str:
        """A command of bgpd's vty when it is about BGP, of bfdd's when it is about BFD, else of zebra's."""
        daemon = next((daemon for word, daemon in (("bgp", "bgpd"), ("bfd", "bfdd")) if word in command), "zebra")
        return self.routers.daemon(node, daemon).ask(command)

    def differences(self) -> dict[str, list[str]] | None:
        """None: routing changes tables by design."""
        return None

    def unsettled(self) -> list[str]:
        """Kernel FIBs against those that BGP must come to."""
        return [str(difference) for difference in self.routers.fib_differences()]

    def events(self) -> list[dict[str, Any]]:
        """BGP messages, and changes of BGP's and BFD's sessions."""
        return self._routers.events() if self._routers is not None else []

    def manifest(self) -> dict[str, Any]:
        """FRR's version, options, configuration."""
        return {"switching": "frr", "datapath": "kernel", "routing": self.routers.manifest()}

    def close(self) -> None:
        """Ends the daemons."""
        if self._routers is not None:
            self._routers.close()
            self._routers = None
