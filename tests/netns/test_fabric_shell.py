"""`testbed shell`: Mininet's prompt on our fabric, typed at as a user would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fabric_lab import REPO_ROOT

pytestmark = pytest.mark.netns
SMALL = ["multi-plane", "--param", "planes=1", "--param", "t0s=2", "--param", "t1s=1", "--param", "hosts_per_t0=1"]
TYPED = """h1 ping -c 1 -W 5 h2
link t0_1_1 t1_1_1 down
link t0_1_1 t1_1_1 down
h1 ping -c 1 -W 1 h2
link t0_1_1 t1_1_1 up
h1 ping -c 1 -W 5 h2
switch t1_1_1 stop
h1 ping -c 1 -W 1 h2
switch t1_1_1 start
h1 ping -c 1 -W 5 h2
silent t0_1_1 t1_1_1 on
silent t0_1_1 t1_1_1 on
h1 ping -c 1 -W 1 h2
silent t0_1_1 t1_1_1 off
oneway t0_1_1 t1_1_1 on
h1 ping -c 1 -W 1 h2
oneway t0_1_1 t1_1_1 off
remote t1_1_1 t0_1_1 on
remote t1_1_1 t0_1_1 on
h1 ping -c 1 -W 1 h2
remote t1_1_1 t0_1_1 off
port h1-eth0 down
h2 ping -c 1 -W 1 h1
port h1-eth0 up
hang t1_1_1 on
h1 ping -c 1 -W 1 h2
hang t1_1_1 off
loss t0_1_1 t1_1_1 50%
loss t0_1_1 t1_1_1 100%
h1 ping -c 1 -W 1 h2
loss t0_1_1 t1_1_1 off
rate t0_1_1 t1_1_1 1Mbps
h1 ping -c 1 -W 5 h2
rate t0_1_1 t1_1_1 off
h1 ping -c 1 -W 5 h2
rate t0_1_1 t1_1_1 10
loss t0_1_1 t1_1_1 5
port h1-eth7 down
port h1-eth0
hang h1 on
controller down
oneway t0_1_1 t1_1_1
link h1 t1_1_1 down
silent t0_1_1 h2 on
ask t0_1_1 dump-flows
dpctl dump-flows
iperf
pingall
exit
"""
TYPED_ROUTED = """h1 ping -c 1 -W 5 h2
ask t0_1_1 show bgp summary
ask t0_1_1 dump-flows
pingall
exit
"""

TYPED_CONTROLLER = """h1 ping -c 1 -W 5 h2
controller down
controller down
link t0_1_1 t1_1_1 down
link t0_1_1 t1_1_1 up
h1 ping -c 1 -W 5 h2
controller up
h1 ping -c 1 -W 5 h2
ask t0_1_1 dump-flows
controller sideways
exit
"""


def test_the_prompt_kills_the_controller_and_its_tables_stay() -> None:
    argv = [sys.executable, "-m", "testbed", "shell", *SMALL, "--arm", "rc-bgp-ovs"]
    done = subprocess.run(argv, cwd=REPO_ROOT, input=TYPED_CONTROLLER, capture_output=True, text=True, timeout=120, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert [line.split(" received")[0][-1] for line in said.splitlines() if "packets transmitted" in line] == ["1", "1", "1"]
    assert "ipv6_dst=fd00:0:0:8002::1" in said
    assert said.count("error: ") == 1
    assert "usage: controller down|up" in said


@pytest.fixture(scope="module", params=["mrc", "rc-bgp"])
def said(request: pytest.FixtureRequest) -> str:
    argv = [sys.executable, "-m", "testbed", "shell", *SMALL, "--arm", request.param]
    typed = TYPED if request.param == "mrc" else TYPED_ROUTED
    done = subprocess.run(argv, cwd=REPO_ROOT, input=typed, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return request.param + "\n" + done.stdout + done.stderr


def test_hosts_answer_unless_the_link_or_switch_between_them_is_down(said: str) -> None:
    answers = [line.split(" received")[0][-1] for line in said.splitlines() if "packets transmitted" in line]
    assert "".join(answers) == ("101010" + "00000" + "11" if said.startswith("mrc") else "1")


def test_pingall_reaches_everybody(said: str) -> None:
    assert "0% dropped (2/2 received)" in said


def test_a_link_that_is_not_there_is_named(said: str) -> None:
    if said.startswith("mrc"):
        assert "no link between h1 and t1_1_1" in said


def test_a_switch_can_be_asked(said: str) -> None:
    assert ("ipv6_dst=fcbb:bb00:1001::/48" if said.startswith("mrc") else "local AS number 4200200001") in said


def test_a_command_that_fails_says_so_and_the_prompt_goes_on(said: str) -> None:
    expected = "there is no link 't0_1_1-h2'" if said.startswith("mrc") else "Unknown command: dump-flows"
    assert expected in said.partition("error: ")[2]
    assert "Results: " in said


@pytest.mark.parametrize(
    "error",
    [
        "a bare number has no unit: '10'",
        "5.0 is not between 0 and 1",
        "no NIC port 'h1-eth7'",
        "usage: port",
        "this fabric has no controller",
        "h1 is a host",
        "usage: oneway node1 node2 on|off",
    ],
)
def test_a_fault_that_cannot_be_is_refused_and_says_why(said: str, error: str) -> None:
    if said.startswith("mrc"):
        assert error in said


def test_what_mininet_does_otherwise_is_explained(said: str) -> None:
    if said.startswith("mrc"):
        assert "there is one switch to a command here: `ask t0_1_1 dump-flows`" in said
        assert "h2 iperf3 -s -D -1" in said


def test_no_history_file_is_written(said: str) -> None:
    del said
    assert not (Path.home() / ".mininet_history").exists()
