"""FRR configuration of one router as text, after RFC 7938: pure functions of the topology and the options."""

from __future__ import annotations

from pathlib import Path

from testbed.errors import UsageError
from testbed.routing.options import BgpOptions
from topologies import Link, Topology
from topologies.addresses import host_address

# Private 4-byte ASNs are 4200000000 to 4294967294 (RFC 6996). One range a tier, so that a path can be read with bare eyes.
ASN_T2 = 4_200_000_000
ASN_T1 = 4_200_100_000
ASN_T0 = 4_200_200_000
BFD_PROFILE = "fabric"  # bfdd's name for the intervals that all sessions share
HOST_ROUTES = "HOSTS"  # name of the prefix list and route map that let only host /128s into BGP


def asn(topology: Topology, router: str) -> int:
    """The router's AS number (RFC 7938 5.2.1): one for all T2s, one for the T1s of a pod (or of a plane, where there are planes), one a T0.

    T1s that share one ASN refuse each other's routes by the AS loop check, so a packet never goes down and up again (no valleys).
    """
    node = topology.nodes[router]
    if node.tier == 2:
        return ASN_T2
    if node.tier == 1:
        return ASN_T1 + (node.plane if topology.kind == "multi-plane" else node.pod)
    return ASN_T0 + node.index


def router_id(topology: Topology, router: str) -> str:
    """A unique BGP identifier: 10.0.x.y counts the switches from 1 (there is no IPv4 address to take it from)."""
    number = _number(topology, router)
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def fabric_ports(topology: Topology, router: str) -> tuple[str, ...]:
    """Names of the router's interfaces towards other switches, in port order: those that speak BGP."""
    return tuple(link.end(router).ifname for link in topology.links_of(router) if link.tier != "NIC-T0")


def host_ports(topology: Topology, router: str) -> tuple[tuple[str, Link], ...]:
    """(interface name, link) of the router's ports towards hosts, in port order; empty for T1 and T2."""
    return tuple((link.b.ifname, link) for link in topology.links_of(router) if link.tier == "NIC-T0" and link.b.node == router)


def host_prefix(topology: Topology, host: str) -> str:
    """The /128 that stands for a host in BGP and in the FIBs, without the length."""
    return host_address(topology.nodes[host])


def zebra_config(router: str) -> str:
    """zebra's start file: nothing but the name. The rest is said on its vty, since from FRR 10 on zebra may ignore such a file."""
    return f"hostname {router}\n"


def zebra_commands(options: BgpOptions) -> tuple[str, ...]:
    """Configuration commands for zebra's vty (from `configure terminal` on), to be given before bgpd starts."""
    switch = "" if options.kernel_nexthop_groups else "no "
    return (f"{switch}zebra nexthop kernel enable",)


def bfdd_config(router: str, options: BgpOptions) -> str:
    """bfdd's whole start file: the profile that bgpd's sessions name. It tells each change of a BFD session in its log."""
    return "\n".join([
        f"hostname {router}", "debug bfd peer", "bfd", f" profile {BFD_PROFILE}",
        f"  transmit-interval {options.bfd_interval_ms}", f"  receive-interval {options.bfd_interval_ms}",
        f"  detect-multiplier {options.bfd_multiplier}", " exit", "exit",
    ]) + "\n"  # fmt: skip


def log_config(path: Path, level: str) -> str:
    """Start-file lines for a log with microseconds, which the option --log has not."""
    return f"log file {path} {level}\nlog timestamp precision 6\n"


def dump_config(path: Path) -> str:
    """Start-file line that makes bgpd record what it receives, and its state changes (RFC 6396, BGP4MP_ET: microseconds)."""
    return f"dump bgp all-et {path}\n"


def bgpd_config(topology: Topology, router: str, options: BgpOptions) -> str:
    """bgpd's whole start file; UsageError for a host."""
    if topology.nodes[router].kind != "switch":
        raise UsageError(f"{router} is not a switch: only switches run BGP")
    ports = fabric_ports(topology, router)
    sections = [
        [f"frr defaults {options.frr_profile}", f"hostname {router}"],
        _host_filter(topology, router),
        [f"router bgp {asn(topology, router)}", *_instance(topology, router, options), *_sessions(ports, options)],
        [" address-family ipv6 unicast", *_family(ports, bool(host_ports(topology, router)), options), " exit-address-family", "exit"],
    ]
    return "\n".join(line for section in sections for line in section) + "\n"


def _instance(topology: Topology, router: str, options: BgpOptions) -> list[str]:
    """Lines that hold for all sessions of the router."""
    return [
        f" bgp router-id {router_id(topology, router)}",
        " bgp log-neighbor-changes",
        " no bgp ebgp-requires-policy",
        " no bgp default ipv4-unicast",
        f" {'' if options.fast_external_failover else 'no '}bgp fast-external-failover",
        " bgp graceful-restart-disable",
        " bgp bestpath as-path multipath-relax",
        f" coalesce-time {options.coalesce_ms}",
        f" timers bgp {options.keepalive_s} {options.hold_s}",
    ]


def _sessions(ports: tuple[str, ...], options: BgpOptions) -> list[str]:
    """One unnumbered session a port: the neighbour's link-local address comes from its router advertisements."""
    lines = []
    for port in ports:
        lines += [
            f" neighbor {port} interface remote-as external",
            f" neighbor {port} timers connect {options.connect_retry_s}",
            f" neighbor {port} advertisement-interval {options.advertisement_interval_s}",
        ]
        lines += [f" neighbor {port} bfd", f" neighbor {port} bfd profile {BFD_PROFILE}"] if options.has_bfd else []
    return lines


def _family(ports: tuple[str, ...], has_hosts: bool, options: BgpOptions) -> list[str]:
    """IPv6 unicast: activate each session, announce the host routes, balance over all equal paths."""
    activated = [f"  neighbor {port} activate" for port in ports]
    announced = [f"  redistribute connected route-map {HOST_ROUTES}"] if has_hosts else []
    return [*activated, *announced, f"  maximum-paths {options.ecmp_width}"]


def _host_filter(topology: Topology, router: str) -> list[str]:
    """Only the router's own hosts are announced, whatever else is connected; no lines for a router without hosts.

    It stands *before* the line that uses it: a route map that appears later is only looked at by bgpd after 5 seconds.
    """
    prefixes = [f"{host_prefix(topology, link.a.node)}/128" for _, link in host_ports(topology, router)]
    if not prefixes:
        return []
    permits = [f"ipv6 prefix-list {HOST_ROUTES} seq {5 * number} permit {prefix}" for number, prefix in enumerate(prefixes, start=1)]
    return [*permits, f"route-map {HOST_ROUTES} permit 10", f" match ipv6 address prefix-list {HOST_ROUTES}", "exit"]


def _number(topology: Topology, router: str) -> int:
    """Position of the router among the switches, from 1."""
    return topology.switches.index(router) + 1
