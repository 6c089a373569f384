"""TEST FIXTURE: writes the folder of a run of streams that never happened, with made-up numbers, in the format of docs/architecture.md.

Nothing here is a measurement. Stories: `incast` (7 senders and a victim, three arms) and `permutation` (16 flows, two arms, one EV of
h1 to h5 that loses 20 % for a while). 16 hosts of a fat-tree with k = 4, links of 10 Mbps.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import yaml
from synthetic_run import PATHS, _csv, _json

DURATION_S = 20.0
RATE_BPS = 10e6
PAYLOAD_BPS = 9.6e6
PACKET_BYTES = 4096
HOSTS = tuple(f"h{number}" for number in range(1, 17))
INCAST_AT_S, INCAST_FOR_S = 6.0, 8.0
FAULT = ("f1", "loss", "t1_1_1-t2_1", "T1-T2", 8.0, 5.0)

FLOW_HEADER = "t_s,host,peer,tx_packets,rtx_packets,acked_bytes,cwnd_packets,srtt_s,trimmed_packets,marked_packets"
PATH_HEADER = "t_s,host,peer,ev,state,tx_packets,lost_packets,probes_sent,trimmed_packets,marked_packets"
LINK_HEADER = (
    "t_s,link,from_node,tx_packets,tx_bytes,dropped_packets,lost_packets,ev_dropped_packets,queue_dropped_packets,"
    "marked_packets,trimmed_packets,trimmed_bytes"
)
Flow = dict[str, object]


def incast_flows() -> list[Flow]:
    senders = ("h5", "h6", "h7", "h8", "h9", "h10", "h11")
    incast = [{"from": s, "to": "h1", "at_s": INCAST_AT_S, "for_s": INCAST_FOR_S, "role": "incast"} for s in senders]
    return [*incast, {"from": "h12", "to": "h2", "at_s": 0.0, "for_s": DURATION_S, "role": "victim"}]


def permutation_flows() -> list[Flow]:
    return [
        {"from": host, "to": HOSTS[(number + 4) % 16], "at_s": 0.0, "for_s": DURATION_S, "role": "flow"}
        for number, host in enumerate(HOSTS)
    ]


def make_streams(root: Path, story: str = "incast", repeats: int = 1) -> Path:
    """Writes a whole run below `root` and returns its folder."""
    run = root / story / "20260101-120000"
    run.mkdir(parents=True)
    arms = ["mrc", "mrc-no-trim", "rc-bgp"] if story == "incast" else ["mrc", "rc-bgp"]
    flows = incast_flows() if story == "incast" else permutation_flows()
    scenario = {"name": story, "seed": 3, "repeats": repeats, "arms": arms, "job": {"kind": "streams", "pattern": story}}
    machine = {"kernel": "6.18.0", "cpu": "Imaginary CPU 3000", "cores": 2}
    _json(run / "manifest.json", {"scenario": scenario, "seed": 3, "repeats": repeats, "arms": arms, "machine": machine})
    (run / "scenario.yaml").write_text(yaml.safe_dump(scenario))
    name, kind, target, tier, at, long = FAULT
    fault = {"id": name, "kind": kind, "target": target, "target_type": "link", "tier": tier, "at_s": at, "for_s": long}
    fault |= {"params": {"share": 0.2, "evs": [0]}, "links": [target]}
    _json(run / "faults.json", {"seed": 3, "faults": [] if story == "incast" else [fault]})
    for arm in arms:
        for repeat in range(1, repeats + 1):
            _arm(run / arm / str(repeat), random.Random(f"{arm}{repeat}"), flows, story)
    return run


def _arm(folder: Path, rng: random.Random, flows: list[Flow], story: str) -> None:
    folder.mkdir(parents=True)
    arm = folder.parent.name
    events = [{"t_s": 0.0, "source": "run", "event": "job_start", "attempt": 1, "step": 0}]
    events += _fault_events(arm) if story == "permutation" else []
    events.append({"t_s": DURATION_S, "source": "run", "event": "job_stop", "attempt": 1, "step": 0})
    (folder / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in sorted(events, key=lambda e: e["t_s"])))
    _csv(folder / "steps.csv", "attempt,step,rank,host,start_s,compute_end_s,end_s,ok", [])
    _csv(folder / "flows.csv", FLOW_HEADER, _flow_rows(rng, flows, arm, story))
    _csv(folder / "paths.csv", PATH_HEADER, _path_rows(rng, arm, story))
    _csv(folder / "links.csv", LINK_HEADER, _link_rows(rng, arm, story))
    _json(folder / "agents.json", {host: _agent(arm) for host in HOSTS})
    mrc = arm.startswith("mrc")
    fabric = {"switching": "ovs" if mrc else "frr", "datapath": "netdev" if mrc else "kernel", "rate_bps": RATE_BPS, "mtu_bytes": 4352}
    fidelity = {"verdict": "good", "reasons": [], "cpu_busy_median": 0.5, "cpu_busy_max": 0.8, "achieved_rate_share": 0.99}
    info = {
        "arm": arm, "repeat": int(folder.name), "duration_s": DURATION_S, "fabric": fabric, "transport": {"payload_bytes": PACKET_BYTES},
        "tables_unchanged": None, "fidelity": fidelity, "interrupted": False, "job": {"kind": "streams", "flows": flows},
    }  # fmt: skip
    _json(folder / "arm.json", info)


def _agent(arm: str) -> dict:
    recoveries = {"trimmed": {"count": 30, "median_s": 0.01, "p99_s": 0.03, "median_srtt": 1.1, "p99_srtt": 2.5}}
    recoveries["loss_rack"] = {"count": 10, "median_s": 0.03, "p99_s": 0.09, "median_srtt": 3.0, "p99_srtt": 9.0}
    told = {"base_rtt_s": {"h1": 0.004}, "drops": {}}
    return told | ({"recoveries": recoveries} if arm == "mrc" else {})


def _rate(rng: random.Random, arm: str, story: str) -> Callable[[Flow, float], float]:
    """Goodput of a flow in bit/s at a time."""
    single = {f"h{number}": rng.choice((1.0, 1.0, 0.5, 0.5, 0.33)) for number in range(1, 17)}

    def permutation(flow: Flow, t: float) -> float:
        dip = 0.8 if arm == "mrc" and flow["from"] == "h1" and FAULT[4] <= t < FAULT[4] + 0.3 else 1.0
        return PAYLOAD_BPS * (0.96 * dip if arm == "mrc" else 0.95 * single[str(flow["from"])])

    def incast(flow: Flow, t: float) -> float:
        on = INCAST_AT_S <= t < INCAST_AT_S + INCAST_FOR_S
        if flow["role"] == "victim":
            return PAYLOAD_BPS * {"mrc": 0.97, "mrc-no-trim": 0.9, "rc-bgp": 0.45}[arm] ** on * 0.97
        skew = 1.0 if arm == "mrc" else 0.6 + 0.8 * HOSTS.index(str(flow["from"])) / 16
        return PAYLOAD_BPS / 7 * 0.96 * skew * on

    return incast if story == "incast" else permutation


def _flow_rows(rng: random.Random, flows: list[Flow], arm: str, story: str) -> list[tuple]:
    rate, rows, mrc = _rate(rng, arm, story), [], arm.startswith("mrc")
    for flow in flows:
        acked = sent = again = trimmed = marked = 0.0
        for tick in range(int(DURATION_S * 10) + 1):
            bps = rate(flow, tick / 10) * rng.uniform(0.95, 1.03) if tick else 0.0
            acked += bps / 80
            sent += bps / 80 / PACKET_BYTES * 1.02
            again += bps / 80 / PACKET_BYTES * 0.02
            crowded = mrc and flow["role"] == "incast" and bps > 0
            trimmed += crowded and arm == "mrc"
            marked += 2 * crowded
            cwnd = (4 + 6 * rng.random() if crowded else 20.0) if mrc else 64.0
            counts = (int(sent), int(again), int(acked), round(cwnd, 2), 0.01, int(trimmed), int(marked))
            rows.append((tick / 10, flow["from"], flow["to"], *counts))
    return rows


def _path_rows(rng: random.Random, arm: str, story: str) -> list[tuple]:
    source, target = ("h5", "h1") if story == "incast" else ("h1", "h5")
    evs = range(4) if arm.startswith("mrc") else range(1)
    sent, rows = dict.fromkeys(evs, 0), []
    for tick in range(int(DURATION_S * 10)):
        retired = story == "permutation" and 82 <= tick < 136 and len(evs) > 1
        for ev in evs:
            out = retired and ev == 0
            sent[ev] += 0 if out else rng.randint(6, 8) + 2 * retired
            rows.append((tick / 10, source, target, ev, "ASSUMED_BAD" if out else "GOOD", sent[ev], 0, 0, 0, 0))
    return rows


def _fault_events(arm: str) -> list[dict]:
    name, kind, target, _tier, at, long = FAULT
    events = []
    for event, planned in (("fault_begin", at), ("fault_end", at + long)):
        times = {"planned_s": planned, "issued_s": planned + 0.001, "effective_s": planned + 0.002}
        events.append({"t_s": planned + 0.002, "source": "faults", "event": event, "fault": name, "kind": kind, "target": target, **times})
    if arm == "mrc":
        base = {"source": "h1", "event": "ev_state", "peer": "h5", "qp": 17, "ev": 0, "path": PATHS[0]}
        lost = {"reason": "loss_fifo", "last_tx_s": 8.19, "first_lost_tx_s": 8.01}
        events.append({"t_s": 8.2, **base, "from": "GOOD", "to": "ASSUMED_BAD", **lost})
        events += [{"t_s": t, "source": "h1", "event": "probe", "peer": "h5", "ev": 0, "outcome": "sent"} for t in (9.2, 11.2, 13.2)]
        events.append({"t_s": 13.6, **base, "from": "ASSUMED_BAD", "to": "GOOD", "reason": "probe", "last_tx_s": None})
    return events


def _link_rows(rng: random.Random, arm: str, story: str) -> list[tuple]:
    links = [f"{host}-t0_{number // 4 + 1}_{number % 4 // 2 + 1}" for number, host in enumerate(HOSTS)]
    links += [f"t0_{p}_{n}-t1_{p}_{a}" for p in (1, 2, 3, 4) for n in (1, 2) for a in (1, 2)]
    links += [f"t1_{p}_{a}-t2_{2 * a - 2 + c}" for p in (1, 2, 3, 4) for a in (1, 2) for c in (1, 2)]
    rows = []
    for link in links:
        for node in link.split("-"):
            use = rng.uniform(0.88, 0.94) if arm.startswith("mrc") else rng.choice((0.0, 0.5, 0.5, 1.0))
            hot = story == "incast" and (link, node) == ("h1-t0_1_1", "t0_1_1")
            octets = trimmed = marked = dropped = 0.0
            for tick in range(-2, int(DURATION_S * 2) + 1):
                on = hot and INCAST_AT_S <= tick / 2 < INCAST_AT_S + INCAST_FOR_S
                octets += use * RATE_BPS / 16 if tick > 0 else 0.0
                trimmed += (30 + rng.random() * 10) * (on and arm == "mrc")
                marked += (60 + rng.random() * 20) * (on and arm.startswith("mrc"))
                dropped += (40 + rng.random() * 10) * (on and arm == "mrc-no-trim")
                counts = (int(dropped), int(marked), int(trimmed), int(trimmed) * 96)
                rows.append((tick / 2, link, node, int(octets / 4200), int(octets), 0, 0, 0, *counts))
    return rows
