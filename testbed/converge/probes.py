"""The process that sends and receives probes: one for all hosts, its sockets live in the hosts' network namespaces. One clock, one loop.

`python -m testbed.converge.probes` takes one JSON line on its standard input:
``{"magic", "gap_s", "flows": [{"source_pid", "source_address", "port", "target_pid", "target_address"}]}``, says ``{"msg": "running"}``
when some probes of each stream have arrived, and after a line ``stop`` (or the end of its input) ``{"msg": "stopped", ...}``, see `report`.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.converge.ledger import UDP_PORT, Ledger, packed, unpacked
from testbed.percentile import percentile
from testbed.routing.namespace import inside

FIRST_ARRIVALS = 3  # of each stream until the probes count as running
GRACE_S = 0.5  # after the last probe: longer than any queue of the fabric holds a packet
BUFFER_BYTES = 1 << 20
MAX_LATE_SLOTS = 64  # sent at once after the process was kept from running, before it looks at what has arrived


def _opened(pid: int, address: str, port: int) -> socket.socket:
    """A UDP socket of that address and port, in the namespace of `pid`."""
    opened = inside(pid, lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    opened.setblocking(False)
    opened.bind((address, port))
    return opened


class Prober:
    """All streams. `run` sends each at its own phase of the gap, on absolute deadlines, until told to stop."""

    def __init__(self, magic: int, gap_s: float, flows: Sequence[Mapping[str, Any]]) -> None:
        self._magic, self._gap_s = magic, gap_s
        self._senders = [_opened(flow["source_pid"], flow["source_address"], flow["port"]) for flow in flows]
        targets = {flow["target_address"]: flow["target_pid"] for flow in flows}
        opened = [_opened(pid, address, UDP_PORT) for address, pid in targets.items()]
        self._receivers = {receiver.fileno(): receiver for receiver in opened}
        self._to = [(flow["target_address"], UDP_PORT) for flow in flows]
        self._ledgers = [Ledger() for _ in flows]
        self._late: list[float] = []
        self._refused = 0
        self._running = self._stopping = False

    def run(self) -> dict[str, Any]:
        """Until a line comes on standard input; then waits for the last arrivals and returns the report."""
        began, slot_s, slot = time.monotonic(), self._gap_s / len(self._ledgers), 0
        while not self._stopping:
            now = time.monotonic()
            for _ in range(MAX_LATE_SLOTS):
                due = began + slot * slot_s
                if due > now:
                    break
                self._send(slot % len(self._ledgers), now - due)
                slot += 1
            self._wait(max(0.0, began + slot * slot_s - time.monotonic()))
        ended = time.monotonic()
        while (left := ended + GRACE_S - time.monotonic()) > 0:
            self._wait(left)
        return self.report(slot * slot_s / max(ended - began, slot_s))

    def report(self, rate_share: float) -> dict[str, Any]:
        """`flows`: each stream's probes, sent and arrived, and when the lost ones were sent; how late, and how many the kernel refused."""
        flows = [{"sent": ledger.sent, "arrived": ledger.arrived, "lost": ledger.lost()} for ledger in self._ledgers]
        late = percentile(self._late, 0.99) or 0.0
        return {"msg": "stopped", "flows": flows, "late_p99_s": late, "refused": self._refused, "rate_share": round(rate_share, 4)}

    def _send(self, flow: int, late_s: float) -> None:
        self._late.append(late_s)
        sequence = self._ledgers[flow].send(time.monotonic())
        try:
            self._senders[flow].sendto(packed(self._magic, flow, sequence), self._to[flow])
        except OSError:  # no route, or a full queue: as lost as if a switch had dropped it, and counted
            self._refused += 1

    def _wait(self, timeout_s: float) -> None:
        """Takes what arrives until the timeout; standard input says when to stop."""
        asked = [] if self._stopping else [sys.stdin.fileno()]
        ready, _, _ = select.select([*self._receivers.keys(), *asked], [], [], timeout_s)
        for descriptor in ready:
            if descriptor in self._receivers:
                self._receive(self._receivers[descriptor])
            else:
                sys.stdin.readline()
                self._stopping = True
        if not self._running and all(ledger.arrived >= FIRST_ARRIVALS for ledger in self._ledgers):
            self._running = True
            say({"msg": "running"})

    def _receive(self, opened: socket.socket) -> None:
        while True:
            try:
                payload = opened.recv(256)
            except BlockingIOError:
                return
            if (found := unpacked(payload, self._magic)) is not None and found[0] < len(self._ledgers):
                self._ledgers[found[0]].arrive(found[1])


def say(message: Mapping[str, Any]) -> None:
    """One JSON line."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """One run of probes."""
    asked = json.loads(sys.stdin.readline())
    prober = Prober(asked["magic"], asked["gap_s"], asked["flows"])
    say({"msg": "opened"})
    say(prober.run())


if __name__ == "__main__":
    main()
