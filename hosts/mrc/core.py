"""One host's MRC transport: dispatches packets to its QPs. Implements `hosts.core.Core`; no I/O, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from random import Random
from typing import Any

from hosts import wire
from hosts.core import Completion, Event, PathSpec, PeerSpec, QpError, Sending, Transmit, taken
from hosts.mrc.attributes import VERSION, PeerAttributes, parse
from hosts.mrc.congestion import Congestion
from hosts.mrc.endpoint import Endpoint
from hosts.mrc.frames import DATA, DATA_BARE, PROBE, PROBE_BYTES, PSN_OFFSET, Framer, Head, Inspector, Malformed, parse_nack, parse_sack
from hosts.mrc.params import MrcParams
from hosts.mrc.qps import ReceiveQps, Senders, SendQps
from hosts.mrc.receiver import ReceiveQp
from hosts.mrc.recovery import Recoveries
from hosts.mrc.reverse import NEVER
from hosts.mrc.sender import SendQp
from hosts.wire import PSN_MASK, QP_MASK, TS_BIT, WITH_IMMEDIATE
from testbed.errors import UsageError

FIRST_QP = 0x100  # numbers below are kept for special QPs, as QP 2 of endpoint requests
IMM_BYTES = 4
TS_FLAG = TS_BIT >> 24  # in the first byte of BTH's last word
ENDPOINT_QPN, ENDPOINT_OPCODES = wire.ENDPOINT_QPN, (wire.ENDPOINT_REQUEST, wire.ENDPOINT_RESPONSE)
FIRST_DATA, LAST_DATA, SACK, NACK, PROBE_REQUEST = wire.WRITE_FIRST, wire.WRITE_ONLY_IMM, wire.SACK, wire.NACK, wire.PROBE


class MrcCore:
    """A send QP to each peer in `send_to`, a receive QP from each in `receive_from`; all peers write into `region`.

    QP numbers, keys and first PSNs follow from `seed` and `name`: give each attempt of a job another seed, or packets of the one before,
    still under way, would pass for its own.
    """

    def __init__(
        self,
        name: str,
        address: str,
        params: MrcParams,
        send_to: Mapping[str, PeerSpec],
        receive_from: Mapping[str, PeerSpec],
        region: memoryview,
        seed: int,
    ) -> None:
        rng = Random(f"mrc {seed} {name}")
        self._name, self._address, self._params, self._specs = name, address, params, {**receive_from, **send_to}
        self._rkey, self._base = rng.getrandbits(32), rng.getrandbits(40) << 12
        self._events: list[Event] = []
        self._errors: list[QpError] = []
        self._drops: Counter[str] = Counter()
        region = region.cast("B") if region.format != "B" else region
        numbers, places = iter(rng.sample(range(FIRST_QP, QP_MASK + 1), params.qps * (len(send_to) + len(receive_from)))), range(params.qps)
        self._recoveries = Recoveries()

        self._endpoint = Endpoint(address, self._specs, params, Random(f"endpoint {seed} {name}"), self._events)

        def send_qps(peer: str, paths: tuple[PathSpec, ...]) -> SendQps:
            draws = [Random(f"{seed} {name} {peer}" + (f" {place}" if place else "")) for place in places]
            shared = Congestion(params)
            qps = [SendQp(peer, next(numbers), paths, params, draws[at], self._events, self._recoveries, shared, at) for at in places]
            return SendQps(peer, qps, params.write_bytes)

        def receive_qp(peer: str, paths: tuple[PathSpec, ...]) -> ReceiveQp:
            return ReceiveQp(peer, next(numbers), paths, params, region, self._rkey, self._base, self._endpoint.peers[peer].reverse)

        self._send = {peer: send_qps(peer, spec.paths) for peer, spec in send_to.items()}
        self._receive = {p: ReceiveQps(p, [receive_qp(p, s.paths) for _ in places]) for p, s in receive_from.items()}
        self._order = [qp for group in self._send.values() for qp in group.qps]
        self._receive_order = [qp for group in self._receive.values() for qp in group.qps]
        for qp in self._order:
            self._endpoint.add_sender(qp.peer, qp, qp.evs)
        self._senders = {qp.qp: qp for qp in self._order}
        self._receivers = {qp.qp: qp for qp in self._receive_order}
        self._qps: tuple[ReceiveQp | SendQp, ...] = (*self._receive_order, *self._order)
        senders = (Senders(self._order),) if len(self._order) > 1 else tuple(self._order)
        self._sources: tuple[Sending, ...] = (self._endpoint, *self._receive_order, *senders)
        self._served: Sending | None = None  # from which the last call of `transmit` took packets when it was left
        self._inspector = Inspector(address, {qp.qp: self._specs[qp.peer].address for qp in self._qps})
        self._failed: set[str] = set()
        self._closing = False
        self._open: set[str] = set()  # peers whose send QP is closing, but not closed
        self._connected = False
        self._dead_at: float | None = None  # when the QPs fail, because no NIC port is up

    # Out of band

    def attributes(self) -> dict[str, Any]:
        """Out-of-band attributes: QP numbers and first PSNs by peer, the region's key and base address, what packets to send here."""
        return {
            "version": VERSION,
            "udp_port": self._params.udp_port,
            "send_qps": {peer: [qp.qp for qp in group.qps] for peer, group in self._send.items()},
            "receive_qps": {peer: [qp.qp for qp in group.qps] for peer, group in self._receive.items()},
            "first_psns": {peer: [qp.first_psn for qp in group.qps] for peer, group in self._send.items()},
            "rkey": self._rkey,
            "base": self._base,
            "mpr_packets": self._params.mpr_packets,
            **self._endpoint.attributes(),
        }

    def connect(self, peers: Mapping[str, Mapping[str, Any]]) -> None:
        """Takes the attributes of each peer; peers that are none of ours are ignored.

        UsageError: a peer's attributes cannot be used; then no QP is connected.
        """
        told = {
            peer: parse(peer, raw, self._name, self._params.qps, peer in self._receive, peer in self._send)
            for peer, raw in peers.items()
            if peer in self._specs
        }
        for peer, says in told.items():
            for sender, number in zip(self._send[peer].qps if peer in self._send else (), says.receive_qps, strict=True):
                sender.connect(self._framer(peer, sender.qp, number, says), says.rkey, says.base, says.mpr_packets)
            ends = zip(self._receive[peer].qps if peer in self._receive else (), says.send_qps, says.first_psns, strict=True)
            for receiver, number, first_psn in ends:
                receiver.connect(self._framer(peer, receiver.qp, number, says), first_psn)
            endpoint = self._framer(peer, wire.ENDPOINT_QPN, wire.ENDPOINT_QPN, says)
            self._endpoint.connect(peer, endpoint, says.endpoint_psn, says.ports_down)
        self._connected = True

    def _framer(self, peer: str, own_qp: int, peer_qp: int, says: PeerAttributes) -> Framer:
        return Framer(self._address, self._specs[peer].address, own_qp, peer_qp, says.udp_port)

    # Data

    def post_write(self, now: float, peer: str, data: memoryview, remote_offset: int, imm: int | None) -> None:
        """Queues a Write, with an Immediate or (None) plain; `data` must stay as it is while `outstanding_messages(peer)` counts it.

        UsageError after `close`.
        """
        if self._closing:
            raise UsageError(f"{self._name} has closed its QP to {peer}: post before `close`")
        self._send[peer].post(data, remote_offset, imm)

    def outstanding_messages(self, peer: str) -> int:
        """Messages to `peer` from the first one on that is not yet wholly acknowledged."""
        return self._send[peer].outstanding_messages

    def on_datagram(self, now: float, port: int, datagram: memoryview) -> None:
        """Takes one inner packet; whatever is wrong with it is counted, and changes nothing."""
        try:
            head = self._inspector.inspect(datagram)
            opcode, qp = head.opcode, head.qp
            if FIRST_DATA <= opcode <= LAST_DATA and qp in self._receivers:
                self._on_write(now, self._receivers[qp], head, datagram)
            elif opcode == SACK and qp in self._senders:
                self._on_sack(now, self._senders[qp], head.entropy, datagram)
            elif opcode == NACK and qp in self._senders:
                self._on_nack(now, self._senders[qp], datagram)
            elif opcode == PROBE_REQUEST and qp in self._receivers:
                self._on_probe(self._receivers[qp], head.entropy, datagram)
            elif qp == ENDPOINT_QPN and opcode in ENDPOINT_OPCODES:
                self._endpoint.take(now, head, datagram)
            else:
                raise Malformed("unknown_qp" if opcode in wire.OPCODES else "unknown_opcode")
        except Malformed as problem:
            self._drops[problem.reason] += 1

    def _on_write(self, now: float, qp: ReceiveQp, head: Head, datagram: memoryview) -> None:
        """A data packet, whole or trimmed."""
        stamped, imm = datagram[PSN_OFFSET] & TS_FLAG, None
        form = DATA if stamped else DATA_BARE
        start, end = PSN_OFFSET + form.size, head.end_bytes
        with_imm = head.opcode in WITH_IMMEDIATE
        if end < start + (IMM_BYTES if with_imm else 0):
            raise Malformed("bad_length")
        if with_imm:
            imm = int.from_bytes(datagram[start : start + IMM_BYTES], "big")
            start += IMM_BYTES
        words = form.unpack_from(datagram, PSN_OFFSET)
        flags_psn, va, rkey, length = words[0], *words[-3:]
        if length != end - start and not (head.trimmed and start == end):
            raise Malformed("bad_length")
        stamp = words[3] if stamped else 0
        if head.trimmed:
            wrong = qp.on_trimmed(head.entropy, flags_psn & PSN_MASK, stamp, va, rkey, length, head.trimmed)
        else:
            payload = datagram[start:end]
            wrong = qp.on_data(now, head.entropy, flags_psn, stamp, va, rkey, payload, imm, head.marked)
        if wrong is not None:
            self._drops[wrong] += 1

    def _refused(self, reason: str | None) -> None:
        """Counts what was refused, if it was."""
        if reason is not None:
            self._drops[reason] += 1

    def _on_sack(self, now: float, qp: SendQp, entropy: int, datagram: memoryview) -> None:
        say = parse_sack(datagram)
        wrong = qp.on_probe_reply(now, say.ack_psn_offset & 0xFFFF) if say.probe_reply else qp.on_sack(now, say)
        if wrong is None and (say.down_ports or self._endpoint.wary):
            wrong = self._endpoint.on_sack(now, qp.peer, qp.qp, entropy, say, qp.is_newest(say.number))
        self._refused(wrong)

    def _on_nack(self, now: float, qp: SendQp, datagram: memoryview) -> None:
        self._refused(qp.on_nack(now, parse_nack(datagram)))
        if qp.error is not None:
            self._fail(now, qp.peer, qp.error.reason)

    def _on_probe(self, qp: ReceiveQp, entropy: int, datagram: memoryview) -> None:
        if len(datagram) != PROBE_BYTES:
            raise Malformed("bad_length")
        words = PROBE.unpack_from(datagram, PSN_OFFSET)
        self._refused(qp.on_probe(entropy, words[2], words[5]))

    # From outside: ports, the administrator, the end

    def on_port(self, now: float, port: int, up: bool) -> None:
        """Moves everything off a port that is down, and tells the peers. Without any port, the QPs that are connected fail in a while."""
        self._events.append(Event(now, "port", {"port": port, "up": up}))
        self._endpoint.on_port(port, up)
        self._tell_ports(now)
        if not self._endpoint.all_down:
            self._dead_at = None
        elif self._connected and self._dead_at is None:
            self._dead_at = now + self._params.ports_down_s

    def _tell_ports(self, now: float) -> None:
        for peer in self._endpoint.take_news(now):
            for qp in self._send[peer.name].qps if peer.name in self._send else ():
                qp.on_ports(now, self._endpoint.local_down, peer.down)

    def deny(self, now: float, links: Collection[str], evs: Mapping[str, Collection[int]], on: bool) -> dict[str, list[int]]:
        """Denies or allows EVs of the send QPs, which it returns by peer, and, over these links, ways back to any peer.

        Raises:
            UsageError: there is no such peer or EV, or a QP would have none to send on; nothing has changed.
        """
        unknown = sorted(set(evs) - set(self._send))
        if unknown:
            raise UsageError(f"{self._name} sends nothing to {unknown[0]}: it has no EVs to deny or allow there")
        reasons = [group.refusal(links, evs.get(peer, ())) for peer, group in self._send.items()]
        if on and (problem := next((reason for reason in reasons if reason is not None), None)):
            raise UsageError(problem)
        self.deny_ways_back(links, on)
        found = {peer: group.deny(now, links, evs.get(peer, ()), on) for peer, group in self._send.items()}
        return {peer: numbers for peer, numbers in found.items() if numbers}

    def deny_ways_back(self, links: Collection[str], on: bool) -> None:
        """Denies or allows paths over these links to answers and endpoint packets alone."""
        self._endpoint.deny(links, on)

    def close(self, now: float) -> None:
        """The send QPs take no new writes; each is closed when all it was given is acknowledged."""
        self._closing, self._open = True, set(self._send)
        self._note_closed(now)

    @property
    def closed(self) -> bool:
        """Whether every send QP is closed, or has failed."""
        return self._closing and all(self._send[peer].error is not None for peer in self._open)

    def _note_closed(self, now: float) -> None:
        for peer in sorted(self._open):
            group = self._send[peer]
            if group.error is None and not group.outstanding_messages:
                self._open.remove(peer)
                self._events += [Event(now, "qp_closed", {"peer": peer, "qp": qp.qp}) for qp in group.qps]

    def on_receive_done(self, now: float) -> None:
        """The sockets are empty for now: coalesced SACKs, verdicts."""
        for receiver in self._receive_order:
            if receiver.owes_sack:
                receiver.on_receive_done(now)
        for sender in self._order:
            if sender.heard:
                sender.on_receive_done(now)
        if self._open:
            self._note_closed(now)

    def transmit(self, now: float) -> Iterable[Transmit]:
        """Everything that may be sent now: endpoint packets and SACKs first, then the send QPs in turn."""
        if self._endpoint.news:
            self._tell_ports(now)
        for source in self._sources:
            if source.ready:
                return self._transmits(now)
        return ()

    def _transmits(self, now: float) -> Iterator[Transmit]:
        """Where a call was left (the caller takes only so many at once) the next one goes on behind: who floods us with questions must
        not have all that we send be answers to him.
        """
        sources, served = self._sources, self._served
        if served is not None and served is not sources[-1]:
            behind = sources.index(served) + 1
            sources = sources[behind:] + sources[:behind]
        for source in sources:
            if source.ready:
                self._served = source
                yield from source.transmit(now)
        self._served = None

    # Timers

    def next_deadline(self) -> float | None:
        """When on_timer must be called at the latest, or None."""
        earliest, probe_at = self._dead_at, self._endpoint.alarm.due_at
        if probe_at < NEVER and (earliest is None or probe_at < earliest):
            earliest = probe_at
        for qp in self._qps:
            due = qp.next_deadline()
            if due is not None and (earliest is None or due < earliest):
                earliest = due
        return earliest

    def on_timer(self, now: float) -> None:
        """Runs the timers that are due."""
        if self._dead_at is not None and now >= self._dead_at:
            self._dead_at = None
            self._receivers.clear()
            for peer in self._specs:
                self._fail(now, peer, "all NIC ports are down")
        self._endpoint.on_timer(now)
        for receiver in self._receive_order:
            receiver.on_timer(now)
        for sender in self._order:
            sender.on_timer(now)
            if sender.error is not None:
                self._fail(now, sender.peer, sender.error.reason)

    def _fail(self, now: float, peer: str, reason: str) -> None:
        """One QP to `peer` failed, or all of them shall: they fail together, once, and what still comes for them is `unknown_qp`."""
        if peer in self._failed:
            return
        self._failed.add(peer)
        if peer in self._send:
            self._send[peer].fail(reason)
            for qp in self._send[peer].qps:
                del self._senders[qp.qp]
        self._errors.append(QpError(peer, reason))
        self._events.append(Event(now, "qp_error", {"peer": peer, "reason": reason}))

    # What happened

    def take_completions(self) -> list[Completion]:
        """Completions since the last call, in order a peer."""
        return [completion for group in self._receive.values() for completion in group.take()]

    def take_errors(self) -> list[QpError]:
        """QP errors since the last call."""
        return taken(self._errors)

    def take_events(self) -> list[Event]:
        """History lines since the last call; all times in them are CLOCK_MONOTONIC seconds."""
        return taken(self._events)

    def acked_bytes(self) -> int:
        """Bytes that peers have acknowledged, over all send QPs."""
        return sum(qp.acked_bytes for qp in self._order)

    def flow_rows(self) -> list[tuple[Any, ...]]:
        """(peer, tx_packets, rtx_packets, acked_bytes, cwnd_packets, srtt_s, trimmed_packets, marked_packets) a peer."""
        return [group.flow_row() for group in self._send.values()]

    def path_rows(self) -> list[tuple[Any, ...]]:
        """(peer, ev, state, tx_packets, lost_packets, probes_sent, trimmed_packets, marked_packets) an EV."""
        return [row for group in self._send.values() for row in group.path_rows()]

    def report(self) -> dict[str, Any]:
        """Counters for agents.json."""
        return {
            "data_packets_sent": sum(qp.tx_packets for qp in self._order),
            "data_packets_retransmitted": sum(qp.rtx_packets for qp in self._order),
            "data_packets_received": sum(qp.received_packets for qp in self._receive_order),
            "sacks_sent": sum(qp.sacks_sent for qp in self._receive_order),
            "nacks_sent": sum(qp.nacks_sent for qp in self._receive_order),
            "trimmed_packets": sum(qp.trimmed_packets for qp in self._order),
            "marked_packets": sum(qp.marked_packets for qp in self._order),
            "recoveries": self._recoveries.report(),
            "base_rtt_s": {peer: group.base_rtt_s for peer, group in self._send.items()},
            "idle_rtt_s": {peer: group.idle_rtt_s for peer, group in self._send.items()},
            "nacks_received": dict(sum((group.nacks for group in self._send.values()), Counter[str]())),
            "closed": {peer: self._closing and peer not in self._open for peer in self._send},
            "endpoint": self._endpoint.report(),
            "drops": dict(self._drops),
            "spurious_verdicts": sum(qp.verdicts.spurious for qp in self._order),
        }
