"""Daemons of switches and the controller of all: one that ends unasked is an error with its name, and no fault may hide it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.controller.config import Config
from testbed.errors import HostError
from testbed.fabric import controller, ovs_routed
from testbed.fabric.controller import ControllerProcess
from testbed.fabric.ovs import OvsSwitch, Place
from testbed.fabric.switching import OvsSwitching, RoutedSwitching
from testbed.routing.daemons import Daemon
from testbed.routing.frr import Router, Routers
from testbed.routing.options import BgpOptions
from topologies import build, usid

PLANE = build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1)
NODE = "t1_1_1"
Process = subprocess.Popen[bytes]


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    """Two that live until the test is over."""
    made = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]
    yield made
    for process in made:
        process.kill()
        process.communicate()


def dead(process: Process) -> None:
    process.kill()
    process.wait()


@pytest.fixture
def ovs(tmp_path: Path, processes: list[Process]) -> OvsSwitching:
    """One switch with those two as its daemons."""
    switching = OvsSwitching(PLANE, tmp_path, {})
    switching._switches[NODE] = switch = OvsSwitch(PLANE, NODE, 1, Place(tmp_path, tmp_path, "netdev"), usid.rules(PLANE, NODE))
    switch._daemons = list(processes)
    return switching


@pytest.fixture
def frr(tmp_path: Path, processes: list[Process]) -> RoutedSwitching:
    """One router with those two as its daemons."""
    switching = RoutedSwitching(PLANE, tmp_path, {})
    router = Router.__new__(Router)
    names = ("zebra", "bgpd")
    router.daemons = {name: Daemon(name, NODE, tmp_path, (), process) for name, process in zip(names, processes, strict=True)}
    switching._routers = Routers(PLANE, lambda _: 1, tmp_path, BgpOptions())
    switching._routers._routers[NODE] = router
    return switching


ADMIN = SimpleNamespace(power_off=lambda _: (0.0, 0.0))


def test_while_all_live_nothing_is_wrong(ovs: OvsSwitching, frr: RoutedSwitching) -> None:
    ovs.require_alive()
    frr.require_alive()


@pytest.mark.parametrize(("number", "name"), [(0, "ovsdb-server"), (1, "ovs-vswitchd")])
def test_a_daemon_of_open_vswitch_that_ended_is_named(ovs: OvsSwitching, processes: list[Process], number: int, name: str) -> None:
    dead(processes[number])
    with pytest.raises(HostError, match=rf"switch {NODE}: {name} ended by itself \(status -9\); its logs say"):
        ovs.require_alive()


@pytest.mark.parametrize(("number", "name"), [(0, "zebra"), (1, "bgpd")])
def test_a_daemon_of_frr_that_ended_is_named(frr: RoutedSwitching, processes: list[Process], number: int, name: str) -> None:
    dead(processes[number])
    with pytest.raises(HostError, match=rf"{NODE}: {name} is not running \(status -9\)"):
        frr.require_alive()


@pytest.mark.parametrize("orderly", [True, False])
def test_a_death_of_its_own_does_not_pass_for_a_fault_of_the_switch(
    ovs: OvsSwitching, frr: RoutedSwitching, processes: list[Process], orderly: bool
) -> None:
    dead(processes[0])
    for switching in (ovs, frr):
        with pytest.raises(HostError, match=NODE):
            switching.stop(NODE, orderly, ADMIN)  # type: ignore[arg-type]


def test_a_stopped_router_needs_no_daemons(frr: RoutedSwitching, processes: list[Process]) -> None:
    dead(processes[0])
    frr.routers._stopped.add(NODE)
    frr.require_alive()


def test_a_stopped_switch_needs_no_daemons(ovs: OvsSwitching) -> None:
    ovs.stop(NODE, False, ADMIN)  # type: ignore[arg-type]
    ovs.require_alive()


def test_a_death_of_its_own_does_not_pass_for_the_kill_of_the_controller(tmp_path: Path, processes: list[Process]) -> None:
    switching = ovs_routed.OvsBgpSwitching(PLANE, tmp_path, {})
    switching._controller._process = processes[0]
    dead(processes[0])
    with pytest.raises(HostError, match=r"the controller ended by itself \(status -9\)"):
        switching.set_controller(False)


def test_half_a_line_of_a_killed_controller_costs_its_successor_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ControllerProcess(tmp_path, Config("fat-tree", {"k": 4}, {}, 1, "", "", ()))

    def writing(*_: object, **__: object) -> None:
        with (tmp_path / "events.jsonl").open("a") as history:
            history.write(json.dumps({"t": 2.0}) + "\n")

    monkeypatch.setattr(controller.subprocess, "Popen", writing)
    found.launch([])
    with (tmp_path / "events.jsonl").open("a") as history:
        history.write('{"t": 2.5, "event": "f')
    found.launch([])
    assert found.events() == [{"t": 2.0}, {"t": 2.0}]
