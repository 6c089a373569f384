"""The watch of a host's NIC ports over a netlink socket that tells what the test says."""

from __future__ import annotations

import errno
import os
from collections import deque

import pytest

from hosts.ports import PortWatch
from testbed import rtnetlink
from testbed.errors import HostError
from testbed.netlink_wire import HEADER, NLMSG_DONE, NLMSG_ERROR, attribute

UP = rtnetlink.IFF_UP | rtnetlink.IFF_LOWER_UP
NO_CARRIER = rtnetlink.IFF_UP
SET_DOWN = 0


def message(kind: int, body: bytes = b"") -> bytes:
    return HEADER.pack(HEADER.size + len(body), kind, 0, 1, 0) + body + bytes(-len(body) & 3)


def link(name: str, flags: int, index: int = 7, kind: int = rtnetlink.RTM_NEWLINK, operstate: int = 6) -> bytes:
    attributes = attribute(rtnetlink.IFLA_IFNAME, name.encode() + b"\0") + attribute(rtnetlink.IFLA_OPERSTATE, bytes([operstate]))
    return message(kind, rtnetlink.LINK.pack(0, 1, index, flags, 0) + attributes)


DONE = message(NLMSG_DONE, bytes(4))
BOTH_UP = link("h1-eth0", UP, 7) + link("h1-eth1", UP, 8) + DONE


class Kernel:
    """Keeps datagrams (or errors) for the watch, and counts its questions."""

    def __init__(self, *told: bytes | OSError) -> None:
        self.told, self.questions = deque(told), 0

    def send(self, request: bytes, /) -> int:
        self.questions += 1
        return len(request)

    def recv(self, size: int, /) -> bytes:
        if not self.told:
            raise BlockingIOError
        told = self.told.popleft()
        if isinstance(told, OSError):
            raise told
        return told

    def fileno(self) -> int:
        return -1

    def close(self) -> None: ...


def watched(*told: bytes | OSError) -> tuple[PortWatch, Kernel]:
    """A watch of ports 0 and 1 of h1 that has read everything up to now."""
    kernel = Kernel(BOTH_UP, *told)
    return PortWatch("h1", (0, 1), kernel), kernel


def test_ports_that_are_up_are_no_news():
    assert watched()[0].news() == []


@pytest.mark.parametrize(
    ("flags", "operstate"), [(SET_DOWN, 2), (NO_CARRIER, 2), (UP, rtnetlink.OPER_DORMANT[0])], ids=["set down", "no carrier", "dormant"]
)
def test_a_port_that_cannot_carry_is_down(flags: int, operstate: int):
    watch, _ = watched(link("h1-eth1", flags, 8, operstate=operstate))
    assert watch.news() == [(1, False)]


def test_each_change_is_told_once_and_in_order():
    watch, _ = watched(link("h1-eth0", NO_CARRIER), link("h1-eth0", NO_CARRIER), link("h1-eth0", UP))
    assert watch.news() == [(0, False), (0, True)]
    assert watch.news() == []


def test_other_interfaces_are_no_ports():
    watch, _ = watched(link("lo", SET_DOWN, 1) + link("h1-eth9", SET_DOWN, 9) + link("h12-eth0", SET_DOWN, 10))
    assert watch.news() == []


def test_a_port_is_down_when_it_is_gone_or_renamed():
    watch, _ = watched(link("h1-eth0", UP, 7, rtnetlink.RTM_DELLINK), link("spare", UP, 8))
    assert watch.news() == [(0, False), (1, False)]


def test_a_port_that_is_not_among_the_links_is_down():
    kernel = Kernel(link("h1-eth1", UP) + DONE)
    assert PortWatch("h1", (0, 1), kernel).news() == [(0, False)]


def test_the_answer_may_come_in_pieces():
    kernel = Kernel(link("h1-eth0", UP), link("h1-eth1", SET_DOWN, 8), DONE)
    watch = PortWatch("h1", (0, 1), kernel)
    assert not watch.complete
    assert watch.news() == [(1, False)]
    assert watch.complete


def test_after_an_overrun_all_links_are_asked_for_again():
    watch, kernel = watched(OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS)), link("h1-eth0", UP) + link("h1-eth1", SET_DOWN, 8) + DONE)
    assert watch.news() == [(1, False)]
    assert (kernel.questions, watch.counters["overruns"]) == (2, 1)


def test_any_other_error_of_the_socket_is_told_in_words():
    watch, _ = watched(OSError(errno.EIO, os.strerror(errno.EIO)))
    with pytest.raises(HostError, match=r"NIC ports.*Input/output error"):
        watch.news()


def test_an_overrun_within_an_answer_asks_again_only_after_its_end():
    kernel = Kernel(OSError(errno.ENOBUFS, ""))
    watch = PortWatch("h1", (0, 1), kernel)
    watch.news()
    assert (kernel.questions, watch.complete) == (1, False)
    kernel.told.append(BOTH_UP)
    watch.news()
    assert (kernel.questions, watch.complete) == (2, False)


@pytest.mark.parametrize(
    ("datagram", "reason"),
    [
        (message(NLMSG_ERROR, (-errno.EBUSY).to_bytes(4, "little", signed=True)), "refused"),
        (b"\x01", "unreadable"),
        (message(rtnetlink.RTM_NEWLINK, b"x"), "unreadable"),
        (HEADER.pack(400, rtnetlink.RTM_NEWLINK, 0, 1, 0), "unreadable"),
    ],
)
def test_what_cannot_be_read_is_counted_and_asked_for_with_the_next_news(datagram: bytes, reason: str):
    watch, kernel = watched(datagram)
    assert watch.news() == []
    assert (watch.counters[reason], kernel.questions, watch.complete) == (1, 1, False)
    kernel.told.append(link("h1-eth0", SET_DOWN) + link("h1-eth1", UP, 8) + DONE)
    assert watch.news() == [(0, False)]
    assert (kernel.questions, watch.complete) == (2, True)
