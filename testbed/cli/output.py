"""What a command says: lines for people, or one JSON object. Standard output holds nothing else."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Output:
    """A command's answer: `data` for --json, `lines` for people, and the exit code (docs/architecture.md)."""

    data: Mapping[str, Any]
    lines: Sequence[str] = ()
    exit_code: int = 0


def emit(output: Output, as_json: bool) -> None:
    """Writes an answer to standard output. A reader that has gone away (`| head`) is no error."""
    if not output.data and not output.lines:  # somebody else has said it
        return
    text = json_text(output.data) if as_json else "\n".join(output.lines)
    try:
        print(text, flush=True)
    except BrokenPipeError:
        drop_stdout()


def json_text(data: Mapping[str, Any]) -> str:
    """One JSON object; NaN and infinity, which JSON does not have, become null. ASCII where standard output cannot hold all letters."""
    return json.dumps(_finite(data), indent=2, ensure_ascii=not _holds_all_letters(), default=str)


def _holds_all_letters() -> bool:
    return (sys.stdout.encoding or "utf-8").lower() in ("utf-8", "utf8")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def open_standard_streams() -> None:
    """Opens what the caller closed (`>&-`) as /dev/null; else the next file opened would become standard output or error.

    A letter that the terminal does not have, or that is none (a name in a capture, an argument), is escaped.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115 - it lives as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def drop_stdout() -> None:
    """Points standard output at nothing, so that the interpreter's last flush does not complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def quiet_stdout() -> Iterator[None]:
    """Sends whatever the engine and its child processes write to standard output to standard error meanwhile."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as aligned columns; the first row is the header."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
