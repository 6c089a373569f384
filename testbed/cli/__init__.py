"""The command line: `main` is the console script `testbed`, and `python -m testbed`."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; nothing is raised, not even for wrong arguments."""
    from testbed.cli.app import cli
    from testbed.cli.failures import guarded
    from testbed.cli.output import Output, open_standard_streams

    open_standard_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments

    def command() -> Output | None:
        answer = cli.main(args=arguments, prog_name="testbed", standalone_mode=False, obj=arguments)
        return answer if isinstance(answer, Output) else None

    return guarded(command, as_json="--json" in options, debug="--debug" in options)
