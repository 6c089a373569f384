"""Kernel settings of a router's network namespace: a table, writing it, reading it back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from testbed.errors import HostError
from testbed.routing.namespace import inside
from testbed.routing.options import BgpOptions
from topologies import Topology

PROC = Path("/proc/sys/net")


@dataclass(frozen=True)
class Setting:
    """One kernel setting below /proc/sys/net. `required`: without it the router would be wrong, so its absence is an error."""

    key: str
    value: str
    required: bool = True


# Same for every router; sources: FRR manual "IPv6 forwarding", kernel Documentation/networking/ip-sysctl.rst.
COMMON = (
    Setting("ipv6/conf/all/disable_ipv6", "0"),
    Setting("ipv6/conf/all/forwarding", "1"),
    Setting("ipv6/conf/all/keep_addr_on_down", "1"),
    Setting("ipv6/conf/default/keep_addr_on_down", "1"),
    # A next hop without carrier is skipped at once, before zebra has rewritten the route: the hardware's fast failover.
    Setting("ipv6/conf/all/ignore_routes_with_linkdown", "1"),
    Setting("ipv6/conf/default/ignore_routes_with_linkdown", "1"),
    # zebra works from link events; kernel notices for its own routes on top of these are what FRR's manual asks to turn off.
    Setting("ipv6/route/skip_notify_on_dev_down", "1"),
    Setting("ipv6/conf/all/accept_dad", "0"),
    Setting("ipv6/conf/default/accept_dad", "0"),
    Setting("ipv6/conf/default/dad_transmits", "0"),
    # zebra reads and sends router advertisements on a raw socket; the kernel must not make default routes of them.
    Setting("ipv6/conf/all/accept_ra", "0"),
    Setting("ipv6/conf/default/accept_ra", "0"),
    Setting("ipv6/conf/all/accept_redirects", "0"),
    Setting("ipv6/conf/default/accept_redirects", "0"),
    # Loose or strict reverse path filtering would drop what comes in by another port than answers go out by. IPv6 has no such setting in
    # the kernel (netfilter's rpfilter would be its place, and there is no rule here); a machine's default for IPv4 is not to be inherited.
    Setting("ipv4/conf/all/rp_filter", "0"),
    Setting("ipv4/conf/default/rp_filter", "0"),
    # With 1 (the default) routes through next-hop objects are dumped with their next hops written out, which `fib.py` reads.
    Setting("ipv4/nexthop_compat_mode", "1", required=False),
)
PER_PORT = (
    ("ipv6/conf/{}/keep_addr_on_down", "1"),
    ("ipv6/conf/{}/ignore_routes_with_linkdown", "1"),
    ("ipv6/conf/{}/accept_dad", "0"),
    ("ipv6/conf/{}/dad_transmits", "0"),
    ("ipv6/conf/{}/accept_ra", "0"),
    ("ipv6/conf/{}/accept_redirects", "0"),
    # Link-local addresses made of the MAC: by them `events.py` knows who sent a message.
    ("ipv6/conf/{}/addr_gen_mode", "0"),
    ("ipv4/conf/{}/rp_filter", "0"),
)
SEED = "ipv4/fib_multipath_hash_seed"  # kernel >= 6.11; for IPv4 and IPv6
POLICY = "ipv6/fib_multipath_hash_policy"
FIELDS = "ipv6/fib_multipath_hash_fields"  # kernel >= 5.14; read only with policy 3
# Addresses, protocol and ports; T1s leave the protocol out: other input, other hash.
FIELDS_BY_TIER = {0: 0x0037, 1: 0x0033, 2: 0x0037}
ADDRESS_FIELDS, PORT_FIELDS, ALL_FIELDS = 0x0003, 0x0030, 0xFFFF  # of ip-sysctl.rst, fib_multipath_hash_fields
# Policy 0, the kernel's own layer 3, will not do for `l3`: it hashes the flow label, which Linux hosts make from the ports.


def settings(topology: Topology, router: str, options: BgpOptions, has_seed: bool) -> tuple[Setting, ...]:
    """Every setting of one router. The ECMP hash covers what `hash_policy` says, and differs from router to router.

    Linux hashes alike in all namespaces of a machine. Were it the same on T0 and T1, a T1 would only see flows whose hash lies in its own
    share, and half of its next hops would never carry anything. With `has_seed` each router gets a seed of its own; on older kernels
    the tiers hash different fields.

    Policy 1, the kernel's own layer 4, will not do: it takes the hash that a packet has already (net/ipv6/route.c, rt6_multipath_hash,
    `skb->l4_hash`), and a UDP or TCP socket of the kernel gives it one, which a veth hands on. Then all routers choose alike again.
    """
    ports = [link.end(router) for link in topology.links_of(router)]
    per_port = [Setting(key.format(port.ifname), value) for port in ports for key, value in PER_PORT]
    return (*COMMON, *_hashing(topology, router, options, has_seed), *per_port)


def _hashing(topology: Topology, router: str, options: BgpOptions, has_seed: bool) -> tuple[Setting, ...]:
    """Settings of the multipath hash (see `settings`)."""
    seed = (options.ecmp_seed << 16) + topology.switches.index(router) + 1
    seeds = (Setting(SEED, str(seed)),) if has_seed else ()
    fields = FIELDS_BY_TIER[topology.nodes[router].tier] & (ALL_FIELDS if options.hash_policy == "l4" else ~PORT_FIELDS)
    return (Setting(POLICY, "3"), Setting(FIELDS, f"{fields:#06x}"), *seeds)


def has_seed() -> bool:
    """Whether this kernel can give each namespace its own multipath hash seed."""
    return (PROC / SEED).exists()


def apply(pid: int, router: str, wanted: tuple[Setting, ...]) -> dict[str, str]:
    """Writes the settings in the namespace of `pid`, reads each back, returns key -> value as read.

    Raises HostError that lists every required setting that is missing or did not take.
    """
    found = inside(pid, lambda: {setting.key: _write(setting) for setting in wanted})
    if wrong := differences(router, wanted, found):
        raise HostError(f"kernel settings: {'; '.join(wrong)}; the BGP arm needs Linux 5.15 or newer with IPv6 multipath")
    return {key: value for key, value in found.items() if value}


def read(pid: int, wanted: tuple[Setting, ...]) -> dict[str, str]:
    """Present values of the settings in the namespace of `pid`; an absent one is an empty string."""
    return inside(pid, lambda: {setting.key: _read(setting.key) for setting in wanted})


def differences(router: str, wanted: tuple[Setting, ...], found: dict[str, str]) -> list[str]:
    """Sentences for the required settings that are not as wanted."""
    return [f"{router}: {s.key} is {found[s.key] or 'missing'}, not {s.value}" for s in wanted if s.required and not _same(found[s.key], s)]


def _write(setting: Setting) -> str:
    """Writes one setting (in the present namespace) and returns what the kernel then says, empty if there is no such setting."""
    path = PROC / setting.key
    if not path.exists():
        return ""
    try:
        path.write_text(setting.value)
    except OSError as error:
        return f"unwritable ({error.strerror})"
    return _read(setting.key)


def _read(key: str) -> str:
    """One setting's value in the present namespace, or an empty string."""
    path = PROC / key
    return path.read_text().strip() if path.exists() else ""


def _same(found: str, setting: Setting) -> bool:
    """Compares as numbers where both are (0x0037 reads back as 0x0037 or 55, depending on the kernel)."""
    try:
        return int(found, 0) == int(setting.value, 0)
    except ValueError:
        return found == setting.value
