"""iperf3's UDP beside the agents: 4096-byte datagrams, unpaced, over the same veth in the same namespaces."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

from benchmarks.agent_lab import Lab

PAYLOAD_BYTES = 4096


def iperf3(net: Lab, seconds: float) -> dict[str, Any] | None:
    """Datagrams a second that arrived, and that were sent; None if iperf3 is not installed.

    Unpaced (`-b 0`), it sends more than the receiver takes, so only what arrived is a rate that can be compared. The time is the sender's.
    """
    if shutil.which("iperf3") is None:
        return None
    enter = {name: ["nsenter", "-t", str(agent.pid), "--net"] for name, agent in net.agents.items()}
    with subprocess.Popen([*enter["h2"], "iperf3", "-s", "-1", "-6", "--forceflush"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        while "listening" not in (line := server.stdout.readline()):
            if not line:
                raise RuntimeError("iperf3 -s ended before it listened")
        what = ["iperf3", "-6", "-u", "-b", "0", "-l", str(PAYLOAD_BYTES), "-c", net.address("h2"), "-t", f"{seconds:.0f}", "-J"]
        total = json.loads(subprocess.run([*enter["h1"], *what], capture_output=True, text=True, check=True).stdout)["end"]["sum"]
        server.communicate()
    received = total["packets"] - total["lost_packets"]
    sent_per_s = round(total["packets"] / total["seconds"])
    return {
        "packets_per_s": round(received / total["seconds"]),
        "sent_per_s": sent_per_s,
        "lost_share": round(total["lost_packets"] / total["packets"], 4),
    }
