"""Reading a router's kernel FIB by netlink, and saying how it differs from what is expected."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from testbed import rtnetlink
from testbed.errors import HostError
from testbed.netlink_wire import NLMSG_DONE, NetlinkError
from testbed.routing.expected import Fib
from testbed.routing.namespace import inside

RECEIVE_BYTES = 1 << 18
MAX_WIDTH = 256  # of next hops: more than FRR takes


@dataclass(frozen=True)
class FibDifference:
    """One host address whose next hops at one router are not as expected."""

    router: str
    address: str
    missing: frozenset[str]
    surplus: frozenset[str]

    def __str__(self) -> str:
        parts = [f"lacks {', '.join(sorted(self.missing))}"] if self.missing else []
        parts += [f"has {', '.join(sorted(self.surplus))} too many"] if self.surplus else []
        return f"{self.router}: {self.address}: {' and '.join(parts)}"


class FibReader:
    """A netlink socket in one router's namespace, kept open: a read costs two dumps and no process."""

    def __init__(self, router: str, pid: int) -> None:
        self._router = router
        self._socket = inside(pid, lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE))
        self._socket.settimeout(5.0)
        self._sequence = 0

    def close(self) -> None:
        """Gives the socket back."""
        self._socket.close()

    def read(self) -> Fib:
        """Host routes (/128, main table) with a usable next hop: address -> interface names. HostError if the kernel does not answer."""
        return fib_of(self.routes(), self._names())

    def routes(self) -> list[rtnetlink.RouteMessage]:
        """All IPv6 routes of the main table as they are, dead next hops too."""
        parsed = [rtnetlink.parse_route(kind, flags, body) for kind, flags, body in self._dump(rtnetlink.RTM_GETROUTE)]
        return [route for route in parsed if route is not None and route.table == rtnetlink.RT_TABLE_MAIN]

    def _names(self) -> dict[int, str]:
        """Interface names by index; read anew each time, as a rebooted switch may have new indexes."""
        links = (rtnetlink.parse_link(kind, body) for kind, _, body in self._dump(rtnetlink.RTM_GETLINK))
        return {link.index: link.name for link in links}

    def _dump(self, kind: int) -> list[tuple[int, int, bytes]]:
        """All messages that answer one dump request."""
        self._sequence += 1
        try:
            self._socket.send(rtnetlink.dump_request(kind, self._sequence))
            return self._answers()
        except (OSError, NetlinkError) as error:
            raise HostError(f"{self._router}: reading the kernel's tables by netlink: {error}") from error

    def _answers(self) -> list[tuple[int, int, bytes]]:
        found: list[tuple[int, int, bytes]] = []
        while True:
            for message in rtnetlink.messages(self._socket.recv(RECEIVE_BYTES)):
                if message[0] == NLMSG_DONE:
                    return found
                found.append(message)


def fib_of(routes: list[rtnetlink.RouteMessage], names: Mapping[int, str]) -> Fib:
    """Usable host routes: /128s with at least one usable next hop. Next hops of the same prefix are put together."""
    fib: Fib = {}
    for route in routes:
        address, _, length = route.prefix.partition("/")
        hops = frozenset(names.get(hop.ifindex, f"index {hop.ifindex}") for hop in route.hops if hop.usable)
        if length == "128" and hops:
            fib[address] = fib.get(address, frozenset()) | hops
    return fib


def differences(router: str, expected: Fib, found: Fib, all_hosts: frozenset[str], width: int = MAX_WIDTH) -> list[FibDifference]:
    """Where `found` is not exactly `expected`, over all hosts' addresses; routes to other things do not count.

    Of more next hops than `width` any `width` will do: which ones BGP takes is its own affair.
    """
    pairs = ((address, expected.get(address, frozenset()), found.get(address, frozenset())) for address in sorted(all_hosts))
    return [
        FibDifference(router, address, *_difference(want, have, width))
        for address, want, have in pairs
        if any(_difference(want, have, width))
    ]


def _difference(want: frozenset[str], have: frozenset[str], width: int) -> tuple[frozenset[str], frozenset[str]]:
    """Next hops that are missing, and those that are too many; two empty sets where all is well."""
    room = min(width, len(want))
    missing = want - have if len(want & have) < room else frozenset[str]()
    return missing, have - want or (have if len(have) > room else frozenset())
