"""Doing something inside a node's network namespace, from a thread of its own (the rest of the process stays where it is)."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from testbed.errors import CommandFailed, HostError

CLONE_NEWNET = 0x40000000  # linux/sched.h
_libc = ctypes.CDLL(None, use_errno=True)
T = TypeVar("T")


def inside(pid: int, action: Callable[[], T]) -> T:
    """Runs `action` in the network namespace of process `pid` and returns its result; what it raises is raised here.

    A thread that enters a namespace keeps it for good, so each call has a short-lived thread. Sockets and child processes made by `action`
    belong to that namespace. Raises HostError when the namespace cannot be entered.
    """
    done: list[T] = []
    failed: list[BaseException] = []

    def body() -> None:
        try:
            _enter(pid)
            done.append(action())
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
            failed.append(error)

    thread = threading.Thread(target=body, name=f"netns-{pid}")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]


def _enter(pid: int) -> None:
    """Moves the calling thread into the network namespace of `pid`."""
    try:
        descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise HostError(f"network namespace of process {pid}: {error}; is the node still running?") from error
    try:
        if _libc.setns(descriptor, CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise HostError(f"network namespace of process {pid}: {os.strerror(number)}; run as root")
    finally:
        os.close(descriptor)


def run(pid: int, doing: str, argv: Sequence[str], text_input: str = "") -> str:
    """Output of a command run in the namespace of `pid`; CommandFailed with all it said when it fails."""
    result = inside(pid, lambda: subprocess.run(argv, input=text_input, capture_output=True, text=True, check=False))
    if result.returncode != 0:
        raise CommandFailed(doing, argv, result.returncode, result.stderr + result.stdout)
    return result.stdout
