"""The commands that need the engine: each enters the sandbox if it must, imports what it needs, and turns the outcome into an Output."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.cli.output import Output, quiet_stdout
from testbed.cli.progress import reporting
from testbed.errors import HostError, UsageError
from testbed.files import make_folder
from testbed.units import counted

if TYPE_CHECKING:
    from testbed.capture.plan import CapturePlan
    from testbed.cli.targets import Fabric
    from testbed.scenario import Drawn, Scenario


def run(scenario: Scenario, drawn: Sequence[Drawn], results: Path, capture: CapturePlan) -> Output:
    """Runs a scenario; `drawn` holds its faults, or those of each point of its sweep; `capture`: whose packets are recorded meanwhile.

    Outside of a sandbox it starts the same command again in one, which then writes the answer.
    """
    from testbed import sandbox

    sandbox.require_root()
    results = writable(results)
    if not sandbox.inside():
        return again_in_sandbox(scenario.arms)
    sandbox.prepare(keep=[results])
    from testbed.run import run_scenario, run_sweep

    with quiet_stdout(), reporting() as reporter:
        if scenario.points:
            outcome = run_sweep(scenario, drawn, results, reporter=reporter, capture=capture)
        else:
            outcome = run_scenario(scenario, drawn[0], results, reporter=reporter, capture=capture)
    folder = str(outcome.folder)
    data = {"run": folder, "exit_code": outcome.exit_code, "problems": outcome.problems, "summary": outcome.summary}
    verdict = ["all expectations were met"] if outcome.exit_code == 0 else outcome.problems
    return Output(data, [f"results: {folder}", *verdict], outcome.exit_code)


def writable(results: Path) -> Path:
    """The folder, made and absolute. UsageError if no run can be written there."""
    try:
        make_folder(results)
        real = Path(os.path.realpath(results, strict=True))
        if not os.access(real, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "cannot be written")
    except OSError as error:
        raise UsageError(f"--results {results}: {error.strerror}; give a folder that can be made and written") from error
    return real


def again_in_sandbox(arms: Collection[str]) -> Output:
    """What is missing on this machine is told here, all at once, before anything is set up."""
    from testbed import requirements, sandbox

    sandbox.require_root()
    requirements.require(arms)
    arguments: list[str] = click.get_current_context().obj
    status = sandbox.enter(arguments)
    # The inner command has said everything, unless it was killed.
    if status > 128 and status != 128 + signal.SIGINT:
        name = signal.Signals(status - 128).name
        raise HostError(f"the sandbox was killed by {name}: if nobody did it on purpose, the machine may be out of memory (see `dmesg`)")
    return Output({}, (), status)


def plot(folder: Path) -> Output:
    """Draws the plots of a run again."""
    from testbed.report import write_plots

    with quiet_stdout(), reporting() as reporter:
        reporter.phase(f"drawing the plots of {folder}")
        written = write_plots(folder)
    paths = [str(path) for path in written or ()]
    return Output({"run": str(folder), "plots": paths}, paths)


def report(folder: Path) -> Output:
    """Writes the report of a run again."""
    from testbed.report import write_report

    with quiet_stdout(), reporting() as reporter:
        reporter.phase(f"writing the report of {folder}")
        written = write_report(folder)
    return Output({"run": str(folder), "report": str(written)}, [str(written)])


def doctor() -> Output:
    """Every check of the machine; exit code 3 when something required is missing."""
    from testbed import requirements

    checks = requirements.checks()
    missing = [check for check in checks if check.required and not check.ok]
    lines = [f"{_mark(check.ok, check.required):7}  {check.name}: {check.detail}" for check in checks]
    hints = dict.fromkeys(check.hint for check in checks if not check.ok and check.hint)
    lines += [f"  to do: {', '.join(check.name for check in checks if not check.ok and check.hint == hint)}: {hint}" for hint in hints]
    verdict = f"missing: {counted(len(missing), 'required thing')}" if missing else "this machine can run the testbed"
    data = {"ok": not missing, "checks": [asdict(check) for check in checks]}
    return Output(data, [*lines, verdict], HostError.exit_code if missing else 0)


def _mark(ok: bool, required: bool) -> str:
    return "ok" if ok else ("MISSING" if required else "absent")


def shell(target: Fabric, arm: str) -> Output:
    """The Mininet prompt with the fabric up."""
    from testbed import sandbox

    if not sandbox.inside():
        return again_in_sandbox([arm])
    sandbox.prepare()
    from testbed.fabric import shell as fabric_shell

    fabric_shell.run(target.topology, arm, scenario=target.scenario)
    return Output({}, ())
