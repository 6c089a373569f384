"""From an exception to one sentence on standard error and an exit code; the only place with a broad `except`."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import click

from testbed.cli.output import Output, drop_stdout, emit
from testbed.errors import INTERRUPTED, TestbedError
from testbed.scenario.problems import ScenarioInvalid

# A bug of the testbed, kept apart from what a run found (1): EX_SOFTWARE of sysexits(3).
INTERNAL = 70
USAGE = 2
HOST = 3


def guarded(command: Callable[[], Output | None], as_json: bool, debug: bool) -> int:
    """Runs a command, emits what it answers, and returns the exit code; whatever goes wrong is told, never thrown."""
    try:
        output = command()
        if output is None:
            return 0
        emit(output, as_json)
        return output.exit_code
    except click.exceptions.Exit as done:
        return done.exit_code
    except BrokenPipeError:
        drop_stdout()
        return 0
    except (KeyboardInterrupt, click.Abort):
        return _tell("interrupted", INTERRUPTED, as_json)
    except click.ClickException as error:
        return _tell(_usage_text(error), USAGE, as_json)
    except ScenarioInvalid as error:
        return _tell(str(error), error.exit_code, as_json, problems=[problem.as_dict() for problem in error.problems])
    except TestbedError as error:
        return _tell(str(error), error.exit_code, as_json)
    except OSError as error:
        return _tell(_os_text(error), HOST, as_json)
    except Exception as error:  # noqa: BLE001 - the last resort: a traceback in a file, a sentence on the terminal
        return _tell(_internal_text(error, debug), INTERNAL, as_json)


def _tell(message: str, exit_code: int, as_json: bool, **more: Any) -> int:
    """`error: ...` on standard error; with --json the object on standard output as well."""
    try:
        print(f"error: {message}", file=sys.stderr, flush=True)
        if as_json:
            emit(Output({"error": message, "exit_code": exit_code, **more}), as_json=True)
    except OSError:  # nobody listens; the exit code still tells
        drop_stdout()
    return exit_code


def _usage_text(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":  # since click 8.2; its message is the whole help page
        return "which command? See `testbed --help`"
    where = f" (see `{context.command_path} --help`)" if context is not None else ""
    return error.format_message() + where


def _os_text(error: OSError) -> str:
    name = f": {error.filename}" if error.filename else ""
    return f"the system refused: {error.strerror or error}{name}"


def _internal_text(error: Exception, debug: bool) -> str:
    text = "".join(traceback.format_exception(error))
    where = "above" if debug else _write_traceback(text)
    if debug or not where:
        sys.stderr.write(text)
    first_line = (str(error).splitlines() or [""])[0]
    return f"this is a bug in the testbed: {type(error).__name__}: {first_line} (traceback: {where or 'above'})"


def _write_traceback(text: str) -> str:
    """The file's name, or nothing where none can be written. Not in TMPDIR: in a sandbox that goes away with it."""
    try:
        descriptor, name = tempfile.mkstemp(prefix="testbed-crash-", suffix=".txt", dir="/tmp")
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
    except OSError:
        return ""
    return name
