"""The whole fabric behind one object: what `testbed run` and `testbed shell` call, the same for both kinds of switch."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy.typing as npt

from testbed import sandbox
from testbed.command import in_net, run, run_any
from testbed.errors import HostError, UsageError
from testbed.fabric import hosts, link_parameters, links, switching_kinds
from testbed.fabric.admin import LinkAdmin, Times
from testbed.fabric.bpf import LinkProgram, build_bpf, row_of
from testbed.fabric.host_cpu import HostCpu, Pace
from testbed.fabric.losses import BOTH, Chance, Losses, both
from testbed.fabric.namespaces import offloads_on, switch_offloads_off, write_sysctls
from testbed.fabric.net import FabricNet
from testbed.fabric.netlink import Netlink
from testbed.fabric.outages import Outages
from testbed.fabric.prompt_faults import PromptFaults
from testbed.fabric.rates import LinkRates
from testbed.fabric.switching import RoutedSwitching
from testbed.link_settings import LinkSettings
from topologies import Link, Topology

if TYPE_CHECKING:
    from testbed.routing.frr import Routers

_WORKERS = 6
T = TypeVar("T")


class Fabric:
    """Nodes, links and switches of one arm. Works only inside a sandbox (`testbed.sandbox`), one fabric at a time.

    `switching` is `ovs` (static uSID tables), `ovs-ecmp` (static equal-cost tables), `ovs-bgp` (a controller's) or `frr` (BGP).
    `options`: `datapath` (`auto`, `system`, `netdev`) for Open vSwitch, `bgp_ovs` (BgpOvsOptions) for its kinds that route, `seed` for
    ovs-bgp; `bgp` (BgpOptions) and `converge_timeout_s` for frr. `net` is the Mininet object for Mininet's prompt.
    """

    def __init__(
        self, topology: Topology, settings: LinkSettings, switching: str, run_dir: Path, options: Mapping[str, Any] | None = None
    ) -> None:
        self.topology, self.settings, self.run_dir = topology, settings, run_dir
        self.has_controller = switching == "ovs-bgp"
        self._switching = switching_kinds.make(switching, topology, run_dir, dict(options or {}))
        self.net = FabricNet(topology)
        self.timings_s: dict[str, float] = {}
        self._program = LinkProgram()
        self._kernels: dict[str, Netlink] = {}
        self._losses = Losses(self._program)
        self._rates = LinkRates(self._kernels, self._program, settings)
        self._admin = LinkAdmin(topology, self._kernels, self._losses)
        self._cpu = HostCpu()
        self._restoring = threading.Lock()
        self._outages = Outages(topology.switches)
        self.prompt = PromptFaults(self)
        self._tunnel_mode: str | None = None

    @property
    def static(self) -> bool:
        """Whether the switches' tables never change (uSID rules), or routing makes them."""
        return self._switching.static

    @property
    def source_routed(self) -> bool:
        """Whether hosts write the whole path into a packet (uSID), or the switches route by its destination."""
        return self._switching.source_routed

    @property
    def question(self) -> str:
        """An example for `ask_switch`."""
        return self._switching.question

    def routing_events(self) -> list[dict[str, Any]]:
        """What routing said and did since the start: history events with `t` in CLOCK_MONOTONIC seconds; none where nothing routes."""
        return self._switching.events()

    @property
    def routers(self) -> Routers:
        """The routers of a BGP fabric; UsageError where there are none."""
        if not isinstance(self._switching, RoutedSwitching):
            raise UsageError("this fabric has no routers: its switches are Open vSwitch")
        return self._switching.routers

    @contextmanager
    def deployed(self) -> Iterator[Fabric]:
        """Up and verified inside the `with`, down after it, whatever happens."""
        try:
            self.deploy()
            self.verify()
            yield self
        finally:
            self.remove()

    def deploy(self) -> None:
        """Brings everything up; HostError (or CommandFailed) names what did not come as asked, and nothing is left half done."""
        if not sandbox.inside():
            raise HostError("a fabric lives in a sandbox only: start it through `testbed run` or `testbed shell`")
        self.run_dir.mkdir(parents=True, exist_ok=True)
        try:
            for step in (self._start_nodes, self._load_program, self._make_links, self._set_up_ports, self._set_up_hosts, self._boot):
                self._timed(step.__name__.strip("_"), step)
        except BaseException:
            self.remove()
            raise

    def verify(self) -> None:
        """Reads all ports and tables back from kernel and switches; HostError names the link or switch that is not as asked."""
        self._timed("verify_ports", self.verify_ports)
        self._timed("verify_switches", self._switching.verify)

    def verify_ports(self) -> None:
        """Reads all ports back: with every fault healed they are as they were made, and all daemons live. HostError names what is not."""
        self.require_alive()
        for node in self.topology.nodes:
            self._verify_ports_of(node)

    def require_alive(self) -> None:
        """HostError if a switch's daemon, or the controller of all, ended though nobody asked it to."""
        self._switching.require_alive()

    def remove(self) -> None:
        """Takes everything down; works at any stage, also after a failure."""
        self._cpu.close()
        self._switching.close()
        for kernel in self._kernels.values():
            kernel.close()
        self._kernels.clear()
        self.net.stop_nodes()
        self._program.unload()

    def pid(self, node: str) -> int:
        """A process that holds the node's namespaces."""
        return int(self.net[node].pid)

    def popen(self, node: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Starts a program in the node's network namespace, in a session of its own, so that Ctrl-C reaches the testbed only."""
        options.setdefault("start_new_session", True)
        process = subprocess.Popen(in_net(self.pid(node), argv), **options)
        self._cpu.add(node, process)
        return process

    def set_carrier(self, link: str, up: bool) -> Times:
        """Cuts (end b goes down) or mends a fibre; returns when both ends say so. Overlapping cuts count, as each will be mended.

        (issued, effective) in CLOCK_MONOTONIC seconds.
        """
        return self.set_carriers([link], up)

    def set_carriers(self, links: Iterable[str], up: bool) -> Times:
        """As `set_carrier`, several fibres at once."""
        found = [self.topology.link(link) for link in links]
        times = self._admin.mend(*found) if up else self._admin.cut(*found)
        for link in found if up else ():
            self._restored(link)
        return times

    def set_port(self, port: str, up: bool) -> Times:
        """A NIC port (`h1-eth0`) goes down at the host's end, or comes up with all that the kernel forgot. UsageError: no such port."""
        found = next((link for link in self.topology.links.values() if link.a.ifname == port and link.tier == "NIC-T0"), None)
        if found is None:
            raise UsageError(f"there is no NIC port {port!r}: a host's ports are {self.topology.hosts[0]}-eth0 and so on")
        if not up:
            return self._admin.unplug(found)
        issued, _ = self._admin.plug(found)
        if not self._admin.is_down(found, True):
            self._restore_port(found)
        self._restored(found)
        return issued, time.monotonic()

    def set_silent(self, link: str, on: bool) -> Times:
        """The link loses everything in both directions while its carrier stays; effective with the write into the program's map.

        The first packet that it hit is in `first_drop_ns` of `link_counters()`.
        """
        return self._losses.drop("drop_all", both(self.topology.link(link)), on)

    def set_one_way(self, link: str, sender: str, on: bool) -> Times:
        """As `set_silent`, but only what one end sends is lost."""
        found = self.topology.link(link)
        return self._losses.drop("drop_all", [(found, _is_a(found, sender))], on)

    def set_remote(self, link: str, seen_by: str, on: bool) -> Times:
        """As `set_silent`, but one end is told that the link is down (its interface is not RUNNING any more), and the other is not."""
        found = self.topology.link(link)
        act = self._admin.cut_as_seen_by if on else self._admin.mend_as_seen_by
        return act(found, _is_a(found, seen_by))

    def set_hang(self, switch: str, on: bool) -> Times:
        """A switch forwards nothing but routing and neighbour discovery: its links and sessions stay up."""
        self._require_switch(switch)
        return self._losses.drop("drop_data", self._admin.own_ends(switch), on)

    def lose(self, link: str, reason: str, share: float, sender: str | None = None, evs: Sequence[int] = ()) -> Times:
        """Loses a share by chance of what both ends or `sender` send; with `evs` of the packets of these entropy values."""
        found = self.topology.link(link)
        return self._losses.lose(found, reason, Chance(share, tuple(evs)), _ends(found, sender))

    def stop_losing(self, link: str, reason: str) -> Times:
        """Takes away what `lose` began for that reason."""
        return self._losses.restore(self.topology.link(link), reason)

    def slow_link(self, link: str, reason: str, rate_bps: float, sender: str | None = None) -> Times:
        """The link runs at another rate, in both directions or only what `sender` sends; of several reasons the slowest counts."""
        found = self.topology.link(link)
        return self._rates.slow(found, reason, round(rate_bps), _ends(found, sender))

    def restore_rate(self, link: str, reason: str) -> Times:
        """Takes away what `slow_link` began for that reason."""
        return self._rates.restore(self.topology.link(link), reason)

    def slow_host(self, host: str, reason: str, share: float, period_s: float) -> Times:
        """What `popen` started on a host runs for that share of each period only; of several reasons the smallest share counts."""
        return self._cpu.slow(host, reason, Pace(share, period_s))

    def restore_host(self, host: str, reason: str) -> Times:
        """Takes away what `slow_host` began for that reason."""
        return self._cpu.restore(host, reason)

    def stop_switch(self, node: str, orderly: bool) -> Times:
        """Takes a switch out: its daemons end (asked to, or by SIGKILL) and its interfaces go down. Effective when both ends say so.

        Overlapping outages count, as each will be ended by a boot.
        """
        self._require_switch(node)
        return self._outages.begin(node, lambda: self._switching.stop(node, orderly, self._admin))

    def set_controller(self, up: bool) -> Times:
        """Kills the controller of all switches (SIGKILL), or starts it again, effective when it has put all tables right.

        Overlapping kills count. Where there is no controller nothing is done, and the times say now.
        """
        return self._switching.set_controller(up)

    def boot_switch(self, node: str) -> Times:
        """Boots it from its boot file, verified; its interfaces come up but those that another fault keeps down.

        While another outage goes on the switch stays off. HostError if it runs.
        """
        self._require_switch(node)
        return self._outages.end(node, lambda: self._boot_verified(node))

    def _boot_verified(self, node: str) -> None:
        self._switching.boot(node, self._admin)
        self._verify_ports_of(node)

    def ask_switch(self, node: str, command: str) -> str:
        """What a switch's daemons say to a command: one of ovs-ofctl (`dump-flows`), or of FRR's vty (`show bgp summary`)."""
        self._require_switch(node)
        return self._switching.ask(node, command)

    def link_counters(self) -> npt.NDArray[Any]:
        """The live map of the link program: row 2 * link.index is what end a sends, the next one what end b sends."""
        return self._program.rows

    def qdisc_drops(self) -> dict[tuple[str, str], int]:
        """Packets that full queues dropped since deployment, by (link, sending node); drops by faults are not among them."""
        by_node = {node: links.queue_drops(kernel) for node, kernel in self._kernels.items()}
        ends = [(link, end, at_a) for link in self.topology.links.values() for end, at_a in ((link.a, True), (link.b, False))]
        return {(link.name, end.node): by_node[end.node].get(links.ifindex(link, at_a), 0) for link, end, at_a in ends}

    def tables_unchanged(self) -> bool | None:
        """Whether every switch has exactly the tables of its boot file; None where routing changes them by design."""
        differences = self.table_differences()
        return None if differences is None else not differences

    def table_differences(self) -> dict[str, list[str]] | None:
        """What differs, by switch; None where routing changes tables by design."""
        return self._switching.differences()

    def unsettled(self) -> list[str]:
        """Where tables are not (yet) those that the whole topology demands, one line each: what routing has to come to without a fault."""
        return self._switching.unsettled()

    def manifest(self) -> dict[str, Any]:
        """What the fabric is made of, JSON-able."""
        return {
            "rate_bps": self.settings.rate_bps,
            "mtu_bytes": self.settings.mtu_bytes,
            "queue_bytes": self.settings.queue_bytes,
            "control_queue_bytes": links.CONTROL_QUEUE_BYTES,
            "burst_bytes": self.settings.burst_bytes,
            "link_program": link_parameters.manifest(self.settings),
            "timings_s": {name: round(value, 3) for name, value in self.timings_s.items()},
            "host_sysctls": dict(self._switching.host_sysctls),
            "kernel_tunnels": self._tunnel_mode or "none",
            **self._switching.manifest(),
        }

    def _timed(self, name: str, step: Callable[[], None]) -> None:
        began = time.monotonic()
        step()
        self.timings_s[name] = time.monotonic() - began

    def _start_nodes(self) -> None:
        self.net.start_nodes()
        for node in self.topology.nodes:
            self._kernels[node] = Netlink(self.pid(node))
        for host in self.topology.hosts:
            write_sysctls(self.pid(host), self._switching.host_sysctls)
        for switch in self.topology.switches:
            write_sysctls(self.pid(switch), self._switching.sysctls)

    def _load_program(self) -> None:
        self._program.load(build_bpf())
        link_parameters.set_up_rows(self._program.rows, self.topology, self.settings)

    def _make_links(self) -> None:
        batch = links.veth_batch(self.topology.links.values(), self.pid, self.settings)
        run(["ip", "-batch", "-"], "making the links", input_text=batch)
        self.net.register_links()
        self.net.steer(self.prompt.set_link, self.prompt.set_power)

    def _set_up_ports(self) -> None:
        self._in_parallel(self._set_up_ports_of, self.topology.nodes)

    def _set_up_ports_of(self, node: str) -> None:
        ports = links.ports_of(node, self.topology.links_of(node))
        shaping = "".join(links.shaping_batch(end.ifname, row_of(link, at_a), self.settings) for link, end, at_a in ports)
        switch_offloads_off(self.pid(node), [end.ifname for _link, end, _at_a in ports])
        run(in_net(self.pid(node), ["tc", "-batch", "-"]), f"{node}: shaping its ports", input_text=shaping)
        for link, _end, at_a in ports:
            self._kernels[node].set_up(links.ifindex(link, at_a), True)

    def _set_up_hosts(self) -> None:
        self._tunnel_mode = _tunnel_mode(self.pid(self.topology.hosts[0])) if self._switching.source_routed else None
        self._in_parallel(self._set_up_host, self.topology.hosts)

    def _set_up_host(self, host: str) -> None:
        tunnels = self._switching.source_routed
        batch = hosts.host_batch(self.topology, host, self._tunnel_mode) if tunnels else hosts.routed_host_batch(self.topology, host)
        run(in_net(self.pid(host), ["ip", "-6", "-batch", "-"]), f"{host}: addresses and routes", input_text=batch)

    def _boot(self) -> None:
        self._switching.start(self.pid, self._in_parallel)

    def _verify_ports_of(self, node: str) -> None:
        ports = links.ports_of(node, self.topology.links_of(node))
        for ifname, names in offloads_on(self.pid(node), [end.ifname for _link, end, _at_a in ports]).items():
            raise HostError(f"port {ifname}: {', '.join(names)} stays on, so packets would not have their real sizes")
        for link, _end, at_a in ports:
            self._rates.verify(link, at_a)

    def _restored(self, link: Link) -> None:
        if not self._admin.is_cut(link):
            self._switching.link_restored(link)

    def _restore_port(self, link: Link) -> None:
        """The host's part of a NIC port, after it was set down; one port at a time, as all of a host share a route."""
        host = link.a.node
        with self._restoring:
            ports = links.ports_of(host, self.topology.links_of(host))
            up = {end.ifname for other, end, at_a in ports if not self._admin.is_down(other, at_a)}
            lines = (
                hosts.port_batch(self.topology, host, link, self._tunnel_mode)
                if self._switching.source_routed
                else hosts.routed_port_batch(self.topology, host, link, up)
            )
            run(in_net(self.pid(host), ["ip", "-6", "-batch", "-"]), f"{host}: addresses and routes of {link.a.ifname}", input_text=lines)

    def _in_parallel(self, action: Callable[[str], None], nodes: Iterable[str]) -> None:
        with ThreadPoolExecutor(_WORKERS) as pool:
            list(pool.map(action, nodes))

    def _require_switch(self, node: str) -> None:
        if self.topology.node(node).kind != "switch":
            raise UsageError(f"{node} is a host: only switches can be stopped, booted and asked")


def _is_a(link: Link, node: str) -> bool:
    """Whether a node is end a of a link, UsageError if it is neither end."""
    if node not in (link.a.node, link.b.node):
        raise UsageError(f"{node} is no end of link {link.name}: choose {link.a.node} or {link.b.node}")
    return node == link.a.node


def _ends(link: Link, sender: str | None) -> tuple[bool, ...]:
    return BOTH if sender is None else (_is_a(link, sender),)


def _tunnel_mode(pid: int) -> str | None:
    """The leanest SRv6 encapsulation that kernel and iproute2 have (`encap.red` since Linux 6.0), None without SRv6."""
    for mode in ("encap.red", "encap"):
        route = ["ip", "-6", "route", "add", "fd00:0:2::1/128", "encap", "seg6", "mode", mode, "segs", "fcbb:bb00::", "dev", "lo"]
        if run_any(in_net(pid, ["sh", "-c", f"ip link set lo up; {' '.join(route)}"]), "trying SRv6 encapsulation").returncode == 0:
            run(in_net(pid, ["ip", "-6", "route", "del", "fd00:0:2::1/128"]), "removing the trial route")
            return mode
    return None
