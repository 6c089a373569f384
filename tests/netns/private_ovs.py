"""Runs a shell script as root in namespaces of its own, where an Open vSwitch of its own is up. All of it dies with the script."""

import os
import subprocess

NAMESPACES = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-euc"]

START = """
mount -t tmpfs none /run
mkdir -p /run/openvswitch
ip link set lo up
ovsdb-tool create /run/conf.db
ovsdb-server /run/conf.db --remote=punix:/run/openvswitch/db.sock --pidfile --detach --log-file=/run/db.log
ovs-vsctl --no-wait init
ovs-vswitchd --pidfile --detach --log-file=/run/vswitchd.log
"""


def run_with_open_vswitch(script: str, **environment: str) -> str:
    """What `script` printed; fails the test with everything it said if it ended badly."""
    done = subprocess.run(
        [*NAMESPACES, START + script],
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
