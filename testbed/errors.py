"""The exception tree. Each error says what, where and what to do, and carries the exit code of the command that meets it."""

from __future__ import annotations

from collections.abc import Sequence

INTERRUPTED = 130
"""The exit code of what was interrupted: no error of its own."""


class TestbedError(Exception):
    """Base of all errors that a user may see; `exit_code` as in docs/architecture.md."""

    exit_code = 1
    __test__ = False


class UsageError(TestbedError):
    """Wrong usage, or a scenario or topology that makes no sense."""

    exit_code = 2


class HostError(TestbedError):
    """This machine cannot do what was asked: no root, a missing program or kernel feature."""

    exit_code = 3


class CommandFailed(HostError):
    """A program that we called failed; nothing of what it said is lost."""

    def __init__(self, doing: str, argv: Sequence[str], status: int, output: str) -> None:
        self.argv, self.status, self.output = tuple(argv), status, output
        super().__init__(f"{doing}: `{' '.join(argv)}` ended with status {status}: {output.strip() or '(no output)'}")


class FidelityError(TestbedError):
    """The run happened, but what it measured cannot be trusted."""

    exit_code = 4
