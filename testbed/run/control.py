"""Serves a run's control socket, by which `testbed ev` reaches the run that is going on.

Its mode is 0600, so only root may ask. Nothing that a client sends or leaves out disturbs the run: each has a thread of its own, a
deadline and a bound, and only so many are heard at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.control import ANSWER_S, MAX_REQUEST_BYTES, NAME, REQUEST_S, parse_request, read_line, socket_name
from testbed.errors import HostError, TestbedError
from testbed.reporting import Reporter
from testbed.run.denials import Denials

MAX_CLIENTS = 8
WRITE_S = 5.0
LOOK_UP_S = 0.1


@dataclass(frozen=True)
class Desk:
    """Whom requests are for: the arm whose job runs."""

    arm: str
    repeat: int
    denials: Denials | None  # None: an arm without EVs whose paths are known


class Control:
    """Serves the control socket of a run; `serving` says whose requests they are."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._closing = folder, False
        self._desk: Desk | None = None
        self._clients = threading.BoundedSemaphore(MAX_CLIENTS)
        with socket_name(folder) as name:
            self._socket = _listening(name)
        self._thread = threading.Thread(target=self._accept, name="control", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def serving(self, desk: Desk) -> Iterator[None]:
        """Requests go to `desk` meanwhile."""
        self._desk = desk
        try:
            yield
        finally:
            self._desk = None

    def close(self) -> None:
        """Removes the socket; clients that are being answered still are."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        (self._folder / NAME).unlink(missing_ok=True)

    def _accept(self) -> None:
        while not self._closing:
            if not self._clients.acquire(timeout=LOOK_UP_S):
                continue
            try:
                client, _ = self._socket.accept()
            except OSError:  # closed; or out of descriptors, which passes
                self._clients.release()
                time.sleep(0.0 if self._closing else LOOK_UP_S)
                continue
            threading.Thread(target=self._serve, args=(client,), name="control-client", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with client, contextlib.suppress(OSError):
                line = read_line(client, MAX_REQUEST_BYTES, REQUEST_S)
                if line is None:  # it only looked whether somebody is here
                    return
                answer = self._answer(line)
                client.settimeout(WRITE_S)
                client.sendall(json.dumps(answer).encode() + b"\n")
        finally:
            self._clients.release()

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            desk = self._desk
            if desk is None:
                raise HostError("no job runs at the moment: the run brings one up, or is about to end")
            if desk.denials is None:
                raise HostError(f"arm {desk.arm} has no EVs with known paths: the network chooses them")
            found = _waited_for(desk.denials.ask(parse_request(line)))
        except TestbedError as error:
            return {"ok": False, "exit_code": error.exit_code, "error": str(error)}
        return {"ok": True, "arm": desk.arm, "repeat": desk.repeat, "evs": found}


def _waited_for(reply: Future[Any]) -> Any:
    try:
        return reply.result(ANSWER_S)
    except NoAnswer as error:
        raise HostError(f"not every agent answered within {ANSWER_S:g} s; it may still be done, see `testbed ev list`") from error


@contextlib.contextmanager
def control_of(folder: Path, reporter: Reporter) -> Iterator[Control | None]:
    """The control socket of the run in `folder`; None, and a warning, where the file system holds no sockets."""
    try:
        control = Control(folder)
    except OSError as error:
        reporter.warn(f"no control socket in {folder}, so `testbed ev` will not find this run: {error.strerror}")
        yield None
        return
    try:
        yield control
    finally:
        control.close()


def _listening(name: str) -> socket.socket:
    """Bound, and only then opened to root alone: until it listens nobody can connect."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.bind(name)
        os.chmod(name, 0o600)
        server.listen(MAX_CLIENTS)
    except OSError:
        server.close()
        raise
    return server
