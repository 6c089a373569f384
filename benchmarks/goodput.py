"""Goodput of MRC across the fabric, as a share of what iperf3's UDP carries without loss over the same path in the same minute.

    sudo python benchmarks/goodput.py [--rate-mbps 50] [--pairs 1] [--seconds 5]

iperf3 sends 4096-byte datagrams through the kernel's SRv6 encapsulation along one path of each pair; its highest rate without loss is
searched downwards from the link's rate. Both figures count payload only. Prints JSON with the agents' CPU a data packet as well.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from fabric_lab import Streams, crossing_pairs, fabric_of, in_sandbox, run_in

from topologies import addresses

PAYLOAD_BYTES = 4096
STEPS = (0.97, 0.95, 0.93, 0.90, 0.85, 0.80, 0.70, 0.60, 0.50, 0.40, 0.30, 0.20, 0.10)  # shares of the link's rate that iperf3 tries
FIRST_PORT = 5201


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """iperf3 first, then MRC, on the same fabric."""
    rate_bps = arguments.rate_mbps * 1_000_000
    with fabric_of(4, rate_bps) as fabric, tempfile.TemporaryDirectory() as folder:
        pairs = crossing_pairs(fabric.topology, arguments.pairs)
        reference = lossless_udp(fabric, pairs, rate_bps, arguments.seconds)
        mrc = stream(fabric, pairs, Path(folder), arguments.seconds)
        drops = sum(fabric.qdisc_drops().values())
    share = round(mrc["goodput_mbps"] / reference["goodput_mbps"], 3) if reference else None
    return {"pairs": len(pairs), "rate_mbps": arguments.rate_mbps, "iperf3": reference, "mrc": mrc, "share": share, "qdisc_drops": drops}


def lossless_udp(fabric: Any, pairs: list[tuple[str, str]], rate_bps: float, seconds: float) -> dict[str, Any]:
    """The highest tried rate at which no pair loses a datagram; {} if there is none."""
    for step in STEPS:
        results = udp(fabric, pairs, step * rate_bps, seconds)
        if all(result["lost_packets"] == 0 for result in results):
            total = sum(result["bits_per_second"] for result in results)
            return {"goodput_mbps": round(total / 1e6, 2), "share_of_link": step}
    return {}


def udp(fabric: Any, pairs: list[tuple[str, str]], bps: float, seconds: float) -> list[dict[str, Any]]:
    """One iperf3 run a pair, all at once; the receivers' sums."""
    servers = [run_in(fabric, target, ["iperf3", "-s", "-1", "-p", str(FIRST_PORT)]) for _source, target in pairs]
    for _source, target in pairs:
        wait_for_server(fabric, target)
    clients = []
    for source, target in pairs:
        to = addresses.host_address(fabric.topology.nodes[target])
        what = ["-l", str(PAYLOAD_BYTES), "-b", f"{bps:.0f}", "-t", str(seconds)]
        clients.append(run_in(fabric, source, ["iperf3", "-J", "-u", "-6", "-c", to, "-p", str(FIRST_PORT), *what]))
    answers = [json.loads(client.communicate(timeout=seconds + 60)[0]) for client in clients]
    for server in servers:
        server.communicate(timeout=60)
    return [answer["end"]["sum_received"] for answer in answers]


def wait_for_server(fabric: Any, host: str) -> None:
    """Until iperf3 listens there."""
    deadline = time.monotonic() + 20
    needle = f":{FIRST_PORT:04X} "
    while needle not in Path(f"/proc/{fabric.pid(host)}/net/tcp6").read_text():
        if time.monotonic() > deadline:
            raise TimeoutError(f"iperf3 on {host} does not listen")
        time.sleep(0.01)


def stream(fabric: Any, pairs: list[tuple[str, str]], folder: Path, seconds: float) -> dict[str, Any]:
    """MRC streams on all pairs at once."""
    with Streams(fabric, pairs, folder, {}) as streams:
        begin = streams.start()
        time.sleep(max(0.0, begin + seconds - time.monotonic()))
        reports = streams.stop()
    goodput = sum(reports[source]["job"]["acked_bytes"] * 8 / reports[source]["job"]["elapsed_s"] for source, _target in pairs)
    received = sum(report["data_packets_received"] for report in reports.values())
    return {
        "goodput_mbps": round(goodput / 1e6, 2),
        "cpu_us_a_packet": round(sum(report["cpu_s"] for report in reports.values()) / received * 1e6, 1),
        "sacks_a_packet": round(sum(report.get("sacks_sent", 0) for report in reports.values()) / received, 3),
        "data_packets_received": received,
        "retransmitted": sum(report["data_packets_retransmitted"] for report in reports.values()),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate-mbps", type=int, default=50)
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5)
    raise SystemExit(in_sandbox(main, parser))
