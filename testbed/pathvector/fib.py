"""One switch's forwarding table as it is being written: a delay for each prefix, and ports that the switch skips by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from testbed.pathvector.actions import Fib
from testbed.pathvector.agenda import Agenda
from testbed.pathvector.options import BgpOvsOptions

Write = Callable[[str, tuple[str, ...]], None]
"""Takes an address and its ports, as they are to be in the switch from now on."""


class ForwardingTable:
    """`written` is what routing asked for and has been written; `shown` the same without the ports that are skipped."""

    def __init__(self, options: BgpOvsOptions, agenda: Agenda, write: Write) -> None:
        self._options, self._agenda, self._write = options, agenda, write
        self.written: Fib = {}
        self.shown: Fib = {}
        self._dead: set[str] = set()
        self._waiting: dict[str, tuple[str, ...]] = {}
        self._at_work = False

    def begin(self, table: Fib) -> None:
        """The switch has this table already."""
        self.written, self.shown = dict(table), dict(table)

    def change(self, t: float, changes: Mapping[str, tuple[str, ...]]) -> None:
        """Routing wants these ports; of an address that still waits only the latest counts."""
        self._waiting.update(changes)
        if self._waiting and not self._at_work:
            self._at_work = True
            self._agenda.at(t + self._options.fib_base_s + self._options.fib_prefix_s, self._next)

    def _next(self, t: float) -> None:
        address = next(iter(self._waiting))
        ports = self._waiting.pop(address)
        if ports:
            self.written[address] = ports
        else:
            self.written.pop(address, None)
        self._show(address)
        self._at_work = bool(self._waiting)
        if self._waiting:
            self._agenda.at(t + self._options.fib_prefix_s, self._next)

    def skip(self, ifname: str, dead: bool) -> None:
        """The switch itself leaves a port without carrier out, or takes it in again, in all entries at once."""
        if (ifname in self._dead) == dead:
            return
        self._dead.symmetric_difference_update({ifname})
        for address in [address for address, ports in self.written.items() if ifname in ports]:
            self._show(address)

    def _show(self, address: str) -> None:
        ports = tuple(port for port in self.written.get(address, ()) if port not in self._dead)
        if ports == self.shown.get(address, ()):
            return
        if ports:
            self.shown[address] = ports
        else:
            del self.shown[address]
        self._write(address, ports)
