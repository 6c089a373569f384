"""The rules in a real Open vSwitch: accepted, read back unchanged, and executed as the model executes them."""

import json
import shlex
import sys
from ipaddress import IPv6Address

import pytest
from private_ovs import run_with_open_vswitch

import topologies
from topologies import usid

pytestmark = pytest.mark.netns

SWITCH = "t0_1_1"

BRIDGE = """
ovs-vsctl add-br s -- set bridge s datapath_type=netdev fail_mode=secure
for port in 1 2 3 4; do
    ip link add inner$port type veth peer name outer$port
    ip link set inner$port up
    ip link set outer$port up
    ovs-vsctl add-port s inner$port -- set interface inner$port ofport_request=$port
done
ovs-ofctl add-flows s {flows}
"""

SEND = """
import json, socket, sys
from ipaddress import IPv6Address

IPV6, OUR_PROTOCOL = 0x86DD, 41

def opened(port):
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(IPV6))
    raw.bind((f"outer{port}", IPV6))
    raw.settimeout(10)
    return raw

sockets = {port: opened(port) for port in (1, 2, 3, 4)}
source, results = IPv6Address("fd00::1").packed, []
for in_port, out_port, destination in json.loads(sys.argv[1]):
    packet = b"\\x60" + bytes(4) + b"\\x08" + bytes([OUR_PROTOCOL, 64]) + source + IPv6Address(destination).packed + b"contents"
    sockets[in_port].send(bytes.fromhex("020000000001020000000002") + IPV6.to_bytes(2, "big") + packet)
    while True:
        frame = sockets[out_port].recv(2000)
        if frame[20] == OUR_PROTOCOL and frame[6:12].hex() == "020000000002":
            break
    results.append([frame[:6].hex(":"), str(IPv6Address(frame[38:54])), frame[54:62].decode()])
print("RESULTS", json.dumps(results))
"""


@pytest.fixture(scope="module")
def rules():
    return usid.rules(topologies.build("fat-tree", k=4), SWITCH)


@pytest.fixture
def bridge(tmp_path, rules):
    """The script that makes a bridge of the switch with its flow file."""
    flows = tmp_path / "flows"
    flows.write_text(usid.flow_file(rules))
    return BRIDGE.format(flows=shlex.quote(str(flows)))


@pytest.mark.parametrize("version", ["OpenFlow10", "OpenFlow13", "OpenFlow14"])
@pytest.mark.parametrize("options", ["", "--no-stats"])
def test_what_is_read_back_is_what_was_put_in(bridge, rules, version, options):
    set_versions = "ovs-vsctl set bridge s protocols=OpenFlow10,OpenFlow13,OpenFlow14\n"
    dump = run_with_open_vswitch(f"{bridge}{set_versions}ovs-ofctl -O {version} --no-names {options} dump-flows s")
    assert usid.differences(rules, dump) == []


def test_a_flow_that_was_added_behind_our_back_is_seen(bridge, rules):
    dump = run_with_open_vswitch(f"{bridge}ovs-ofctl add-flow s priority=7,arp,actions=output:2\novs-ofctl --no-names dump-flows s")
    assert usid.differences(rules, dump) == ["unexpected: arp,priority=7,table=0 actions=output:2"]


CASES = [
    # in port, out port, destination, MAC afterwards, destination afterwards
    (3, 2, "fcbb:bb00:1001:8002::", "02:00:80:02:00:00", "fcbb:bb00:8002::"),
    (1, 4, "fcbb:bb00:1001:2002:3003:2008:1008:8010", "02:00:00:00:00:01", "fcbb:bb00:2002:3003:2008:1008:8010:0"),
    (1, 3, "fcbb:bb00:1001:2001:ffff:fffe:8001:1", "02:00:00:00:00:01", "fcbb:bb00:2001:ffff:fffe:8001:1:0"),
]


def test_a_packet_is_shifted_by_one_id_and_sent_to_the_neighbour(bridge):
    cases = shlex.quote(json.dumps([case[:3] for case in CASES]))
    output = run_with_open_vswitch(f"{bridge}{shlex.quote(sys.executable)} -c {shlex.quote(SEND)} {cases}")
    results = json.loads(output.partition("RESULTS ")[2])
    assert results == [[mac, str(IPv6Address(destination)), "contents"] for *_, mac, destination in CASES]


def test_a_packet_for_another_switch_is_dropped(bridge):
    packet = "in_port=3,ipv6,nw_proto=41,ipv6_dst=fcbb:bb00:1002:8003::"
    assert "Datapath actions: drop" in run_with_open_vswitch(f"{bridge}ovs-appctl ofproto/trace s {packet}")
