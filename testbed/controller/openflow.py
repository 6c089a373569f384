"""OpenFlow 1.3 by Ryu, or by os-ken, its maintained fork with the same interface. The only module that imports either of them.

The environment says which: TESTBED_OPENFLOW=ryu (default), os-ken, or auto (Ryu, and os-ken where Ryu cannot be imported).
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from testbed.controller.messages import Confirmed, Connected, Disconnected, Event, PacketIn, PortChanged, Refused
from testbed.controller.tables import Change
from testbed.errors import HostError, UsageError
from topologies import ecmp, usid

VARIABLE = "TESTBED_OPENFLOW"
MODULES = {"ryu": "ryu", "os-ken": "os_ken"}
CHOICES = (*MODULES, "auto")
_IN_THIS_ROUND = 256
_ETHERTYPE_IPV6 = 0x86DD
_TCP = 6  # IPPROTO_TCP
_NO_BUFFER = 0xFFFFFFFF
_HASH_FIELDS = 3  # ecmp.HASH_FIELDS; the libraries have no name for it
F = TypeVar("F", bound=Callable[..., None])


@dataclass(frozen=True)
class Library:
    """What speaks OpenFlow here: its name as a package, its version, and what was asked for."""

    name: str
    version: str
    asked: str


def asked() -> str:
    """What the environment asks for, not checked yet."""
    return os.environ.get(VARIABLE, "ryu")


def find(wanted: str) -> Library:
    """The library to be used. UsageError for a name that there is not, HostError for one that cannot be imported here."""
    said: list[str] = []
    if wanted not in CHOICES:
        raise UsageError(f"{VARIABLE}={wanted}: choose one of {', '.join(CHOICES)}")
    for name in MODULES if wanted == "auto" else (wanted,):
        try:
            _module(name, "controller.ofp_handler")
            return Library(name, importlib.metadata.version(name), wanted)
        except ImportError as error:
            said.append(f"{name}: {error}")
    raise HostError(f"no OpenFlow library for the controller: {'; '.join(said)}; install it with `./testbed.sh setup`, see docs/install.md")


def told(library: Library) -> str:
    """In words, for people: a library in another's place is never silent."""
    instead = "" if library.asked in (library.name, "auto") and library.name == "ryu" else f" ({VARIABLE}={library.asked})"
    return f"{library.name} {library.version}{instead}"


def _module(name: str, path: str) -> Any:
    """A module of the library. Ryu compares with a name that eventlet has dropped; os-ken's own threads leak, eventlet's do not."""
    os.environ.setdefault("OSKEN_HUB_TYPE", "eventlet")
    wsgi = importlib.import_module("eventlet.wsgi")
    if not hasattr(wsgi, "ALREADY_HANDLED"):
        wsgi.ALREADY_HANDLED = object()  # type: ignore[attr-defined]
    return importlib.import_module(f"{MODULES[name]}.{path}")


class OpenFlowSwitch:
    """One connection (`testbed.controller.messages.Connection`)."""

    def __init__(self, datapath: Any, nicira: Any) -> None:
        self._datapath, self._nicira = datapath, nicira
        self.datapath_id = int(datapath.id)

    def carry_out(self, changes: Iterable[Change]) -> list[int]:
        """A barrier before the route, so that what it refers to is there, and one after it, whose answer says that it is in force."""
        return [self._carry_out(change) for change in changes]

    def _carry_out(self, change: Change) -> int:
        for rule in change.before:
            self._add(rule)
        if change.before:
            self._barrier()
        if change.route is not None:
            self._add(change.route)
        else:
            self._remove(ecmp.ROUTE_TABLE, {"eth_type": _ETHERTYPE_IPV6, "ipv6_dst": change.address})
        done = self._barrier()
        for number in change.after:
            self._remove(ecmp.HOP_TABLE, {f"reg{ecmp.SET_REGISTER}": number})
        return done

    def send(self, port: int, frame: bytes) -> None:
        """A packet out of a port."""
        parser, ofproto = self._datapath.ofproto_parser, self._datapath.ofproto
        out = [parser.OFPActionOutput(port)]
        self._datapath.send_msg(parser.OFPPacketOut(self._datapath, _NO_BUFFER, ofproto.OFPP_CONTROLLER, out, frame))

    def ask_routes(self) -> None:
        """All flows of the route table, please."""
        self._datapath.send_msg(self._datapath.ofproto_parser.OFPFlowStatsRequest(self._datapath, table_id=ecmp.ROUTE_TABLE))

    def _add(self, rule: ecmp.Rule) -> None:
        parser, ofproto = self._datapath.ofproto_parser, self._datapath.ofproto
        apply = parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, [self._action(action) for action in rule.actions])
        match = parser.OFPMatch(**_match(rule))
        common = {"table_id": rule.table, "priority": rule.priority, "match": match, "instructions": [apply]}
        self._datapath.send_msg(parser.OFPFlowMod(self._datapath, command=ofproto.OFPFC_ADD, **common))

    def _remove(self, table: int, match: dict[str, Any]) -> None:
        parser, ofproto = self._datapath.ofproto_parser, self._datapath.ofproto
        anywhere = {"out_port": ofproto.OFPP_ANY, "out_group": ofproto.OFPG_ANY}
        common = {"table_id": table, "match": parser.OFPMatch(**match), **anywhere}
        self._datapath.send_msg(parser.OFPFlowMod(self._datapath, command=ofproto.OFPFC_DELETE, **common))

    def _barrier(self) -> int:
        request = self._datapath.ofproto_parser.OFPBarrierRequest(self._datapath)
        self._datapath.set_xid(request)
        self._datapath.send_msg(request)
        return int(request.xid)

    def _action(self, action: ecmp.Action) -> Any:
        parser, nicira = self._datapath.ofproto_parser, self._nicira
        if isinstance(action, usid.SetEthDst):
            return parser.OFPActionSetField(eth_dst=action.mac)
        if isinstance(action, usid.Output):
            return parser.OFPActionOutput(action.port)
        if isinstance(action, ecmp.DecHopLimit):
            return parser.OFPActionDecNwTtl()
        if isinstance(action, ecmp.LoadSet):
            return parser.NXActionRegLoad(ofs_nbits=nicira.ofs_nbits(0, 31), dst=f"reg{ecmp.SET_REGISTER}", value=action.number)
        if isinstance(action, usid.Resubmit):
            return parser.NXActionResubmitTable(table_id=action.table)
        if isinstance(action, ecmp.Multipath):
            return parser.NXActionMultipath(
                fields=_HASH_FIELDS,
                basis=action.basis,
                algorithm=nicira.NX_MP_ALG_MODULO_N,
                max_link=action.count - 1,
                arg=0,
                ofs_nbits=nicira.ofs_nbits(0, 31),
                dst=f"reg{ecmp.INDEX_REGISTER}",
            )
        raise AssertionError(f"{action} is for boot files only")


def _match(rule: ecmp.Rule) -> dict[str, Any]:
    if rule.destination is not None:
        return {"eth_type": _ETHERTYPE_IPV6, "ipv6_dst": rule.destination}
    assert rule.choice is not None
    return {f"reg{ecmp.INDEX_REGISTER}": rule.choice[1], f"reg{ecmp.SET_REGISTER}": rule.choice[0]}


def _routes(flows: Iterable[Any]) -> dict[str, tuple[int, ...]]:
    """The routes in a dump of the route table: a set's number says which ports it has."""
    found = {}
    for flow in flows:
        address = flow.match.get("ipv6_dst")
        if address is not None:
            actions = [action for instruction in flow.instructions for action in instruction.actions]
            found[str(address)] = next(filter(None, map(_ports, actions)))
    return found


def _ports(action: Any) -> tuple[int, ...]:
    number = getattr(action, "value", None) if type(action).__name__ == "NXActionRegLoad" else None
    if number is not None:
        return tuple(port for port in range(1, ecmp.REGISTER_BITS + 1) if number >> port - 1 & 1)
    return (int(action.port),) if type(action).__name__ == "OFPActionOutput" else ()


class _UnixStream:
    """A Unix socket that bears being told of TCP: the library sets TCP_NODELAY on whatever it is given."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def setsockopt(self, level: int, *rest: Any) -> None:
        if level != _TCP:
            self._stream.setsockopt(level, *rest)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def serve(library: Library, path: Path, step: Callable[[Sequence[Event]], float]) -> None:
    """Listens on a Unix socket, and calls `step` with what happened, for ever; it returns the seconds until it wants to be called anyway.

    Ends with whatever `step` raises.
    """
    hub = _module(library.name, "lib.hub")
    inbox = hub.Queue()
    manager = _module(library.name, "base.app_manager").AppManager.get_instance()
    _module(library.name, "cfg").CONF(args=[], project=MODULES[library.name], default_config_files=[])
    manager.applications_cls = {"ofp_event": _listener(library, path), "bgp": _application(library, inbox.put)}
    manager.instantiate_apps()
    wait_s = 0.0
    while True:
        wait_s = step(_taken(hub, inbox, wait_s))


def _taken(hub: Any, inbox: Any, wait_s: float) -> list[Event]:
    """All that has come; waits for the first. A bound on a round lets the senders run in between. Raises what a handler raised."""
    taken: list[Event | Exception] = []
    try:
        taken.append(inbox.get(timeout=max(wait_s, 0.0001)))
        while len(taken) < _IN_THIS_ROUND:
            taken.append(inbox.get(block=False))
    except hub.QueueEmpty:
        hub.sleep(0)
    for found in taken:
        if isinstance(found, Exception):
            raise found
    return [found for found in taken if not isinstance(found, Exception)]


def _app(library: Library) -> Any:
    """The class of applications."""
    manager = _module(library.name, "base.app_manager")
    return manager.RyuApp if library.name == "ryu" else manager.OSKenApp


def _listener(library: Library, path: Path) -> Any:
    """The library's own handler of connections, which would listen on TCP only."""
    handler, hub = _module(library.name, "controller.ofp_handler"), _module(library.name, "lib.hub")
    connected = _module(library.name, "controller.controller").datapath_connection_factory
    base, own = _app(library), handler.OFPHandler

    class Listener(own):  # type: ignore[misc,valid-type]
        def start(self) -> Any:
            base.start(self)
            path.unlink(missing_ok=True)
            server = hub.StreamServer((str(path), 0), lambda stream, _address: connected(_UnixStream(stream), ("unix", 0)))
            return hub.spawn(server.serve_forever)

    return Listener


def _guarded(register: Callable[..., Any], put: Callable[[Event | Exception], None]) -> Callable[..., Callable[[F], F]]:
    """`register`, but what a handler raises ends the process: the library would write it to its log, and go on without the event."""

    def on(event: Any, states: Any) -> Callable[[F], F]:
        def decorated(method: F) -> F:
            @functools.wraps(method)
            def guarded(self: Any, found: Any) -> None:
                try:
                    method(self, found)
                except Exception as error:  # noqa: BLE001 - it is raised again where the process can end by it
                    put(error)

            registered: F = register(event, states)(guarded)
            return registered

        return decorated

    return on


def _application(library: Library, put: Callable[[Event | Exception], None]) -> Any:
    """Turns the library's events into ours."""
    base = _app(library)
    handler, events = _module(library.name, "controller.handler"), _module(library.name, "controller.ofp_event")
    on = _guarded(handler.set_ev_cls, put)
    version, nicira = _module(library.name, "ofproto.ofproto_v1_3"), _module(library.name, "ofproto.nicira_ext")
    live, dead = handler.MAIN_DISPATCHER, handler.DEAD_DISPATCHER

    class Application(base):  # type: ignore[misc,valid-type]
        OFP_VERSIONS = [version.OFP_VERSION]

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._switches: dict[Any, OpenFlowSwitch] = {}
            self._flows: dict[Any, list[Any]] = {}

        @on(events.EventOFPStateChange, [live, dead])
        def state_changed(self, event: Any) -> None:
            datapath = event.datapath
            if event.state == live:
                self._flows[datapath] = []
                self._switches[datapath] = OpenFlowSwitch(datapath, nicira)
                self._switches[datapath].ask_routes()
            elif datapath in self._switches:
                self._flows.pop(datapath, None)
                put(Disconnected(time.monotonic(), self._switches.pop(datapath)))

        @on(events.EventOFPFlowStatsReply, live)
        def flows(self, event: Any) -> None:
            datapath = event.msg.datapath
            if datapath not in self._flows:
                return
            self._flows[datapath] += event.msg.body
            if not event.msg.flags & datapath.ofproto.OFPMPF_REPLY_MORE:
                ports = {number: _is_up(datapath, port) for number, port in datapath.ports.items()}
                put(Connected(time.monotonic(), self._switches[datapath], ports, _routes(self._flows.pop(datapath))))

        @on(events.EventOFPPortStatus, live)
        def port_status(self, event: Any) -> None:
            datapath, port = event.msg.datapath, event.msg.desc
            up = event.msg.reason != datapath.ofproto.OFPPR_DELETE and _is_up(datapath, port)
            put(PortChanged(time.monotonic(), self._switches[datapath], port.port_no, up))

        @on(events.EventOFPPacketIn, live)
        def packet_in(self, event: Any) -> None:
            put(PacketIn(time.monotonic(), self._switches[event.msg.datapath], event.msg.match["in_port"], bytes(event.msg.data)))

        @on(events.EventOFPBarrierReply, live)
        def barrier(self, event: Any) -> None:
            put(Confirmed(time.monotonic(), self._switches[event.msg.datapath], event.msg.xid))

        @on(events.EventOFPErrorMsg, [handler.CONFIG_DISPATCHER, live])
        def refused(self, event: Any) -> None:
            text = f"error type {event.msg.type}, code {event.msg.code} (OpenFlow 1.3, 7.4.4)"
            put(Refused(time.monotonic(), self._switches[event.msg.datapath], text))

    return Application


def _is_up(datapath: Any, port: Any) -> bool:
    ofproto = datapath.ofproto
    return not (port.state & ofproto.OFPPS_LINK_DOWN or port.config & ofproto.OFPPC_PORT_DOWN)
