"""Whether links and transports fit together: what a link can be, and whether a full packet fits its MTU."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from hosts import wire
from testbed.errors import UsageError
from testbed.scenario.derived_links import HASHED_ARMS, TRANSPORT_OF_ARM, link_settings
from testbed.scenario.options import owner
from testbed.scenario.problems import Place, Problem
from testbed.scenario.schema import Links, Transport
from topologies import Topology

_COMMON = (wire.IPV6, wire.UDP, wire.BTH, wire.RETH, wire.IMMDT)
TCP_HEADER_BYTES = 20 + 12  # RFC 9293, and the timestamps of RFC 7323, which Linux sends with every segment, padded to 12
# The longest headers of a data packet, invariant CRC included. TCP cuts its own segments: it has no payload that might not fit.
HEADER_BYTES: Mapping[str, int] = {
    "mrc": sum(header.size_bytes for header in (*_COMMON, wire.IPV6, wire.METH, wire.TSETH)) + wire.ICRC_BYTES,
    "rc": sum(header.size_bytes for header in _COMMON) + wire.ICRC_BYTES,
    "tcp": wire.IPV6.size_bytes + TCP_HEADER_BYTES,
}


def header_bytes(arm: str) -> int | None:
    """The longest headers of an arm's data packets; MRC whose EVs routers hash has no outer one. None: an arm that is not known."""
    known = HEADER_BYTES.get(TRANSPORT_OF_ARM.get(arm, ""))
    return known - wire.IPV6.size_bytes if known is not None and arm in HASHED_ARMS else known


def link_problems(links: Links, arms: tuple[str, ...], dcqcn: bool) -> list[Problem]:
    """What no link of these arms can be; LinkSettings knows its own limits. `dcqcn`: RC's arms need marks."""
    messages = dict.fromkeys(message for arm in arms if (message := _refused(links, arm, dcqcn)))
    problems = [Problem(("links",), message) for message in messages]
    if dcqcn and not links.ecn:
        message = "DCQCN listens to ECN marks, but links.ecn is false"
        problems.append(Problem(("transport", "rc", "dcqcn"), message, "set links.ecn to true, or transport.rc.dcqcn to false"))
    return problems


def _refused(links: Links, arm: str, dcqcn: bool) -> str | None:
    try:
        link_settings(links, arm, seed=0, dcqcn=dcqcn)
    except UsageError as error:
        return str(error)
    return None


def tier_problems(tiers: Iterable[str], place: Place, topology: Topology) -> list[Problem]:
    """Tiers that a section names and the topology does not have."""
    known = dict.fromkeys(link.tier for link in topology.links.values())
    missing = [tier for tier in tiers if tier not in known]
    return [Problem((*place, tier), f"this {topology.kind} has no {tier} links", f"it has: {', '.join(sorted(known))}") for tier in missing]


def packet_problems(links: Links, transport: Transport, arms: tuple[str, ...]) -> Iterator[Problem]:
    """Transports of the scenario's arms whose full packet is longer than the MTU: it would never leave the host."""
    given = transport.model_dump()
    for name, headers in _longest_headers(arms).items():
        payload, room = given[name].get("payload_bytes", _default_payload(name)), links.mtu_bytes - headers
        if isinstance(payload, int) and payload > room:
            message = f"{payload} bytes with {headers} of headers do not fit the links' MTU of {links.mtu_bytes}"
            hint = f"use at most {room // 4 * 4}, or make links.mtu at least {payload + headers}B"
            yield Problem(("transport", name, "payload_bytes"), message, hint)


def rate_problems(transport: Transport) -> Iterator[Problem]:
    """DCQCN without the rate that it starts from, which a run gives unless the scenario takes it away."""
    if transport.rc.get("dcqcn") is True and transport.rc.get("link_rate_bps") == 0:
        message = "DCQCN starts at the rate of the NIC's link, and that is 0"
        yield Problem(("transport", "rc", "link_rate_bps"), message, "leave it out: it is links.rate then")


def _longest_headers(arms: Iterable[str]) -> dict[str, int]:
    """By transport, the longest headers of these arms' data packets."""
    longest: dict[str, int] = {}
    for arm in arms:
        transport = TRANSPORT_OF_ARM[arm]
        longest[transport] = max(longest.get(transport, 0), header_bytes(arm) or 0)
    return longest


def _default_payload(name: str) -> object:
    kind = owner(name)
    return {field.name: field.default for field in dataclasses.fields(kind)}.get("payload_bytes") if kind else None
