"""How a run is talked to while it goes on: a line of JSON asks, a line answers, over a Unix socket in the run's folder.

This is the asking end, and what both ends share; `testbed.run.control` is the other. A socket's name means the same in every network and
mount namespace that sees the folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hosts.commands import Fields
from testbed.errors import HostError, UsageError

NAME = "control.sock"
MAX_REQUEST_BYTES, MAX_ANSWER_BYTES = 1 << 16, 1 << 28
REQUEST_S = 5.0  # for a client to say its line
ANSWER_S = 20.0  # for the agents to do it: one that is stopped by a fault may take long
DOINGS = ("deny", "allow", "list")


@dataclass(frozen=True)
class Request:
    """`do`: "deny", "allow" or "list". EVs over `links`, and those numbered `evs` from `host` to `peer`; a list may be of one `host`."""

    do: str
    links: tuple[str, ...] = ()
    host: str | None = None
    peer: str | None = None
    evs: tuple[int, ...] = ()

    def asked(self) -> dict[str, Any]:
        """As the history has it."""
        return {"links": list(self.links), "host": self.host, "peer": self.peer, "evs": list(self.evs)}


def parse_request(line: bytes) -> Request:
    """A client's line. UsageError with what is wrong with it."""
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the request is not JSON: {error}") from error
    fields = Fields(raw, "$")
    fields.refuse_unknown("do", "links", "host", "peer", "evs")
    do = fields.text("do")
    if do not in DOINGS:
        raise UsageError(f"$.do is {do!r:.80}: give one of {', '.join(DOINGS)}")
    links = tuple(_link(link) for link in fields.items("links")) if "links" in raw else ()
    evs = tuple(_number(ev) for ev in fields.items("evs")) if "evs" in raw else ()
    host, peer = (fields.text(key) if raw.get(key) is not None else None for key in ("host", "peer"))
    request = Request(do, links, host, peer, evs)
    check(request)
    return request


def check(request: Request) -> None:
    """UsageError for what cannot be meant."""
    if request.do == "list":
        if request.links or request.peer or request.evs:
            raise UsageError("a list is of all EVs, or of those of one host")
        return
    of_pair = (request.host is not None, request.peer is not None, bool(request.evs))
    if any(of_pair) and not all(of_pair):
        raise UsageError("EVs are named by --host, --peer and --ev together")
    if not request.links and not any(of_pair):
        raise UsageError("say which EVs: --link LINK, or --host HOST --peer HOST --ev N")


def _link(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 200:
        raise UsageError(f"$.links holds {value!r:.80}: give names of links")
    return value


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
        raise UsageError(f"$.evs holds {value!r:.80}: give numbers of EVs")
    return value


def is_live(folder: Path) -> bool:
    """Whether a run listens in `folder`; a socket that a killed run left there does not."""
    try:
        with _connected(folder):
            return True
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        return False
    except OSError:  # not allowed to, or so busy that it does not hear us
        return True


def ask(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """What the run in `folder` answers. HostError when there is none, or none that listens to us; UsageError when it refuses."""
    said = json.dumps(request).encode()
    if len(said) > MAX_REQUEST_BYTES:
        raise UsageError(f"a request of {len(said)} bytes, but a run reads no more than {MAX_REQUEST_BYTES}: ask for fewer at a time")
    try:
        with _connected(folder) as server:
            server.sendall(said + b"\n")
            line = read_line(server, MAX_ANSWER_BYTES, REQUEST_S + ANSWER_S)
        answer = json.loads(line or b"null")
    except PermissionError as error:
        raise HostError(f"only root may talk to the run in {folder}: use sudo") from error
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise HostError(f"no run is going on in {folder}") from error
    except (OSError, ValueError) as error:
        raise HostError(f"the run in {folder} gave no answer: {error}") from error
    if not isinstance(answer, dict):
        raise HostError(f"the run in {folder} ended without an answer")
    if not answer.get("ok"):
        kind = UsageError if answer.get("exit_code") == UsageError.exit_code else HostError
        raise kind(str(answer.get("error")))
    return answer


@contextlib.contextmanager
def _connected(folder: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        # Python's own timeout would give up at once when the server's queue is full.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(REQUEST_S), 0))
        with socket_name(folder) as name:
            server.connect(name)
        server.settimeout(REQUEST_S)
        yield server


def read_line(peer: socket.socket, limit_bytes: int, within_s: float) -> bytes | None:
    """One line without its end; None when the other end closed before. OSError when it is longer than the limit, or takes too long."""
    deadline, chunks, size = time.monotonic() + within_s, list[bytes](), 0
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"no whole line within {within_s:g} s")
        peer.settimeout(left_s)
        chunk = peer.recv(65536)
        if not chunk:
            return None
        head, newline, _ = chunk.partition(b"\n")
        chunks.append(head)
        size += len(head)
        if size > limit_bytes:
            raise OSError(f"a line of more than {limit_bytes} bytes")
        if newline:
            return b"".join(chunks)


@contextlib.contextmanager
def socket_name(folder: Path) -> Iterator[str]:
    """The socket's name by way of its folder's descriptor: names of sockets may have 107 bytes, those of folders more."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{NAME}"
    finally:
        os.close(descriptor)
