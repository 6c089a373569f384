"""Talking to an FRR daemon on its vty socket, the way vtysh does: a command and a NUL out, text, three NULs and a status byte back."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from testbed.errors import HostError

END_MARK = b"\0\0\0"  # FRR lib/vty.c: a vtysh reply ends with three zero bytes and the command's return value
SUCCESS = 0
WARNING = 1


class VtyError(HostError):
    """A daemon did not answer on its vty, or refused a command."""


class Vty:
    """One connection to one daemon's vty socket; the socket is a file, so no namespace has to be entered."""

    def __init__(self, path: Path, timeout_s: float = 5.0) -> None:
        """Connects and enters enable mode. Raises VtyError when nobody listens."""
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise VtyError(f"{path}: {error.strerror or error}; is the daemon running? See its log beside the socket") from error
        self.command("enable")

    def __enter__(self) -> Vty:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def command(self, text: str) -> str:
        """What the daemon says to one command; VtyError when it refuses it or falls silent."""
        try:
            self._socket.sendall(text.encode() + b"\0")
            reply = self._reply()
        except OSError as error:
            raise VtyError(f"{self._path}: no answer to `{text}`: {error}") from error
        output, status = reply[:-4].replace(b"\0", b"").decode(errors="replace"), reply[-1]
        if status not in (SUCCESS, WARNING):
            raise VtyError(f"{self._path}: `{text}` was refused (status {status}): {output.strip() or '(no reason given)'}")
        return output

    def configure(self, commands: Sequence[str]) -> None:
        """Gives commands from `configure terminal` on; VtyError at the first that is refused."""
        for text in ("configure terminal", *commands, "end"):
            self.command(text)

    def _reply(self) -> bytes:
        """Bytes up to and with the end mark and the status byte."""
        reply = b""
        while len(reply) < 4 or reply[-4:-1] != END_MARK:
            chunk = self._socket.recv(65536)
            if not chunk:
                raise ConnectionError("the daemon closed the connection")
            reply += chunk
        return reply
