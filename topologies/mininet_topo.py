"""The topologies as Mininet `Topo` classes, with our node, interface and port numbers. Only this file imports Mininet."""

from __future__ import annotations

from typing import ClassVar

from mininet.topo import Topo

from topologies import catalogue
from topologies.addresses import mac
from topologies.model import BadTopology, Link, Node, Topology


class FabricTopo(Topo):  # type: ignore[misc]  # Mininet has no types
    """A Mininet topology made from the pure data of a kind; parameters as in `topologies.build`, by position or by name."""

    KIND: ClassVar[str]
    fabric: Topology

    def build(self, *args: object, **params: object) -> None:
        """Adds everything to the graph; called by Mininet. BadTopology as from `topologies.build`."""
        self.fabric = catalogue.build(self.KIND, **self._named(args), **params)
        for node in self.fabric.nodes.values():
            self._add_node(node)
        for link in self.fabric.links.values():
            self._add_link(link)

    def _named(self, args: tuple[object, ...]) -> dict[str, object]:
        """Names for parameters given by position, as on the command line of `mn`."""
        names = [parameter.name for parameter in catalogue.KINDS[self.KIND].parameters]
        if len(args) > len(names):
            raise BadTopology(f"{self.KIND}: {len(args)} parameters are too many: it takes {', '.join(names)}")
        return dict(zip(names, args, strict=False))

    def _add_node(self, node: Node) -> None:
        """A switch's datapath id is its uSID: Mininet would take the first number in the name, which is the same for many switches."""
        if node.kind == "host":
            self.addHost(node.name)
        else:
            self.addSwitch(node.name, dpid=f"{node.usid:016x}")

    def _add_link(self, link: Link) -> None:
        self.addLink(
            link.a.node,
            link.b.node,
            port1=link.a.port,
            port2=link.b.port,
            intfName1=link.a.ifname,
            intfName2=link.b.ifname,
            addr1=mac(link.a),
            addr2=mac(link.b),
        )


class FatTreeTopo(FabricTopo):
    """`FatTreeTopo(k=4, oversubscription=1)`."""

    KIND = "fat-tree"


class MultiPlaneTopo(FabricTopo):
    """`MultiPlaneTopo(planes=2, t0s=2, t1s=2, hosts_per_t0=2)`."""

    KIND = "multi-plane"
