"""A bare fabric for the routing tests: one namespace a node, veth links, nothing else. Only used inside `run_in_namespaces`."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from testbed.collect.netlink import NetlinkWatch
from testbed.routing import namespace
from testbed.routing.frr import Routers
from testbed.routing.options import BgpOptions
from topologies import Topology
from topologies.addresses import host_address, mac

NODE = ("unshare", "--net", "sh", "-c", "echo && exec sleep infinity")
# A classic BPF program that returns TC_ACT_SHOT (2): with direct action it drops every packet, and the carrier stays up.
DROP_ALL = "1,6 0 0 2"


class Lab:
    """Namespaces and links of a topology, all links up; `routers` is not started yet."""

    def __init__(self, topology: Topology, options: BgpOptions | None = None) -> None:
        for tree in ("/run", "/var/tmp"):  # every FRR daemon makes itself a folder below /var/tmp/frr, whatever its options
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", tree], check=True)
        self.topology = topology
        self._nodes = {name: subprocess.Popen(NODE, stdout=subprocess.PIPE) for name in topology.nodes}
        for process in self._nodes.values():
            process.stdout.readline()  # the line comes when the namespace is made
        self._make_links()
        for host in topology.hosts:
            self._set_up_host(host)
        self.routers = Routers(topology, self.pid, Path("/run/routers"), options or BgpOptions())

    def pid(self, node: str) -> int:
        return self._nodes[node].pid

    def ip(self, node: str, *argv: str) -> str:
        return namespace.run(self.pid(node), f"{node}: ip", ["ip", *argv])

    def _make_links(self) -> None:
        """Indexes are unique: the kernel reports carrier up to a second late where an interface and its peer have the same one."""
        lines = [
            f"link add {link.a.ifname} index {2 * link.index + 100} address {mac(link.a)} netns {self.pid(link.a.node)} type veth"
            f" peer name {link.b.ifname} index {2 * link.index + 101} address {mac(link.b)} netns {self.pid(link.b.node)}"
            for link in self.topology.links.values()
        ]
        subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)
        for node in self.topology.nodes:
            ups = ["link set lo up", *(f"link set {link.end(node).ifname} up" for link in self.topology.links_of(node))]
            namespace.run(self.pid(node), f"{node}: links up", ["ip", "-batch", "-"], "\n".join(ups))

    def _set_up_host(self, host: str) -> None:
        """An address and a default route on port 0, the T0's neighbour entry as hosts have it."""
        link = self.topology.links_of(host)[0]
        lines = [
            f"address add {host_address(self.topology.nodes[host])}/128 dev {link.a.ifname} nodad",
            f"neighbour replace fe80::1 lladdr {mac(link.b)} dev {link.a.ifname} nud permanent",
            f"route add default via fe80::1 dev {link.a.ifname}",
        ]
        namespace.run(self.pid(host), f"{host}: address", ["ip", "-6", "-batch", "-"], "\n".join(lines))

    def set_link(self, name: str, up: bool, both_ends: bool = True) -> None:
        """Cuts or mends a link: carrier goes at both ends; with `both_ends` both are down administratively, else only the lower one."""
        link = self.topology.link(name)
        for end in (link.a, link.b) if both_ends else (link.a,):
            self.ip(end.node, "link", "set", end.ifname, "up" if up else "down")

    def set_silent(self, name: str, on: bool) -> None:
        """Drops all packets of a link both ways while its carrier stays up."""
        link = self.topology.link(name)
        for end in (link.a, link.b):
            if on:
                self._tc(end.node, "qdisc", "add", "dev", end.ifname, "clsact")
                self._tc(end.node, "filter", "add", "dev", end.ifname, "egress", "bpf", "da", "bytecode", DROP_ALL)
            else:
                self._tc(end.node, "qdisc", "del", "dev", end.ifname, "clsact")

    def _tc(self, node: str, *argv: str) -> None:
        namespace.run(self.pid(node), f"{node}: tc", ["tc", *argv])

    def ping(self, source: str, destination: str) -> bool:
        """Whether one echo comes back within two seconds."""
        address = host_address(self.topology.nodes[destination])
        argv = ["ping", "-6", "-n", "-c", "1", "-W", "2", address]
        return namespace.inside(self.pid(source), lambda: subprocess.run(argv, capture_output=True, check=False).returncode == 0)

    def hops(self, source: str, destination: str, source_port: int) -> list[str]:
        """The nodes that the kernels would send a UDP packet of this flow through, from the first switch to the destination."""
        flow = (
            *(host_address(self.topology.nodes[destination]), "from", host_address(self.topology.nodes[source])),
            *("ipproto", "17", "sport", str(source_port), "dport", "4791"),
        )
        link, nodes = self.topology.links_of(source)[0], [source]
        while nodes[-1] != destination:
            nodes.append(link.other(nodes[-1]).node)
            if nodes[-1] != destination:
                route = self.ip(nodes[-1], "-6", "-o", "route", "get", *flow, "iif", link.end(nodes[-1]).ifname)
                out = route.split(" dev ")[1].split()[0]
                link = next(link for link in self.topology.links_of(nodes[-1]) if link.end(nodes[-1]).ifname == out)
        return nodes[1:]


def sent(lab: Lab, node: str, ifname: str, enough: Callable[[set], bool]) -> set[tuple[str, int, int]]:
    """(protocol, lower port, DSCP) of the UDP and TCP packets that pass an interface, until there are enough of them."""

    def listen() -> set[tuple[str, int, int]]:
        seen: set[tuple[str, int, int]] = set()
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x86DD)) as tap:
            tap.bind((ifname, 0x86DD))
            tap.settimeout(20)
            while not enough(seen):
                frame = tap.recv(2048)
                if frame[20] in (6, 17):  # next header of the IPv6 packet
                    port = min(int.from_bytes(frame[54:56], "big"), int.from_bytes(frame[56:58], "big"))
                    seen.add(({6: "tcp", 17: "udp"}[frame[20]], port, int.from_bytes(frame[14:16], "big") >> 6 & 0x3F))
        return seen

    return namespace.inside(lab.pid(node), listen)


class Watched:
    """A lab without routers, and a netlink watch over all its nodes. `slow_s`: seconds that each event's record takes."""

    def __init__(self, topology: Topology, slow_s: float = 0.0) -> None:
        self.lab = Lab(topology)
        self.events: list[dict] = []
        self._slow_s = slow_s
        self.watch = NetlinkWatch({node: self.lab.pid(node) for node in topology.nodes}, self._record)
        self.watch.start()

    def _record(self, event: dict) -> None:
        self.events.append(event)
        time.sleep(self._slow_s)

    def batch(self, node: str, lines: str) -> None:
        namespace.run(self.lab.pid(node), f"{node}: batch", ["ip", "-6", "-batch", "-"], lines)

    def wait_for(self, name: str, condition: Callable[[list[dict]], bool]) -> list[dict]:
        self.until(lambda: condition(self._named(name)))
        return self._named(name)

    def _named(self, name: str) -> list[dict]:
        return [event for event in list(self.events) if event["event"] == name]

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, f"it did not happen; events: {self.events[-10:]}"
            time.sleep(0.01)
