"""What the links of an arm are, from a scenario's `links` section: queue, base RTT, what the switches do when a queue grows."""

from __future__ import annotations

import math
from collections.abc import Mapping

from testbed.link_settings import BURST_S, LinkSettings
from testbed.scenario.schema import Links

TRANSPORT_OF_ARM: Mapping[str, str] = {
    "mrc": "mrc", "mrc-no-trim": "mrc", "mrc-bgp": "mrc", "rc-bgp": "rc", "rc-bgp-ovs": "rc", "rc-static": "rc", "tcp-bgp": "tcp",
}  # fmt: skip
SWITCHING_OF_ARM: Mapping[str, str] = {
    "mrc": "ovs", "mrc-no-trim": "ovs", "mrc-bgp": "frr", "rc-bgp": "frr",
    "rc-bgp-ovs": "ovs-bgp", "rc-static": "ovs-ecmp", "tcp-bgp": "frr",
}  # fmt: skip
"""`ovs`: static uSID tables. `ovs-bgp`: ECMP tables that a controller changes as BGP would. `ovs-ecmp`: the same tables, never changed."""
USID_ARMS = tuple(arm for arm, switching in SWITCHING_OF_ARM.items() if switching == "ovs")
"""Those whose senders choose the whole path: an EV has known links."""
HASHED_ARMS = tuple(arm for arm, transport in TRANSPORT_OF_ARM.items() if transport == "mrc" and arm not in USID_ARMS)
"""Those whose EVs routers hash: which links an EV uses is not known."""
ECMP_ARMS = tuple(arm for arm, switching in SWITCHING_OF_ARM.items() if switching in ("ovs-bgp", "ovs-ecmp"))
"""Those whose Open vSwitch instances route by destination."""

CONTROLLER_ARMS = tuple(arm for arm, switching in SWITCHING_OF_ARM.items() if switching == "ovs-bgp")
"""Those with a controller, which can be killed."""

# Forwarding at light load over the longest path, there and back: 1.0 ms on an idle machine (benchmarks/base_rtt.py), 1.1 to 1.8 ms one way
# on a busy one. The rate has no part in it: HTB lets a frame pass at once when the link was not full, so no link stores and forwards.
BASE_RTT_S = 0.004

# The default queue never drops a packet of so many RC senders that share a link, each with its default window (hosts.rc.params).
LOSSLESS_SENDERS = 8
QUEUE_BDP = 2
RC_WINDOW_PACKETS = 16


def queue_bytes(links: Links) -> int:
    """The queue of a link: as asked, else derived.

    Two bandwidth-delay products and a burst, which is more than the deepest threshold of trimming, but no less than RoCE RC needs: RC is
    made for a lossless fabric (PFC), which we do not emulate; with a short queue two senders on one link lose packets, and go-back-N
    multiplies them. So a queue holds the full windows of LOSSLESS_SENDERS senders. MRC keeps queues short by itself.
    """
    if links.queue_bytes:
        return links.queue_bytes
    packets = math.ceil(links.rate_bps * (QUEUE_BDP * base_rtt_s(links) + BURST_S) / 8 / links.mtu_bytes)
    return max(packets, LOSSLESS_SENDERS * RC_WINDOW_PACKETS) * links.mtu_bytes


def base_rtt_s(links: Links) -> float:
    """Round trip of a packet of any size, and its acknowledgement, over the longest path of an idle fabric: as asked, else BASE_RTT_S."""
    return links.base_rtt_s or BASE_RTT_S


def link_settings(links: Links, arm: str, seed: int, dcqcn: bool = False) -> LinkSettings:
    """Every link direction of an arm's fabric. UsageError for what no link can be.

    With `dcqcn` links of RC's arms mark at MRC's thresholds, and those to hosts, too: an incast's queue is there. Queues stay as deep.
    """
    is_mrc = TRANSPORT_OF_ARM[arm] == "mrc"
    rc_marks = TRANSPORT_OF_ARM[arm] == "rc" and dcqcn and links.ecn
    trims = links.trimming and arm != "mrc-no-trim"
    return LinkSettings(
        rate_bps=round(links.rate_bps),
        mtu_bytes=links.mtu_bytes,
        queue_bytes=queue_bytes(links),
        ecn=(is_mrc and links.ecn) or rc_marks,
        trimming=is_mrc and trims,
        tail_drop=is_mrc and not trims,
        base_rtt_s=base_rtt_s(links) if is_mrc or rc_marks else 0.0,
        seed=seed,
        loss={str(tier): share for tier, share in links.loss.items()},
        last_hop_marks=rc_marks,
    )
