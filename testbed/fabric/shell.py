"""The Mininet prompt on a fabric: `h1 ping h16`, `pingall`, `link t0_1_1 t1_1_1 down`, `switch t1_1_1 stop`."""

from __future__ import annotations

import sys
from typing import Any

from mininet.cli import CLI
from mininet.log import setLogLevel

from testbed import sandbox
from testbed.fabric.fabric import Fabric
from testbed.fabric.settings import LinkSettings
from topologies import Topology

DEFAULT_RATE_BPS = 20_000_000
GREETING = "The fabric is up. Try: nodes, links, h1 ping -c 3 {last}, link {a} {b} down, exit. Everything ends with this prompt."


class Prompt(CLI):  # type: ignore[misc]  # Mininet has no types
    """Mininet's prompt, without its history file in the home directory: a sandbox leaves nothing behind."""

    def initReadline(self) -> None:  # noqa: N802 - Mininet's name
        """Line editing only."""
        if sys.stdin.isatty():
            import readline  # noqa: F401 - its import is what switches it on


def run(topology: Topology, arm: str, scenario: Any = None) -> None:
    """Brings up the fabric of `arm` inside this sandbox, gives the prompt, and takes the fabric down at its end.

    Rates, MTU and queues are those of `scenario`, if there is one.
    """
    from testbed.run.plan import SWITCHING_OF_ARM

    fabric = Fabric(topology, _settings(scenario), SWITCHING_OF_ARM[arm], sandbox.runtime_dir() / "shell", _options(scenario))
    setLogLevel("output")
    try:
        fabric.deploy()
        fabric.verify()
        link = next(found for found in topology.links.values() if found.tier != "NIC-T0")
        print(GREETING.format(last=topology.hosts[-1], a=link.a.node, b=link.b.node), file=sys.stderr)  # noqa: T201 - a prompt talks
        Prompt(fabric.net)
    finally:
        fabric.remove()


def _settings(scenario: Any) -> LinkSettings:
    if scenario is None:
        return LinkSettings(rate_bps=DEFAULT_RATE_BPS)
    return LinkSettings(rate_bps=scenario.links.rate_bps, mtu_bytes=scenario.links.mtu_bytes, queue_bytes=scenario.queue_bytes)


def _options(scenario: Any) -> dict[str, Any]:
    if scenario is None or not scenario.bgp:
        return {}
    from testbed.routing.options import BgpOptions

    return {"bgp": BgpOptions(**dict(scenario.bgp))}
