"""The agent: one process in each host's namespace, told what to do by JSON lines on stdin (docs/architecture.md, "Agent protocol").

One thread, one `select` over the commands, the sockets and the next deadline. Run it as ``python -m hosts.agent``.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from hosts.commands import Fields, parse_config, parse_connect, parse_deny, parse_line, parse_start
from hosts.session import Message, Session
from testbed.errors import TestbedError, UsageError

PR_SET_TIMERSLACK = 29  # linux/prctl.h
TIMER_SLACK_NS = 1000  # the default of 50 us would make every deadline that late
STATUS_TERMINATED = 128 + signal.SIGTERM
MAX_LINE_BYTES = 16 * 2**20
LARGEST_KEPT = ("lateness_p99_s", "lateness_max_s")


class Agent:
    """Reads commands from file descriptor `commands`, writes messages to `messages`; a byte on `signals` means SIGTERM."""

    def __init__(self, commands: int, messages: int, signals: socket.socket) -> None:
        self._commands, self._messages, self._signals = commands, messages, signals
        self._fixed = (commands, signals.fileno())
        self._waited_on: tuple[int, ...] = self._fixed  # ... and the session's sockets
        self._input = b""
        self._session: Session | None = None
        self._incarnation = 0
        self._totals: dict[str, Any] = {}
        self._cpu_before_s = 0.0
        self._status: int | None = None
        self._heard = True

    def run(self) -> int:
        """Serves until `stop`, the end of the commands, SIGTERM or an error; returns the exit status. Nothing buffered is lost."""
        try:
            while self._status is None:
                self._turn()
            return self._status
        except TestbedError as error:
            self._tell({"msg": "error", "text": str(error)})
            return error.exit_code
        finally:
            self._end_session()

    def _turn(self) -> None:
        """Waits for input, a packet or a deadline, and handles it."""
        session = self._session
        if session is None:
            ready, _, _ = select.select(self._fixed, (), ())
        else:
            ready = self._wait(session)
            session.turn([descriptor for descriptor in ready if descriptor not in self._fixed])
        if self._fixed[1] in ready:
            self._status = STATUS_TERMINATED
        elif self._fixed[0] in ready:
            self._read()

    def _wait(self, session: Session) -> list[int]:
        """Until something is readable or writable, or the session's deadline has passed; notes how late that was seen."""
        before = time.monotonic()
        deadline = session.next_deadline(before)
        readable, writable, _ = select.select(self._waited_on, session.writers(), (), max(0.0, deadline - before))
        if deadline > before and not readable and not writable:
            session.note_lateness(time.monotonic() - deadline)
        return readable

    def _read(self) -> None:
        data = os.read(self._commands, 65536)
        if not data:
            self._status = 0
            return
        *lines, self._input = (self._input + data).split(b"\n")
        if len(self._input) > MAX_LINE_BYTES:
            raise UsageError(f"a command of more than {MAX_LINE_BYTES} bytes: end each command with a newline")
        for line in lines:
            if line.strip() and self._status is None:
                self._do(*parse_line(line))

    def _do(self, name: str, fields: Fields) -> None:
        handlers = {
            "config": self._config, "connect": self._connect, "start": self._start, "deny": self._deny, "evs": self._evs,
            "drain": self._drain, "abort": self._abort, "stop": self._stop,
        }  # fmt: skip
        handlers[name](fields)

    def _config(self, fields: Fields) -> None:
        if self._session is not None:
            raise UsageError("`config` while a job is configured: send `abort` first")
        self._session = Session(parse_config(fields), self._incarnation, self._tell)
        self._waited_on = (*self._fixed, *self._session.readers())
        self._incarnation += 1
        self._tell({"msg": "ready", "attributes": self._session.attributes(), "denied": self._session.denied})

    def _connect(self, fields: Fields) -> None:
        session = self._configured("connect")
        if session.connected:
            raise UsageError("`connect` a second time: send `abort` and `config` for new QPs")
        session.connect(parse_connect(fields))

    def _start(self, fields: Fields) -> None:
        session = self._configured("start")
        if not session.connected or session.started:
            raise UsageError("`start` is for a job that is connected and not yet started")
        session.start(parse_start(fields))
        gc.collect()
        gc.freeze()  # nothing here makes cycles, and a collection would be a pause of milliseconds
        gc.disable()
        if not self._cpu_before_s:
            self._cpu_before_s = cpu_s()

    def _deny(self, fields: Fields) -> None:
        """What an administrator asks for must not end the agent, whatever it is."""
        try:
            self._tell({"msg": "denied", "evs": self._configured("deny").deny(parse_deny(fields))})
        except UsageError as error:
            self._tell({"msg": "refused", "text": str(error)})

    def _evs(self, fields: Fields) -> None:
        self._tell({"msg": "evs", "evs": [] if self._session is None else self._session.ev_rows()})

    def _configured(self, command: str) -> Session:
        if self._session is None:
            raise UsageError(f"`{command}` without a `config`")
        return self._session

    def _drain(self, fields: Fields) -> None:
        if self._session is None:
            self._tell({"msg": "drained", "closed": {}})
        else:
            self._session.drain()

    def _abort(self, fields: Fields) -> None:
        self._end_session()
        self._tell({"msg": "aborted"})

    def _stop(self, fields: Fields) -> None:
        self._end_session()
        used_s = cpu_s() - self._cpu_before_s if self._cpu_before_s else 0.0
        self._tell({"msg": "stopped", "report": {**self._totals, "cpu_s": round(used_s, 6), "cpu_process_s": round(cpu_s(), 6)}})
        self._status = 0

    def _end_session(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            self._totals = merged(self._totals, session.close())

    def _tell(self, message: Message) -> None:
        """Writes one message, whole. When nobody reads any more the agent ends, after it has written its files."""
        rest = memoryview(json.dumps(message).encode() + b"\n")
        try:
            while rest and self._heard:
                rest = rest[os.write(self._messages, rest) :]
        except BrokenPipeError:
            self._heard, self._status = False, 0


def merged(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The report of all attempts: counters add up, of round trips the smallest stays, of lateness the largest.

    Quantiles of recoveries cannot be merged: those of the attempt that had more recoveries stay, with the count of all.
    """
    result = dict(before)
    for key, value in after.items():
        old = result.get(key)
        if old is None:
            result[key] = value
        elif isinstance(value, Mapping):
            result[key] = MERGERS.get(key, merged)(old, value)
        elif isinstance(value, int | float):
            result[key] = max(old, value) if key in LARGEST_KEPT else old + value
        else:
            result[key] = value
    return result


def _smallest(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    known = [{key: value for key, value in times.items() if value is not None} for times in (old, new)]
    return {key: min(times[key] for times in known if key in times) for key in {**known[0], **known[1]}}


def _recoveries(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    both = {cause: (old[cause], new[cause]) for cause in old if cause in new}
    richer = {cause: max(pair, key=lambda stats: int(stats["count"])) for cause, pair in both.items()}
    counts = {cause: {**richer[cause], "count": first["count"] + second["count"]} for cause, (first, second) in both.items()}
    return {**old, **new, **counts}


MERGERS: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]] = {
    "base_rtt_s": _smallest,
    "idle_rtt_s": _smallest,
    "recoveries": _recoveries,
    "closed": lambda old, new: {**old, **new},
    "options": lambda old, new: {**old, **new},
}


def cpu_s() -> float:
    """User and system time of this process, in seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _signal_socket() -> socket.socket:
    """A socket that becomes readable on SIGTERM. SIGINT is for whoever runs the agents: it ends them in order."""
    reader, writer = socket.socketpair()
    for end in (reader, writer):
        end.setblocking(False)
    signal.set_wakeup_fd(writer.detach())
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return reader


def main() -> int:
    """Serves stdin and stdout."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0)
    return Agent(sys.stdin.fileno(), sys.stdout.fileno(), _signal_socket()).run()


if __name__ == "__main__":
    sys.exit(main())
