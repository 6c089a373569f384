"""What an agent costs and carries: two agents, a stream over one veth pair, and iperf3 beside it in the same namespaces.

    sudo python -m benchmarks.agent [--seconds 5] [--transports mrc,rc] [--link-mbps 50]

Prints one JSON object. `cpu_us_a_packet` is user + system time of both agents a data packet delivered; the target is under 60. Where the
kernel books interrupt time apart, the receiving side of the veth is not in it: `softirq_us_a_packet` is all softirq time of the machine in
the same span, an upper bound for what is missing. Without `--link-mbps` the veth has no rate limit: `packets_per_s` is what two processes
can do here. With it packets come one by one, each wakes a process with cold caches, and costs more: that is a run's usual case.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.agent_lab import Lab, lab

MESSAGE_BYTES = 64 * 1024
PAYLOAD_BYTES = 4096
TARGET_US = 60.0


def measure(transport: str, seconds: float, link_mbps: float) -> dict[str, Any]:
    """One transport: packets a second, CPU a packet, losses."""
    with lab(2) as net:
        if link_mbps:
            shape(net, link_mbps)
        net.connect(net.streams(transport, [{"from": "h1", "to": "h2"}], MESSAGE_BYTES))
        reference = iperf3(net, min(seconds, 3.0))  # before the stream, in the same minute
        softirq_before_s, begin = softirq_s(), net.start()
        time.sleep(max(0.0, begin + seconds - time.monotonic()))
        reports, softirq_used_s = net.stop(), softirq_s() - softirq_before_s
        result = _summary(reports["h1"], reports["h2"])
        packets = reports["h2"]["job"]["received_bytes"] / PAYLOAD_BYTES
        share = round(result["packets_per_s"] / reference["packets_per_s"], 3) if reference else None
        return {**result, "softirq_us_a_packet": round(softirq_used_s / packets * 1e6, 2), "iperf3": reference, "share_of_iperf3": share}


def shape(net: Lab, link_mbps: float) -> None:
    """Gives h1's side of the veth a rate, with a queue of 64 packets, as the fabric's links have."""
    commands = (
        "qdisc add dev h1-eth0 root handle 1: htb default 20",
        f"class add dev h1-eth0 parent 1: classid 1:20 htb rate {link_mbps}mbit",
        f"qdisc add dev h1-eth0 parent 1:20 handle 20: bfifo limit {64 * 4300}",
    )
    enter = ["nsenter", "-t", str(net.agents["h1"].pid), "--net", "tc", "-batch", "-"]
    subprocess.run(enter, input="\n".join(commands) + "\n", text=True, check=True)


def softirq_s() -> float:
    """Softirq time of all cores so far, in seconds (proc(5): the seventh number of the first line of /proc/stat)."""
    return int(Path("/proc/stat").read_text().split()[7]) / os.sysconf("SC_CLK_TCK")


def _summary(sender: dict[str, Any], receiver: dict[str, Any]) -> dict[str, Any]:
    packets = receiver["job"]["received_bytes"] / PAYLOAD_BYTES
    elapsed_s = sender["job"]["elapsed_s"]
    cost = {end: round(report["cpu_s"] / packets * 1e6, 2) for end, report in (("sender", sender), ("receiver", receiver))}
    return {
        "packets_per_s": round(packets / elapsed_s),
        "goodput_mbps": round(receiver["job"]["received_bytes"] * 8 / elapsed_s / 1e6, 1),
        "cpu_us_a_packet": round(sum(cost.values()), 2),
        "cpu_us_a_packet_by_end": cost,
        "within_target": sum(cost.values()) < TARGET_US,
        "retransmitted": sender.get("data_packets_retransmitted"),
        "socket_drops": sender["socket_drops"] + receiver["socket_drops"],
    }


def iperf3(net: Lab, seconds: float) -> dict[str, Any] | None:
    """What iperf3 carries as 4 KiB UDP datagrams over the same veth, unpaced; None if it is not installed."""
    if shutil.which("iperf3") is None:
        return None
    enter = {name: ["nsenter", "-t", str(agent.pid), "--net"] for name, agent in net.agents.items()}
    with subprocess.Popen([*enter["h2"], "iperf3", "-s", "-1", "-6", "--forceflush"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        while "listening" not in server.stdout.readline():
            pass
        argv = [
            *enter["h1"],
            "iperf3",
            "-6",
            "-u",
            "-b",
            "0",
            "-l",
            str(PAYLOAD_BYTES),
            "-c",
            net.address("h2"),
            "-t",
            f"{seconds:.0f}",
            "-J",
        ]
        end = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)["end"]
        server.communicate()
    total = end["sum"]
    received = total["packets"] - total["lost_packets"]
    return {"packets_per_s": round(received / total["seconds"]), "lost_share": round(total["lost_packets"] / total["packets"], 4)}


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--transports", default="mrc,rc")
    parser.add_argument("--link-mbps", type=float, default=0.0)
    given = parser.parse_args()
    print(
        json.dumps({transport: measure(transport, given.seconds, given.link_mbps) for transport in given.transports.split(",")}, indent=2)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
