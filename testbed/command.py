"""The one place that runs other programs and waits for them: what they said is never lost."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from testbed.errors import CommandFailed, HostError

DEFAULT_TIMEOUT_S = 60.0
_STATUS_OF_TIMEOUT = -1


def run(
    argv: Sequence[str],
    doing: str,
    *,
    input_text: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> str:
    """Runs `argv` to its end and returns its standard output.

    `doing` says in words what for; it opens the message of every error. `env` replaces the environment when given.
    Raises CommandFailed on a status other than 0 or after `timeout_s` seconds, HostError when the program is not installed.
    """
    result = run_any(argv, doing, input_text=input_text, env=env, timeout_s=timeout_s)
    if result.returncode != 0:
        raise CommandFailed(doing, argv, result.returncode, result.stderr + result.stdout)
    return result.stdout


def run_any(
    argv: Sequence[str],
    doing: str,
    *,
    input_text: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    """As `run`, but the caller judges the exit status (for programs whose status is an answer)."""
    stdin = subprocess.DEVNULL if input_text is None else None
    try:
        return subprocess.run(
            argv, input=input_text, stdin=stdin, env=env, timeout=timeout_s, capture_output=True, text=True, errors="replace", check=False
        )
    except FileNotFoundError as error:
        raise HostError(f"{doing}: the program `{argv[0]}` is not installed; `testbed doctor` says which package has it") from error
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(doing, argv, _STATUS_OF_TIMEOUT, f"no end after {timeout_s:g} s; {_text(error.stderr)}") from error


def in_net(pid: int, argv: Sequence[str]) -> list[str]:
    """The argv that runs `argv` in the network namespace (only that) of process `pid`; nsenter replaces itself by the program."""
    return ["nsenter", f"--net=/proc/{pid}/ns/net", "--", *argv]


def _text(output: str | bytes | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
