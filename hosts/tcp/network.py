"""The sockets of a host's TCP transport, all behind one epoll: the agent's loop waits for that alone. Nothing here blocks."""

from __future__ import annotations

import errno
import os
import random
import select
import socket
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from hosts.core import Transmit
from hosts.sockets import TOO_MANY_SOCKETS, Outlet, Reader, new_socket
from hosts.tcp import options
from hosts.tcp.core import GONE, DialFailed, TcpCore
from hosts.tcp.info import SIZE_BYTES, TcpInfo, parse
from hosts.tcp.params import TcpParams
from hosts.wire import DYNAMIC_PORTS
from testbed.errors import HostError

BACKLOG = 1024  # all peers dial at once
OUT_OF = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})  # nobody else's doing, and it does not pass by itself
EVENTS = 64  # that one turn takes on, and reads of each connection, before it is the other direction's turn
READS = 16


class _Wire:
    """A connection's socket; `rest` is what the socket has not taken of the last packet."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.socket, self.number = sock, number
        self.rest: list[memoryview] = []
        self.failed: OSError | None = None  # what a sending told: the reading that follows would not tell it again


class TcpNetwork:
    """Implements hosts.sockets.Network and hosts.tcp.core.Streams; after `serve` it tells `core` what happens on the connections."""

    core: TcpCore

    def __init__(self, address: str, params: TcpParams, dscp: int, seed: int) -> None:
        self.counters: Counter[str] = Counter()
        self._full: set[int] = set()
        self._address, self._params, self._dscp = address, params, dscp
        self._ports = drawn_ports(seed)
        self._wires: dict[int, _Wire] = {}  # by number
        self._by_descriptor: dict[int, _Wire] = {}
        self._dialling: set[int] = set()
        self._last: dict[int, TcpInfo] = {}  # of connections that have ended
        self._next = 0
        self._epoll = select.epoll()
        self._listener = self._bound_socket()
        self._listener.listen(BACKLOG)
        self._epoll.register(self._listener, select.EPOLLIN)
        self.port: int = self._listener.getsockname()[1]
        self.readers: dict[int, Reader] = {self._epoll.fileno(): Reader(self._listener, 0)}
        self._options = options.read_back(self._listener)

    def serve(self, core: TcpCore) -> None:
        """From now on `core` is told of connections and of what they bring."""
        self.core = core

    @property
    def joined(self) -> bool:
        """Whether all connections are there, or have failed."""
        return self.core.joined

    def options(self) -> Mapping[str, object]:
        """What the kernel said of the sockets' options."""
        return self._options

    @property
    def full(self) -> Collection[int]:
        """Connections that take nothing now."""
        return self._full

    # --- what the core asks for --------------------------------------------------------------------------------------------------

    def dial(self, address: str, port: int) -> int:
        """Begins a connection from a port of its own, drawn from the seed: another input of the fabric's hash for each."""
        sock = self._bound_socket()
        code = sock.connect_ex((address, port))
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            raise DialFailed(_told(OSError(code, "")))
        wire = self._wire(sock, select.EPOLLOUT)
        self._dialling.add(wire.number)
        return wire.number

    def close_connection(self, number: int, known: bool) -> None:
        """Ends a connection; if it was one of the job's (`known`), what the kernel counted is kept."""
        wire = self._wires.pop(number)
        if known:
            self._last[number] = _info(wire.socket)
        self._dialling.discard(number)
        self._full.discard(number)
        del self._by_descriptor[wire.socket.fileno()]
        self._epoll.unregister(wire.socket)
        wire.socket.close()

    def info(self, number: int) -> TcpInfo:
        """TCP_INFO of a connection, or the last there was."""
        wire = self._wires.get(number)
        return self._last.get(number, TcpInfo()) if wire is None else _info(wire.socket)

    # --- what the loop asks for --------------------------------------------------------------------------------------------------

    def send(self, packet: Transmit) -> bool:
        """Writes to the packet's connection. What its socket does not take goes first when there is room again; until then it is full."""
        wire = self._wires.get(packet.port)
        if wire is None:
            self.counters["send_after_close"] += 1
            return True
        wire.rest = [memoryview(packet.header), memoryview(packet.payload)]
        self._write(wire)
        if not wire.rest:
            return True
        self.counters["send_blocked"] += 1
        self._full.add(wire.number)
        self._epoll.modify(wire.socket, select.EPOLLIN | select.EPOLLOUT)
        return False

    def receive(self) -> None:
        """Everything that the connections have to tell, within limits; the rest keeps the epoll readable."""
        now = time.monotonic()
        for descriptor, events in self._epoll.poll(0, EVENTS):
            wire = self._by_descriptor.get(descriptor)
            if descriptor == self._listener.fileno():
                self._accept(now)
            elif wire is None:
                continue  # closed by an earlier one of these events
            elif wire.number in self._dialling:
                self._on_dialled(wire)
            else:
                if events & select.EPOLLOUT:
                    self._flush(wire)
                if events & ~select.EPOLLOUT:
                    self._read(wire)

    def outlets(self) -> Iterable[Outlet]:
        """None to wait on: the epoll tells also when a socket takes something again."""
        return ()

    def close(self) -> None:
        """Closes every socket."""
        for number in list(self._wires):
            self.close_connection(number, known=True)
        self._listener.close()
        self._epoll.close()

    # --- one connection ----------------------------------------------------------------------------------------------------------

    def _wire(self, sock: socket.socket, events: int) -> _Wire:
        wire = self._wires[self._next] = self._by_descriptor[sock.fileno()] = _Wire(sock, self._next)
        self._next += 1
        self._epoll.register(sock, events)
        return wire

    def _accept(self, now: float) -> None:
        for _ in range(EVENTS):
            try:
                sock, _peer = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in OUT_OF:
                    raise HostError(f"accepting a TCP connection: {error.strerror}: {TOO_MANY_SOCKETS}") from error
                self.counters[f"accept_{_name(error)}"] += 1
                return
            sock.setblocking(False)
            try:
                options.apply(sock, self._params, self._dscp)
            except OSError as error:  # it ended while it waited to be accepted
                self.counters[f"accept_{_name(error)}"] += 1
                sock.close()
                continue
            self.core.on_accepted(now, self._wire(sock, select.EPOLLIN).number)

    def _on_dialled(self, wire: _Wire) -> None:
        code = wire.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._ended(wire, f"connecting: {_told(OSError(code, ''))}")
            return
        self._dialling.remove(wire.number)
        self._epoll.modify(wire.socket, select.EPOLLIN)
        self.core.on_connected(wire.number)

    def _write(self, wire: _Wire) -> None:
        """Writes what is in `rest`, as far as the socket takes it."""
        try:
            sent = wire.socket.sendmsg(wire.rest)
        except BlockingIOError:
            return
        except OSError as error:
            wire.failed = error
            return
        wire.rest = [part[max(0, sent - before) :] for part, before in _with_offsets(wire.rest) if sent < before + len(part)]

    def _flush(self, wire: _Wire) -> None:
        if wire.failed is None:
            self._write(wire)
        if not wire.rest:
            self._full.discard(wire.number)
            self._epoll.modify(wire.socket, select.EPOLLIN)

    def _read(self, wire: _Wire) -> None:
        core, number, recv_into = self.core, wire.number, wire.socket.recv_into
        for _ in range(READS):
            room = core.room(number)
            try:
                size = recv_into(room)
            except BlockingIOError:
                return
            except OSError as error:
                self._ended(wire, _told(wire.failed or error))
                return
            if not size:
                self._ended(wire, _told(wire.failed) if wire.failed else GONE)
                return
            if not core.received(number, size) or size < len(room):
                return

    def _ended(self, wire: _Wire, reason: str) -> None:
        known = self.core.on_closed(wire.number, reason)
        self.close_connection(wire.number, known)

    def _new_socket(self) -> socket.socket:
        sock = new_socket(socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            options.apply(sock, self._params, self._dscp)
        except OSError as error:
            sock.close()
            raise HostError(f"a TCP socket's options: {error.strerror}: the agent needs root, and Linux 5.4 or later") from error
        return sock

    def _bound_socket(self) -> socket.socket:
        """A socket with all options, bound to this host's address and the next drawn port that nobody has."""
        sock = self._new_socket()
        for port in (next(self._ports) for _ in DYNAMIC_PORTS):
            try:
                sock.bind((self._address, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    sock.close()
                    raise HostError(f"binding TCP [{self._address}]:{port}: {error.strerror}: the host must have that address") from error
                self.counters["port_in_use"] += 1
                continue
            return sock
        sock.close()
        first, last = DYNAMIC_PORTS[0], DYNAMIC_PORTS[-1]
        raise HostError(f"all TCP ports of {self._address} from {first} to {last} are in use: end what uses them")


def drawn_ports(seed: int) -> Iterator[int]:
    """Ports in an order drawn from the seed, none twice before all were drawn."""
    draw = random.Random(f"tcp ports {seed}")
    while True:
        yield from draw.sample(DYNAMIC_PORTS, len(DYNAMIC_PORTS))


def _with_offsets(parts: Iterable[memoryview]) -> Iterator[tuple[memoryview, int]]:
    """Each part, and how many bytes come before it."""
    before = 0
    for part in parts:
        yield part, before
        before += len(part)


def _info(sock: socket.socket) -> TcpInfo:
    return parse(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SIZE_BYTES))


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "error")


def _told(error: OSError) -> str:
    """An error as the reason of a crash: `ETIMEDOUT (Connection timed out)`."""
    return f"{_name(error)} ({os.strerror(error.errno or 0)})"
