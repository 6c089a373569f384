"""One host's RoCE RC: a send QP to each peer it writes to, a receive QP from each peer that writes to it (hosts/core.py's Core)."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from hosts.core import Completion, Event, PeerSpec, QpError, Transmit, Turns
from hosts.rc import wire
from hosts.rc.params import RcParams
from hosts.rc.receiver import ReceiveAttributes, ReceiveQp
from hosts.rc.sender import SendAttributes, SendQp
from testbed.errors import UsageError

SOURCE_PORTS = range(49152, 65536)  # RoCEv2 annex A17: the source port is the flow's entropy; the dynamic range of RFC 6335
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
        self._name, self._address, self._params, self._region = name, address, params, region
        self._send_to, self._receive_from = send_to, receive_from
        draw = random.Random(f"rc {seed} {name}")
        self._rkey, self._base_address = draw.getrandbits(32), draw.randrange(1 << 20, 1 << 46) << 12
        self._send_own = _own_ends(draw, send_to)
        taken = {end["source_port"] for end in self._send_own.values()} | {end["qpn"] for end in self._send_own.values()}
        self._receive_own = _own_ends(draw, receive_from, taken)
        self._senders: dict[str, SendQp] = {}
        self._order: list[SendQp] = []
        self._turns = Turns()
        self._receivers: dict[str, ReceiveQp] = {}
        self._sender_of_qpn: dict[int, tuple[SendQp, wire.Flow]] = {}
        self._receiver_of_qpn: dict[int, ReceiveQp] = {}
        self._drops: Counter[str] = Counter()
        self._closing = False

    def attributes(self) -> dict[str, Any]:
        """QP numbers, first PSNs and source ports by peer and direction; rkey and base address of the region."""
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
                self._connect_sender(peer, peers[peer])
            for peer in self._receive_from:
                self._connect_receiver(peer, peers[peer]["send"][self._name])
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{self._name}: unusable attributes of a peer ({error!r}): send `connect` with what each `ready` said"
            ) from error

    def _connect_sender(self, peer: str, remote: Mapping[str, Any]) -> None:
        own, other, destination = self._send_own[peer], remote["receive"][self._name], self._send_to[peer].address
        attributes = SendAttributes(
            peer, self._address, destination, own["source_port"],
            int(other["qpn"]), int(remote["rkey"]), int(remote["base_address"]), own["first_psn"],
        )  # fmt: skip
        qp = self._senders[peer] = SendQp(attributes, self._params)
        self._order.append(qp)
        self._sender_of_qpn[own["qpn"]] = qp, wire.Flow(destination, self._address, int(other["source_port"]), own["qpn"])

    def _connect_receiver(self, peer: str, other: Mapping[str, Any]) -> None:
        own, destination = self._receive_own[peer], self._receive_from[peer].address
        attributes = ReceiveAttributes(
            peer, self._address, destination, own["source_port"], int(other["source_port"]), int(other["qpn"]),
            self._rkey, self._base_address, int(other["first_psn"]),
        )  # fmt: skip
        qp = self._receivers[peer] = ReceiveQp(attributes, self._params, self._region, self._drops)
        self._receiver_of_qpn[own["qpn"]] = qp

    def post_write(self, now: float, peer: str, data: memoryview, remote_offset: int, imm: int | None) -> None:
        """Queues a Write-with-Immediate; UsageError if there is no connected send QP to `peer`, it is closed, or `imm` is None."""
        if imm is None:
            raise UsageError("RoCE RC is built here for Writes with Immediate only: give an immediate")
        if self._closing:
            raise UsageError(f"{self._name} has closed its QP to {peer}: post before `close`")
        if peer not in self._senders:
            raise UsageError(f"{self._name} has no connected QP to {peer}: connect first, to one of {sorted(self._send_to)}")
        self._senders[peer].post(data, remote_offset, imm)

    def outstanding_messages(self, peer: str) -> int:
        """Messages to `peer` not yet wholly acknowledged; 0 before `connect`."""
        return len(self._senders[peer].messages) if peer in self._senders else 0

    def on_datagram(self, now: float, port: int, datagram: memoryview) -> None:
        """Takes one UDP payload that came to port 4791."""
        if len(datagram) < MIN_PACKET_BYTES:
            self._drops["short"] += 1
            return
        bth = wire.parse_bth(datagram)
        if bth.opcode == wire.ACK:
            self._on_ack(now, bth, datagram)
        elif bth.opcode in wire.WRITES:
            self._on_write(bth, datagram)
        else:
            self._drops["unknown_opcode"] += 1

    def _on_write(self, bth: wire.Bth, datagram: memoryview) -> None:
        qp = self._receiver_of_qpn.get(bth.qpn)
        if qp is None:
            self._drops["unknown_qp"] += 1
        elif not qp.incoming.intact(datagram):
            self._drops["bad_icrc"] += 1
        else:
            qp.on_data(bth, datagram)

    def _on_ack(self, now: float, bth: wire.Bth, datagram: memoryview) -> None:
        qp, flow = self._sender_of_qpn.get(bth.qpn, (None, None))
        if qp is None or flow is None:
            self._drops["unknown_qp"] += 1
            return
        if not flow.intact(datagram):
            self._drops["bad_icrc"] += 1
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
        for qp in self._senders.values():
            qp.close(now)

    @property
    def closed(self) -> bool:
        """Whether all that was posted before `close` is acknowledged, or its QP has failed."""
        return self._closing and all(qp.closed or qp.error is not None for qp in self._senders.values())

    def on_receive_done(self, now: float) -> None:
        """Nothing to decide: RC's coalescing counts packets."""

    def transmit(self, now: float) -> Iterator[Transmit]:
        """Acknowledgements first, then data, the QPs in turn."""
        for receiver in self._receivers.values():
            acknowledgement = receiver.acknowledgement()
            if acknowledgement is not None:
                yield acknowledgement
        yield from self._turns.packets(now, self._order)

    def next_deadline(self) -> float | None:
        """The earliest ACK timeout."""
        return min((qp.deadline for qp in self._senders.values() if qp.deadline is not None), default=None)

    def on_timer(self, now: float) -> None:
        """Runs the ACK timeouts that are due."""
        for qp in self._senders.values():
            qp.on_timer(now)

    def take_completions(self) -> list[Completion]:
        """Completions since the last call, in order a peer."""
        return _taken(qp.completions for qp in self._receivers.values())

    def take_errors(self) -> list[QpError]:
        """QPs that failed since the last call."""
        failed = [qp for qp in self._senders.values() if qp.error is not None and not qp.error_taken]
        for qp in failed:
            qp.error_taken = True
        return [QpError(qp.attributes.peer, qp.error or "") for qp in failed]

    def take_events(self) -> list[Event]:
        """`rc_timeout`, `rc_nak` and `qp_closed` since the last call."""
        return _taken(qp.events for qp in self._senders.values())

    def acked_bytes(self) -> int:
        """Bytes of whole messages that peers have acknowledged, over all send QPs."""
        return sum(qp.acked_bytes for qp in self._senders.values())

    def flow_rows(self) -> list[tuple[Any, ...]]:
        """A row a send QP as in hosts/core.py: bytes of whole messages, the fixed window, nothing trimmed or marked."""
        return [
            (peer, qp.tx_packets, qp.rtx_packets, qp.acked_bytes, self._params.window_packets, qp.srtt_s or 0.0, 0, 0)
            for peer, qp in self._senders.items()
        ]

    def path_rows(self) -> list[tuple[Any, ...]]:
        """RC's one path as EV 0; a NAK or timeout counts as one lost packet, since RC does not know how many more were."""
        rows = [(peer, qp, "GOOD" if qp.error is None else "ASSUMED_BAD") for peer, qp in self._senders.items()]
        return [(peer, 0, state, qp.tx_packets, qp.losses, 0, 0, 0) for peer, qp, state in rows]

    def report(self) -> dict[str, Any]:
        """Counters of this core's life."""
        return {
            "data_packets_sent": sum(qp.tx_packets for qp in self._senders.values()),
            "data_packets_retransmitted": sum(qp.rtx_packets for qp in self._senders.values()),
            "data_packets_received": sum(qp.rx_packets for qp in self._receivers.values()),
            "base_rtt_s": {peer: qp.base_rtt_s for peer, qp in self._senders.items() if qp.base_rtt_s is not None},
            "closed": {peer: qp.closed for peer, qp in self._senders.items()},
            "drops": dict(self._drops),
        }


def _own_ends(draw: random.Random, peers: Mapping[str, PeerSpec], taken: Iterable[int] = ()) -> dict[str, dict[str, int]]:
    """This host's half of a QP to each peer: QP number, source port and first PSN; numbers in `taken` are not used again."""
    used, ends = set(taken), dict[str, dict[str, int]]()
    for peer in peers:
        source_port = draw.choice([port for port in SOURCE_PORTS if port not in used])
        qpn = _unused(draw, used)
        used |= {source_port, qpn}
        ends[peer] = {"qpn": qpn, "source_port": source_port, "first_psn": draw.getrandbits(24)}
    return ends


def _unused(draw: random.Random, used: set[int]) -> int:
    """A QP number that is neither reserved (0 and 1, and MRC's 2) nor used."""
    while (qpn := draw.randrange(16, 1 << 24)) in used:
        pass
    return qpn


def _taken(lists: Iterable[list[Any]]) -> list[Any]:
    """All items of the lists, which are emptied."""
    items: list[Any] = []
    for each in lists:
        items += each
        each.clear()
    return items
