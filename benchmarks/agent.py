"""What an agent costs and carries: two agents, a stream over one veth pair, and iperf3 beside it in the same namespaces.

    sudo python -m benchmarks.agent [--rounds 3] [--seconds 3] [--transports mrc,rc] [--link-mbps 50] [--profile]

Transports: `mrc`, `rc`, and `mrc-ecmp`, MRC without its outer header.

Prints one JSON object. Each round measures iperf3 and then each transport, so that they share the machine's minute; of the rounds it tells
median, least and greatest. `target_met`: at least 15,000 data packets a second in the median round (without `--link-mbps`).

`cpu_us_a_packet` is user + system time of both agents a data packet delivered; the target is under 60. Where the kernel books interrupt
time apart, the receiving side of the veth is not in it: `softirq_us_a_packet` is all softirq time of the machine in the same span, an upper
bound for what is missing. Without `--link-mbps` the veth has no rate limit: `packets_per_s` is what two processes can do here. With it
packets come one by one, each wakes a process with cold caches, and costs more: that is a run's usual case.

The reference: `iperf3 -u -b 0 -l 4096`, unpaced, and of its datagrams those that arrived. It sends more than its receiver takes, and does
nothing with them: no acknowledgement, no CRC, no order. `--profile` runs the agents once more under cProfile and adds where the time went.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.agent_lab import Lab, lab
from benchmarks.agent_profile import profiled
from benchmarks.agent_reference import PAYLOAD_BYTES, iperf3

MESSAGE_BYTES = 64 * 1024
TARGET_US = 60.0
TARGET_PACKETS_PER_S = 15_000
SPREAD_OF = ("packets_per_s", "cpu_us_a_packet", "softirq_us_a_packet", "share_of_iperf3")


def measure(transport: str, seconds: float, link_mbps: float, reference: bool = True, profiles: Path | None = None) -> dict[str, Any]:
    """One transport, once: packets a second, CPU a packet, losses; and iperf3 just before."""
    with lab(2, profiles=profiles) as net:
        if link_mbps:
            shape(net, link_mbps)
        name, _, forwarding = transport.partition("-")
        more = {"forwarding": forwarding} if forwarding else {}
        net.connect(net.streams(name, [{"from": "h1", "to": "h2"}], MESSAGE_BYTES, **more))
        other = iperf3(net, min(seconds, 3.0)) if reference else None
        softirq_before_s, begin = softirq_s(), net.start()
        time.sleep(max(0.0, begin + seconds - time.monotonic()))
        reports, softirq_used_s = net.stop(), softirq_s() - softirq_before_s
    packets = reports["h2"]["job"]["received_bytes"] / PAYLOAD_BYTES
    result = {**_summary(reports["h1"], reports["h2"]), "softirq_us_a_packet": round(softirq_used_s / packets * 1e6, 2)}
    return {**result, "iperf3": other, "share_of_iperf3": round(result["packets_per_s"] / other["packets_per_s"], 3)} if other else result


def shape(net: Lab, link_mbps: float) -> None:
    """Gives h1's side of the veth a rate, with a queue of 64 packets, as the fabric's links have."""
    commands = (
        "qdisc add dev h1-eth0 root handle 1: htb default 20",
        f"class add dev h1-eth0 parent 1: classid 1:20 htb rate {link_mbps}mbit quantum 60000",
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
        "retransmitted": sender.get("data_packets_retransmitted"),
        "socket_drops": sender["socket_drops"] + receiver["socket_drops"],
    }


def spread(rounds: Sequence[dict[str, Any]], link_mbps: float) -> dict[str, Any]:
    """Median, least and greatest of the rounds, and whether the targets are met."""
    found: dict[str, Any] = {}
    for key in SPREAD_OF:
        values = [each[key] for each in rounds if key in each]
        if values:
            found[key] = {"median": round(statistics.median(values), 3), "min": min(values), "max": max(values)}
    met = {"cpu_target_met": found["cpu_us_a_packet"]["median"] < TARGET_US}
    if not link_mbps:
        met["target_met"] = found["packets_per_s"]["median"] >= TARGET_PACKETS_PER_S
    return {**found, **met, "rounds": list(rounds)}


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--transports", default="mrc,rc")
    parser.add_argument("--link-mbps", type=float, default=0.0)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    rounds: dict[str, list[dict[str, Any]]] = {transport: [] for transport in given.transports.split(",")}
    for _ in range(given.rounds):
        for transport, results in rounds.items():
            results.append(measure(transport, given.seconds, given.link_mbps))
    answer: dict[str, Any] = {transport: spread(results, given.link_mbps) for transport, results in rounds.items()}
    if given.profile:
        for transport in rounds:
            answer[transport]["profile"] = profiled(
                lambda folder, transport=transport: measure(transport, given.seconds, given.link_mbps, False, folder)
            )
    print(json.dumps(answer, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
