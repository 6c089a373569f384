"""All routers of a BGP fabric: started in parallel, waited for until every FIB is as the topology demands, stopped and booted singly."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from testbed.errors import UsageError
from testbed.routing import daemons, events, fib, ports, sysctl
from testbed.routing.config import (
    BFD_PROFILE,
    asn,
    bfdd_config,
    bgpd_config,
    dump_config,
    fabric_ports,
    host_prefix,
    log_config,
    zebra_commands,
    zebra_config,
)
from testbed.routing.daemons import Daemon, RoutingError
from testbed.routing.expected import expected_fibs
from testbed.routing.namespace import inside
from testbed.routing.options import BgpOptions
from testbed.routing.readback import detection_faults, session_faults
from testbed.routing.vty import Vty
from topologies import Topology

POLL_S = 0.05
NAMED_IN_ERRORS = 8

Progress = Callable[[int, int], None]  # (routes that are right, routes expected)


class Router:
    """zebra and bgpd of one switch (bfdd with BFD, mgmtd where FRR has it), and the kernel settings around them."""

    def __init__(self, topology: Topology, name: str, pid: int, folder: Path, options: BgpOptions) -> None:
        self.name, self.pid, self.folder = name, pid, folder
        self._topology, self._options = topology, options
        self.zebra = daemons.configured("zebra", name, folder, daemons.zebra_options())
        self.bgpd = daemons.configured("bgpd", name, folder, ("-e", str(options.ecmp_width)))
        first = [daemons.daemon(daemons.MGMTD, name, folder)] if daemons.has_mgmtd() else []
        # bfdd's other socket, for its own control protocol, has a fixed place too
        self.bfdd = daemons.configured("bfdd", name, folder, ("--bfdctl", str(folder / "bfdd.sock"))) if options.has_bfd else None
        middle = [self.bfdd] if self.bfdd else []
        self.daemons = {daemon.name: daemon for daemon in (*first, self.zebra, *middle, self.bgpd)}
        self.dumps: list[Path] = []
        self.wanted = sysctl.settings(topology, name, options, inside(pid, sysctl.has_seed))
        self.sysctls: dict[str, str] = {}

    def prepare(self) -> None:
        """Kernel settings, host ports, configuration files: all that the daemons find when they start."""
        self.sysctls = sysctl.apply(self.pid, self.name, self.wanted)
        ports.set_up(self._topology, self.name, self.pid)
        self.dumps.append(self.folder / f"bgp-{len(self.dumps) + 1}.mrt")  # bgpd begins a dump anew
        daemons.private_folder(self.folder, {f"{name}.conf": text for name, text in self.configurations().items()})

    def configurations(self) -> dict[str, str]:
        """The start file of each daemon that has one."""
        bgpd = bgpd_config(self._topology, self.name, self._options) + log_config(self.bgpd.log_path, "informational")
        texts = {"zebra": zebra_config(self.name), "bgpd": bgpd + (dump_config(self.dumps[-1]) if self.dumps else "")}
        if self.bfdd:
            texts["bfdd"] = bfdd_config(self.name, self._options) + log_config(self.bfdd.log_path, "debugging")
        return texts

    def start_zebra(self) -> None:
        """Starts zebra, and mgmtd before it where there is one."""
        for daemon in self.daemons.values():
            if daemon not in (self.bgpd, self.bfdd):
                daemon.start(self.pid)

    def await_answer(self, daemon: Daemon, deadline: float) -> None:
        """Waits until the daemon takes commands; RoutingError when it is late."""
        while not daemon.answers():
            if time.monotonic() > deadline:
                raise RoutingError(f"{self.name}: {daemon.name} does not answer on {daemon.vty_path} in time: {daemon.last_words()}")
            time.sleep(POLL_S / 5)

    def configure_zebra(self, deadline: float) -> None:
        """Waits for zebra, tells it what its start file cannot, and starts bfdd, if there is one."""
        self.await_answer(self.zebra, deadline)
        with Vty(self.zebra.vty_path) as vty:
            vty.configure(zebra_commands(self._options))
        if self.bfdd:
            self.bfdd.start(self.pid)

    def start_bgpd(self, deadline: float) -> None:
        """Starts bgpd, when all that it talks to runs: without zebra it would retry only seconds later."""
        if self.bfdd:
            self.await_answer(self.bfdd, deadline)
        self.bgpd.start(self.pid)

    def await_configured(self, deadline: float) -> None:
        """Waits until bgpd runs the configuration that was written for it."""
        self.await_answer(self.bgpd, deadline)
        while missing := self.missing_configuration():
            if time.monotonic() > deadline:
                raise RoutingError(f"{self.name}: zebra or bgpd did not take `{missing[0]}` in time: {self.bgpd.last_words()}")
            time.sleep(POLL_S / 5)

    def missing_configuration(self) -> list[str]:
        """Lines of the running configuration that should be there and are not (those that FRR always prints, in every version)."""
        asked = [daemon for daemon in (self.zebra, self.bfdd, self.bgpd) if daemon]
        running = {line.strip() for daemon in asked for line in daemon.ask("show running-config").splitlines()}
        wanted = [line for line in zebra_commands(self._options) if line.startswith("no ")]
        wanted += [f"router bgp {asn(self._topology, self.name)}"]
        wanted += [f"frr defaults {self._options.frr_profile}"]
        wanted += [f"dump bgp all-et {self.dumps[-1]}", "log timestamp precision 6"]
        lines = ["interface remote-as external", *([f"bfd profile {BFD_PROFILE}"] if self.bfdd else [])]
        wanted += [f"neighbor {port} {line}" for port in fabric_ports(self._topology, self.name) for line in lines]
        wanted += [f"profile {BFD_PROFILE}"] if self.bfdd else []
        return [line for line in wanted if line not in running]

    def sessions(self) -> dict[str, dict[str, Any]]:
        """bgpd's own account of its sessions: interface -> `show bgp neighbors json`."""
        found: dict[str, dict[str, Any]] = json.loads(self.bgpd.ask("show bgp neighbors json"))
        return {name: session for name, session in found.items() if isinstance(session, dict)}

    def detections(self) -> dict[str, dict[str, Any]]:
        """bfdd's own account of its sessions: interface -> `show bfd peers json`; empty without BFD."""
        told: list[dict[str, Any]] = json.loads(self.bfdd.ask("show bfd peers json")) if self.bfdd else []
        return {str(session.get("interface")): session for session in told}

    def require_alive(self) -> None:
        """RoutingError for the first daemon that does not run."""
        for daemon in self.daemons.values():
            daemon.require_alive()

    def stop(self, orderly: bool) -> None:
        """Ends the daemons and the forwarding; see `Routers.stop`."""
        number = signal.SIGTERM if orderly else signal.SIGKILL
        for daemon in reversed(self.daemons.values()):
            daemon.kill(number)
        sysctl.apply(self.pid, self.name, (sysctl.Setting("ipv6/conf/all/forwarding", "0"),))
        ports.flush_routes(self.name, self.pid)


class Routers:
    """The routers of a topology. `pid_of(node)` is a process in the node's namespace; `run_dir` gets one folder a router.

    The caller makes namespaces and links and sets the links up before `start`. All methods raise RoutingError (exit code 3) with the
    router's name when a router does not do as told.
    """

    def __init__(self, topology: Topology, pid_of: Callable[[str], int], run_dir: Path, options: BgpOptions) -> None:
        self._topology, self._pid_of, self._run_dir, self._options = topology, pid_of, run_dir, options
        self._routers: dict[str, Router] = {}
        self._readers: dict[str, fib.FibReader] = {}
        self._stopped: set[str] = set()
        self._start_s = 0.0
        self._converge_s = 0.0
        self._addresses = frozenset(host_prefix(topology, host) for host in topology.hosts)

    def start(self) -> None:
        """Starts zebra and bgpd of all switches in parallel and waits until each runs its configuration (not until routes are there)."""
        began = time.monotonic()
        for name in self._topology.switches:
            pid = self._pid_of(name)
            self._routers[name] = Router(self._topology, name, pid, self._run_dir / name, self._options)
            self._readers[name] = fib.FibReader(name, pid)
        self._launch(list(self._routers.values()))
        self._start_s = time.monotonic() - began

    def _launch(self, routers: list[Router]) -> None:
        """The start of some routers, step by step for all of them, so that their waits overlap."""
        for router in routers:
            router.prepare()
            router.start_zebra()
        deadline = time.monotonic() + self._options.start_timeout_s
        for router in routers:
            router.configure_zebra(deadline)
        for router in routers:
            router.start_bgpd(deadline)
        for router in routers:
            router.await_configured(deadline)

    def wait_converged(self, timeout_s: float, progress: Progress | None = None, down_links: Collection[str] = ()) -> float:
        """Waits until every running router has exactly the expected next hops for every host in its kernel FIB; returns the seconds waited.

        Expected with the links `down_links` cut and the stopped switches away. RoutingError after `timeout_s` says which router lacks what.
        """
        expected = expected_fibs(self._topology, down_links, self._stopped)
        total = sum(len(fib) for fib in expected.values())
        began = time.monotonic()
        while wrong := self._wrong(expected):
            if progress is not None:
                progress(max(0, total - len(wrong)), total)
            if time.monotonic() - began > timeout_s:
                raise RoutingError(f"BGP has not converged after {timeout_s:g} s: {_some(wrong)}; logs in {self._run_dir}")
            self.require_alive()
            time.sleep(POLL_S)
        self._converge_s = time.monotonic() - began
        if progress is not None:
            progress(total, total)
        return self._converge_s

    def fib_differences(self, down_links: Collection[str] = ()) -> list[fib.FibDifference]:
        """Where the FIBs differ now from those expected with these links cut and the stopped switches away."""
        return self._wrong(expected_fibs(self._topology, down_links, self._stopped))

    def fibs(self) -> dict[str, dict[str, frozenset[str]]]:
        """The usable host routes in the kernel of every running router: router -> address -> interfaces."""
        return {name: self._readers[name].read() for name in self._running()}

    def _wrong(self, expected: dict[str, dict[str, frozenset[str]]]) -> list[fib.FibDifference]:
        """All differences over the running routers."""
        width = self._options.ecmp_width
        found = [fib.differences(name, expected[name], self._readers[name].read(), self._addresses, width) for name in self._running()]
        return [difference for one in found for difference in one]

    def verify(self, down_links: Collection[str] = ()) -> None:
        """Reads all back: daemons, configuration, session timers, kernel settings, FIBs. RoutingError lists what is not as it should be."""
        self.require_alive()
        problems: list[str] = []
        for name in self._running():
            router = self._routers[name]
            problems += [f"{name}: bgpd lacks `{line}`" for line in router.missing_configuration()]
            problems += sysctl.differences(name, router.wanted, sysctl.read(router.pid, router.wanted))
            problems += self._session_problems(router, down_links)
        problems += [str(difference) for difference in self.fib_differences(down_links)]
        if problems:
            raise RoutingError(f"the BGP fabric is not as it should be: {_some(problems)}")

    def require_alive(self) -> None:
        """RoutingError for the first daemon that has died unasked."""
        for name in self._running():
            self._routers[name].require_alive()

    def await_detection(self, timeout_s: float) -> None:
        """Waits until every BFD session runs with the intervals asked for; RoutingError after `timeout_s`. At once without BFD."""
        deadline = time.monotonic() + timeout_s
        while wrong := [text for name in self._running() for text in self._session_problems(self._routers[name], ())]:
            if time.monotonic() > deadline:
                raise RoutingError(f"BGP and BFD sessions are not up after {timeout_s:g} s: {_some(wrong)}; logs in {self._run_dir}")
            self.require_alive()
            time.sleep(POLL_S)

    def _session_problems(self, router: Router, down_links: Collection[str]) -> list[str]:
        """Sessions that are not established although their link and neighbour are up, or that run with other timers."""
        down = {self._topology.link(name).name for name in down_links}
        sessions, detections = router.sessions(), router.detections()
        problems = []
        for link in self._topology.links_of(router.name):
            if link.tier == "NIC-T0" or link.name in down or link.other(router.name).node in self._stopped:
                continue
            port = link.end(router.name).ifname
            problems += [f"{router.name}: session on {port}: {text}" for text in session_faults(sessions.get(port, {}), self._options)]
            if self._options.has_bfd:
                faults = detection_faults(detections.get(port, {}), self._options)
                problems += [f"{router.name}: BFD on {port}: {text}" for text in faults]
        return problems

    def stop(self, node: str, orderly: bool) -> None:
        """Takes a router down: orderly = SIGTERM, so that bgpd says goodbye to its neighbours; else SIGKILL to both daemons.

        After it the switch forwards nothing: IPv6 forwarding is off and the routes that a killed zebra leaves behind are removed. The
        kernel still closes the TCP sessions of a killed bgpd, which neighbours see at once; for a power loss take the links down *first*.
        """
        router = self._router(node)
        if node not in self._stopped:
            router.require_alive()  # else a death of its own would pass for this one
        self._stopped.add(node)
        router.stop(orderly)

    def boot(self, node: str) -> None:
        """Starts a stopped router again from nothing and waits until it runs its configuration. Its links must be up again before."""
        router = self._router(node)
        if node not in self._stopped:
            raise UsageError(f"{node} is running: only a stopped router can boot")
        ports.flush_routes(node, router.pid)
        self._launch([router])
        self._stopped.discard(node)

    def events(self) -> list[dict[str, Any]]:
        """What BGP and BFD said and did since the start, in the order of time: see `events`. Routers that were stopped are in it."""
        offset_s, found = events.clock_offset_s(), list[dict[str, Any]]()
        for name, router in self._routers.items():
            found += events.router_events(self._topology, name, events.read(router.folder, router.dumps), offset_s)
        return sorted(found, key=lambda event: float(event["t"]))

    def daemon(self, node: str, name: str) -> Daemon:
        """A router's zebra, bfdd or bgpd, for questions on its vty; UsageError for one that it has not."""
        daemons_of = self._router(node).daemons
        if name not in daemons_of:
            raise UsageError(f"{node} runs no {name}, only {', '.join(daemons_of)}")
        return daemons_of[name]

    def restore_host_port(self, node: str, ifname: str) -> None:
        """Puts the gateway address and the host's neighbour entry back after a T0 port was administratively down."""
        ports.set_up(self._topology, node, self._router(node).pid, ifname)

    def close(self) -> None:
        """Ends all daemons (SIGKILL by process id) and gives the netlink sockets back; for the end of a run, never raises for dead ones."""
        for router in self._routers.values():
            for daemon in reversed(router.daemons.values()):
                daemon.kill(signal.SIGKILL)
        for reader in self._readers.values():
            reader.close()

    def manifest(self) -> dict[str, Any]:
        """What ran: FRR's version, every option, an example of the configuration, kernel settings, memory and times."""
        routers = self._routers.values()
        first = next(iter(routers), None)
        return {
            "frr_version": daemons.version(),
            "options": dict(vars(self._options)),
            "daemons": {name: list(daemon.argv) for name, daemon in first.daemons.items()} if first else {},
            **{f"{name}_config_example": text for name, text in (first.configurations() if first else {}).items() if name != "zebra"},
            "sysctls": {router.name: router.sysctls for router in routers},
            "start_s": round(self._start_s, 3),
            "converge_s": round(self._converge_s, 3),
            "rss_bytes": {name: sum(router.daemons[name].rss_bytes() for router in routers) for name in (first.daemons if first else ())},
        }

    def _running(self) -> list[str]:
        return [name for name in self._routers if name not in self._stopped]

    def _router(self, node: str) -> Router:
        """The router of that name; UsageError if there is none."""
        if node not in self._routers:
            raise UsageError(f"no router {node!r}: routers are {', '.join(self._routers) or '(none started)'}")
        return self._routers[node]


def _some(problems: Collection[object]) -> str:
    """The first few problems and how many more there are."""
    texts = [str(problem) for problem in problems]
    more = f" (and {len(texts) - NAMED_IN_ERRORS} more)" if len(texts) > NAMED_IN_ERRORS else ""
    return "; ".join(texts[:NAMED_IN_ERRORS]) + more
