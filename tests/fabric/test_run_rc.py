"""RoCE RC as operators run it, over real switches: several QPs a pair, and DCQCN on marks that the links make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_lab import RAN, run, table

pytestmark = pytest.mark.fabric

# Three senders with four QPs each into one link, which is the only place where packets can meet.
INCAST: dict[str, Any] = {
    "name": "rc-incast",
    "topology": {"kind": "multi-plane", "planes": 1, "t0s": 2, "t1s": 1, "hosts_per_t0": 2},
    "job": {"kind": "streams", "flows": [{"from": f"h{host}", "to": "h4"} for host in (1, 2, 3)]},
    "run": {"duration": "6s", "warmup": "500ms", "settle": "500ms"},
    "transport": {"rc": {"preset": "nccl-20x7", "qps": 4, "dcqcn": True}},
    "arms": ["rc-bgp"],
}


def test_links_mark_receivers_notify_and_senders_obey(tmp_path: Path) -> None:
    status, answer, folder = run(tmp_path, INCAST)
    assert status in RAN, answer
    files = folder / "rc-bgp" / "1"
    transport = json.loads((files / "arm.json").read_text())["transport"]
    assert {name: transport[name] for name in ("timeout_exponent", "retries", "qps", "dcqcn", "link_rate_bps")} == {
        "timeout_exponent": 20, "retries": 7, "qps": 4, "dcqcn": True, "link_rate_bps": 10e6,
    }  # fmt: skip
    marks = [row for row in table(files / "links.csv") if int(row["marked_packets"])]
    assert {row["from_node"] for row in marks if row["link"] == "h4-t0_1_2"} == {"t0_1_2"}
    last = {(row["host"], row["peer"]): int(row["marked_packets"]) for row in table(files / "flows.csv")}
    assert all(last[f"h{host}", "h4"] > 0 for host in (1, 2, 3)), last
    agents = json.loads((files / "agents.json").read_text())
    assert agents["h4"]["cnps_sent"] >= sum(agents[f"h{host}"]["cnps_received"] for host in (1, 2, 3)) > 0
    assert {len({row["ev"] for row in table(files / "paths.csv") if row["host"] == "h1"})} == {4}
    assert {report["job"]["wrong_messages"] for report in agents.values()} == {0}
