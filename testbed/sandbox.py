"""Re-execution in private net, mount and pid namespaces, so that a run leaves nothing behind whatever kills it.

    outer (`enter`: passes signals on, waits) -> keeper (made the namespaces, waits) -> pid 1 of the sandbox (`prepare`, then the command)

Each arrow is also a death line: the kernel kills the right side when the left side dies, and when pid 1 dies the kernel kills
every process of its pid namespace; interfaces, mounts and BPF pins go with the last process of their namespaces. The keeper is there
because a process cannot enter the pid namespace that it made, only its children can. (unshare(1) would do, but util-linux 2.38 loses the
exit status of a child that was killed.)
"""

from __future__ import annotations

import ctypes
import os
import secrets
import select
import signal
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from testbed.command import run
from testbed.errors import HostError, UsageError

RUN_VARIABLE = "TESTBED_RUN"
"""Environment variable that every process of a run carries: the run's mark."""
_LIFELINE_VARIABLE = "TESTBED_LIFELINE"
_CLONE_NEWNS, _CLONE_NEWPID, _CLONE_NEWNET = 0x20000, 0x20000000, 0x40000000  # linux/sched.h
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18  # linux/mount.h
_EXIT_CANNOT = HostError.exit_code
_PR_SET_PDEATHSIG = 1
_SENT_BY_TERMINAL = 128  # SI_KERNEL in siginfo: Ctrl-C, which the terminal sends to the whole foreground group by itself
_PRIVATE_TREES = ("/run", "/var/tmp", "/var/log/openvswitch", "/var/log/frr")


def inside() -> bool:
    """Whether this process is the first process of a sandbox."""
    return RUN_VARIABLE in os.environ and os.getpid() == 1


def run_id() -> str:
    """The mark of this run; HostError outside a sandbox."""
    try:
        return os.environ[RUN_VARIABLE]
    except KeyError:
        raise HostError("this must run inside a sandbox: start it through `testbed run` or `testbed shell`") from None


def enter(argv: Sequence[str]) -> int:
    """Runs `testbed <argv>` again inside a new sandbox and returns its exit code. HostError without root."""
    return run_inside([sys.executable, "-m", "testbed", *argv])


def run_inside(command: Sequence[str]) -> int:
    """Runs any command as pid 1 of a new sandbox, passes SIGINT and SIGTERM on to it, and returns its exit code.

    A command that was killed by signal n gives 128 + n, as a shell would say. The command must call `prepare` first: until then both
    signals wait, because the kernel drops those that the first process of a pid namespace has no handler for.
    """
    require_root()
    watched = {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    read_end, write_end = os.pipe()
    sys.stdout.flush()  # else the keeper's copy of what is buffered might come out too
    try:
        environment = _environment(read_end)
        keeper = os.fork()
        if keeper == 0:
            os.close(write_end)
            _keep(command, read_end, environment, before | {signal.SIGINT, signal.SIGTERM})
        return _wait_and_forward(keeper, watched)
    finally:
        os.close(read_end)
        os.close(write_end)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def require_root() -> None:
    """HostError unless this process is root."""
    if os.geteuid() != 0:
        raise HostError("network namespaces and BPF programs need root: run it as `sudo ./testbed.sh ...` or `sudo testbed ...`")


def prepare(keep: Sequence[Path] = ()) -> None:
    """Makes the new namespaces fit for a fabric; the first thing to call inside.

    Private /run (with what Open vSwitch and FRR need), /var/tmp and daemon log folders, fresh /sys with bpffs, loopback up, TMPDIR inside
    /run. The folders in `keep` (the results), the working directory, our source and our Python stay where they are, also below a private
    tree. UsageError if one of `keep` is itself a tree that must be private.
    """
    if not inside():
        raise HostError(f"prepare: this is process {os.getpid()}, not the first process of a sandbox")
    _heed_lifeline()
    _heed_signals()
    trees = _private_trees()
    kept = _opened_below(trees, keep)
    _mount("sysfs", "/sys")
    _mount("bpf", "/sys/fs/bpf")
    for tree in trees:
        _mount("tmpfs", str(tree), "mode=0755")
    _bring_back(kept)
    _populate_run()
    run(["ip", "link", "set", "lo", "up"], "setting the sandbox's loopback up")


def runtime_dir() -> Path:
    """The run's own folder below the private /run: sockets, databases, logs; gone with the sandbox."""
    path = Path("/run/testbed") / run_id()
    path.mkdir(parents=True, exist_ok=True)
    return path


def _keep(command: Sequence[str], lifeline: int, environment: Mapping[str, str], mask: Iterable[int]) -> NoReturn:
    """The keeper: makes the namespaces, starts the sandbox's first process, and ends as that one ended. Signals stay blocked here."""
    try:
        _die_with_parent()
        _call("unshare", _CLONE_NEWNS | _CLONE_NEWPID | _CLONE_NEWNET)
        first = os.fork()
        if first == 0:
            _become_first(command, lifeline, environment, mask)
        os.close(lifeline)
        _pid, status = os.waitpid(first, 0)
        os._exit(_exit_code(status))
    except OSError as error:
        print(f"error: cannot make a sandbox: {error}", file=sys.stderr)  # noqa: T201 - there is nobody to raise to
    finally:  # whatever happens, the keeper must not go on as a second caller
        os._exit(_EXIT_CANNOT)


def _become_first(command: Sequence[str], lifeline: int, environment: Mapping[str, str], mask: Iterable[int]) -> NoReturn:
    _die_with_parent()
    _call("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    _call("mount", b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.set_inheritable(lifeline, True)
    os.execvpe(command[0], list(command), environment)


def _die_with_parent() -> None:
    """The kernel kills this process when its parent dies; a parent that died before is noticed by `_heed_lifeline`."""
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _call(name: str, *arguments: object) -> None:
    """A function of the C library that answers 0; OSError otherwise."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def _environment(lifeline: int) -> dict[str, str]:
    here = str(Path(__file__).resolve().parent.parent)
    search = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    mark = f"{os.getpid()}-{secrets.token_hex(4)}"
    return {**os.environ, "PYTHONPATH": os.pathsep.join(search), RUN_VARIABLE: mark, _LIFELINE_VARIABLE: str(lifeline)}


def _wait_and_forward(keeper: int, watched: set[signal.Signals]) -> int:
    while True:
        info = signal.sigwaitinfo(watched)
        if info.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(keeper, os.WNOHANG)
            if pid:
                return _exit_code(status)
        elif info.si_code != _SENT_BY_TERMINAL:
            for first in _children(keeper):
                os.kill(first, info.si_signo)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _parent_of(entry) == parent:
            found.append(int(entry.name))
    return found


def _parent_of(process: Path) -> int | None:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it ended meanwhile
        return None


def _heed_lifeline() -> None:
    """Ends at once when the outer process is dead already: it may have died before unshare tied our life to its own."""
    descriptor = int(os.environ.pop(_LIFELINE_VARIABLE))
    os.set_inheritable(descriptor, False)
    poll = select.poll()
    poll.register(descriptor, 0)
    if poll.poll(0):
        os._exit(128 + signal.SIGKILL)


def _interrupt(_signo: int, _frame: object) -> None:
    """SIGTERM becomes what Ctrl-C is; without a handler the kernel would ignore it for the first process of a pid namespace."""
    raise KeyboardInterrupt


def _heed_signals() -> None:
    signal.signal(signal.SIGTERM, _interrupt)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})


def _private_trees() -> list[Path]:
    trees = [Path(tree) for tree in _PRIVATE_TREES]
    if not Path("/var/run").is_symlink():
        trees.append(Path("/var/run"))
    return [tree for tree in trees if tree.is_dir()]


def _opened_below(trees: Sequence[Path], keep: Sequence[Path]) -> dict[Path, int]:
    """The folders that lie below a private tree, each with a descriptor that still leads there when the tree is covered."""
    wanted = [path.resolve() for path in keep]
    for path in wanted:
        if path in trees:
            raise UsageError(f"{path} is hidden during a run: give a folder below it, as {path / 'results'}")
    wanted += [Path.cwd(), Path(__file__).resolve().parents[1], Path(sys.prefix), Path(sys.base_prefix)]
    below = {path for path in wanted if any(tree in path.parents for tree in trees)}
    return {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in sorted(below)}


def _bring_back(kept: Mapping[Path, int]) -> None:
    """Binds each folder to its old place. mount(8) would look the name up anew, so this is mount(2)."""
    for path, descriptor in kept.items():
        path.mkdir(parents=True, exist_ok=True)
        _call("mount", f"/proc/self/fd/{descriptor}".encode(), os.fsencode(path), None, _MS_BIND | _MS_REC, None)
        os.close(descriptor)


def _populate_run() -> None:
    os.environ["TMPDIR"] = "/run/tmp"
    tempfile.tempdir = None  # read TMPDIR again
    for folder in ("/run/tmp", "/run/lock", "/run/openvswitch", "/run/frr", "/run/netns", "/run/testbed"):
        Path(folder).mkdir(mode=0o755, exist_ok=True)
    if Path("/var/tmp/frr").parent.is_mount():
        Path("/var/tmp/frr").mkdir(exist_ok=True)
    run(["chown", "-R", *_frr_owner(), "/run/frr"], "giving /run/frr to FRR")


def _frr_owner() -> list[str]:
    try:
        import pwd

        entry = pwd.getpwnam("frr")
    except KeyError:  # FRR is not installed: only the arms that need it will say so
        return ["root"]
    return [f"{entry.pw_uid}:{entry.pw_gid}"]


def _mount(kind: str, target: str, options: str = "rw") -> None:
    run(["mount", "-t", kind, "-o", options, "testbed", target], f"mounting a private {kind} over {target}")
