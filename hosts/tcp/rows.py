"""Counters of a host's connections as the history and agents.json want them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hosts.tcp.info import UNKNOWN_US, TcpInfo
from hosts.tcp.sender import Lane, SendPeer


def flow_row(sender: SendPeer, infos: Sequence[TcpInfo]) -> tuple[Any, ...]:
    """A row of `Core.flow_rows`: sums over the connections; the round trip is the mean of those that have measured any."""
    rtts_us = [info.rtt for info in infos if info.rtt and info.data_segs_out]
    srtt_s = sum(rtts_us) / len(rtts_us) / 1e6 if rtts_us else 0.0
    sent, again, window, marked = (
        sum(getattr(info, name) for info in infos) for name in ("data_segs_out", "total_retrans", "snd_cwnd", "delivered_ce")
    )
    return (sender.name, sent, again, sender.acked_bytes, window, srtt_s, 0, marked)


def path_row(sender: SendPeer, lane: Lane, info: TcpInfo) -> tuple[Any, ...]:
    """A row of `Core.path_rows`: not GOOD while the retransmission timer backs off. What TCP sends again counts as lost."""
    state = "ASSUMED_BAD" if sender.error is not None or info.timed_out else "GOOD"
    return (sender.name, lane.index, state, info.data_segs_out, info.total_retrans, 0, 0, info.delivered_ce)


def totals(outgoing: Mapping[str, Sequence[TcpInfo]], incoming: Iterable[TcpInfo]) -> dict[str, Any]:
    """Segments with data, and the smallest round trip to each peer."""
    sent = [info for infos in outgoing.values() for info in infos]
    base_us = {peer: min((info.min_rtt for info in infos), default=UNKNOWN_US) for peer, infos in outgoing.items()}
    return {
        "data_packets_sent": sum(info.data_segs_out for info in sent),
        "data_packets_retransmitted": sum(info.total_retrans for info in sent),
        "spurious_retransmissions": sum(info.dsack_dups for info in sent),
        "data_packets_received": sum(info.data_segs_in for info in incoming),
        "base_rtt_s": {peer: us / 1e6 for peer, us in base_us.items() if us != UNKNOWN_US},
    }
