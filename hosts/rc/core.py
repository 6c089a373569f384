"""One host's RoCE RC: send QPs to each peer it writes to, receive QPs from each peer that writes to it (hosts/core.py's Core)."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from hosts.core import Completion, Event, PeerSpec, QpError, Transmit, Turns, taken
from hosts.rc import wire
from hosts.rc.params import RcParams
from hosts.rc.qps import ReceiveQps, SendQps
from hosts.rc.receiver import ReceiveAttributes, ReceiveQp
from hosts.rc.sender import SendAttributes, SendQp
from hosts.wire import DYNAMIC_PORTS
from testbed.errors import UsageError

ATTRIBUTE_BITS = {"qpn": 24, "source_port": 16, "first_psn": 24, "rkey": 32, "base_address": 63}  # as on the wire; an offset is added to it
MIN_PACKET_BYTES = wire.BTH.size + wire.ICRC.size


class RcCore:
    """Implements hosts.core.Core; `seed` draws QP numbers, first PSNs, source ports, the rkey and the base address."""

    def __init__(
        self,
        name: str,
        address: str,
        params: RcParams,
        send_to: Mapping[str, PeerSpec],
        receive_from: Mapping[str, PeerSpec],
        region: memoryview,
        seed: int,
    ) -> None:
        if params.dcqcn and not params.link_rate_bps:
            raise UsageError("RC parameter dcqcn is true, but link_rate_bps is 0: DCQCN starts at the rate of the NIC's link, so give it")
        self._name, self._address, self._params, self._region = name, address, params, region
        self._send_to, self._receive_from = send_to, receive_from
        draw = random.Random(f"rc {seed} {name}")
        self._rkey, self._base_address = draw.getrandbits(32), draw.randrange(1 << 20, 1 << 46) << 12
        used = set[int]()
        self._send_own = {peer: _own_ends(draw, params.qps, used) for peer in send_to}
        self._receive_own = {peer: _own_ends(draw, params.qps, used) for peer in receive_from}
        self._pairs: dict[str, SendQps] = {}
        self._order: list[SendQp] = []
        self._turns = Turns()
        self._groups: list[ReceiveQps] = []
        self._receivers: list[ReceiveQp] = []
        self._sender_of_qpn: dict[int, tuple[SendQp, wire.Flow]] = {}
        self._receiver_of_qpn: dict[int, ReceiveQp] = {}
        self._notifying: list[ReceiveQp] = []
        self._drops: Counter[str] = Counter()
        self._marked = self._closing = False

    def attributes(self) -> dict[str, Any]:
        """By peer and direction, each QP's number, first PSN and source port; rkey and base address of the region."""
        return {
            "rkey": self._rkey,
            "base_address": self._base_address,
            "region_bytes": len(self._region),
            "send": self._send_own,
            "receive": self._receive_own,
        }

    def connect(self, peers: Mapping[str, Mapping[str, Any]]) -> None:
        """Joins each QP with its other end; UsageError if a peer's attributes lack it."""
        try:
            for peer in self._send_to:
                self._connect_senders(peer, peers[peer])
            for peer in self._receive_from:
                self._connect_receivers(peer, peers[peer]["send"][self._name])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise UsageError(
                f"{self._name}: unusable attributes of a peer ({error!r}): send `connect` with what each `ready` said"
            ) from error

    def _connect_senders(self, peer: str, remote: Mapping[str, Any]) -> None:
        destination = self._send_to[peer].address
        ends = list(zip(self._send_own[peer], remote["receive"][self._name], strict=True))
        attributes = [
            SendAttributes(
                peer, self._address, destination, own["source_port"],
                _told(other, "qpn"), _told(remote, "rkey"), _told(remote, "base_address"), own["first_psn"],
            )
            for own, other in ends
        ]  # fmt: skip
        pair = self._pairs[peer] = SendQps(attributes, self._params)
        self._order += pair.qps
        for qp, (own, other) in zip(pair.qps, ends, strict=True):
            flow = wire.Flow(destination, self._address, _told(other, "source_port"), own["qpn"])
            self._sender_of_qpn[own["qpn"]] = qp, flow

    def _connect_receivers(self, peer: str, others: Sequence[Mapping[str, Any]]) -> None:
        destination, qps = self._receive_from[peer].address, list[ReceiveQp]()
        for own, other in zip(self._receive_own[peer], others, strict=True):
            attributes = ReceiveAttributes(
                peer, self._address, destination, own["source_port"], _told(other, "source_port"), _told(other, "qpn"),
                self._rkey, self._base_address, _told(other, "first_psn"),
            )  # fmt: skip
            qp = self._receiver_of_qpn[own["qpn"]] = ReceiveQp(attributes, self._params, self._region, self._drops)
            qps.append(qp)
        self._receivers += qps
        self._groups.append(ReceiveQps(qps, self._params))

    def post_write(self, now: float, peer: str, data: memoryview, remote_offset: int, imm: int | None) -> None:
        """Queues a Write-with-Immediate; UsageError if there is no connected send QP to `peer`, it is closed, or `imm` is None."""
        if imm is None:
            raise UsageError("RoCE RC is built here for Writes with Immediate only: give an immediate")
        if self._closing:
            raise UsageError(f"{self._name} has closed its QP to {peer}: post before `close`")
        if peer not in self._pairs:
            raise UsageError(f"{self._name} has no connected QP to {peer}: connect first, to one of {sorted(self._send_to)}")
        self._pairs[peer].post(data, remote_offset, imm)

    def outstanding_messages(self, peer: str) -> int:
        """Messages to `peer` not yet wholly acknowledged; 0 before `connect`."""
        return self._pairs[peer].outstanding_messages if peer in self._pairs else 0

    def on_marked(self) -> None:
        """The packet that `on_datagram` takes next met congestion (CE), which its UDP payload does not tell."""
        self._marked = True

    def on_datagram(self, now: float, port: int, datagram: memoryview) -> None:
        """Takes one UDP payload that came to port 4791."""
        marked, self._marked = self._marked, False
        if len(datagram) < MIN_PACKET_BYTES:
            self._drops["short"] += 1
            return
        bth = wire.parse_bth(datagram)
        if bth.opcode == wire.ACK:
            self._on_ack(now, bth, datagram)
        elif bth.opcode in wire.WRITES:
            self._on_write(now, bth, datagram, marked)
        elif bth.opcode == wire.CNP:
            self._on_cnp(now, bth, datagram)
        else:
            self._drops["unknown_opcode"] += 1

    def _on_write(self, now: float, bth: wire.Bth, datagram: memoryview, marked: bool) -> None:
        qp = self._receiver_of_qpn.get(bth.qpn)
        if qp is None:
            self._drops["unknown_qp"] += 1
        elif not qp.incoming.intact(datagram):
            self._drops["bad_icrc"] += 1
        else:
            qp.on_data(bth, datagram)
            if marked and self._params.dcqcn:
                qp.on_mark(now)
                self._notifying.append(qp)

    def _sender(self, bth: wire.Bth, datagram: memoryview) -> SendQp | None:
        """The send QP that a packet of its peer is for; None, and counted, if there is none or the packet is not whole."""
        qp, flow = self._sender_of_qpn.get(bth.qpn, (None, None))
        if qp is None or flow is None:
            self._drops["unknown_qp"] += 1
            return None
        if not flow.intact(datagram):
            self._drops["bad_icrc"] += 1
            return None
        return qp

    def _on_cnp(self, now: float, bth: wire.Bth, datagram: memoryview) -> None:
        if len(datagram) != wire.CNP_BYTES:
            self._drops["bad_length"] += 1
        elif (qp := self._sender(bth, datagram)) is not None and (ignored := qp.on_cnp(now)) is not None:
            self._drops[ignored] += 1

    def _on_ack(self, now: float, bth: wire.Bth, datagram: memoryview) -> None:
        qp = self._sender(bth, datagram)
        if qp is None:
            return
        try:
            (aeth,) = wire.AETH.unpack_from(datagram, wire.BTH.size)
        except struct.error:
            self._drops["short"] += 1
            return
        ignored = qp.on_acknowledge(now, aeth >> 24, bth.psn)
        if ignored is not None:
            self._drops[ignored] += 1

    def on_port(self, now: float, port: int, up: bool) -> None:
        """Nothing: the kernel routes around a dead port, or the ACK timeout fails the QP."""

    def deny(self, now: float, links: Collection[str], evs: Mapping[str, Collection[int]], on: bool) -> dict[str, list[int]]:
        """UsageError: RC has no EVs; the network chooses the path."""
        raise UsageError("RoCE RC has no EVs to deny: the network chooses its path; deny EVs in an arm of MRC")

    def deny_ways_back(self, links: Collection[str], on: bool) -> None:
        """Nothing: the network chooses the path of answers, too."""

    def close(self, now: float) -> None:
        """The send QPs take no new writes."""
        self._closing = True
        for qp in self._order:
            qp.close(now)

    @property
    def closed(self) -> bool:
        """Whether all that was posted before `close` is acknowledged, or its QP has failed."""
        return self._closing and all(qp.closed or qp.error is not None for qp in self._order)

    def on_receive_done(self, now: float) -> None:
        """Nothing to decide: RC's coalescing counts packets."""

    def transmit(self, now: float) -> Iterator[Transmit]:
        """CNPs and acknowledgements first, then data, the QPs in turn."""
        while self._notifying:
            if (notification := self._notifying.pop().notification()) is not None:
                yield notification
        for receiver in self._receivers:
            acknowledgement = receiver.acknowledgement()
            if acknowledgement is not None:
                yield acknowledgement
        yield from self._turns.packets(now, self._order)

    def next_deadline(self) -> float | None:
        """The earliest ACK timeout, or moment at which a QP's rate lets a packet go."""
        if self._params.dcqcn:
            waiting = [due for qp in self._order if (due := qp.next_deadline()) is not None]
        else:
            waiting = [qp.deadline for qp in self._order if qp.deadline is not None]
        return min(waiting) if waiting else None

    def on_timer(self, now: float) -> None:
        """Runs the ACK timeouts that are due."""
        for qp in self._order:
            qp.on_timer(now)

    def take_completions(self) -> list[Completion]:
        """Completions since the last call, in order a peer."""
        return [completion for group in self._groups for completion in group.take()]

    def take_errors(self) -> list[QpError]:
        """Pairs of hosts whose QPs failed since the last call: one QP's error fails them all."""
        failed = [pair for pair in self._pairs.values() if pair.shared.error is not None and not pair.error_taken]
        for pair in failed:
            pair.error_taken = True
        return [QpError(pair.peer, pair.error or "") for pair in failed]

    def take_events(self) -> list[Event]:
        """`rc_timeout`, `rc_nak` and `qp_closed` since the last call."""
        return [event for qp in self._order if qp.events for event in taken(qp.events)]

    def acked_bytes(self) -> int:
        """Bytes of whole messages, or pieces of them, that peers have acknowledged, over all send QPs."""
        return sum(qp.acked_bytes for qp in self._order)

    def flow_rows(self) -> list[tuple[Any, ...]]:
        """A row a peer as in hosts/core.py."""
        return [pair.flow_row() for pair in self._pairs.values()]

    def path_rows(self) -> list[tuple[Any, ...]]:
        """RC's one path a QP, each as an EV."""
        return [row for pair in self._pairs.values() for row in pair.path_rows()]

    def report(self) -> dict[str, Any]:
        """Counters of this core's life."""
        return {
            "data_packets_sent": sum(qp.tx_packets for qp in self._order),
            "data_packets_retransmitted": sum(qp.rtx_packets for qp in self._order),
            "data_packets_received": sum(qp.rx_packets for qp in self._receivers),
            "base_rtt_s": {peer: pair.base_rtt_s for peer, pair in self._pairs.items() if pair.base_rtt_s is not None},
            "closed": {peer: pair.closed for peer, pair in self._pairs.items()},
            "marked_packets_received": sum(qp.marked_packets for qp in self._receivers),
            "cnps_sent": sum(qp.cnps_sent for qp in self._receivers),
            "cnps_received": sum(pair.cnps for pair in self._pairs.values()),
            "drops": dict(self._drops),
        }


def _told(attributes: Mapping[str, Any], name: str) -> int:
    """A peer's attribute; ValueError if no field of a packet could hold it."""
    value = int(attributes[name])
    if not 0 <= value < 1 << ATTRIBUTE_BITS[name]:
        raise ValueError(f"{name} is {value:#x}")
    return value


def _own_ends(draw: random.Random, count: int, used: set[int]) -> list[dict[str, int]]:
    """This host's half of the QPs to a peer: QP number, source port and first PSN, none of which is in `used`, where they are added."""
    ends = []
    for _ in range(count):
        source_port = draw.choice([port for port in DYNAMIC_PORTS if port not in used])
        qpn = _unused(draw, used)
        used |= {source_port, qpn}
        ends.append({"qpn": qpn, "source_port": source_port, "first_psn": draw.getrandbits(24)})
    return ends


def _unused(draw: random.Random, used: set[int]) -> int:
    """A QP number that is neither reserved (0 and 1, and MRC's 2) nor used."""
    while (qpn := draw.randrange(16, 1 << 24)) in used:
        pass
    return qpn
