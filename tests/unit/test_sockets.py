"""What waits for a socket that is full."""

from __future__ import annotations

import socket
from collections import Counter
from typing import Any

from hosts.core import Transmit
from hosts.sockets import MOST_WAITING, Outlet


class Full(socket.socket):
    """A socket that takes nothing until `full` is False."""

    full = True
    taken = 0

    def sendmsg(self, *packet: Any) -> int:  # type: ignore[override]
        if self.full:
            raise BlockingIOError
        self.taken += 1
        return 0


def test_a_full_socket_keeps_so_many_packets_and_loses_what_comes_after() -> None:
    counters: Counter[str] = Counter()
    with Full(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        outlet = Outlet(sock, 0, counters)
        packet = Transmit(0, "::1", b"head", b"", b"", True)
        assert [outlet.send(packet) for _ in range(MOST_WAITING + 3)] == [False] * (MOST_WAITING + 3)
        assert (len(outlet.waiting), counters["send_queue_full"]) == (MOST_WAITING, 3)
        sock.full = False
        outlet.flush()
        assert (sock.taken, len(outlet.waiting), outlet.send(packet)) == (MOST_WAITING, 0, True)
