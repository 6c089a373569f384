"""Open vSwitch instances, one a switch: own namespace, own ovsdb-server and ovs-vswitchd, own folder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.command import in_net, run, run_any
from testbed.errors import HostError
from testbed.fabric import ovs_sockets
from testbed.fabric.links import ports_of
from topologies import Topology, usid

DATAPATHS = ("auto", "system", "netdev")
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 5.0
_SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
BACKOFF_MS = 1000
PROBE_MS = 30_000  # silence after which a switch doubts its controller; Open vSwitch's 5 s would be too few on a machine that is too busy
_POLL_S = 0.003
_FIRST_PACKET = f"{'02' * 12}88b5{'00' * 46}"  # EtherType 0x88B5: IEEE's for local experiments
# glibc would give memory back after each burst of packets and fault it in again; keeping it about halves the CPU at light load.
_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "268435456", "MALLOC_TOP_PAD_": "8388608"}
_QUIET = ("-vconsole:off", "-vsyslog:off", "-vfile:warn")


def detect_datapath(asked: str, pid: int) -> str:
    """`system` when the kernel's datapath works in the namespace of `pid`, else `netdev`. HostError when `system` is asked in vain."""
    if asked not in DATAPATHS:
        raise HostError(f"datapath {asked!r}: choose one of {', '.join(DATAPATHS)}")
    if asked == "netdev":
        return asked
    run_any(in_net(pid, ["sh", "-c", "command -v modprobe >/dev/null && modprobe -q openvswitch"]), "loading the openvswitch module")
    made = run_any(in_net(pid, ["ovs-dpctl", "add-dp", "tb-probe"]), "trying the kernel's datapath")
    if made.returncode == 0:
        run(in_net(pid, ["ovs-dpctl", "del-dp", "tb-probe"]), "removing the trial datapath")
        return "system"
    if asked == "system":
        raise HostError(f"the kernel's Open vSwitch datapath does not work: {made.stderr.strip()}; use datapath `netdev` or `auto`")
    return "netdev"


def make_template(folder: Path) -> Path:
    """An empty configuration database, made once and copied for every switch and boot."""
    template = folder / "empty.db"
    template.unlink(missing_ok=True)
    run(["ovsdb-tool", "create", str(template), str(_SCHEMA)], "making an empty Open vSwitch database")
    return template


@dataclass(frozen=True)
class Place:
    """What all switches of a fabric share: the run's folder, the empty database, and the datapath."""

    run_dir: Path
    template: Path
    datapath: str


@dataclass(frozen=True)
class Controller:
    """Who may change a switch's tables: `socket` is where it listens, `datapath_id` how the switch calls itself there."""

    socket: Path
    datapath_id: int


class OvsSwitch:
    """One switch: its daemons, its ports and its boot file. Interfaces are made and set up or down elsewhere."""

    def __init__(
        self, topology: Topology, name: str, pid: int, place: Place, rules: Sequence[usid.Flow], controller: Controller | None = None
    ) -> None:
        self.name, self._pid, self._rules, self._controller = name, pid, tuple(rules), controller
        self._folder, self._template, self._datapath = place.run_dir / name, place.template, place.datapath
        self._ports = [(end.ifname, end.port) for _link, end, _is_a in ports_of(name, topology.links_of(name))]
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._folder.mkdir(parents=True, exist_ok=True)
        self.boot_file = self._folder / "boot.flows"
        self.boot_file.write_text(usid.flow_file(self._rules))

    @property
    def running(self) -> bool:
        """Whether both daemons live."""
        return len(self._daemons) == 2 and all(daemon.poll() is None for daemon in self._daemons)

    def boot(self) -> None:
        """Starts the daemons with an empty database, adds ports and flows, and verifies them. HostError if anything fails."""
        if self.running:
            raise HostError(f"switch {self.name} runs already: it can be booted only after it was stopped")
        for left in (self._database, self._folder / "db.sock", self._folder / ".conf.db.~lock~", self._controller_socket):
            left.unlink(missing_ok=True)
        self._database.write_bytes(self._template.read_bytes())
        self._daemons = [self._start(self._database_argv())]
        self._await(lambda: _accepts(self._folder / "db.sock"), "its database")
        self._daemons.append(self._start(self._switch_argv()))
        run(self._configuration(), f"switch {self.name}: adding its ports", env=self._environment(), timeout_s=START_TIMEOUT_S)
        self._await(lambda: _accepts(self._management), "its bridge")
        self._ofctl("installing the boot file", "add-flows", str(self.boot_file))
        if self._datapath == "netdev":
            self._widen_sockets()
        self.verify()
        if self._controller is not None:  # not before: it would change what is verified
            self._controller_socket.symlink_to(self._controller.socket)

    def stop(self, orderly: bool) -> None:
        """Ends the daemons: asked to (orderly), or by SIGKILL at once. Returns when they are gone."""
        self.signal(signal.SIGTERM if orderly else signal.SIGKILL)
        for daemon in reversed(self._daemons):
            _reap(daemon)
        self._daemons = []
        if self._datapath == "system":  # the kernel would go on forwarding without its daemon
            run_any(in_net(self._pid, ["ovs-dpctl", "del-dp", "ovs-system"]), f"switch {self.name}: removing its datapath")

    def signal(self, signo: int) -> None:
        """Sends a signal to both daemons, the forwarding one first; without waiting."""
        for daemon in reversed(self._daemons):
            daemon.send_signal(signo)

    def require_alive(self) -> None:
        """HostError if a daemon ended though nobody stopped the switch."""
        for name, daemon in zip(("ovsdb-server", "ovs-vswitchd"), self._daemons, strict=False):
            if daemon.poll() is not None:
                raise HostError(f"switch {self.name}: {name} ended by itself (status {daemon.returncode}); its logs say: {self._logs()}")

    def verify(self) -> None:
        """HostError unless tables and port numbers are exactly those of the boot file."""
        wrong = [*self.differences(), *self._wrong_ports()]
        if wrong:
            raise HostError(f"switch {self.name}: not as in {self.boot_file.name}: {'; '.join(wrong)}")

    def verify_ports(self) -> None:
        """HostError unless its port numbers are as asked; its tables may be a controller's."""
        if wrong := self._wrong_ports():
            raise HostError(f"switch {self.name}: {'; '.join(wrong)}")

    def differences(self) -> list[str]:
        """How its tables differ from the boot file, one line a flow; also when it does not run at all."""
        if not self.running:
            return ["it is not running"]
        return usid.differences(self._rules, self._ofctl("reading its tables", "dump-flows"))

    def _widen_sockets(self) -> None:
        """The socket that sends is made with the first packet, so one is sent; the receiver has no rule for it."""
        self._ofctl("sending a first packet", "packet-out", "none", f"output:{self._ports[0][1]}", _FIRST_PACKET)
        self._await(lambda: ovs_sockets.widen(self._daemons[1].pid) > len(self._ports), "the socket that it sends from")

    def ask(self, arguments: Sequence[str]) -> str:
        """What `ovs-ofctl <command> <this switch> <arguments>` prints."""
        return self._ofctl("asking it", *arguments)

    def _wrong_ports(self) -> list[str]:
        argv = self._vsctl("--format=csv", "--no-headings", "--columns=name,ofport,error", "list", "Interface")
        rows = [line.split(",") for line in run(argv, f"switch {self.name}: reading its ports", env=self._environment()).splitlines()]
        found = {row[0].strip('"'): (row[1], ",".join(row[2:])) for row in rows}
        return [
            f"port {ifname} is {found.get(ifname)} instead of number {number}"
            for ifname, number in self._ports
            if found.get(ifname, ("", ""))[0] != str(number)
        ]

    @property
    def _database(self) -> Path:
        return self._folder / "conf.db"

    @property
    def _management(self) -> Path:
        return self._folder / f"{self.name}.mgmt"

    def _database_argv(self) -> list[str]:
        sockets = [f"--remote=punix:{self._folder}/db.sock", f"--unixctl={self._folder}/ovsdb-server.ctl"]
        return ["ovsdb-server", str(self._database), *sockets, f"--log-file={self._folder}/ovsdb-server.log", *_QUIET]

    def _switch_argv(self) -> list[str]:
        control = f"--unixctl={self._folder}/ovs-vswitchd.ctl"
        return ["ovs-vswitchd", f"unix:{self._folder}/db.sock", control, f"--log-file={self._folder}/ovs-vswitchd.log", *_QUIET]

    def _configuration(self) -> list[str]:
        """One transaction; ovs-vsctl returns when ovs-vswitchd has carried it out.

        Without a QoS of type linux-noop Open vSwitch would remove the ports' queues (ovs-vswitchd.conf.db(5), table QoS).
        """
        bridge = ["add-br", self.name, "--", "set", "Bridge", self.name, f"datapath_type={self._datapath}", "fail_mode=secure"]
        for ifname, number in self._ports:
            bridge += ["--", "add-port", self.name, ifname, "--", "set", "Port", ifname, "qos=@queues_stay"]
            bridge += ["--", "set", "Interface", ifname, f"ofport_request={number}"]
        if self._controller is not None:
            bridge += ["--", *self._control(self._controller)]
        return self._vsctl("--", "init", "--", "--id=@queues_stay", "create", "QoS", "type=linux-noop", "--", *bridge)

    def _control(self, controller: Controller) -> list[str]:
        """What makes a bridge ask a controller, as words of its transaction.

        It is there before the first flow, because Open vSwitch flushes all flows when a bridge gets its first controller. The wait between
        two attempts to connect is the least that it can be (ovs-vswitchd.conf.db(5): max_backoff). A dead controller closes its sockets.
        """
        target = f'target="unix:{self._controller_socket}"'
        made = ["create", "Controller", target, "connection_mode=out-of-band", f"max_backoff={BACKOFF_MS}", f"inactivity_probe={PROBE_MS}"]
        own_id = f"other-config:datapath-id={controller.datapath_id:016x}"
        return ["--id=@controller", *made, "--", "set", "Bridge", self.name, own_id, "controller=@controller"]

    @property
    def _controller_socket(self) -> Path:
        """Open vSwitch takes a Unix socket of this name only (bridge.c), so it leads to where the controller listens."""
        return self._folder / f"{self.name}.controller"

    def _vsctl(self, *arguments: str) -> list[str]:
        return ["ovs-vsctl", f"--db=unix:{self._folder}/db.sock", *arguments]

    def _ofctl(self, doing: str, command: str, *arguments: str) -> str:
        argv = ["ovs-ofctl", "--no-names", command, f"unix:{self._management}", *arguments]
        return run(argv, f"switch {self.name}: {doing}", env=self._environment())

    def _environment(self) -> Mapping[str, str]:
        folder = str(self._folder)
        return {**os.environ, **_MEMORY, "OVS_RUNDIR": folder, "OVS_DBDIR": folder, "OVS_LOGDIR": folder, "OVS_SYSCONFDIR": folder}

    def _start(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        output = (self._folder / "output.log").open("ab")
        with output:
            return subprocess.Popen(
                in_net(self._pid, argv),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                start_new_session=True,
            )

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not condition():
            dead = [daemon for daemon in self._daemons if daemon.poll() is not None]
            if dead or time.monotonic() > deadline:
                raise HostError(f"switch {self.name}: {what} did not come up within {START_TIMEOUT_S:g} s; its logs say: {self._logs()}")
            time.sleep(_POLL_S)

    def _logs(self) -> str:
        logs = [path.read_text(errors="replace")[-600:] for path in sorted(self._folder.glob("*.log"))]
        return " | ".join(filter(None, (text.strip() for text in logs))) or "(nothing)"


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _reap(daemon: subprocess.Popen[bytes]) -> None:
    try:
        daemon.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:  # it would not go when asked
        daemon.kill()
        daemon.wait()
