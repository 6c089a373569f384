"""Holds the model of BGP against the real switches: what they report goes in, what it decides is carried out. No sockets, no clock.

At its begin it gathers: all switches that should be there connect, and say what their ports and tables are. Then it listens: a packet goes
out of every port with carrier, and a link counts as good that passes them both ways. With what it found it lets the model settle, and
writes only what differs from the tables that are there, so that a controller which comes back disturbs nobody (as RFC 4724 wants it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from testbed.controller import keepalive
from testbed.controller.messages import Confirmed, Connected, Connection, Disconnected, Event, PacketIn, PortChanged, Refused
from testbed.controller.tables import Change, SwitchTables
from testbed.errors import HostError
from testbed.pathvector import BgpOvsOptions, Install, PathVector, Record, SendKeepalive
from testbed.routing.config import fabric_ports
from topologies import Topology, ecmp

LISTEN_S = 2.0
"""How long a link may take to pass a packet before the controller begins without it. Ours takes a millisecond; the rest is patience."""
PROBE_EVERY_S = 0.25
LONGEST_WAIT_S = 1.0

Write = Callable[[Mapping[str, Any]], None]


class Brain:
    """`step` takes what happened and returns how long to wait at most. `write` takes history events, with `t`."""

    def __init__(
        self, topology: Topology, options: BgpOvsOptions, seed: int, expected: Iterable[str], gather_s: float, write: Write
    ) -> None:
        self._topology, self._options, self._write = topology, options, write
        self._model = PathVector(topology, options, seed)
        self._expected, self._gather_s = set(expected), gather_s
        self._names = {topology.nodes[switch].usid: switch for switch in topology.switches}
        self._numbers = {switch: _numbers(topology, switch) for switch in topology.switches}
        self._owners = {ifname: switch for switch, numbers in self._numbers.items() for ifname in numbers}
        self._connections: dict[str, Connection] = {}
        self._tables: dict[str, SwitchTables] = {}
        self._carrier: dict[str, bool] = {}  # of every interface of a connected switch
        self._heard: set[str] = set()
        self._pending: dict[tuple[Connection, int], tuple[str, Change]] = {}
        self._began: float | None = None
        self._listening_until: float | None = None
        self._next_probe = self._reached = 0.0
        self.running = False
        self.missing: tuple[str, ...] = ()

    @property
    def settled(self) -> bool:
        """Whether it runs, and the switches have confirmed all that they were told."""
        return self.running and not self._pending

    def step(self, now: float, events: Iterable[Event]) -> float:
        """HostError when a switch refuses what it was told."""
        self._began = now if self._began is None else self._began
        for event in events:
            self._take(event)
        if not self.running:
            return self._begin(now, self._began)
        self._reached = now
        for action in self._model.advance(now):
            self._carry_out(action)
        due = self._model.due()
        return LONGEST_WAIT_S if due is None else min(max(due - now, 0.0), LONGEST_WAIT_S)

    def _begin(self, now: float, began: float) -> float:
        """Gathering, then listening, then the first tables."""
        if self._listening_until is None:
            if not self._expected <= set(self._connections) and now < began + self._gather_s:
                return PROBE_EVERY_S
            self._listening_until = now + LISTEN_S
        if self._silent() and now < self._listening_until:
            self._probe(now)
            return PROBE_EVERY_S
        self._settle(now)
        return 0.0

    def _probe(self, now: float) -> None:
        """A packet each way where none was heard yet: only one that is answered shows that a link passes both."""
        if now < self._next_probe:
            return
        self._next_probe = now + PROBE_EVERY_S
        for switch in self._connections:
            for ifname in fabric_ports(self._topology, switch):
                self._send_keepalive(switch, ifname)

    def _silent(self) -> list[str]:
        """Fabric ports with carrier that nothing was heard on."""
        return [
            ifname
            for switch in self._connections
            for ifname in fabric_ports(self._topology, switch)
            if self._carrier[ifname] and ifname not in self._heard
        ]

    def _settle(self, now: float) -> None:
        self.missing = tuple(sorted(self._expected - set(self._connections)))
        silent, down = self._silent(), [ifname for ifname, up in self._carrier.items() if not up]
        absent = [switch for switch in self._topology.switches if switch not in self._connections]
        fibs = self._model.settle(now=now, ports_down=[*down, *silent], switches_down=absent)
        for ifname in silent:
            self._write({"t": now, "source": "routing", "event": "session", **self._ends(ifname), "up": False, "reason": "silent"})
            self._model.port(now, self._owners[ifname], ifname, True)
        for switch in self._connections:
            wanted = {address: ecmp.ports_to(self._topology, switch, ports) for address, ports in fibs.get(switch, {}).items()}
            self._tell(switch, self._tables[switch].changes_to(wanted))
        self._reached, self.running = now, True

    def _ends(self, ifname: str) -> dict[str, str]:
        """Whose interface it is, and the switch at the other end."""
        switch = self._owners[ifname]
        link = self._topology.link_at(switch, self._numbers[switch][ifname])
        assert link is not None
        return {"node": switch, "peer": link.other(switch).node}

    def _at(self, event: Event) -> float:
        """When it happened to the model, whose time never goes back."""
        return max(event.t, self._reached)

    def _take(self, event: Event) -> None:
        switch = self._names.get(event.connection.datapath_id)
        if switch is None:
            raise HostError(f"a switch with datapath id {event.connection.datapath_id:#x} connected, which the fabric does not have")
        if isinstance(event, Connected):
            self._connected(event, switch)
        elif self._connections.get(switch) is not event.connection:
            return  # the last words of a connection that was replaced
        elif isinstance(event, Disconnected):
            self._gone(event.connection, switch, self._at(event))
        elif isinstance(event, PortChanged):
            self._port_changed(event, switch)
        elif isinstance(event, PacketIn):
            self._packet_in(event, switch)
        elif isinstance(event, Confirmed):
            self._confirmed(event)
        else:
            self._refused(event, switch)

    def _connected(self, event: Connected, switch: str) -> None:
        """A switch that comes while the model runs has just booted: what its tables hold nevertheless is not the model's, and goes."""
        if switch in self._connections:  # the end of its old connection will be heard of later
            self._gone(self._connections[switch], switch, self._at(event))
        self._connections[switch] = event.connection
        self._tables[switch] = SwitchTables(self._topology, switch, self._options.ecmp_seed, event.routes)
        ups = {ifname: event.ports.get(number, False) for ifname, number in self._numbers[switch].items()}
        self._carrier.update(ups)
        if not self.running:
            self._began = event.t  # patience counts from the last that came: a large fabric boots for long
            return
        for ifname, up in ups.items():
            self._model.port(self._at(event), switch, ifname, up)
        self._tell(switch, self._tables[switch].changes_to({}))
        self._model.switch_up(self._at(event), switch)

    def _gone(self, connection: Connection, switch: str, at: float) -> None:
        del self._connections[switch], self._tables[switch]
        for ifname in self._numbers[switch]:
            self._carrier.pop(ifname, None)
            self._heard.discard(ifname)
        self._pending = {key: value for key, value in self._pending.items() if key[0] is not connection}
        if self.running:
            self._model.switch_down(at, switch)

    def _port_changed(self, event: PortChanged, switch: str) -> None:
        ifname = self._ifname(switch, event.port)
        if ifname is None or self._carrier[ifname] == event.up:
            return
        self._carrier[ifname] = event.up
        if self.running:
            self._model.port(self._at(event), switch, ifname, event.up)

    def _packet_in(self, event: PacketIn, switch: str) -> None:
        ifname = self._ifname(switch, event.port)
        if ifname is None or not keepalive.is_keepalive(event.data):
            return
        self._heard.add(ifname)
        if self.running:
            self._model.heard(self._at(event), switch, ifname)

    def _ifname(self, switch: str, port: int) -> str | None:
        """The interface of a port number; None for the bridge's own port."""
        return next((ifname for ifname, number in self._numbers[switch].items() if number == port), None)

    def _confirmed(self, event: Confirmed) -> None:
        found = self._pending.pop((event.connection, event.barrier), None)
        if found is not None:
            switch, change = found
            told = {"event": "fib", "node": switch, "change": change.kind, "prefix": f"{change.address}/128"}
            self._write({"t": event.t, "source": "routing", **told})

    def _refused(self, event: Refused, switch: str) -> None:
        raise HostError(f"switch {switch} refused what the controller sent: {event.text}")

    def _carry_out(self, action: Install | SendKeepalive | Record) -> None:
        if isinstance(action, Record):
            self._write({"t": action.t, "source": "routing", **action.event})
        elif action.switch not in self._connections:
            return  # it went meanwhile; the model will hear of it
        elif isinstance(action, SendKeepalive):
            self._send_keepalive(action.switch, action.ifname)
        else:
            ports = ecmp.ports_to(self._topology, action.switch, action.ports)
            change = self._tables[action.switch].change(action.address, ports)
            self._tell(action.switch, [] if change is None else [change])

    def _tell(self, switch: str, changes: list[Change]) -> None:
        connection = self._connections[switch]
        for change, barrier in zip(changes, connection.carry_out(changes), strict=True):
            self._pending[connection, barrier] = (switch, change)

    def _send_keepalive(self, switch: str, ifname: str) -> None:
        link = self._topology.link_at(switch, self._numbers[switch][ifname])
        assert link is not None
        self._connections[switch].send(self._numbers[switch][ifname], keepalive.frame(link.end(switch)))


def _numbers(topology: Topology, switch: str) -> dict[str, int]:
    """Port numbers of a switch by interface."""
    return {link.end(switch).ifname: link.end(switch).port for link in topology.links_of(switch)}
