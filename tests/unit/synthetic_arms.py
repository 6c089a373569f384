"""TEST FIXTURE: a run of six arms that never happened, made of the arms of synthetic_run, with made-up messages of BGP.

Nothing here is a measurement. The story: MRC and `mrc-bgp` stall under no fault. Routing gets by a carrier fault in 80 ms, and sees no
silent one before it is over; under carrier faults `tcp-bgp` is as good as MRC, the RC arms are not; `rc-static` stalls under every fault.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import yaml
from synthetic_run import FAULTS, HOSTS, RC_STALLS, make_arm, make_run

ARMS = ("mrc", "mrc-bgp", "rc-bgp", "rc-bgp-ovs", "tcp-bgp", "rc-static")
SILENT = tuple(name for name, kind, *_ in FAULTS if kind == "silent")
STALLS: Mapping[str, dict[str, float]] = {
    "mrc": {}, "mrc-bgp": {},
    "rc-bgp": RC_STALLS,
    "rc-bgp-ovs": {name: 1.1 * stall for name, stall in RC_STALLS.items()},
    "tcp-bgp": {name: RC_STALLS[name] for name in SILENT},
    "rc-static": {name: long + 1.0 for name, _kind, _target, _tier, _at, long in FAULTS},
}  # fmt: skip
FRR = {"profile": "datacenter", "keepalive_s": 3, "hold_s": 9, "bfd_interval_ms": 0, "bfd_multiplier": 3, "hash_policy": "l4",
       "ecmp_seed": 19794, "ecmp_width": 64, "advertisement_interval_s": 0}  # fmt: skip
CONTROLLER = {"preset": "frr", "keepalive_s": 3.0, "hold_s": 9.0, "bfd_interval_s": 0.0, "process_s": 0.001, "batch_s": 0.05,
              "mrai_s": 0.0, "fib_prefix_s": 0.0005, "ecmp_seed": 19794, "ecmp_width": 64}  # fmt: skip
FABRICS: Mapping[str, dict] = {
    "mrc-bgp": {"switching": "frr", "datapath": "kernel", "routing": {"options": FRR}},
    "rc-bgp": {"switching": "frr", "datapath": "kernel", "routing": {"options": FRR}},
    "tcp-bgp": {"switching": "frr", "datapath": "kernel", "routing": {"options": FRR}},
    "rc-bgp-ovs": {"switching": "ovs-bgp", "datapath": "netdev", "routing": {"options": CONTROLLER}},
    "rc-static": {"switching": "ovs-ecmp", "datapath": "netdev", "ecmp": {"fields": "symmetric_l3l4+udp", "seed": 19794, "bases": {}}},
}


def make_arms_run(root: Path, *, repeats: int = 2, events: bool = True, arms: tuple[str, ...] = ARMS) -> Path:
    """Writes the run below `root` and returns its folder; without `events` the arms' routing leaves no trace."""
    run = make_run(root, repeats=repeats)
    shutil.rmtree(run / "rc-bgp")
    for number, arm in enumerate(arms[1:], start=1):
        for repeat in range(1, repeats + 1):
            make_arm(run / arm / str(repeat), seed=1000 * number + repeat, stalls=STALLS[arm])
            _tell(run / arm / str(repeat), arm, events)
    for repeat in range(1, repeats + 1):
        _change(run / "mrc" / str(repeat) / "arm.json", {"ring": list(HOSTS)})
    _change(run / "manifest.json", {"arms": list(arms), "repeats": repeats})
    scenario = json.loads((run / "manifest.json").read_text())["scenario"] | {"arms": list(arms), "repeats": repeats}
    _change(run / "manifest.json", {"scenario": scenario})
    (run / "scenario.yaml").write_text(yaml.safe_dump(scenario))
    return run


def _change(path: Path, more: Mapping[str, object]) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}, indent=1))


def _tell(folder: Path, arm: str, events: bool) -> None:
    transport = {"timeout_exponent": 18, "retries": 7, "qps": 1, "preset": "nccl-18x7"} if arm.startswith("rc") else {}
    transport = {"connections": 4, "user_timeout_s": 0.0} if arm.startswith("tcp") else transport
    fabric = {"rate_bps": 10_000_000, "mtu_bytes": 4352, "queue_bytes": 557_056, **FABRICS[arm]}
    _change(folder / "arm.json", {"fabric": fabric, "transport": transport, "ring": list(HOSTS), "tables_unchanged": None})
    if events and FABRICS[arm]["switching"] in ("frr", "ovs-bgp"):
        file = folder / "events.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()] + routing_events(arm)
        file.write_text("".join(json.dumps(row) + "\n" for row in sorted(rows, key=lambda row: row["t_s"])))


def routing_events(arm: str) -> list[dict]:
    """Under each carrier fault both ends lose their session, two UPDATEs withdraw three prefixes, and two FIBs change within 80 ms."""
    source, told = "netlink" if FABRICS[arm]["switching"] == "frr" else "routing", []
    for _name, kind, target, _tier, at_s, _long in FAULTS:
        low, high = target.split("-")
        if kind != "carrier":
            continue
        told += [
            {"t_s": at_s + 0.030, "source": "routing", "event": "session", "node": low, "peer": high, "up": False, "reason": "carrier"},
            {"t_s": at_s + 0.031, "source": "routing", "event": "session", "node": high, "peer": low, "up": False, "reason": "carrier"},
            {"t_s": at_s + 0.050, "source": source, "event": "fib", "node": low, "change": "replace", "prefix": "fd00:0:0:1::1/128"},
            {"t_s": at_s + 0.060, "source": "routing", "event": "bgp_message", "node": "t2_1", "peer": high, "kind": "update",
             "announced": 0, "withdrawn": 2},
            {"t_s": at_s + 0.070, "source": "routing", "event": "bgp_message", "node": "t2_2", "peer": high, "kind": "update",
             "announced": 1, "withdrawn": 1},
            {"t_s": at_s + 0.080, "source": source, "event": "fib", "node": "t2_1", "change": "del", "prefix": "fd00:0:0:1::1/128"},
        ]  # fmt: skip
    return told
