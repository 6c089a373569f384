"""zebra, bfdd and bgpd of one switch: started in its namespace with private files, asked on their vty sockets, stopped by process id."""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.errors import HostError
from testbed.routing.namespace import inside
from testbed.routing.vty import Vty, VtyError

FOLDERS = ("/usr/lib/frr", "/usr/libexec/frr", "/usr/sbin", "/usr/local/sbin")
USER = "frr"
MGMTD = "mgmtd"
OWN_LOGS = ("bfdd", "bgpd")  # their start files say where to log (config.log_config)
RUN_FOLDER = Path("/run/frr")
STOP_TIMEOUT_S = 5.0
ATOMIC_REPLACE = "--v6-rr-semantics"
FILE_LIMIT = "1024"  # FRR sizes tables by the limit of open files, which may be a million here
INSTALL_HINT = "install FRR (`apt-get install frr`) and leave its own service stopped"


class RoutingError(HostError):
    """A router did not do what it was told: it died, refused its configuration, or did not come to the expected routes."""


@dataclass
class Daemon:
    """One process: `name` is mgmtd, zebra, bfdd or bgpd; its log and sockets lie in `folder`."""

    name: str
    router: str
    folder: Path
    argv: tuple[str, ...]
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def vty_path(self) -> Path:
        """Where it listens for commands."""
        return self.folder / f"{self.name}.vty"

    @property
    def log_path(self) -> Path:
        """What it logs."""
        return self.folder / f"{self.name}.log"

    def start(self, namespace_pid: int) -> None:
        """Starts it as our child in the namespace of `namespace_pid`; it has a session of its own, so Ctrl-C does not reach it."""
        environment = {**os.environ, "TZ": "UTC"}  # logs tell local time, which summer time makes ambiguous
        with (self.folder / f"{self.name}.out").open("ab") as output:
            self.process = inside(
                namespace_pid,
                lambda: subprocess.Popen(
                    self.argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=environment
                ),
            )

    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def require_alive(self) -> None:
        """RoutingError with the end of its log if it does not run."""
        if not self.alive():
            status = None if self.process is None else self.process.returncode
            raise RoutingError(f"{self.router}: {self.name} is not running (status {status}): {self.last_words()}")

    def answers(self) -> bool:
        """Whether it takes commands on its vty yet; RoutingError if it has died meanwhile."""
        self.require_alive()
        try:
            with Vty(self.vty_path):
                return True
        except VtyError:
            return False

    def ask(self, command: str) -> str:
        """What it says to one command."""
        with Vty(self.vty_path) as vty:
            return vty.command(command)

    def kill(self, number: signal.Signals) -> None:
        """Sends a signal and waits for the end; RoutingError if it had to be killed because it ignored SIGTERM."""
        if self.process is None or not self.alive():
            return
        self.process.send_signal(number)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            if number == signal.SIGKILL:
                return  # it was late, which is no disobedience; and `close` must come to the others
            raise RoutingError(
                f"{self.router}: {self.name} did not stop within {STOP_TIMEOUT_S} s of {number.name} and was killed"
            ) from None

    def rss_bytes(self) -> int:
        """Resident memory of the process, 0 when it does not run."""
        if self.process is None or not self.alive():
            return 0
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def last_words(self) -> str:
        """The last lines of its output and log, for errors."""
        words = []
        for path in (self.folder / f"{self.name}.out", self.log_path):
            with contextlib.suppress(OSError):
                words += path.read_text(errors="replace").splitlines()[-4:]
        return " | ".join(words) or f"nothing in {self.log_path}"


def program(name: str) -> str:
    """Path of FRR's program; HostError with what to do if it is not installed."""
    found = shutil.which(name, path=os.pathsep.join(FOLDERS))
    if found is None:
        raise HostError(f"{name} is not in {', '.join(FOLDERS)}: {INSTALL_HINT}")
    return found


def version() -> str:
    """FRR's version, as zebra tells it."""
    return _said_by_zebra("--version").split("\n", 1)[0].rpartition(" ")[2]


@functools.cache
def zebra_options() -> tuple[str, ...]:
    """Options of zebra beyond the common ones: an IPv6 route is replaced in one step, where this zebra can.

    Without it zebra deletes a route and adds it again at every change of its next hops, and packets in between are lost.
    """
    return (ATOMIC_REPLACE,) if ATOMIC_REPLACE in _said_by_zebra("--help") else ()


def _said_by_zebra(option: str) -> str:
    """What zebra prints about itself."""
    return subprocess.run([program("zebra"), option], capture_output=True, text=True, check=False).stdout


@functools.cache
def has_mgmtd() -> bool:
    """Whether this FRR has mgmtd (9 and newer).

    Its zebra wants to tell mgmtd of interfaces; alone it tries again 100 times a second for ever (measured with 10.3: 9 % of a core and
    45 kB of log a second for each router).
    """
    return shutil.which(MGMTD, path=os.pathsep.join(FOLDERS)) is not None


def configured(name: str, router: str, folder: Path, options: Sequence[str] = ()) -> Daemon:
    """`daemon` with a start file."""
    return daemon(name, router, folder, ("-f", str(folder / f"{name}.conf"), *options))


def daemon(name: str, router: str, folder: Path, options: Sequence[str] = ()) -> Daemon:
    """A daemon that is not started yet. Every file it opens lies in `folder`; no TCP vty; nothing in /etc is used."""
    argv = [
        program(name),
        *(("-N", router) if has_mgmtd() else ()),  # says where mgmtd's sockets are: see `private_folder`
        *("-i", str(folder / f"{name}.pid")),
        *("-z", str(folder / "zserv.api")),
        *("--vty_socket", str(folder)),
        *("-P", "0"),
        *(() if name in OWN_LOGS else ("--log", f"file:{folder / name}.log", "--log-level", "informational")),
        *("--limit-fds", FILE_LIMIT),
        *options,
    ]
    return Daemon(name, router, folder, tuple(argv))


def private_folder(folder: Path, files: dict[str, str]) -> None:
    """Makes the router's folder anew with these files, owned by FRR's user; sockets and process ids of an earlier life are removed.

    FRR has no option for the place of mgmtd's sockets, /run/frr/<router>; it is made to lead to the folder.
    """
    owner = _owner()
    folder.mkdir(parents=True, exist_ok=True)
    if has_mgmtd():
        RUN_FOLDER.mkdir(parents=True, exist_ok=True)
        (RUN_FOLDER / folder.name).unlink(missing_ok=True)
        (RUN_FOLDER / folder.name).symlink_to(folder)
    for pattern in ("*.vty", "*.pid", "*.sock", "zserv.api"):
        for old in folder.glob(pattern):
            old.unlink()
    for name, text in files.items():
        (folder / name).write_text(text)
        os.chown(folder / name, *owner)
    os.chown(folder, *owner)


def _owner() -> tuple[int, int]:
    """User and group ids of FRR's user."""
    try:
        entry = pwd.getpwnam(USER)
    except KeyError:
        raise HostError(f"there is no user {USER!r} on this machine: {INSTALL_HINT}") from None
    return entry.pw_uid, entry.pw_gid
