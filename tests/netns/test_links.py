"""Links as set up in the kernel: what is asked is there, what is not there is noticed, and faults compose.

One small fabric tells its story once; each test says one thing about it.
"""

from __future__ import annotations

from typing import Any

import pytest
from fabric_lab import ask

from testbed.errors import UsageError
from testbed.fabric.links import shaping_batch, veth_batch
from testbed.link_settings import LinkSettings
from topologies import build

SETTINGS = LinkSettings(rate_bps=8_000_000, mtu_bytes=4352, queue_bytes=100_000)


def tell() -> dict[str, Any]:
    """Brings up 2 hosts on 2 T0s, sends raw frames over the first host link, breaks things, and says what was seen."""
    import contextlib
    import itertools
    import socket
    import subprocess
    import time
    from pathlib import Path

    from testbed.errors import HostError
    from testbed.fabric import Fabric, LinkSettings
    from testbed.fabric.links import ifindex
    from testbed.fabric.namespaces import entered
    from topologies import build

    topology = build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1)
    settings = LinkSettings(rate_bps=1_000_000, mtu_bytes=4352, queue_bytes=100_000)
    fabric = Fabric(topology, settings, "ovs", Path("/run/testbed/x"), {"datapath": "netdev"})
    fabric.deploy()
    fabric.verify()
    link = topology.links_of("h1")[0]
    fabric_link = next(found for found in topology.links.values() if found.tier == "T0-T1")

    def opened(node: str, ifname: str) -> socket.socket:
        with entered(fabric.pid(node)):
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x86DD))
            raw.bind((ifname, 0x86DD))
        raw.settimeout(20)
        return raw

    sender, receiver = opened("h1", link.a.ifname), opened(link.b.node, link.b.ifname)
    sender.setsockopt(socket.SOL_SOCKET, 32, 1 << 23)  # SO_SNDBUFFORCE: only the link queue may hold packets back
    receiver.setsockopt(socket.SOL_SOCKET, 33, 1 << 23)  # SO_RCVBUFFORCE

    def frame(dscp: int, number: int, payload: int = 3900) -> bytes:
        first = (6 << 28 | dscp << 22).to_bytes(4, "big")
        header = first + (payload + 1).to_bytes(2, "big") + bytes([59, 64]) + bytes.fromhex("fd00" + "00" * 13 + "09") * 2
        return bytes(12) + bytes.fromhex("86dd") + header + bytes([number]) + bytes(payload)

    def received(count: int) -> list[int]:
        frames = (receiver.recv(9000) for _ in iter(int, 1))
        ours = (frame[54] for frame in frames if frame[20] == 59)  # the host's kernel talks too
        return list(itertools.islice(ours, count))

    row = fabric.link_counters()[2 * link.index]
    story: dict[str, Any] = {}

    for number in range(20):  # 78 kB: more than the burst, less than the queue
        sender.send(frame(0, number))
    sender.send(frame(46, 200, 100))
    sender.send(frame(48, 201, 100))
    sender.send(frame(12, 202, 100))
    order = received(23)
    story["control_places"] = [order.index(number) for number in (200, 201, 202)]
    story["data_order"] = [number for number in order if number < 200]
    story["counted"] = [int(row["tx_packets"]), int(row["tx_bytes"]) >= 20 * 3900]

    for number in range(60):  # 234 kB into a queue of 100 kB
        with contextlib.suppress(OSError):  # a packet socket is told of a full queue (ENOBUFS)
            sender.send(frame(0, number))
    key = (link.name, "h1")
    drops = fabric.qdisc_drops()
    story["overflow"] = {
        "dropped": drops[key],
        "others": sum(drops.values()) - drops[key],
        "all": drops[key] + len(received(60 - drops[key])),
    }
    story["queue_drops_are_no_faults"] = int(row["dropped_packets"])

    before = time.monotonic_ns()
    issued, effective = fabric.set_silent(link.name, True)
    for number in range(5):
        sender.send(frame(0, number))
    first, last = int(row["first_drop_ns"]), int(row["last_drop_ns"])
    story["silent"] = {
        "dropped": int(row["dropped_packets"]),
        "times_fit": before <= first <= last <= time.monotonic_ns() and round(effective * 1e9) - 1000 <= first and issued <= effective,
        "other_links": int(fabric.link_counters()["dropped_packets"].sum()) - int(row["dropped_packets"]),
    }
    story["silent"]["carrier"] = fabric._kernels["h1"].interface(ifindex(link, True)).has_carrier
    fabric.set_silent(link.name, True)
    fabric.set_silent(link.name, False)
    story["silent_twice_healed_once"] = [
        int(value) for value in fabric.link_counters()["drop_all"][[2 * link.index, 2 * link.index + 1]] > 0
    ]
    fabric.set_silent(link.name, False)
    sender.send(frame(0, 77))
    story["healed"] = received(1)

    def carriers(found: Any) -> list[bool]:
        ends = ((found.a, True), (found.b, False))
        return [fabric._kernels[end.node].interface(ifindex(found, at_a)).has_carrier for end, at_a in ends]

    issued, effective = fabric.set_carrier(fabric_link.name, False)
    story["cut"] = carriers(fabric_link)
    story["cut_ordered"] = issued <= effective
    fabric.set_carrier(fabric_link.name, False)
    fabric.set_carrier(fabric_link.name, True)
    story["cut_twice_mended_once"] = carriers(fabric_link)
    t0 = fabric_link.a.node
    fabric.stop_switch(t0, orderly=False)
    story["stopped"] = {found.name: carriers(found) for found in topology.links_of(t0)}
    fabric.boot_switch(t0)
    story["booted_with_a_cut"] = {found.tier: carriers(found) for found in topology.links_of(t0)}
    fabric.set_carrier(fabric_link.name, True)
    story["mended"] = carriers(fabric_link)
    fabric.set_carrier(fabric_link.name, True)
    story["mended_without_a_cut"] = carriers(fabric_link)
    fabric.verify()

    def noticed(node: str, break_it: str, mend_it: str) -> str:
        subprocess.run(["nsenter", f"--net=/proc/{fabric.pid(node)}/ns/net", "sh", "-ec", break_it], check=True)
        try:
            fabric.verify()
            return ""
        except HostError as error:
            return str(error)
        finally:
            subprocess.run(["nsenter", f"--net=/proc/{fabric.pid(node)}/ns/net", "sh", "-ec", mend_it], check=True)

    port = link.a.ifname
    change = f"tc class change dev {port} parent 1:1 classid 1:20 htb rate 8000bit ceil %s burst 4366 cburst 8732 quantum 4366 prio 1"
    story["rate"] = noticed("h1", change % "2mbit", change % "1mbit")
    limit = f"tc qdisc change dev {port} parent 1:20 handle 20: bfifo limit %d"
    story["queue"] = noticed("h1", limit % 5000, limit % 100_000)
    story["mtu"] = noticed("h1", f"ip link set {port} mtu 1500", f"ip link set {port} mtu 4352")
    story["offload"] = noticed("h1", f"ethtool -K {port} tx on", f"ethtool -K {port} tx off")
    story["program"] = noticed("h1", f"tc filter del dev {port} egress", "true")
    fabric.remove()
    story["rows_after_removal"] = len(fabric.link_counters())
    story["pins_after_removal"] = [str(path) for path in Path("/sys/fs/bpf").rglob("testbed*") if path.is_file()]
    return story


@pytest.fixture(scope="module")
def story() -> dict[str, Any]:
    answer: dict[str, Any] = ask(tell)
    return answer


netns = pytest.mark.netns


@netns
def test_control_overtakes_queued_data(story: dict[str, Any]) -> None:
    assert max(story["control_places"]) < 10


@netns
def test_data_stays_in_order(story: dict[str, Any]) -> None:
    assert story["data_order"] == list(range(20))


@netns
def test_packets_and_bytes_are_counted_in_the_links_row(story: dict[str, Any]) -> None:
    packets, bytes_plausible = story["counted"]
    assert packets >= 23
    assert bytes_plausible


@netns
def test_a_full_queue_drops_and_every_packet_is_accounted_for(story: dict[str, Any]) -> None:
    assert story["overflow"]["dropped"] > 0
    assert story["overflow"]["all"] == 60


@netns
def test_queue_drops_belong_to_their_link(story: dict[str, Any]) -> None:
    assert story["overflow"]["others"] == 0


@netns
def test_queue_drops_are_not_counted_as_faults(story: dict[str, Any]) -> None:
    assert story["queue_drops_are_no_faults"] == 0


@netns
def test_a_silent_link_drops_and_counts_and_the_sender_gets_no_error(story: dict[str, Any]) -> None:
    assert story["silent"]["dropped"] == 5


@netns
def test_a_silent_link_keeps_its_carrier(story: dict[str, Any]) -> None:
    assert story["silent"]["carrier"] is True


@netns
def test_the_first_silent_drop_has_a_monotonic_time_after_the_effective_one(story: dict[str, Any]) -> None:
    assert story["silent"]["times_fit"] is True


@netns
def test_a_silent_link_leaves_other_links_alone(story: dict[str, Any]) -> None:
    assert story["silent"]["other_links"] == 0


@netns
def test_two_silent_faults_need_two_ends(story: dict[str, Any]) -> None:
    assert story["silent_twice_healed_once"] == [1, 1]


@netns
def test_a_healed_link_delivers(story: dict[str, Any]) -> None:
    assert story["healed"] == [77]


@netns
def test_a_cut_takes_the_carrier_from_both_ends(story: dict[str, Any]) -> None:
    assert story["cut"] == [False, False]


@netns
def test_a_cut_is_effective_after_it_was_issued(story: dict[str, Any]) -> None:
    assert story["cut_ordered"] is True


@netns
def test_two_cuts_need_two_mends(story: dict[str, Any]) -> None:
    assert story["cut_twice_mended_once"] == [False, False]


@netns
def test_a_stopped_switch_has_no_carrier_anywhere(story: dict[str, Any]) -> None:
    assert not any(carrier for ends in story["stopped"].values() for carrier in ends)


@netns
def test_a_booted_switch_gets_its_healthy_links_back(story: dict[str, Any]) -> None:
    assert story["booted_with_a_cut"]["NIC-T0"] == [True, True]


@netns
def test_a_booted_switch_does_not_mend_a_cut_fibre(story: dict[str, Any]) -> None:
    assert story["booted_with_a_cut"]["T0-T1"] == [False, False]


@netns
def test_the_last_mend_brings_the_carrier_back(story: dict[str, Any]) -> None:
    assert story["mended"] == [True, True]


@netns
def test_a_mend_without_a_cut_changes_nothing(story: dict[str, Any]) -> None:
    assert story["mended_without_a_cut"] == [True, True]


@netns
@pytest.mark.parametrize(
    ("what", "words"),
    [("rate", "class 1:20"), ("queue", "queue 20:"), ("mtu", "MTU is 1500"), ("offload", "tx-checksum"), ("program", "program")],
)
def test_verification_notices_and_names_the_port(story: dict[str, Any], what: str, words: str) -> None:
    assert words in story[what]
    assert "h1-eth0" in story[what]


@netns
def test_removal_leaves_no_pin_and_no_view_of_the_map(story: dict[str, Any]) -> None:
    assert story["rows_after_removal"] == 0
    assert story["pins_after_removal"] == []


def test_all_links_are_one_batch_with_indexes_of_their_own() -> None:
    topology = build("fat-tree", k=4)
    lines = veth_batch(topology.links.values(), lambda _node: 1, SETTINGS).splitlines()
    words = [line.split() for line in lines]
    indexes = [line[position + 1] for line in words for position, word in enumerate(line) if word == "index"]
    assert len(lines) == len(topology.links)
    assert len(set(indexes)) == 2 * len(lines)


def test_control_may_use_the_whole_rate_and_data_the_rest() -> None:
    text = shaping_batch("x", 5, SETTINGS)
    assert "classid 1:10 htb rate 8000000bit ceil 8000000bit" in text
    assert "classid 1:20 htb rate 8000bit ceil 8000000bit" in text


def test_the_row_is_given_to_tc_in_hexadecimal() -> None:
    assert "classid 1:1f" in shaping_batch("x", 31, SETTINGS).splitlines()[-1]


@pytest.mark.parametrize(("rate_bps", "burst"), [(1_000_000, 2 * 4366), (1_000_000_000, 125_000)])
def test_burst_is_two_frames_or_a_millisecond(rate_bps: int, burst: int) -> None:
    assert LinkSettings(rate_bps=rate_bps).burst_bytes == burst


@pytest.mark.parametrize("wrong", [{"rate_bps": 10}, {"rate_bps": 10**7, "mtu_bytes": 1000}, {"rate_bps": 10**7, "queue_bytes": 100}])
def test_impossible_settings_are_refused_with_the_value(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=str(list(wrong.values())[-1])):
        LinkSettings(**wrong)
