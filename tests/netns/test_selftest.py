"""The self-test says good about a good fabric, and finds a link that is not as asked."""

from __future__ import annotations

from typing import Any

import pytest
from fabric_lab import ask

pytestmark = pytest.mark.fabric


def tell() -> dict[str, Any]:
    """The self-test on a good fabric, and single checks on links spoilt one way each."""
    import subprocess
    from dataclasses import asdict
    from pathlib import Path

    from testbed.fabric import Fabric, LinkSettings, link_parameters, selftest
    from topologies import build

    topology = build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1)
    settings = LinkSettings(selftest.RATE_BPS, ecn=True, trimming=True, base_rtt_s=selftest.BASE_RTT_S)
    fabric = Fabric(topology, settings, "ovs", Path("/run/testbed/s"))
    fabric.deploy()
    fabric.verify()
    link = topology.links_of("h1")[0]
    row = fabric.link_counters()[2 * link.index]
    before = link_parameters.read(row)
    said: dict[str, Any] = {"good": [asdict(check) for check in selftest.check_fabric(fabric)]}
    said["parameters_put_back"] = link_parameters.read(row) == before
    said["verified_after"] = fabric.verify() is None

    def tc(*words: str) -> None:
        subprocess.run(["nsenter", f"--net=/proc/{fabric.pid('h1')}/ns/net", "tc", *words], check=True)

    device = ("dev", link.a.ifname)
    said["bad"] = {}
    tc("class", "change", *device, "parent", "1:", "classid", "1:1", "htb", "rate", "40mbit", "burst", "9kb", "cburst", "9kb")
    said["bad"]["rate"] = asdict(selftest.check_rate(fabric, link))
    tc("class", "change", *device, "parent", "1:", "classid", "1:1", "htb", "rate", "50mbit", "burst", "9kb", "cburst", "9kb")
    tc("filter", "del", *device, "parent", "1:")
    with selftest.Wire(fabric, link) as wire:
        said["bad"]["priority"] = asdict(selftest.check_priority(wire, rounds=2))
    tc("filter", "del", *device, "egress")
    with selftest.Wire(fabric, link) as wire:
        wire.receive = lambda count, receive=wire.receive: receive(min(count, 40))
        said["bad"]["trimming"] = asdict(selftest.check_trimming(wire))
    fabric.remove()
    return said


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    answer: dict[str, Any] = ask(tell)
    return answer


def test_checks_cover_rate_trimming_marking_loss_and_priority(said: dict[str, Any]) -> None:
    names = [check["name"].split(" of ")[0] for check in said["good"]]
    assert names == ["rate", "rate", "trimming", "marked share", "lost share", "control under load"]


# The rate is not among these: it depends on how busy this machine is.
@pytest.mark.parametrize("name", ["trimming", "marked share", "lost share", "control under load"])
def test_a_good_link_passes(said: dict[str, Any], name: str) -> None:
    (check,) = (check for check in said["good"] if check["name"] == name)
    assert check["good"], check


def test_the_parameters_of_the_link_are_put_back(said: dict[str, Any]) -> None:
    assert said["parameters_put_back"] is True


def test_the_fabric_is_as_set_up_after_the_self_test(said: dict[str, Any]) -> None:
    assert said["verified_after"] is True


@pytest.mark.parametrize("kind", ["rate", "priority", "trimming"])
def test_a_bad_link_fails(said: dict[str, Any], kind: str) -> None:
    assert said["bad"][kind]["good"] is False
