"""What an administrator asks of the EVs of one arm while its job runs: sent to the agents, answered, booked, kept over a job's restart.

One thread, the supervisor's, does all the work (`turn`, `answer`); any other may `ask`. One request is under way at a time, and an
agent answers its commands in order, so that answers need no number.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from testbed.control import Request
from testbed.errors import HostError, UsageError
from testbed.scenario.problems import did_you_mean
from topologies import Topology

Message = dict[str, Any]
ByPeer = dict[str, list[int]]
ANSWERS = ("denied", "refused", "evs")


@dataclass
class _Pending:
    """A request under way: who has not answered yet, and what the others said."""

    request: Request
    reply: Future[Any]
    began: float
    waiting: set[str]
    answers: dict[str, Message] = field(default_factory=dict)
    refusal: str | None = None  # what is being taken back, and why


class Denials:
    """`configs` are the agents' by host, `send` and `wake` the pool's, `record` takes history events with raw monotonic `t`."""

    def __init__(
        self,
        topology: Topology,
        configs: Mapping[str, Mapping[str, Any]],
        send: Callable[[str, Message], None],
        wake: Callable[[], None],
        record: Callable[[Message], None],
    ) -> None:
        self._topology, self._configs, self._send, self._wake, self._record = topology, configs, send, wake, record
        self._queue: queue.Queue[tuple[Request, Future[Any]]] = queue.Queue()
        self._pending: _Pending | None = None
        self._denied: dict[str, dict[str, set[int]]] | None = None  # by host and peer; None before the first agents are ready
        self._links = {link for config in configs.values() for link in config.get("deny", {}).get("links", ())}  # denied as such
        self._closed = False

    # Any thread

    def ask(self, request: Request) -> Future[Any]:
        """Hands a request in. Its result: what `deny` and `allow` concerned, by host and peer; the rows of a list; or a TestbedError."""
        reply: Future[Any] = Future()
        self._queue.put((request, reply))
        if self._closed:
            self._refuse_all()
        self._wake()
        return reply

    # The supervisor's thread

    def config(self, host: str) -> Mapping[str, Any]:
        """The host's `config` command: after a restart with the denylist as it was."""
        if self._denied is None:
            return self._configs[host]
        evs = {peer: sorted(numbers) for peer, numbers in self._denied.get(host, {}).items() if numbers}
        return {**self._configs[host], "deny": {"links": [], "evs": evs, "ways_back": sorted(self._links)}}

    def ready(self, now: float, denied: Mapping[str, ByPeer]) -> None:
        """The agents have their QPs; `denied` is what each of them began with."""
        if self._denied is None and any(denied.values()):
            self._record({"t": now, "source": "run", "event": "deny", "evs": _without_empty(denied)})
        self._denied = {host: {peer: set(evs) for peer, evs in by_peer.items()} for host, by_peer in denied.items()}

    def turn(self) -> None:
        """Begins the next request, if none is under way."""
        while self._pending is None:
            try:
                request, reply = self._queue.get_nowait()
            except queue.Empty:
                return
            try:
                commands = self._commands(request)
            except UsageError as error:
                reply.set_exception(error)
                continue
            self._pending = _Pending(request, reply, time.monotonic(), set(commands))
            for host, command in commands.items():
                self._send(host, command)

    def answer(self, host: str, message: Message) -> None:
        """An agent's answer."""
        pending = self._pending
        if pending is None or host not in pending.waiting:
            return
        pending.waiting.remove(host)
        pending.answers[host] = message
        if not pending.waiting:
            self._pending = None
            self._finish(pending)

    def close(self) -> None:
        """The job has ended: whoever still waits is told, and so is whoever asks later."""
        self._closed = True
        if self._pending is not None:
            self._pending.reply.set_exception(_ended())
            self._pending = None
        self._refuse_all()

    def _refuse_all(self) -> None:
        while True:
            try:
                _, reply = self._queue.get_nowait()
            except queue.Empty:
                return
            reply.set_exception(_ended())

    def _commands(self, request: Request) -> dict[str, Message]:
        """What is sent to which agent. UsageError for names that mean nothing here."""
        if request.host is not None and request.host not in self._configs:
            raise UsageError(f"there is no agent on {request.host!r} ({did_you_mean(request.host, self._configs, 'agents')})")
        hosts = [request.host] if request.host is not None and not request.links else list(self._configs)
        if request.do == "list":
            return {host: {"cmd": "evs"} for host in hosts}
        links, on = self._links_of(request), request.do == "deny"
        return {host: {"cmd": "deny", "links": links, "evs": self._numbers(request, host), "deny": on} for host in hosts}

    def _links_of(self, request: Request) -> list[str]:
        """In the topology's spelling."""
        return [self._topology.link(named).name for named in request.links]

    def _numbers(self, request: Request, host: str) -> ByPeer:
        if host != request.host or request.peer is None:
            return {}
        peers = [peer["name"] for peer in self._configs[host]["send_to"]]
        if request.peer not in peers:
            raise UsageError(f"{host} sends nothing to {request.peer!r} ({did_you_mean(request.peer, peers, 'it sends to')})")
        return {request.peer: list(request.evs)}

    def _finish(self, pending: _Pending) -> None:
        """All have answered."""
        if pending.request.do == "list":
            told = pending.answers
            pending.reply.set_result([row for host in self._configs if host in told for row in self._rows(host, told[host]["evs"])])
        elif pending.refusal is not None:
            self._refuse(pending, pending.refusal)
        else:
            self._finish_change(pending)

    def _finish_change(self, pending: _Pending) -> None:
        accepted = {host: told["evs"] for host, told in pending.answers.items() if told["msg"] == "denied"}
        refusals = [f"{host}: {told.get('text')}" for host, told in pending.answers.items() if told["msg"] != "denied"]
        if refusals:
            self._take_back(pending, accepted, "; ".join(refusals))
            return
        on, denied = pending.request.do == "deny", self._known()
        for host, by_peer in accepted.items():
            for peer, evs in by_peer.items():
                known = denied.setdefault(host, {}).setdefault(peer, set())
                known.update(evs) if on else known.difference_update(evs)
        links = set(self._links_of(pending.request))
        self._links = self._links | links if on else self._links - links
        self._book(pending, _without_empty(accepted), None)
        pending.reply.set_result(_without_empty(accepted))

    def _take_back(self, pending: _Pending, accepted: Mapping[str, ByPeer], refusal: str) -> None:
        """All or nothing: hosts that did what another refused undo it, as far as it was new to them."""
        links, on = set(self._links_of(pending.request)), pending.request.do == "deny"
        ways_back = sorted(links - self._links if on else links & self._links)
        undo = {host: self._changed(pending.request.do, host, by_peer) for host, by_peer in accepted.items()}
        undo = {host: by_peer for host, by_peer in undo.items() if by_peer or ways_back}
        if not undo:
            self._refuse(pending, refusal)
            return
        self._pending = _Pending(pending.request, pending.reply, pending.began, set(undo), refusal=refusal)
        for host, by_peer in undo.items():
            self._send(host, {"cmd": "deny", "links": [], "evs": by_peer, "deny": not on, "ways_back": ways_back})

    def _changed(self, do: str, host: str, by_peer: ByPeer) -> ByPeer:
        """Those of the EVs concerned that were not yet as asked."""
        known = self._known().get(host, {})
        changed = {peer: [ev for ev in evs if (ev in known.get(peer, ())) == (do == "allow")] for peer, evs in by_peer.items()}
        return {peer: evs for peer, evs in changed.items() if evs}

    def _known(self) -> dict[str, dict[str, set[int]]]:
        if self._denied is None:
            self._denied = {}
        return self._denied

    def _refuse(self, pending: _Pending, why: str) -> None:
        self._book(pending, {}, why)
        pending.reply.set_exception(UsageError(f"refused, and nothing has changed: {why}"))

    def _book(self, pending: _Pending, evs: Mapping[str, ByPeer], refused: str | None) -> None:
        request = pending.request
        self._record(
            {"t": pending.began, "source": "admin", "event": request.do, "asked": request.asked(), "evs": dict(evs), "refused": refused}
        )

    def _rows(self, host: str, told: Iterable[Message]) -> Iterable[Message]:
        """One row an EV; EV i takes path i mod paths."""
        paths = {peer["name"]: peer["paths"] for peer in self._configs[host]["send_to"]}
        for row in told:
            path = paths[row["peer"]][row["ev"] % len(paths[row["peer"]])]
            yield {"host": host, **row, "plane": path["plane"], "path": path["links"]}


def _without_empty(evs: Mapping[str, ByPeer]) -> dict[str, ByPeer]:
    kept = {host: {peer: sorted(numbers) for peer, numbers in by_peer.items() if numbers} for host, by_peer in evs.items()}
    return {host: by_peer for host, by_peer in kept.items() if by_peer}


def _ended() -> HostError:
    return HostError("the job has just ended, and its EVs with it")
