"""The controller's process: started, waited for, watched, killed. It lives in the sandbox's own namespace; a Unix socket leads to it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.controller.config import Config
from testbed.errors import HostError

READY_TIMEOUT_S = 90.0
_LAST_WORDS = 800


class ControllerProcess:
    """One process after the other in one folder; their history and their log go on."""

    def __init__(self, folder: Path, config: Config) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.socket, self.log, self._events = folder / "socket", folder / "controller.log", folder / "events.jsonl"
        self._told_by = folder / "config.json"
        self._config = replace(config, socket=str(self.socket), events=str(self._events))
        self._process: subprocess.Popen[bytes] | None = None
        self._said: dict[str, Any] = {}
        self.cpu_s = 0.0

    @property
    def library(self) -> dict[str, str]:
        """What speaks OpenFlow in it: `name`, `version`, and what was `asked` for."""
        return dict(self._said.get("library", {}))

    def launch(self, switches: Collection[str]) -> None:
        """Starts it; it begins when these switches have connected. To be followed by `wait_ready`."""
        self._end_line()
        self._told_by.write_text(replace(self._config, switches=tuple(switches)).text())
        argv = [sys.executable, "-m", "testbed.controller", str(self._told_by)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True)

    def _end_line(self) -> None:
        """A predecessor that was killed may have left half a line, which would spoil the first line of the next one."""
        if self._events.exists() and not self._events.read_bytes().endswith(b"\n"):
            with self._events.open("ab") as history:
                history.write(b"\n")

    def wait_ready(self) -> None:
        """Until it has put the tables of the switches right. HostError with its last words, or naming who is missing."""
        assert self._process is not None
        self._said = json.loads(self._first_line(self._process))
        if self._said["missing"]:
            raise HostError(f"{', '.join(self._said['missing'])} did not connect to the controller; see {self.log}")

    def kill(self) -> None:
        """SIGKILL, and waits for its end. Nothing if it does not run."""
        if self._process is None:
            return
        process, self._process = self._process, None
        self.cpu_s += _cpu_s(process.pid)
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def require_alive(self) -> None:
        """HostError if it ended though nobody asked it to."""
        if self._process is not None and self._process.poll() is not None:
            raise HostError(f"the controller ended by itself (status {self._process.returncode}): {self._last_words()}")

    def events(self) -> list[dict[str, Any]]:
        """The history that it and those before it wrote; a line that a kill cut short is left out."""
        lines = self._events.read_text().splitlines() if self._events.exists() else []
        return [event for line in lines if (event := _parsed(line)) is not None]

    def total_cpu_s(self) -> float:
        """CPU seconds that it and those before it used."""
        return self.cpu_s + (0.0 if self._process is None else _cpu_s(self._process.pid))

    def _first_line(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        deadline = time.monotonic() + READY_TIMEOUT_S
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        line = process.stdout.readline() if ready else b""
        if not line:
            ended = f"ended (status {process.wait()})" if ready else f"was not ready within {READY_TIMEOUT_S:g} s"
            raise HostError(f"the controller {ended}: {self._last_words()}")
        return line

    def _last_words(self) -> str:
        said = self.log.read_text(errors="replace").strip()[-_LAST_WORDS:] if self.log.exists() else ""
        return f"{said or '(nothing)'} (its log is {self.log})"


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return event


def _cpu_s(pid: int) -> float:
    """User and system time of a process (proc(5): stat, fields 14 and 15)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
