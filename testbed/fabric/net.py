"""The fabric as a Mininet object: its nodes, interfaces and links are Mininet's, so that Mininet's prompt works on it.

Mininet configures each interface by commands in the node's shell, one after another; here interfaces are made in batches elsewhere and only
registered, and the shells start side by side.
"""

from __future__ import annotations

import os
import pty
import select
import subprocess
from collections.abc import Callable
from typing import Any

from mininet.link import Intf, Link
from mininet.log import error
from mininet.net import Mininet
from mininet.node import Node, Switch

from topologies import Topology
from topologies.addresses import host_address, mac

_PROMPT = chr(127)
SetState = Callable[[str, bool], object]
"""Of a link or switch, by name: up (True) or down."""


class _LateShell:
    """Starts the node's shell without waiting for it; `finish_shell` does."""

    def startShell(self: Any, mnopts: str | None = None) -> None:  # noqa: N802 - Mininet's name
        """Starts mnexec and bash in new network and mount namespaces on a terminal of their own."""
        del mnopts
        self.master, self.slave = pty.openpty()
        shell = ["env", f"PS1={_PROMPT}", "bash", "--norc", "--noediting", "-is", f"mininet:{self.name}"]
        self.shell = subprocess.Popen(["mnexec", "-cdn", *shell], stdin=self.slave, stdout=self.slave, stderr=self.slave, close_fds=True)
        self.stdin = self.stdout = os.fdopen(self.master, "r")
        self.pid = self.shell.pid
        self.pollOut = select.poll()
        self.pollOut.register(self.stdout)
        self.outToNode[self.stdout.fileno()] = self
        self.inToNode[self.stdin.fileno()] = self
        self.execed, self.lastCmd, self.lastPid, self.readbuf, self.waiting = False, None, None, "", False

    def finish_shell(self: Any) -> None:
        """Waits for the first prompt: from then on the namespaces are there."""
        while not self.read(1024).endswith(_PROMPT):
            self.pollOut.poll()
        self.cmd("unset HISTFILE; stty -echo; set +m")


class FabricHost(_LateShell, Node):  # type: ignore[misc]  # Mininet has no types
    """A host; `ip` is its IPv6 address."""

    def IP(self, intf: Any = None) -> str:  # noqa: N802 - Mininet's name
        """The host's own address, whichever interface is asked for."""
        del intf
        return str(self.params["ip"])


class FabricSwitch(_LateShell, Switch):  # type: ignore[misc]
    """A switch; its daemons are the fabric's matter. `switch <name> stop|start` of the prompt ends up here."""

    set_power: SetState | None = None

    def start(self, controllers: Any) -> None:
        """Boots it, if the prompt stopped it before."""
        del controllers
        if self.set_power is not None:
            self.set_power(self.name, True)

    def stop(self, deleteIntfs: bool = False) -> None:  # noqa: N803 - Mininet's name
        """Takes its daemons and links down; the node stays."""
        del deleteIntfs
        if self.set_power is not None:
            self.set_power(self.name, False)


class FabricIntf(Intf):  # type: ignore[misc]
    """An interface that exists already."""

    def config(self, **_params: Any) -> dict[str, Any]:
        """Nothing: it was configured in a batch."""
        return {}

    def updateIP(self) -> str | None:  # noqa: N802 - Mininet's name
        """The node's address; the prompt puts it in the place of a host's name."""
        return str(self.node.params["ip"]) if "ip" in self.node.params else None

    def IP(self) -> str | None:  # noqa: N802 - Mininet's name
        """As updateIP."""
        return self.updateIP()


class FabricNet(Mininet):  # type: ignore[misc]
    """A Mininet net made from a Topology: nodes first, links registered when they exist."""

    def __init__(self, topology: Topology) -> None:
        Mininet.inited = True  # its init() raises limits of the whole machine, which is not ours to change
        super().__init__(topo=None, controller=None, build=False, host=FabricHost, switch=FabricSwitch)
        self.topology = topology
        self.set_link: SetState | None = None
        self.built = True

    def start_nodes(self) -> None:
        """Makes the namespaces of all nodes."""
        for name in self.topology.hosts:
            self.addHost(name, ip=host_address(self.topology.nodes[name]))
        for name in self.topology.switches:
            self.addSwitch(name, dpid=f"{self.topology.nodes[name].usid:016x}", inNamespace=True)
        for node in self.values():
            node.finish_shell()

    def register_links(self) -> None:
        """Tells Mininet of the links that were made."""
        for link in self.topology.links.values():
            self.links.append(_registered(self[link.a.node], self[link.b.node], link.a, link.b))

    def configLinkStatus(self, src: str, dst: str, status: str) -> None:  # noqa: N802 - Mininet's name
        """`link <src> <dst> up|down` of the prompt: cuts or mends the fibre."""
        links = [link for link in self.topology.links.values() if {link.a.node, link.b.node} == {src, dst}]
        if not links or self.set_link is None:
            error(f"there is no link between {src} and {dst}\n")
            return
        for link in links:
            self.set_link(link.name, status == "up")

    def steer(self, set_link: SetState, set_power: SetState) -> None:
        """Gives the prompt's `link` and `switch` commands something to act on."""
        self.set_link = set_link
        for switch in self.switches:
            switch.set_power = set_power

    def stop_nodes(self) -> None:
        """Ends the shells; the namespaces go with their last process, and the links with them."""
        for node in self.values():
            if node.shell is not None and node.shell.poll() is None:
                node.shell.kill()
        for node in self.values():
            node.cleanup()
        self.links.clear()


def _registered(node_a: Any, node_b: Any, a: Any, b: Any) -> Link:
    link = Link.__new__(Link)  # its constructor would make a veth pair
    link.intf1 = FabricIntf(a.ifname, node=node_a, port=a.port, link=link, mac=mac(a), moveIntfFn=_stay)
    link.intf2 = FabricIntf(b.ifname, node=node_b, port=b.port, link=link, mac=mac(b), moveIntfFn=_stay)
    return link


def _stay(*_arguments: Any, **_options: Any) -> None:
    """In the place of Mininet's moving of interfaces: they were born in their namespace."""
