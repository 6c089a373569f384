"""What this machine must have: looked at by `testbed doctor`, and before a run. Features are tried, not guessed from versions.

A feature is tried with the programs that are there: one that misses a program says so, and does not blame the kernel.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.command import run_any
from testbed.errors import HostError, TestbedError
from testbed.routing.daemons import FOLDERS as FRR_FOLDERS
from testbed.scenario.derived_links import SWITCHING_OF_ARM

_IN_SANDBOX = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec")
_BPFFS = "mount -t bpf bpf /sys/fs/bpf"
_VETH = "ip link add a0 type veth peer name a1; ip link set a0 up; ip link set a1 up; "
_HTB = "tc qdisc add dev a0 root handle 1: htb default 20; tc class add dev a0 parent 1: classid 1:20 htb rate 1mbit; "


@dataclass(frozen=True)
class Check:
    """One requirement: whether it holds, what was found, and what to do otherwise (nothing by itself, when it was not tried).

    `required` is the doctor's verdict: without it the testbed is of little use. `arms` are the only ones that cannot do without it, if any.
    """

    name: str
    ok: bool
    detail: str
    hint: str
    required: bool
    arms: tuple[str, ...] = ()

    def stops(self, arms: Collection[str]) -> bool:
        """Whether it keeps one of `arms` from running."""
        return not self.ok and (not set(self.arms).isdisjoint(arms) if self.arms else self.required)


COMPILE_HINT = "apt install clang libbpf-dev linux-libc-dev"
COMPILES, PORT = "link program compiles", "link program on a port"
PORT_HINT = "the kernel needs CONFIG_BPF_SYSCALL and CONFIG_NET_CLS_BPF, and to be 5.12 or later"
OPENFLOW = "OpenFlow library"
OPENFLOW_HINT = "`sudo ./testbed.sh setup` without TESTBED_WITHOUT_RYU installs Ryu; or take os-ken (docs/install.md)"
PRIVILEGE_HINT = (
    "root here is not allowed to: it needs CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_BPF of the machine itself, "
    "so a user namespace or a plain container will not do, a VM or a privileged container will"
)
_FORBIDDEN = ("operation not permitted", "permission denied")

# What programs are for that only the arms with those kinds of switches need.
SWITCHING_OF_PURPOSE = {"the MRC arm's switches": ("ovs", "ovs-bgp", "ovs-ecmp"), "the BGP arm": ("frr",)}

# program, apt package, what for, required
PROGRAMS = (
    ("unshare", "util-linux", "sandbox", True),
    ("nsenter", "util-linux", "starting programs in a node", True),
    ("mount", "mount", "sandbox", True),
    ("ip", "iproute2", "links and addresses", True),
    ("tc", "iproute2", "link rates and the link program", True),
    ("mnexec", "mininet", "Mininet's nodes", True),
    ("bash", "bash", "Mininet's nodes", True),
    ("clang", "clang", "compiling the link program", True),
    ("ovs-vswitchd", "openvswitch-switch", "the MRC arm's switches", True),
    ("ovsdb-server", "openvswitch-switch", "the MRC arm's switches", True),
    ("ovsdb-tool", "openvswitch-common", "the MRC arm's switches", True),
    ("ovs-vsctl", "openvswitch-switch", "the MRC arm's switches", True),
    ("ovs-ofctl", "openvswitch-common", "the MRC arm's switches", True),
    ("zebra", "frr", "the BGP arm", False),
    ("bgpd", "frr", "the BGP arm", False),
    ("ping", "iputils-ping", "`h1 ping h2` in the shell", False),
    ("ifconfig", "net-tools", "some commands of Mininet's prompt", False),
)

# name, script tried in a scratch sandbox, what to do, required
FEATURES = (
    ("namespaces", "true", "run it on a machine, VM or container where root may make namespaces", True),
    ("veth", _VETH, "the kernel needs CONFIG_VETH", True),
    ("htb and bfifo", _VETH + _HTB + "tc qdisc add dev a0 parent 1:20 bfifo limit 9000", "the kernel needs CONFIG_NET_SCH_HTB", True),
    (
        "u32 filter",
        _VETH + _HTB + "tc filter add dev a0 parent 1: protocol ipv6 prio 1 u32 match ip6 priority 0xb8 0xfc flowid 1:20",
        "the kernel needs CONFIG_NET_CLS_U32",
        True,
    ),
    ("clsact", _VETH + "tc qdisc add dev a0 clsact", "the kernel needs CONFIG_NET_SCH_INGRESS and CONFIG_NET_CLS_BPF", True),
    ("bpf file system", _BPFFS, "the kernel needs CONFIG_BPF_SYSCALL", True),
    (
        "SRv6 encapsulation",
        "ip link set lo up; ip -6 route add fd00::1/128 encap seg6 mode encap segs fcbb:: dev lo",
        "the kernel needs CONFIG_IPV6_SEG6_LWTUNNEL; without it hosts cannot `ping` in the MRC fabric",
        False,
    ),
    (
        "Open vSwitch kernel datapath",
        "ovs-dpctl --verbose=off add-dp tb-probe",
        "not needed: the userspace datapath is used instead, which costs more CPU a packet",
        False,
    ),
)


def checks() -> list[Check]:
    """Every check, in a fixed order. Needs no root itself, but without root no feature can be tried, and says so."""
    features = _features() if os.geteuid() == 0 else []
    return [_root(), *map(_program, PROGRAMS), _openflow(), *features, *_link_program(features)]


def require(arms: Collection[str]) -> None:
    """HostError with all at once that keeps one of `arms` from running, and what to do about each."""
    missing = [check for check in checks() if check.stops(arms)]
    if missing:
        raise HostError("this machine cannot run the testbed: " + "; ".join(map(_told, missing)))


def _told(check: Check) -> str:
    return f"{check.name}: {check.detail}" + (f" ({check.hint})" if check.hint else "")


def _root() -> Check:
    good = os.geteuid() == 0
    detail = "yes" if good else "no, so kernel features were not tried"
    return Check("root", good, detail, "run it as `sudo ./testbed.sh ...`", True)


def _program(entry: tuple[str, str, str, bool]) -> Check:
    name, package, purpose, required = entry
    found = _in_folders(name, FRR_FOLDERS) if package == "frr" else shutil.which(name)
    detail = found or f"not installed; for {purpose}"
    return Check(name, found is not None, detail, f"apt install {package}", required, _arms(SWITCHING_OF_PURPOSE.get(purpose, ())))


def _openflow() -> Check:
    """What the controller of `rc-bgp-ovs` speaks OpenFlow with: imported as it would be, in a process of its own."""
    trial = "from testbed.controller import openflow; print(openflow.told(openflow.find(openflow.asked())))"
    search = os.pathsep.join(filter(None, [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")]))
    done = run_any([sys.executable, "-W", "ignore", "-c", trial], "looking for Ryu", env={**os.environ, "PYTHONPATH": search})
    said = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or [f"status {done.returncode}"]
    return Check(OPENFLOW, done.returncode == 0, said[-1], OPENFLOW_HINT, False, _arms(("ovs-bgp",)))


def _arms(switching: Collection[str]) -> tuple[str, ...]:
    """The arms whose switches are of those kinds; none, for what every arm needs."""
    return tuple(arm for arm, kind in SWITCHING_OF_ARM.items() if kind in switching)


def _in_folders(name: str, folders: Iterable[str]) -> str | None:
    return next((str(path) for folder in folders if os.access(path := Path(folder) / name, os.X_OK)), None)


def _link_program(features: Sequence[Check]) -> list[Check]:
    """Compiles it, and tries it on a real port; without root there are no features, and it is not tried."""
    with tempfile.TemporaryDirectory() as folder:
        compiled, built = _compiled(Path(folder))
        return [compiled, _port(built, [*features, compiled])] if features else [compiled]


def _compiled(folder: Path) -> tuple[Check, Path]:
    if shutil.which("clang") is None:
        return _not_tried(COMPILES, ["clang"], True), folder
    from testbed.fabric.bpf import build_bpf

    try:
        return Check(COMPILES, True, "works", COMPILE_HINT, True), build_bpf(folder)
    except TestbedError as error:
        return Check(COMPILES, False, _shortened(str(error)), COMPILE_HINT, True), folder


def _port(built: Path, needed: Sequence[Check]) -> Check:
    """The program loaded, attached and trimming on a port with all its queues, which takes the `needed` features."""
    absent = [check.name for check in needed if check.required and not check.ok]
    if absent:
        return _not_tried(PORT, absent, True)
    search = os.pathsep.join(filter(None, [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")]))
    trial = ("env", f"PYTHONPATH={search}", sys.executable, "-m", "testbed.fabric.trial", str(built))
    return _tried(PORT, f"{_BPFFS}; exec {shlex.join(trial)}", PORT_HINT, True)


def _features() -> list[Check]:
    """Without namespaces nothing else can be tried, and the kernel is not to be blamed."""
    first, *others = FEATURES
    namespaces = _feature(*first)
    return [namespaces, *(_feature(*entry) if namespaces.ok else _not_tried(entry[0], [namespaces.name], entry[3]) for entry in others)]


def _feature(name: str, script: str, hint: str, required: bool) -> Check:
    words = (*_IN_SANDBOX[:1], *script.replace(";", " ").split())
    absent = [program for program, _, _, _ in PROGRAMS if program in words and shutil.which(program) is None]
    return _not_tried(name, absent, required) if absent else _tried(name, script, hint, required)


def _tried(name: str, script: str, hint: str, required: bool) -> Check:
    result = run_any([*_IN_SANDBOX, script], f"trying {name}")
    if result.returncode == 0:
        return Check(name, True, "works", hint, required)
    said = (result.stderr + result.stdout).strip() or f"status {result.returncode}"
    forbidden = any(word in said.lower() for word in _FORBIDDEN)
    return Check(name, False, _shortened(said), PRIVILEGE_HINT if forbidden else hint, required)


def _not_tried(name: str, absent: Sequence[str], required: bool) -> Check:
    return Check(name, False, f"not tried, for want of {', '.join(absent)}", "", required)


def _shortened(said: str) -> str:
    """The first line and the last one, which is where a verifier's long story ends."""
    lines = said.splitlines()
    return lines[0] if len(lines) < 3 else f"{lines[0]} ... {lines[-1]}"
