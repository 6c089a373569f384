"""The out-of-band exchange: what one host tells its peers of its QPs, as checked data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hosts.commands import Fields
from hosts.mrc.params import MOST_MPR_PACKETS
from hosts.wire import MPR_UNIT, PSN_MASK, QP_MASK, UDP_PORTS
from testbed.errors import UsageError

VERSION = 1  # of these attributes: both ends must agree upon their meaning (ours; how MRC exchanges them is not published)


@dataclass(frozen=True)
class PeerAttributes:
    """What a peer tells of the QPs between it and this host."""

    rkey: int
    base: int
    mpr_packets: int
    udp_port: int
    send_qps: tuple[int, ...]
    first_psns: tuple[int, ...]
    receive_qps: tuple[int, ...]
    endpoint_psn: int
    ports_down: int


def parse(peer: str, raw: Mapping[str, Any], host: str, qps: int, sends_to_us: bool, receives_from_us: bool) -> PeerAttributes:
    """The attributes of `peer` as far as they concern `host`, which has `qps` QPs to it.

    Raises:
        UsageError: names the field that is missing, has no sense, or does not fit this host.
    """
    told = Fields(raw, f"$.peers.{peer}")
    told.whole("version", VERSION, VERSION)
    mpr_packets, udp_port = told.whole("mpr_packets", MPR_UNIT, MOST_MPR_PACKETS), told.whole("udp_port", 1, 0xFFFF)
    if mpr_packets % MPR_UNIT:
        raise UsageError(f"{told.where}.mpr_packets is {mpr_packets}: give a multiple of {MPR_UNIT}")
    if udp_port not in UDP_PORTS:
        raise UsageError(f"{told.where}.udp_port is {udp_port}: give one of {sorted(UDP_PORTS)}")
    return PeerAttributes(
        rkey=told.whole("rkey", 0, 0xFFFFFFFF),
        base=told.whole("base", 0, (1 << 64) - 1),
        mpr_packets=mpr_packets,
        udp_port=udp_port,
        send_qps=_numbers(told.object("send_qps"), host, qps, QP_MASK) if sends_to_us else (),
        first_psns=_numbers(told.object("first_psns"), host, qps, PSN_MASK) if sends_to_us else (),
        receive_qps=_numbers(told.object("receive_qps"), host, qps, QP_MASK) if receives_from_us else (),
        endpoint_psn=told.whole("endpoint_psn", 0, PSN_MASK),
        ports_down=told.whole("ports_down", 0, 0xFFFFFFFF),
    )


def _numbers(lists: Fields, host: str, count: int, most: int) -> tuple[int, ...]:
    numbers = lists.items(host)
    if len(numbers) != count:
        raise UsageError(f"{lists.where}.{host} has {len(numbers)} entries: give {count}, one a QP; `qps` must be the same at both ends")
    return tuple(Fields({host: number}, lists.where).whole(host, 0, most) for number in numbers)
