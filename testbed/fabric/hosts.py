"""What a host's namespace is given: addresses, static neighbours, and routes. Pure texts for `ip -batch`, and kernel settings.

There is no neighbour discovery on the data path: everything goes to one fixed next hop, the T0 of the port, whose MAC is permanent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv6Address

from topologies import Link, Node, Topology
from topologies.addresses import USID_BLOCK, host_address, mac, usid_address
from topologies.usid import destination

GATEWAY = "fe80::1"
"""The T0's address on its host ports, on every one of them; the host's neighbour entry for it is permanent."""
HOST_BLOCK = "fd00::/48"
TUNNEL_BLOCK = "fd00:0:1::/48"
"""Outer sources of what the kernel itself encapsulates (ping in the shell); agents send from the uSID address instead."""
_TUNNEL_TABLE = 100
_FIRST_METRIC = 1024

SYSCTLS: Mapping[str, str] = {
    f"net/ipv6/conf/{scope}/{key}": value
    for scope in ("all", "default")
    for key, value in {"accept_ra": "0", "autoconf": "0", "router_solicitations": "0", "accept_dad": "0", "dad_transmits": "0"}.items()
}
# Distributions and clouds change these (BBR's hosts get other buffers, for one). The values are Linux' own defaults, from
# Documentation/networking/ip-sysctl.rst, but for tcp_no_metrics_save: what one attempt of a job has learnt of the path must not help, or
# harm, the next one. The congestion control is a parameter of the transport (hosts/tcp/params.py).
TCP_SYSCTLS: Mapping[str, str] = {
    f"net/ipv4/tcp_{key}": value
    for key, value in {
        "syn_retries": "6", "retries2": "15", "sack": "1", "dsack": "1", "timestamps": "1", "window_scaling": "1", "recovery": "1",
        "early_retrans": "3", "frto": "2", "slow_start_after_idle": "1", "mtu_probing": "0", "ecn": "2", "moderate_rcvbuf": "1",
        "no_metrics_save": "1", "rmem": "4096\t131072\t6291456", "wmem": "4096\t16384\t4194304",
    }.items()
}  # fmt: skip
ROUTED_SYSCTLS: Mapping[str, str] = {
    **SYSCTLS,
    **TCP_SYSCTLS,
    "net/ipv6/conf/all/ignore_routes_with_linkdown": "1",
    "net/ipv6/conf/default/ignore_routes_with_linkdown": "1",
    "net/ipv6/fib_multipath_hash_policy": "3",
    "net/ipv6/fib_multipath_hash_fields": "51",  # addresses and ports, not the protocol: other input than the T0s', other hash
}
"""Hosts of a routed fabric choose a port (a plane) for each flow by its addresses and ports, and never one without carrier."""
SWITCH_SYSCTLS: Mapping[str, str] = {f"net/ipv6/conf/{scope}/disable_ipv6": "1" for scope in ("all", "default")}
"""An Open vSwitch's ports are wires to it: the kernel must not speak IPv6 on them."""


def tunnel_address(node: Node) -> str:
    """The outer source address of a host's kernel-made tunnels."""
    return str(IPv6Address(int(IPv6Address("fd00:0:1::")) | node.usid << 48 | 1))


def host_batch(topology: Topology, host: str, tunnel_mode: str | None) -> str:
    """Everything for a host of the uSID fabric. `tunnel_mode` is the kernel's SRv6 encapsulation (`encap.red`, `encap`), None without."""
    node, links = topology.nodes[host], topology.links_of(host)
    lines = [*_addresses(node), *_gateways(links)]
    lines += [_route(str(USID_BLOCK), link, index, usid_address(node)) for index, link in enumerate(links)]
    if tunnel_mode is not None:
        lines += [*_tunnel_end(node, links[0]), *_tunnel_starts(topology, host, tunnel_mode)]
    return "\n".join(lines) + "\n"


def routed_host_batch(topology: Topology, host: str) -> str:
    """Everything for a host of a routed (BGP) fabric: all other hosts through all its ports, the kernel hashes flows over them."""
    node, links = topology.nodes[host], topology.links_of(host)
    on_ports = [f"addr add {host_address(node)}/128 dev {link.a.ifname} nodad" for link in links]
    return "\n".join([*_addresses(node), *_gateways(links), *on_ports, _through("add", links)]) + "\n"


def port_batch(topology: Topology, host: str, link: Link, tunnel_mode: str | None) -> str:
    """What the kernel of a uSID host forgets when that port is set down: all that names the port. The port must be up again."""
    return _again(host_batch(topology, host, tunnel_mode), link)


def routed_port_batch(topology: Topology, host: str, link: Link, up: Collection[str]) -> str:
    """The same for a host of a routed fabric. `up`: its ports that are up; the route leads through all of them, in order."""
    own = "".join(line + "\n" for line in routed_host_batch(topology, host).splitlines() if not line.startswith("route "))
    return _again(own, link) + _through("replace", [other for other in topology.links_of(host) if other.a.ifname in up]) + "\n"


def _through(verb: str, links: Iterable[Link]) -> str:
    """The route of a routed host to all others, through all of these ports."""
    hops = " ".join(f"nexthop via {GATEWAY} dev {link.a.ifname}" for link in links)
    return f"route {verb} {HOST_BLOCK} {hops}"


def _again(batch: str, link: Link) -> str:
    lines = [line for line in batch.splitlines() if f" dev {link.a.ifname} " in f"{line} "]
    return "".join(line.replace(" add ", " replace ", 1) + "\n" for line in lines)


def _addresses(node: Node) -> Iterator[str]:
    yield "link set lo up"
    yield f"addr add {host_address(node)}/128 dev lo nodad"
    yield f"addr add {usid_address(node)}/128 dev lo nodad"


def _gateways(links: tuple[Link, ...]) -> Iterator[str]:
    for link in links:
        yield f"link set {link.a.ifname} up"
        yield f"neigh add {GATEWAY} lladdr {mac(link.b)} dev {link.a.ifname} nud permanent"


def _route(prefix: str, link: Link, index: int, source: str) -> str:
    """One route a port with a metric of its own, so that a socket bound to any port finds that port's."""
    return f"route add {prefix} via {GATEWAY} dev {link.a.ifname} metric {_FIRST_METRIC + index} src {source}"


def _tunnel_end(node: Node, link: Link) -> Iterator[str]:
    """Unpacks what other kernels packed. It goes by the outer source, so that raw sockets still get what the agents sent.

    The rule must come before the one for local addresses, which is therefore moved from preference 0 to 1.
    """
    yield "rule add pref 1 lookup local"
    yield "rule del pref 0 lookup local"
    yield f"rule add pref 0 from {TUNNEL_BLOCK} lookup {_TUNNEL_TABLE}"
    unpack = "encap seg6local action End.DT6 table 255"
    yield f"route add {usid_address(node)}/128 {unpack} dev {link.a.ifname} table {_TUNNEL_TABLE}"
    yield f"sr tunsrc set {tunnel_address(node)}"


def _tunnel_starts(topology: Topology, host: str, mode: str) -> Iterator[str]:
    """A route to each other host over the first path of the pair."""
    source = host_address(topology.nodes[host])
    for peer in topology.hosts:
        if peer != host:
            path = topology.paths(host, peer)[0]
            steer = f"encap seg6 mode {mode} segs {destination(topology, path)}"
            port = next(link.a.ifname for link in topology.links_of(host) if link.a.port == path.port)
            yield f"route add {host_address(topology.nodes[peer])}/128 {steer} dev {port} src {source}"
