"""`mn --custom topologies/... --topo ...` brings up our fabrics, by the real `mn` command."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from private_ovs import run_with_open_vswitch

import topologies
from topologies import addresses

pytestmark = pytest.mark.netns

REPO = Path(topologies.__file__).parents[1]


def mn_program():
    """The `mn` of this Python's environment, or the distribution's."""
    beside = Path(sys.executable).with_name("mn")
    found = str(beside) if beside.exists() else shutil.which("mn")
    assert found, "no mn command: pip install mininet"
    return f"{shlex.quote(sys.executable)} {shlex.quote(found)}"


def mn(tmp_path, topo, *cli_lines):
    """What Mininet prints for some lines of its command line, with the fabric up on userspace Open vSwitch."""
    commands = tmp_path / "commands"
    commands.write_text("\n".join([*cli_lines, "exit"]) + "\n")
    kind = topo.partition(",")[0].replace("-", "_")
    options = f"--custom topologies/{kind}.py --topo {topo} --switch ovsbr,datapath=user --controller none --test none"
    run = f"cd {shlex.quote(str(REPO))}; {mn_program()} {options} --post {shlex.quote(str(commands))}"
    # An mn that fails deletes every log in /tmp, whoever wrote it: it gets a /tmp that it cannot write.
    script = f"unshare --mount bash -euc {shlex.quote(f'mount --bind /tmp /tmp; mount -o remount,bind,ro /tmp; {run}')}"
    return run_with_open_vswitch(script, PYTHONPATH=str(REPO))


def cables_printed(output):
    """The pairs of interfaces in the lines of `net`, each pair once."""
    return {frozenset(pair) for pair in re.findall(r"([a-z]\w*-eth\d+):([a-z]\w*-eth\d+)", output)}


FABRICS = [
    ("fat-tree,4", {"k": 4}),
    ("fat-tree,k=2,oversubscription=2", {"k": 2, "oversubscription": 2}),
    ("multi-plane,2,2,2,2", {"planes": 2, "t0s": 2, "t1s": 2, "hosts_per_t0": 2}),
]


@pytest.mark.parametrize(("topo", "params"), FABRICS)
def test_mn_has_our_nodes_and_cables(tmp_path, topo, params):
    expected = topologies.build(topo.partition(",")[0], **params)
    output = mn(tmp_path, topo, "net")
    assert cables_printed(output) == {frozenset((link.a.ifname, link.b.ifname)) for link in expected.links.values()}
    assert set(re.findall(r"^(\w+) (?:lo:|\w+-eth)", output, re.MULTILINE)) == set(expected.nodes)


def test_open_vswitch_numbers_the_ports_as_we_do(tmp_path):
    expected = topologies.build("multi-plane", planes=2, t0s=2, t1s=2, hosts_per_t0=2)
    output = mn(tmp_path, "multi-plane,2,2,2,2", "sh ovs-vsctl --format=csv --columns=name,ofport list interface")
    found = {name: int(port) for name, port in re.findall(r"^\"?(t\w+-eth\d+)\"?,(\d+)", output, re.MULTILINE)}
    ends = [end for link in expected.links.values() for end in (link.a, link.b)]
    assert found == {end.ifname: end.port for end in ends if not end.node.startswith("h")}


def test_interfaces_bear_our_macs(tmp_path):
    expected = topologies.build("multi-plane", planes=2, t0s=2, t1s=2, hosts_per_t0=2)
    output = mn(tmp_path, "multi-plane,2,2,2,2", "h3 ip -color=never -brief link show type veth")
    found = set(re.findall(r"^(h3-eth\d)\S*\s+\S+\s+(\S+)", output, re.MULTILINE))
    assert found == {(link.a.ifname, addresses.mac(link.a)) for link in expected.links_of("h3")}


def test_switches_have_datapath_ids_of_their_own(tmp_path):
    output = mn(tmp_path, "fat-tree,4", "sh ovs-vsctl --format=csv --columns=datapath_id list bridge")
    dpids = re.findall(r"\b[0-9a-f]{16}\b", output)
    assert sorted(int(dpid, 16) for dpid in dpids) == sorted(
        node.usid for node in topologies.build("fat-tree", k=4).nodes.values() if node.kind == "switch"
    )
