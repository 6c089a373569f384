"""`testbed selftest`: a table of what links were measured to do, beside what they should."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from testbed.cli.engine import again_in_sandbox
from testbed.cli.output import Output, quiet_stdout, table
from testbed.cli.progress import reporting
from testbed.cli.targets import Fabric
from testbed.errors import FidelityError
from testbed.scenario.derived_links import USID_ARMS

if TYPE_CHECKING:
    from testbed.fabric.selftest import Check
    from testbed.link_settings import LinkSettings

ARMS = USID_ARMS
"""A fabric with BGP is never idle, so its links cannot be measured packet by packet."""


def run(target: Fabric | None, arm: str) -> Output:
    """Measures on a small fabric, or on that of `target`. Exit code 4 when a check fails: what such links measure cannot be trusted."""
    from testbed import sandbox

    if not sandbox.inside():
        return again_in_sandbox([arm])
    sandbox.prepare()
    from testbed.fabric import selftest

    topology = target.topology if target else None
    with quiet_stdout(), reporting() as reporter:
        checks = selftest.run(sandbox.runtime_dir() / "selftest", topology, _settings(target, arm), reporter)
    return said(checks)


def _settings(target: Fabric | None, arm: str) -> LinkSettings | None:
    return target.scenario.link_settings(arm) if target and target.scenario else None


def said(checks: list[Check]) -> Output:
    """The answer to a list of checks."""
    bad = [check.name for check in checks if not check.good]
    head = ("", "CHECK", "MEASURED", "EXPECTED")
    rows = [("good" if check.good else "BAD", check.name, check.measured, check.expected) for check in checks]
    verdict = f"{len(bad)} of {len(checks)} checks failed: {', '.join(bad)}" if bad else f"all {len(checks)} checks are good"
    hint = ["docs/troubleshooting.md says what each of them means"] if bad else []
    data = {"ok": not bad, "checks": [asdict(check) for check in checks]}
    return Output(data, [*table([head, *rows]), verdict, *hint], FidelityError.exit_code if bad else 0)
