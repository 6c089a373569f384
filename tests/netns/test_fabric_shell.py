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
link h1 t1_1_1 down
pingall
exit
"""


@pytest.fixture(scope="module", params=["mrc", "rc-bgp"])
def said(request: pytest.FixtureRequest) -> str:
    argv = [sys.executable, "-m", "testbed", "shell", *SMALL, "--arm", request.param]
    typed = TYPED if request.param == "mrc" else "h1 ping -c 1 -W 5 h2\npingall\nexit\n"
    done = subprocess.run(argv, cwd=REPO_ROOT, input=typed, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return request.param + "\n" + done.stdout + done.stderr


def test_hosts_answer_unless_the_link_or_switch_between_them_is_down(said: str) -> None:
    answers = [line.split(" received")[0][-1] for line in said.splitlines() if "packets transmitted" in line]
    assert answers == (["1", "0", "1", "0", "1"] if said.startswith("mrc") else ["1"])


def test_pingall_reaches_everybody(said: str) -> None:
    assert "0% dropped (2/2 received)" in said


def test_a_link_that_is_not_there_is_named(said: str) -> None:
    if said.startswith("mrc"):
        assert "no link between h1 and t1_1_1" in said


def test_no_history_file_is_written(said: str) -> None:
    del said
    assert not (Path.home() / ".mininet_history").exists()
