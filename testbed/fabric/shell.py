"""The Mininet prompt on a fabric: `h1 ping h16`, `pingall`, `link t0_1_1 t1_1_1 down`, `silent t0_1_1 t1_1_1 on`, `switch t1_1_1 stop`."""

from __future__ import annotations

import sys
from typing import Any

from mininet.cli import CLI
from mininet.log import error, output, setLogLevel

from testbed import sandbox
from testbed.errors import TestbedError, UsageError
from testbed.fabric.fabric import Fabric
from testbed.link_settings import LinkSettings
from testbed.scenario.derived_links import SWITCHING_OF_ARM
from testbed.units import parse_rate, parse_share
from topologies import Topology

DEFAULT_RATE_BPS = 20_000_000
_GREETING = """The fabric is up. Everything ends with this prompt. Try help, nodes, net, and
  h1 ping -c 3 {last}
      {ping}
  link {a} {b} down
      cuts that fibre, `up` mends it; `silent {a} {b} on` loses its packets while the carrier stays;
      `oneway`, `remote`, `loss`, `rate`, `port`, `hang`: `help <command>` says how
  switch {b} stop
      pulls its plug, `start` boots it; `ask {b} {question}` asks it
"""
_STATIC_PING = "goes on one path, the first of the pair, whatever fails: only MRC's agents (`testbed run`) use all"
_ECMP_PING = "goes on one of the equal paths, by its hash, whatever fails: these tables never change"
_ROUTED_PING = "goes where BGP leads it"
_NO_IPERF = "start both ends yourself: `{last} iperf3 -s -D -1`, then `h1 iperf3 -c {last}`\n"
_NO_DPCTL = "there is one switch to a command here: `ask {a} {question}`\n"


class Prompt(CLI):  # type: ignore[misc]  # Mininet has no types
    """Mininet's prompt on a fabric, with faults and `ask`; a command that fails says so and the prompt goes on."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.words = _words(fabric)
        super().__init__(fabric.net)

    def initReadline(self) -> None:  # noqa: N802 - Mininet's name
        """Line editing only, without a history file in the home directory: a sandbox leaves nothing behind."""
        if sys.stdin.isatty():
            import readline  # noqa: F401 - its import is what switches it on

    def onecmd(self, line: str) -> Any:
        """One line of input."""
        try:
            return super().onecmd(line)
        except TestbedError as failure:
            error(f"error: {failure}\n")
            return None

    def do_silent(self, line: str) -> None:
        """Lose all packets between two nodes, both ways, while the carrier stays up. Usage: silent node1 node2 on|off"""
        link, on = self._link_and_state(line, "silent")
        self.fabric.prompt.set_silent(link, on == "on")

    def do_oneway(self, line: str) -> None:
        """Lose what the first node sends to the second; the other way works. Usage: oneway node1 node2 on|off"""
        link, on = self._link_and_state(line, "oneway")
        self.fabric.prompt.set_one_way(link, line.split()[0], on == "on")

    def do_remote(self, line: str) -> None:
        """Cut a link so that only the first node knows. Usage: remote node1 node2 on|off"""
        link, on = self._link_and_state(line, "remote")
        self.fabric.prompt.set_remote(link, line.split()[0], on == "on")

    def do_loss(self, line: str) -> None:
        """Lose a share of all packets between two nodes by chance, both ways. Usage: loss node1 node2 5%|off"""
        link, share = self._link_and_state(line, "loss", None)
        self.fabric.prompt.set_loss(link, 0.0 if share == "off" else parse_share(_number_or_text(share)))

    def do_rate(self, line: str) -> None:
        """Give a link another rate, both ways. Usage: rate node1 node2 1Mbps|off"""
        link, rate = self._link_and_state(line, "rate", None)
        self.fabric.prompt.set_rate(link, 0.0 if rate == "off" else parse_rate(rate))

    def do_port(self, line: str) -> None:
        """Set a NIC port of a host down or up. Usage: port h1-eth0 down|up"""
        port, state = self._arguments(line, "port", 2, ("down", "up"))
        self.fabric.prompt.set_port(port, state == "up")

    def do_hang(self, line: str) -> None:
        """Make a switch forward nothing while its links and sessions stay up. Usage: hang switch on|off"""
        switch, on = self._arguments(line, "hang", 2)
        self.fabric.prompt.set_hang(switch, on == "on")

    def do_controller(self, line: str) -> None:
        """Kill the controller of all switches, or start it again. Usage: controller down|up"""
        (state,) = self._arguments(line, "controller", 1, ("down", "up"))
        if not self.fabric.has_controller:
            raise UsageError("this fabric has no controller: only that of `--arm rc-bgp-ovs` has one")
        self.fabric.prompt.set_controller(state == "up")

    def _link_and_state(self, line: str, command: str, states: tuple[str, ...] | None = ("on", "off")) -> tuple[str, str]:
        """The link between the first two words and the third word, one of `states`."""
        a, b, state = self._arguments(line, command, 3, states)
        return self.fabric.topology.link(f"{a}-{b}").name, state

    def _arguments(self, line: str, command: str, count: int, states: tuple[str, ...] | None = ("on", "off")) -> list[str]:
        """So many words, the last one of `states`; else UsageError with what the command's own text says of its usage."""
        words = line.split()
        if len(words) != count or (states is not None and words[-1] not in states):
            raise UsageError(f"usage: {getattr(self, f'do_{command}').__doc__.partition('Usage: ')[2]}")
        return words

    def do_ask(self, line: str) -> None:
        """Ask one switch. Usage: ask switch dump-flows (ovs-ofctl), or with BGP: ask switch show bgp summary"""
        switch, _, command = line.partition(" ")
        if not command.strip():
            raise UsageError("usage: ask switch command; for instance: ask {a} {question}".format(**self.words))
        output(self.fabric.ask_switch(switch, command.strip()))

    def do_iperf(self, _line: str) -> None:
        """How to measure throughput here."""
        output(_NO_IPERF.format(**self.words))

    do_iperfudp = do_iperf

    def do_dpctl(self, _line: str) -> None:
        """What to use in its place."""
        output(_NO_DPCTL.format(**self.words))


def _number_or_text(word: str) -> float | str:
    """0.05 as a number, 5% as the text that it is."""
    try:
        return float(word)
    except ValueError:
        return word


def run(topology: Topology, arm: str, scenario: Any = None) -> None:
    """Brings up the fabric of `arm` inside this sandbox, gives the prompt, and takes the fabric down at its end.

    Rates, MTU and queues are those of `scenario`, if there is one.
    """
    fabric = Fabric(topology, _settings(scenario, arm), SWITCHING_OF_ARM[arm], sandbox.runtime_dir() / "shell", _options(scenario, arm))
    setLogLevel("output")
    with fabric.deployed():
        print(_GREETING.format(**_words(fabric)), end="", file=sys.stderr)  # noqa: T201 - a prompt talks
        Prompt(fabric)


def _words(fabric: Fabric) -> dict[str, str]:
    """Examples from this fabric for what the prompt says."""
    link = next(found for found in fabric.topology.links.values() if found.tier != "NIC-T0")
    ping = _STATIC_PING if fabric.source_routed else _ECMP_PING if fabric.static else _ROUTED_PING
    return {"a": link.a.node, "b": link.b.node, "last": fabric.topology.hosts[-1], "ping": ping, "question": fabric.question}


def _settings(scenario: Any, arm: str) -> LinkSettings:
    if scenario is None:
        return LinkSettings(rate_bps=DEFAULT_RATE_BPS)
    settings: LinkSettings = scenario.link_settings(arm)
    return settings


def _options(scenario: Any, arm: str) -> dict[str, Any]:
    if scenario is None:
        return {}
    from testbed.run.plan import fabric_options

    return fabric_options(scenario, arm)
