"""The agent processes of one arm: starting them in their hosts' namespaces, and talking JSON lines with them."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from testbed.errors import HostError

Message = dict[str, Any]


class AgentLost(HostError):
    """An agent process ended, or did not answer in time; the message holds the end of its log."""


class AgentPool:
    """One agent a host. Every message of every agent lands in one queue, with the host's name."""

    def __init__(self, hosts: Iterable[str], popen: Callable[..., subprocess.Popen[bytes]], folder: Path) -> None:
        self._hosts = tuple(hosts)
        self._popen = popen
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: dict[str, IO[bytes]] = {}
        self._messages: queue.Queue[tuple[str, Message] | None] = queue.Queue()
        self._stopped: set[str] = set()

    def start(self) -> None:
        """Starts every agent; they wait for their configuration."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for host in self._hosts:
            log = self._logs[host] = (self._folder / f"{host}.log").open("wb")
            process = self._popen(
                host, [sys.executable, "-m", "hosts.agent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0
            )
            self._processes[host] = process
            threading.Thread(target=self._read, args=(host, process), name=f"agent-{host}", daemon=True).start()

    def _read(self, host: str, process: subprocess.Popen[bytes]) -> None:
        stream = process.stdout
        if stream is None:
            raise AssertionError("the agent's stdout is a pipe")
        for line in stream:
            try:
                self._messages.put((host, json.loads(line)))
            except ValueError:
                self._messages.put((host, {"msg": "error", "text": f"not JSON: {line[:200]!r}"}))
        self._messages.put((host, {"msg": "gone", "status": process.wait()}))

    def send(self, host: str, command: Mapping[str, Any]) -> None:
        """Sends one command; AgentLost if the agent is no more."""
        stream = self._processes[host].stdin
        try:
            if stream is None:
                raise BrokenPipeError
            stream.write(json.dumps(command).encode() + b"\n")
        except BrokenPipeError as error:
            raise self._lost(host, "took no more commands") from error

    def send_all(self, command: Mapping[str, Any]) -> None:
        """Sends the same command to every agent."""
        for host in self._hosts:
            self.send(host, command)

    def wake(self) -> None:
        """Lets whoever waits for a message look up: there is something else to do. From any thread."""
        self._messages.put(None)

    def next_message(self, timeout_s: float) -> tuple[str, Message] | None:
        """The next message, or None at the latest after `timeout_s`, and after `wake`.

        AgentLost: an agent failed, or ended before it was stopped.
        """
        try:
            got = self._messages.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return None
        if got is None:
            return None
        host, message = got
        if message["msg"] == "stopped":
            self._stopped.add(host)
        if message["msg"] == "gone":
            if host in self._stopped and message["status"] == 0:
                return None  # its work is done; whoever waits for others waits on
            raise self._lost(host, f"ended with status {message['status']}")
        if message["msg"] == "error":
            raise self._lost(host, f"reported: {message.get('text')}")
        return host, message

    def gather(self, kind: str, timeout_s: float, note: Callable[[str, Message], None] | None = None) -> dict[str, Message]:
        """Waits until every agent has sent a message of `kind`; others go to `note`. AgentLost names those that stayed silent."""
        answers = self.gathered(kind, timeout_s, note)
        if silent := sorted(set(self._hosts) - set(answers)):
            raise self._lost(silent[0], f"sent no '{kind}' within {timeout_s:g} s (silent: {', '.join(silent)})")
        return answers

    def gathered(self, kind: str, timeout_s: float, note: Callable[[str, Message], None] | None = None) -> dict[str, Message]:
        """As `gather`, but where the time is over it gives the answers that came until then."""
        deadline, answers = time.monotonic() + timeout_s, dict[str, Message]()
        while len(answers) < len(self._hosts):
            got = self.next_message(deadline - time.monotonic())
            if got is None:
                if time.monotonic() < deadline:
                    continue
                break
            host, message = got
            if message["msg"] == kind:
                answers[host] = message
            elif note is not None:
                note(host, message)
        return answers

    def _lost(self, host: str, what: str) -> AgentLost:
        log = self._folder / f"{host}.log"
        tail = log.read_text(errors="replace").strip().splitlines()[-8:] if log.exists() else []
        return AgentLost(f"the agent of {host} {what}; its log ({log}) ends: " + (" | ".join(tail) or "(empty)"))

    def close(self, timeout_s: float = 5.0) -> None:
        """Ends every agent: end of input first, then by its process id."""
        for process in self._processes.values():
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
        deadline = time.monotonic() + timeout_s
        for process in self._processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for log in self._logs.values():
            log.close()
