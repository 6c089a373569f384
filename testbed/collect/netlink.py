"""Listens to the kernel of every node: carrier changes and FIB changes, with the time they arrived, into one history."""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from testbed import rtnetlink
from testbed.errors import HostError
from testbed.netlink_wire import NLMSG_DONE
from testbed.routing.namespace import inside

Record = Callable[[dict[str, Any]], None]

SO_RCVBUFFORCE = 33  # asm-generic/socket.h; like SO_RCVBUF, but root may pass the limit of net.core.rmem_max
BUFFER_BYTES = 4 << 20
RECEIVE_BYTES = 1 << 17
DUMP_TIMEOUT_S = 5.0


class NetlinkWatch:
    """One socket in each node's network namespace and one thread that reads them all.

    `pids` gives a process in each node's namespace; `record` is called from the watch's thread with history events (docs/architecture.md):
    ``{"t", "source": "netlink", "event": "link", "node", "ifname", "up"}`` when an interface gains or loses carrier (or is set up or down),
    and ``{..., "event": "fib", "node", "change", "prefix"}`` for each change of an IPv6 route of the main table, link-local ones left
    out. `t` is the CLOCK_MONOTONIC second at which the message was received. `overruns` counts the times that the kernel dropped messages
    because the thread did not keep up: then events are missing.
    """

    def __init__(self, pids: Mapping[str, int], record: Record) -> None:
        self._pids, self._record = dict(pids), record
        self._sockets: dict[int, tuple[str, socket.socket]] = {}
        self._up: dict[tuple[str, str], bool] = {}
        self._wake, self._waker = -1, -1
        self._thread = threading.Thread(target=self._run, name="netlink-watch", daemon=True)
        self.overruns = 0

    def start(self) -> None:
        """Opens the sockets, takes the present link states, and listens from then on. HostError if a namespace cannot be entered."""
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for node, pid in self._pids.items():
            opened = inside(pid, lambda node=node: _open(node))  # type: ignore[misc]
            self._sockets[opened.fileno()] = (node, opened)
            self._learn_links(node, opened)
        self._thread.start()

    def stop(self) -> None:
        """Takes what the kernel has already sent, ends the thread and closes the sockets. May be called again, or without `start`."""
        if self._thread.is_alive():
            os.write(self._waker, b"x")
            self._thread.join()
        for _, opened in self._sockets.values():
            opened.close()
        self._sockets.clear()
        for descriptor in (self._wake, self._waker):
            if descriptor >= 0:
                os.close(descriptor)
        self._wake = self._waker = -1

    def _learn_links(self, node: str, opened: socket.socket) -> None:
        """Asks for all links, so that only later changes are events. What changes meanwhile arrives on the same socket as well."""
        opened.settimeout(DUMP_TIMEOUT_S)
        opened.send(rtnetlink.dump_request(rtnetlink.RTM_GETLINK, 1))
        done = False
        while not done:
            for kind, flags, body in rtnetlink.messages(opened.recv(RECEIVE_BYTES)):
                done = done or kind == NLMSG_DONE
                if kind == rtnetlink.RTM_NEWLINK:
                    link = rtnetlink.parse_link(kind, body)
                    self._up.setdefault((node, link.name), link.up)
                self._take(node, kind, flags, body, time.monotonic())
        opened.setblocking(False)

    def _run(self) -> None:
        """The thread: waits for any socket, reads it empty, until told to stop."""
        poll = select.poll()
        for descriptor in (self._wake, *self._sockets):
            poll.register(descriptor, select.POLLIN)
        stopping = False
        while not stopping:
            ready = [descriptor for descriptor, _ in poll.poll()]
            stopping = self._wake in ready
            for descriptor in self._sockets if stopping else ready:
                self._drain(*self._sockets[descriptor])

    def _drain(self, node: str, opened: socket.socket) -> None:
        """Reads one socket until it is empty."""
        while True:
            try:
                datagram = opened.recv(RECEIVE_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self.overruns += 1
                continue
            now = time.monotonic()
            for kind, flags, body in rtnetlink.messages(datagram):
                self._take(node, kind, flags, body, now)

    def _take(self, node: str, kind: int, flags: int, body: bytes, now: float) -> None:
        """Turns one message into an event, if it is one."""
        if kind in (rtnetlink.RTM_NEWLINK, rtnetlink.RTM_DELLINK):
            self._take_link(node, rtnetlink.parse_link(kind, body), now)
        elif kind in (rtnetlink.RTM_NEWROUTE, rtnetlink.RTM_DELROUTE):
            route = rtnetlink.parse_route(kind, flags, body)
            if route is not None and route.table == rtnetlink.RT_TABLE_MAIN and not route.prefix.startswith(("fe80:", "ff")):
                self._event(now, "fib", node=node, change=route.change, prefix=route.prefix)

    def _take_link(self, node: str, link: rtnetlink.LinkMessage, now: float) -> None:
        """An event when the state differs from the last known one; the kernel also reports links for many other reasons."""
        up = link.up and not link.deleted
        if self._up.get((node, link.name)) != up:
            self._up[node, link.name] = up
            self._event(now, "link", node=node, ifname=link.name, up=up)

    def _event(self, now: float, name: str, **fields: Any) -> None:
        self._record({"t": now, "source": "netlink", "event": name, **fields})


def _open(node: str) -> socket.socket:
    """A socket in the present namespace that hears of links and IPv6 routes."""
    try:
        opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        opened.bind((0, rtnetlink.RTMGRP_LINK | rtnetlink.RTMGRP_IPV6_ROUTE))
    except OSError as error:
        raise HostError(f"{node}: listening to the kernel's link and route changes: {error}; run as root") from error
    return opened
