"""One configured job on this host: the transport core, the job, the sockets and the history files, and one turn of the loop over them."""

from __future__ import annotations

import hashlib
import time
from array import array
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from hosts.commands import ECMP, Config, Deny, Start
from hosts.core import Core, Event, PeerSpec, taken
from hosts.ecmp_network import EcmpNetwork
from hosts.jobs import make_job
from hosts.ports import PortWatch, first_news, watch
from hosts.rc import RcCore, RcParams
from hosts.recorder import Recorder
from hosts.sockets import MAX_DATAGRAM_BYTES, NOBUFS_PAUSE_S, MrcNetwork, Network, RcNetwork, receive_marked, socket_drops
from hosts.tcp import TcpCore, TcpNetwork, TcpParams
from testbed.errors import UsageError

Message = dict[str, Any]

# How much one turn receives and sends before the other direction gets its turn: acknowledgements must not wait behind a long burst.
RECEIVE_BATCH = 64
TRANSMIT_BATCH = 16

# On a link at its rate data packets come one by one. After one that came so long after the last, the socket is not asked for another: the
# answer would be no, and the next `select` tells as well. Acknowledgements are read to the last one, since missing ones mean losses.
ALONE_S = 0.0002
CONTROL_BYTES = 256  # a packet of more carries data

EV_FIELDS = ("peer", "ev", "state", "tx_packets", "lost_packets", "probes_sent")  # the first of `Core.path_rows`
CLOSE_S = 1.0  # at the end of a job, the longest wait for what peers have not acknowledged

MOST_LATENESSES = 1 << 16  # samples kept; then every second one goes, so that a run of hours needs no more memory


class Session:
    """Lives from `config` to `abort` or `stop`. `incarnation` counts the configs of this process: no two share QP numbers or ports."""

    def __init__(self, config: Config, incarnation: int, tell: Callable[[Message], None]) -> None:
        self.config, self._tell = config, tell
        send_to, receive_from = ({peer.name: peer for peer in peers} for peers in (config.send_to, config.receive_from))
        self._job, region = make_job(config)
        self._eager = self._job.moves_on_acknowledgements
        self._peers = {*send_to, *receive_from}
        seed = derived_seed(config.seed, config.host, incarnation)
        self._core, self._network = _transport(config, send_to, receive_from, region, seed)
        self._streams = self._network if isinstance(self._network, TcpNetwork) else None
        self._take = self._take_datagrams if self._streams is None else self._take_streams
        self.denied = self._core.deny(time.monotonic(), config.deny.links, config.deny.evs, True) if config.deny else {}
        self._core.deny_ways_back(config.deny.ways_back, True)
        self._recorder = Recorder(config.files, config.host, config.rank, time.monotonic())
        self._buffer = memoryview(bytearray(MAX_DATAGRAM_BYTES))
        self._lateness: array[float] = array("d")
        self._lateness_max_s = 0.0
        self._ports = self._watch_ports()
        self._readers = (*self._network.readers, *self._ports)
        self._due = float("-inf")  # the deadline of core, job and recorder that holds since the last turn
        self._job_due: float | None = None
        self._heard_at = float("-inf")
        self._more_to_send = self._blocked = False
        self.connected = self.started = self._joined = False
        self._early: list[Message] = []  # what must not be told before the job has started
        self._draining, self._drained_by = False, float("inf")  # the latest time to tell that it is drained, until that is told

    def attributes(self) -> dict[str, Any]:
        """The out-of-band attributes that `ready` carries."""
        return self._core.attributes()

    def deny(self, deny: Deny) -> dict[str, list[int]]:
        """Denies or allows EVs; returns those concerned, by peer. UsageError: refused, and nothing has changed."""
        concerned = self._core.deny(time.monotonic(), deny.links, deny.evs, deny.on)
        self._core.deny_ways_back(deny.ways_back, deny.on)
        self._due = float("-inf")  # what it set in motion, as a probe, is due before anything arrives
        return concerned

    def ev_rows(self) -> list[dict[str, Any]]:
        """The state of every EV of this host's send QPs."""
        return [dict(zip(EV_FIELDS, row, strict=False)) for row in self._core.path_rows()]

    def connect(self, peers: Mapping[str, Mapping[str, Any]]) -> None:
        """Joins the QPs, and tells `connected` once they are; UsageError if a peer's attributes are not there."""
        if missing := sorted(self._peers - set(peers)):
            raise UsageError(f"$.peers lacks {', '.join(missing)}: give the attributes of every peer of this host")
        self._core.connect({peer: peers[peer] for peer in self._peers})
        self.connected = True
        self._due = float("-inf")
        self._tell_joined()

    def _tell_joined(self) -> None:
        """Datagrams need no joining; the connections of streams do, and all of them are there or have failed when this is told."""
        if self.connected and not self._joined and (self._streams is None or self._streams.joined):
            self._joined = True
            self._tell({"msg": "connected"})

    def start(self, start: Start) -> None:
        """Lets the job begin at its time."""
        self._job.start(start)
        self.started = True
        self._due = float("-inf")
        for message in taken(self._early):
            self._tell(message)

    def drain(self) -> None:
        """The job ends here. Peers are served on; `drained` is told once all that was posted is acknowledged, or after CLOSE_S.

        Files get their last rows now: what still arrives belongs to no measurement.
        """
        now = time.monotonic()
        self._end_job(now)
        self._core.close(now)
        self._drained_by, self._due = now + CLOSE_S, float("-inf")

    def _end_job(self, now: float) -> None:
        if self._draining:
            return
        self._draining = True
        if (unfinished := self._job.unfinished()) is not None:
            self._recorder.step(unfinished)
        if self.connected:
            self._recorder.sample(now, self._core.flow_rows(), self._core.path_rows())

    def _tell_drained(self, now: float) -> None:
        if self._core.closed or now >= self._drained_by:
            self._drained_by = float("inf")
            self._tell({"msg": "drained", "closed": self._core.report()["closed"]})

    def readers(self) -> tuple[int, ...]:
        """File descriptors of the sockets to wait on for packets, and for news of NIC ports."""
        return self._readers

    def writers(self) -> list[int]:
        """Those of sockets that were full, to wait on until they take packets again."""
        if not self._blocked:
            return []
        return [outlet.socket.fileno() for outlet in self._network.outlets() if outlet.waiting and not outlet.retry_soon]

    def next_deadline(self, now: float) -> float:
        """When the next turn is due, even if nothing arrives."""
        if self._more_to_send:
            return now
        if self._blocked and any(outlet.waiting and outlet.retry_soon for outlet in self._network.outlets()):
            return min(self._due, now + NOBUFS_PAUSE_S)
        return self._due

    def _next_due(self) -> float:
        due, core_due = self._recorder.due, self._core.next_deadline()
        if core_due is not None and core_due < due:
            due = core_due
        if self._draining:
            return min(due, self._drained_by)
        job_due = self._job_due = self._job.next_deadline()
        return job_due if job_due is not None and job_due < due else due

    def note_lateness(self, lateness_s: float) -> None:
        """Books how late the loop woke up for a deadline."""
        self._lateness.append(lateness_s)
        self._lateness_max_s = max(self._lateness_max_s, lateness_s)
        if len(self._lateness) >= MOST_LATENESSES:
            del self._lateness[::2]

    def turn(self, readable: Iterable[int]) -> None:
        """Receives, runs timers, moves the job on, sends.

        Timers come after receiving: an acknowledgement that is here stops its timer. The job takes completions before their
        acknowledgements are sent, and hears of a failed QP before it counts what that has outstanding.
        """
        core = self._core
        for descriptor in readable:
            if descriptor in self._ports:
                self._on_ports(self._ports[descriptor].news())
            else:
                self._take(descriptor)
        now = time.monotonic()
        core.on_receive_done(now)
        if now >= self._due:
            core.on_timer(now)
            self._record(now)
            if not self._joined:
                self._tell_joined()
        self._report_news()
        if self._draining:
            self._take_last(now)
        else:
            self._advance(now)
        self._transmit()
        self._due = self._next_due()

    def _watch_ports(self) -> dict[int, PortWatch]:
        """By file descriptor, the watch of this host's NIC ports; none for RC and TCP, whose paths the kernel chooses."""
        if self.config.transport != "mrc":
            return {}
        watched = watch(self.config.host, self.config.ports)
        self._on_ports(first_news(watched))
        return {watched.fileno(): watched}

    def _on_ports(self, news: Iterable[tuple[int, bool]]) -> None:
        for port, up in news:
            self._core.on_port(time.monotonic(), port, up)

    def _take_streams(self, descriptor: int) -> None:
        """The one descriptor of all connections."""
        if self._streams is not None:
            self._streams.receive()
            self._tell_joined()

    def _take_datagrams(self, descriptor: int) -> None:
        sock, port, on_marked = self._network.readers[descriptor]
        core, buffer, clock = self._core, self._buffer, time.monotonic
        receive = sock.recv_into if on_marked is None else partial(receive_marked, sock, on_marked=on_marked)
        for _ in range(RECEIVE_BATCH):
            try:
                size = receive(buffer)
            except BlockingIOError:
                return
            except OSError as error:  # what the network said about an earlier packet, or about the interface
                self._network.counters[f"receive_{error.strerror}"] += 1
                return
            now = clock()
            alone, self._heard_at = now - self._heard_at > ALONE_S, now
            core.on_datagram(now, port, buffer[:size])
            if alone and size > CONTROL_BYTES and now < self._due:
                return

    def _advance(self, now: float) -> None:
        job, core = self._job, self._core
        completions = core.take_completions()
        if not completions and not self._eager and (self._job_due is None or now < self._job_due):
            return
        for completion in completions:
            job.on_completion(completion.peer, completion.imm)
        job.advance(now, core.outstanding_messages)
        for write in job.take_writes():
            core.post_write(now, *write)
        for record in job.take_records():
            self._recorder.step(record)
            self._tell({"msg": "step", "step": record.step})
        self._tell_wrong()

    def _take_last(self, now: float) -> None:
        """After the job's end: what arrives is still compared, but the job goes no further."""
        for completion in self._core.take_completions():
            self._job.on_completion(completion.peer, completion.imm)
        self._tell_wrong()
        if self._drained_by < float("inf"):
            self._tell_drained(now)

    def _tell_wrong(self) -> None:
        for wrong in self._job.take_wrong():
            self._tell({"msg": "wrong_sum", "step": wrong.step, "peer": wrong.peer})

    def _transmit(self) -> None:
        network, sent = self._network, 0
        if self._blocked:
            self._flush()
        for packet in islice(self._core.transmit(time.monotonic()), TRANSMIT_BATCH):
            self._blocked |= not network.send(packet)
            sent += 1
        self._more_to_send = sent == TRANSMIT_BATCH

    def _flush(self) -> None:
        self._blocked = False
        for outlet in self._network.outlets():
            outlet.flush()
            self._blocked |= bool(outlet.waiting)

    def _report_news(self) -> None:
        events, errors = self._core.take_events(), self._core.take_errors()
        if not events and not errors:
            return
        known = {event.fields.get("peer") for event in events if event.event == "qp_error"}
        for error in errors:
            if error.peer not in known:
                events.append(Event(time.monotonic(), "qp_error", {"peer": error.peer, "reason": error.reason}))
            self._job.on_error(error.peer)
            self._early.append({"msg": "qp_error", "peer": error.peer, "reason": error.reason})
        for message in taken(self._early) if self.started else ():
            self._tell(message)
        self._recorder.events(events)

    def _record(self, now: float) -> None:
        if now >= self._recorder.due:
            if self._recorder.sample_due(now) and not self._draining:
                self._recorder.sample(now, self._core.flow_rows(), self._core.path_rows())
            self._recorder.on_timer(now)

    def close(self) -> dict[str, Any]:
        """Notes the step that is not finished, writes the files, destroys the QPs; returns this session's counters."""
        self._report_news()
        self._end_job(time.monotonic())
        self._recorder.close()
        dropped = socket_drops(self._network.readers)
        self._network.close()
        for watched in self._ports.values():
            watched.close()
            self._network.counters.update({f"netlink_{reason}": count for reason, count in watched.counters.items()})
        return {
            **self._core.report(),
            "socket_drops": dropped,
            "sockets": dict(self._network.counters),
            "job": self._job.report(),
            "lateness_p99_s": round(float(np.percentile(self._lateness, 99)), 6) if self._lateness else 0.0,
            "lateness_max_s": round(self._lateness_max_s, 6),
        }


def derived_seed(seed: int, host: str, incarnation: int) -> int:
    """A seed of its own for each host's transport and each of its QP sets: SHA-256, so that neighbouring seeds share nothing."""
    digest = hashlib.sha256(f"{seed} {host} {incarnation}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _transport(
    config: Config, send_to: Mapping[str, PeerSpec], receive_from: Mapping[str, PeerSpec], region: memoryview, seed: int
) -> tuple[Core, Network]:
    """The core of the configured transport, and its sockets."""
    if config.transport == "tcp":
        return _tcp(config, send_to, receive_from, region, seed)
    if config.transport == "rc":
        params = RcParams.from_mapping(config.params)
        rc = RcCore(config.host, config.address, params, send_to, receive_from, region, seed)
        return rc, RcNetwork(config.address, config.sockets, rc.on_marked if params.dcqcn else None)
    from hosts.mrc import MrcCore, MrcParams  # here, since an RC agent does without it

    mrc = MrcParams.from_mapping(config.params)
    core = MrcCore(config.host, config.address, mrc, send_to, receive_from, region, seed)
    if config.forwarding == ECMP:
        return core, EcmpNetwork(config.host, config.address, config.ports, config.sockets)
    return core, MrcNetwork(config.host, config.ports, config.sockets)


def _tcp(
    config: Config, send_to: Mapping[str, PeerSpec], receive_from: Mapping[str, PeerSpec], region: memoryview, seed: int
) -> tuple[Core, Network]:
    """The sockets come first: the attributes tell where they listen."""
    params = TcpParams.from_mapping(config.params)
    network = TcpNetwork(config.address, params, config.sockets.data_dscp, seed)
    core = TcpCore(config.host, params, send_to, receive_from, region, seed, network, network.port)
    network.serve(core)
    return core, network
