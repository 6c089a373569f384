"""veth links with a rate, two priority classes and the link program on every egress. The texts are pure; `verify_port` reads back.

    root htb 1: -- 1:1 (link rate) -- 1:10 control, prio 0, guaranteed the whole rate  -- bfifo
                                   `- 1:20 data,    prio 1, gets what control leaves   -- bfifo
    clsact egress -- link.bpf.c (before the queues)

HTB serves a class within its own rate before any class that borrows, and charges both to 1:1. So control with the whole rate guaranteed and
data with almost nothing guaranteed is strict priority, without exceeding the link's rate.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping

from hosts.wire import DSCP_CONTROL, DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP
from testbed.errors import HostError
from testbed.fabric.bpf import CLSACT_EGRESS, PROGRAM_PIN, program_id, row_of
from testbed.fabric.netlink import Interface, Netlink, TrafficObject
from testbed.link_settings import DSCP_ROUTING, LinkSettings
from testbed.netlink_wire import attributes
from topologies import End, Link
from topologies.addresses import mac

CONTROL_QUEUE_BYTES = 256 * 1024
DATA_GUARANTEED_BPS = 8000  # the least that is safely not 0; see the module's text
_NO_PARENT = 0xFFFFFFFF  # TC_H_ROOT
ROOT, LINK_CLASS, CONTROL_CLASS, DATA_CLASS = 0x10000, 0x10001, 0x10010, 0x10020
_CONTROL_QUEUE, _DATA_QUEUE = 0x100000, 0x200000
_FIRST_IFINDEX = 100
_HTB_PARAMETERS, _OPTIONS, _STATISTICS2 = 1, 2, 7  # TCA_HTB_PARMS, TCA_OPTIONS, TCA_STATS2
_QUEUE_STATISTICS = 3  # TCA_STATS_QUEUE
# Neighbour discovery (ICMPv6 133..137) must not starve behind data either.
_U32_MATCHES = (
    *(f"match ip6 priority {dscp << 2:#04x} 0xfc" for dscp in (DSCP_CONTROL, DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP, DSCP_ROUTING)),
    "match ip6 protocol 58 0xff match u8 0x84 0xfc at 40",
    "match ip6 protocol 58 0xff match u8 0x88 0xfe at 40",
)


def ifindex(link: Link, at_a: bool) -> int:
    """The interface's index, unique in the fabric.

    The kernel delays carrier events by up to a second for a device whose index equals its peer's, which namespaces make likely
    (linkwatch_urgent_event in net/core/link_watch.c takes it for a device without a lower device).
    """
    return _FIRST_IFINDEX + row_of(link, at_a)


def veth_batch(links: Iterable[Link], pid_of: Callable[[str], int], settings: LinkSettings) -> str:
    """`ip -batch` text that makes all links, each end born in its node's namespace."""
    ends = [[_veth_end(link, at_a, pid_of, settings) for at_a in (True, False)] for link in links]
    return "".join(f"link add {a} type veth peer name {b}\n" for a, b in ends)


def _veth_end(link: Link, at_a: bool, pid_of: Callable[[str], int], settings: LinkSettings) -> str:
    end = link.a if at_a else link.b
    return f"{end.ifname} index {ifindex(link, at_a)} mtu {settings.mtu_bytes} address {mac(end)} netns {pid_of(end.node)}"


def ports_of(node: str, links: Iterable[Link]) -> list[tuple[Link, End, bool]]:
    """(link, own end, whether that is end a) for each link of a node."""
    return [(link, link.a if link.a.node == node else link.b, link.a.node == node) for link in links]


def shaping_batch(ifname: str, row: int, settings: LinkSettings) -> str:
    """`tc -batch` text for one port; `row` is the link program's row for what this port sends."""
    burst = f"burst {settings.burst_bytes} cburst {settings.burst_bytes} quantum {settings.frame_bytes}"
    small = f"burst {settings.frame_bytes} cburst {settings.burst_bytes} quantum {settings.frame_bytes}"
    ceil = f"ceil {settings.rate_bps}bit"
    lines = [
        f"qdisc add dev {ifname} root handle 1: htb default 20",
        f"class add dev {ifname} parent 1: classid 1:1 htb rate {settings.rate_bps}bit {ceil} {burst}",
        f"class add dev {ifname} parent 1:1 classid 1:10 htb rate {settings.rate_bps}bit {ceil} {burst} prio 0",
        f"class add dev {ifname} parent 1:1 classid 1:20 htb rate {DATA_GUARANTEED_BPS}bit {ceil} {small} prio 1",
        f"qdisc add dev {ifname} parent 1:10 handle 10: bfifo limit {CONTROL_QUEUE_BYTES}",
        f"qdisc add dev {ifname} parent 1:20 handle 20: bfifo limit {settings.queue_bytes}",
        *(f"filter add dev {ifname} parent 1: protocol ipv6 prio 1 u32 {match} flowid 1:10" for match in _U32_MATCHES),
        f"qdisc add dev {ifname} clsact",
        f"filter add dev {ifname} egress bpf da pinned {PROGRAM_PIN} classid 1:{row:x}",
    ]
    return "\n".join(lines) + "\n"


def verify_port(kernel: Netlink, link: Link, at_a: bool, settings: LinkSettings, program: int) -> None:
    """Compares one port's interface, queues, classes, filters and program with what was asked; HostError names the link and differences."""
    index, end = ifindex(link, at_a), link.a if at_a else link.b
    wrong = [
        *_wrong_interface(kernel.interface(index), end, settings),
        *_wrong_classes(kernel.classes(index), settings),
        *_wrong_queues([found for found in kernel.qdiscs() if found.ifindex == index], settings),
        *_wrong_filters(kernel.filters(index, ROOT), kernel.filters(index, CLSACT_EGRESS), row_of(link, at_a), program),
    ]
    if wrong:
        raise HostError(f"link {link.name}, port {end.ifname}: not as set up: {'; '.join(wrong)}")


def queue_drops(kernel: Netlink) -> dict[int, int]:
    """Packets that the leaf queues dropped since they were made, by interface index."""
    drops: dict[int, int] = {}
    for found in kernel.qdiscs():
        if found.kind == "bfifo":
            drops[found.ifindex] = drops.get(found.ifindex, 0) + _dropped(found)
    return drops


def _dropped(queue: TrafficObject) -> int:
    raw = attributes(queue.attributes[_STATISTICS2])[_QUEUE_STATISTICS]
    return int(struct.unpack_from("=III", raw)[2])  # struct gnet_stats_queue: qlen, backlog, drops, requeues, overlimits


def _wrong_interface(found: Interface, end: End, settings: LinkSettings) -> list[str]:
    pairs = (("name", found.name, end.ifname), ("MTU", found.mtu_bytes, settings.mtu_bytes), ("MAC", found.mac, mac(end)))
    return [f"{what} is {is_} instead of {asked}" for what, is_, asked in pairs if is_ != asked]


def _wrong_classes(found: Iterable[TrafficObject], settings: LinkSettings) -> list[str]:
    rate, data = settings.rate_bytes_per_s, DATA_GUARANTEED_BPS // 8
    asked: Mapping[int, tuple[int, int, int, int]] = {
        LINK_CLASS: (_NO_PARENT, rate, rate, 0),
        CONTROL_CLASS: (LINK_CLASS, rate, rate, 0),
        DATA_CLASS: (LINK_CLASS, data, rate, 1),
    }
    present = {class_.handle: _class_values(class_) for class_ in found if class_.kind == "htb"}
    return [
        f"class 1:{handle & 0xFFFF:x} (parent, rate, ceiling in bytes/s, priority) is {present.get(handle)} instead of {values}"
        for handle, values in asked.items()
        if present.get(handle) != values
    ]


def _class_values(found: TrafficObject) -> tuple[int, int, int, int]:
    """(parent, rate, ceiling, priority) of `struct tc_htb_opt`: two `tc_ratespec` of 12 bytes, buffer, cbuffer, quantum, level, prio."""
    raw = attributes(found.attributes[_OPTIONS])[_HTB_PARAMETERS]
    (rate,), (ceiling,) = struct.unpack_from("=I", raw, 8), struct.unpack_from("=I", raw, 20)
    (priority,) = struct.unpack_from("=I", raw, 40)
    # HTB reports priorities of leaves only; the link's class has none.
    return found.parent, rate, ceiling, priority if found.handle != LINK_CLASS else 0


def _wrong_queues(found: Iterable[TrafficObject], settings: LinkSettings) -> list[str]:
    present = {queue.handle: queue for queue in found}
    wrong = [] if present.get(ROOT) and present[ROOT].kind == "htb" else ["no HTB at the root"]
    for handle, parent, limit in ((_CONTROL_QUEUE, CONTROL_CLASS, CONTROL_QUEUE_BYTES), (_DATA_QUEUE, DATA_CLASS, settings.queue_bytes)):
        queue = present.get(handle)
        values = (queue.kind, queue.parent, int.from_bytes(queue.attributes[_OPTIONS], "little")) if queue else None
        if values != ("bfifo", parent, limit):
            wrong.append(f"queue {handle >> 16:x}: is {values} instead of {('bfifo', parent, limit)}")
    return wrong


def _wrong_filters(classifiers: list[TrafficObject], programs: list[TrafficObject], row: int, program: int) -> list[str]:
    """u32 rules carry a class id (TCA_U32_CLASSID 1); the program's filter (TCA_BPF_CLASSID 3) carries the row."""
    targets = [attributes(found.attributes.get(_OPTIONS, b"")).get(1) for found in classifiers]
    rules = [int.from_bytes(target, "little") for target in targets if target]
    wrong = [] if rules == [CONTROL_CLASS] * len(_U32_MATCHES) else [f"rules for control packets lead to {rules}"]
    attached = [(program_id(found.attributes), attributes(found.attributes.get(_OPTIONS, b"")).get(3, b"")) for found in programs]
    present = [(identity, int.from_bytes(class_id, "little")) for identity, class_id in attached if identity]
    asked = (program, 0x10000 | row)
    return wrong if present == [asked] else [*wrong, f"link program (id, row) is {present} instead of {asked}"]
