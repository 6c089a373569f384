"""A fabric of made-up switches around a real brain: frames cross links that are not broken, tables are what was confirmed."""

from __future__ import annotations

from typing import Any

from testbed.controller.brain import Brain
from testbed.controller.messages import Confirmed, Connected, Disconnected, PacketIn, PortChanged
from testbed.controller.tables import Change
from testbed.pathvector import BgpOvsOptions
from testbed.routing.expected import expected_fibs
from topologies import build, ecmp

STEP_S = 0.01


class Switch:
    """Carries out at once, and says so in the next round."""

    def __init__(self, lab: Lab, name: str, routes: dict[str, tuple[int, ...]] | None = None) -> None:
        self.lab, self.name, self.routes, self.barriers = lab, name, dict(routes or {}), 0
        self.datapath_id = lab.topology.nodes[name].usid
        self.written: list[Change] = []

    def carry_out(self, changes):
        return [self._carry_out(change) for change in changes]

    def _carry_out(self, change):
        self.written.append(change)
        if change.route is None:
            del self.routes[change.address]
        else:
            self.routes[change.address] = _ports(change.route)
        self.barriers += 1
        self.lab.inbox.append(Confirmed(self.lab.now, self, self.barriers))
        return self.barriers

    def send(self, port, frame):
        link = self.lab.topology.link_at(self.name, port)
        far = link.other(self.name)
        if link.name not in self.lab.broken and far.node in self.lab.switches:
            self.lab.inbox.append(PacketIn(self.lab.now, self.lab.switches[far.node], far.port, frame))


def _ports(rule):
    sets = [action.number for action in rule.actions if isinstance(action, ecmp.LoadSet)]
    if not sets:
        return (next(action.port for action in rule.actions if hasattr(action, "port")),)
    return tuple(port for port in range(1, 33) if sets[0] >> port - 1 & 1)


class Lab:
    """`run` lets time pass; `connect`, `cut`, `broken` are what happens to switches and links."""

    def __init__(self, tables: dict[str, dict[str, tuple[int, ...]]] | None = None, now: float = 100.0, **options: Any) -> None:
        self.topology = build("multi-plane", planes=1, t0s=2, t1s=2, hosts_per_t0=1)
        self.options = BgpOvsOptions(keepalive_s=1.0, hold_s=3.0, **options)
        self.now, self.inbox, self.history, self.broken = now, [], [], set()
        self.down: set[str] = set()
        self.switches: dict[str, Switch] = {}
        self.brain = Brain(self.topology, self.options, 1, self.topology.switches, 5.0, self.history.append)
        for name in self.topology.switches:
            self.connect(name, (tables or {}).get(name))

    def connect(self, name, routes=None):
        self.switches[name] = switch = Switch(self, name, routes)
        ports = {link.end(name).port: link.name not in self.down for link in self.topology.links_of(name)}
        self.inbox.append(Connected(self.now, switch, {**ports, 0xFFFFFFFE: False}, switch.routes))

    def disconnect(self, name):
        self.inbox.append(Disconnected(self.now, self.switches.pop(name)))

    def cut(self, name, up=False):
        link = self.topology.link(name)
        (self.down.discard if up else self.down.add)(name)
        (self.broken.discard if up else self.broken.add)(name)
        for end in (link.a, link.b):
            if end.node in self.switches:
                self.inbox.append(PortChanged(self.now, self.switches[end.node], end.port, up))

    def run(self, seconds):
        until = self.now + seconds
        while self.now < until:
            events, self.inbox = self.inbox, []
            self.brain.step(self.now, events)
            self.now += STEP_S

    def tables(self):
        return {name: switch.routes for name, switch in self.switches.items()}

    def expected(self, **down):
        return {
            name: {address: ecmp.ports_to(self.topology, name, ports) for address, ports in fib.items()}
            for name, fib in expected_fibs(self.topology, **down).items()
        }

    def fib_events(self):
        return [event for event in self.history if event["event"] == "fib"]
