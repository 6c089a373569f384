"""Which of the host's NIC ports can carry packets, as the kernel tells it: up, with carrier, and not dormant (docs/faults.md).

The kernel tells changes to whoever has subscribed. When some were dropped (ENOBUFS), all links are asked for again: a port's state may be
told late, but is never wrong for long.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from hosts.core import taken
from testbed import rtnetlink
from testbed.errors import HostError
from testbed.netlink_wire import NLMSG_DONE, NetlinkError

RECEIVE_BYTES = 1 << 16
ANSWER_TIMEOUT_S = 5.0  # the kernel answers within microseconds
MOST_READS = 64  # in one go: whoever makes links change without end must not keep the agent from its packets


class Netlink(Protocol):
    """What is used of a netlink socket."""

    def send(self, request: bytes, /) -> int:
        """Sends a request."""

    def recv(self, size: int, /) -> bytes:
        """One datagram; BlockingIOError without one, OSError with ENOBUFS after some were dropped."""

    def fileno(self) -> int:
        """To wait on."""

    def close(self) -> None:
        """Closes it."""


class PortWatch:
    """The ports `ports` of `host`. At first all count as up: what is not is the first news.

    `counters`: `overruns`; `unreadable` datagrams and `refused` answers, after which all links are asked for with the next news.
    """

    def __init__(self, host: str, ports: Iterable[int], netlink: Netlink) -> None:
        self.counters: Counter[str] = Counter()
        self._netlink = netlink
        self._ports = {f"{host}-eth{port}": port for port in ports}
        self._up = dict.fromkeys(self._ports.values(), True)
        self._index: dict[int, int] = {}  # port by interface index, so that one that was renamed is missed
        self._seen: set[int] = set()  # ports that the present answer has told
        self._news: list[tuple[int, bool]] = []
        self._asked = self._again = False
        self._sequence = 0
        self._ask()

    def fileno(self) -> int:
        """Readable when there may be news."""
        return self._netlink.fileno()

    @property
    def complete(self) -> bool:
        """Whether all links have been told since the last question, and since anything was missed."""
        return not self._asked and not self._again

    def news(self) -> list[tuple[int, bool]]:
        """Reads what the kernel has told: (port, up) of each change, in order."""
        if self._again:
            self._ask()
        for _ in range(MOST_READS):
            try:
                self._take(self._netlink.recv(RECEIVE_BYTES))
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise HostError(f"watching the NIC ports (netlink): {error.strerror}: start the run again") from error
                self.counters["overruns"] += 1
                self._ask()
        return taken(self._news)

    def close(self) -> None:
        """Ends the watch."""
        self._netlink.close()

    def _ask(self) -> None:
        """Asks for all links; the kernel takes a second question only after it has answered the first."""
        if self._asked:
            self._again = True
            return
        self._sequence += 1
        self._asked, self._again = True, False
        self._seen.clear()
        self._netlink.send(rtnetlink.dump_request(rtnetlink.RTM_GETLINK, self._sequence))

    def _take(self, datagram: bytes) -> None:
        try:
            for kind, _flags, body in rtnetlink.messages(datagram):
                if kind == NLMSG_DONE:
                    self._answered()
                elif kind in (rtnetlink.RTM_NEWLINK, rtnetlink.RTM_DELLINK):
                    self._take_link(rtnetlink.parse_link(kind, body))
        except NetlinkError:
            self.counters["refused"] += 1
            self._asked, self._again = False, True
        except (ValueError, struct.error):
            self.counters["unreadable"] += 1
            self._again = True

    def _take_link(self, link: rtnetlink.LinkMessage) -> None:
        known, port = self._index.get(link.index), self._ports.get(link.name)
        if known is not None and known != port:
            self._set(known, False)
            del self._index[link.index]
        if port is not None:
            self._seen.add(port)
            self._set(port, link.up and not link.deleted)
            self._index[link.index] = port

    def _set(self, port: int, up: bool) -> None:
        if self._up[port] != up:
            self._up[port] = up
            self._news.append((port, up))

    def _answered(self) -> None:
        """All links were told: a port that was not among them is not there."""
        self._asked = False
        for port in self._up.keys() - self._seen:
            self._set(port, False)
        if self._again:
            self._ask()


def watch(host: str, ports: Iterable[int]) -> PortWatch:
    """Watches the ports in the present network namespace. HostError if the kernel does not let us."""
    try:
        opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        opened.bind((0, rtnetlink.RTMGRP_LINK))
        opened.setblocking(False)
        return PortWatch(host, ports, opened)
    except OSError as error:
        raise HostError(f"{host}: listening to the kernel's news of NIC ports: {error}") from error


def first_news(watched: PortWatch) -> list[tuple[int, bool]]:
    """The state at the beginning: the ports that are down. HostError if the kernel does not tell it."""
    down: dict[int, bool] = {}
    while not watched.complete:
        if not select.select((watched,), (), (), ANSWER_TIMEOUT_S)[0]:
            raise HostError(f"the kernel did not tell its links within {ANSWER_TIMEOUT_S:g} s")
        down.update(watched.news())  # a later change of the same port replaces the earlier one
    return [(port, up) for port, up in down.items() if not up]
