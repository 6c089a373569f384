"""TEST FIXTURE: writes the folder of a run that never happened, with made-up numbers, in the format of docs/architecture.md.

Nothing here is a measurement. Two arms on the same faults; `mrc` steps are even, `rc-bgp` stalls 1 to 10 s and crashes once in its second
repeat.
"""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import yaml

DURATION_S = 60.0
HOSTS = ("h1", "h5", "h9", "h13")
PATHS = [
    ["h1-t0_1_1", f"t0_1_1-t1_1_{a}", f"t1_1_{a}-t2_{c}", f"t1_2_{a}-t2_{c}", f"t0_2_1-t1_2_{a}", "h5-t0_2_1"]
    for a, c in ((1, 1), (1, 2), (2, 3), (2, 4))
]
FAULTS = [
    ("f1", "carrier", "t0_1_1-t1_1_1", "T0-T1", 8.0, 4.0),
    ("f2", "silent", "t1_1_2-t2_3", "T1-T2", 18.0, 5.0),
    ("f3", "carrier", "t1_1_1-t2_1", "T1-T2", 28.0, 3.0),
    ("f4", "silent", "t0_1_1-t1_1_2", "T0-T1", 34.0, 7.0),
    ("f5", "carrier", "t0_2_1-t1_2_2", "T0-T1", 38.0, 3.0),
    ("f6", "carrier", "t1_2_1-t2_2", "T1-T2", 50.0, 4.0),
]
# The stall that a fault makes in the BGP arm of this story, in seconds.
RC_STALLS = {"f1": 1.2, "f2": 6.5, "f3": 1.0, "f4": 9.4, "f6": 2.1}
SCENARIO = """name: construction-site
title: "Cuts on a construction site <script>alert(1)</script>"
hypothesis: MRC rides through cuts that stall a single path.
seed: 7
repeats: 3
arms: [mrc, rc-bgp]
topology: {kind: fat-tree, k: 4}
job: {vector: 256KiB, compute: 300ms, checkpoint_every: 10}
run: {duration: 60s}
transport: {rc: {timeout_exponent: 17}}
expect:
  - {arm: mrc, metric: step_over_median_p100, at_most: 1.5}
  - {arm: mrc, metric: wrong_sums, equals: 0}
  - {arm: mrc, metric: detection_median_rtt, at_most: 3}
  - {arm: rc-bgp, metric: crashes, at_most: 0}
"""


def make_run(root: Path, *, seed: int = 1, mrc_stall_s: float = 0.0, rc_stalls: dict[str, float] | None = None, repeats: int = 3) -> Path:
    """Writes a whole run below `root` and returns its folder. `mrc_stall_s` makes MRC stall at each fault too."""
    run = root / "construction-site" / "20260101-120000"
    run.mkdir(parents=True)
    machine = {"kernel": "6.18.0", "cpu": "Imaginary CPU 3000", "cores": 2, "memory": "8000000 kB", "distribution": "Debian GNU/Linux 12"}
    manifest = {
        "scenario": yaml.safe_load(SCENARIO), "seed": 7, "repeats": repeats, "arms": ["mrc", "rc-bgp"], "machine": machine,
        "versions": {"ovs-vswitchd": "3.1.0"},
        "command": ["testbed", "run", "construction-site", "--seed", "7"], "revision": "0123456789ab",
    }  # fmt: skip
    _json(run / "manifest.json", manifest)
    (run / "scenario.yaml").write_text(SCENARIO)
    faults = [
        {"id": i, "kind": k, "target": t, "target_type": "link", "tier": tier, "at_s": at, "for_s": d, "source": "$.faults[0]"}
        for i, k, t, tier, at, d in FAULTS
    ]
    _json(run / "faults.json", {"seed": 7, "faults": faults})
    for repeat in range(1, repeats + 1):
        stalls = dict.fromkeys(RC_STALLS, mrc_stall_s)
        _arm(run / "mrc" / str(repeat), random.Random(seed + repeat), stalls, crash_at_s=None)
        crash = 44.0 if repeat == 2 and rc_stalls is None else None
        slow = RC_STALLS if rc_stalls is None else rc_stalls
        _arm(run / "rc-bgp" / str(repeat), random.Random(seed + 100 + repeat), slow, crash_at_s=crash)
    return run


def make_arm(folder: Path, *, seed: int, stalls: dict[str, float]) -> None:
    """One arm and repeat of the same story: `<arm>/<repeat>/` with these stalls; what its arm.json tells of the fabric is of MRC or RC."""
    _arm(folder, random.Random(seed), stalls, crash_at_s=None)


def _arm(folder: Path, rng: random.Random, stalls: dict[str, float], crash_at_s: float | None) -> None:
    folder.mkdir(parents=True)
    mrc = folder.parent.name == "mrc"
    events = _fault_events(rng)
    rows, job_events = _steps(rng, stalls, crash_at_s, 0.012 if mrc else 0.02)
    retirements = _retirements(rng) if mrc else []
    events += job_events + retirements
    events.sort(key=lambda event: event["t_s"])
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    _csv(folder / "steps.csv", "attempt,step,rank,host,start_s,compute_end_s,end_s,ok", rows)
    _csv(folder / "paths.csv", "t_s,host,peer,ev,state,tx_packets,lost_packets,probes_sent", _path_rows(rng, retirements, mrc, stalls))
    _csv(folder / "links.csv", "t_s,link,from_node,tx_packets,tx_bytes,dropped_packets", _link_rows(rng, mrc))
    _csv(folder / "cpu.csv", "t_s,busy,steal,run_queue,lateness_s", [(t / 2, 0.61, 0.0, 2, 0.001) for t in range(120)])
    flows = "t_s,host,peer,tx_packets,rtx_packets,acked_bytes,cwnd_packets,srtt_s"
    _csv(folder / "flows.csv", flows, [(0.1, "h1", "h5", 9, 0, 36000, 16, 0.002)])
    rtts = {h: {"cpu_s": 4.0, "data_packets_sent": 9000, "base_rtt_s": {p: 0.002 for p in HOSTS if p != h}, "drops": {}} for h in HOSTS}
    if mrc:
        rtts = {h: {**entry, "idle_rtt_s": dict.fromkeys(entry["base_rtt_s"], 0.003)} for h, entry in rtts.items()}
    _json(folder / "agents.json", rtts)
    _json(folder / "arm.json", _arm_info(folder, mrc))


def _arm_info(folder: Path, mrc: bool) -> dict:
    fidelity = {
        "verdict": "good" if mrc else "suspect", "reasons": [] if mrc else ["CPU 91% busy (median)"],
        "cpu_busy_median": 0.61 if mrc else 0.91, "cpu_busy_max": 0.99, "steal_max": 0.02, "achieved_rate_share": 0.985,
        "qdisc_drops": 0, "lateness_p99_s": 0.004,
    }  # fmt: skip
    bgp = {"keepalive_s": 3, "hold_s": 9, "coalesce_ms": 10}
    fabric = {"switching": "ovs", "datapath": "netdev"} if mrc else {"switching": "frr", "datapath": "kernel", "routing": {"options": bgp}}
    if mrc:
        fabric |= {"rate_bps": 20_000_000, "mtu_bytes": 4352, "queue_bytes": 557_056}
        fabric["link_program"] = {"base_rtt_s": 0.014, "bdp_bytes": 43_660, "fabric": {"ecn_min_bytes": 8_732, "trim_bytes": 43_660}}
    transport = {"probe_interval_s": 0.1, "pto_min_s": 0.004} if mrc else {"timeout_exponent": 17, "retries": 7}
    return {
        "arm": folder.parent.name, "repeat": int(folder.name), "duration_s": DURATION_S, "bring_up_s": 5.1, "fabric": fabric,
        "transport": transport, "tables_unchanged": True if mrc else None, "fidelity": fidelity, "interrupted": False,
    }  # fmt: skip


def _fault_events(rng: random.Random) -> list[dict]:
    events = []
    for name, kind, target, _tier, at, long in FAULTS:
        for event, planned in (("fault_begin", at), ("fault_end", at + long)):
            issued = planned + rng.uniform(0.0005, 0.002)
            effective = issued + rng.uniform(0.001, 0.02)
            events.append(
                {"t_s": effective, "source": "faults", "event": event, "fault": name, "kind": kind, "target": target,
                 "planned_s": planned, "issued_s": issued, "effective_s": effective}
            )  # fmt: skip
    return events


def _steps(rng: random.Random, stalls: dict[str, float], crash_at_s: float | None, noise_s: float) -> tuple[list[tuple], list[dict]]:
    """Lockstep: each step 0.42 s and noise; the first step that is under way when a fault begins also takes its stall."""
    rows: list[tuple] = []
    events = [{"t_s": 0.0, "source": "run", "event": "job_start", "attempt": 1, "step": 0}]
    now, step, attempt, todo = 0.0, 0, 1, {name: at for name, _k, _t, _tier, at, _d in FAULTS}
    while now < DURATION_S:
        end = now + 0.42 + abs(rng.gauss(0, noise_s))
        for name, at in list(todo.items()):
            if at < end:
                end += stalls.get(name, 0.0) * rng.uniform(0.9, 1.1)
                del todo[name]
        if crash_at_s is not None and end > crash_at_s:
            rows += [(attempt, step, rank, host, _t(now), _t(now + 0.3), "", "") for rank, host in enumerate(HOSTS)]
            crashed, now, attempt = step, crash_at_s + 5.0, attempt + 1
            step = step // 10 * 10
            events += [
                {"t_s": crash_at_s - 0.01, "source": "h1", "event": "qp_error", "peer": "h5", "reason": "retries exhausted"},
                {"t_s": crash_at_s, "source": "run", "event": "job_crash", "attempt": attempt - 1, "step": crashed},
                {"t_s": now, "source": "run", "event": "job_restart", "attempt": attempt, "step": step},
            ]
            crash_at_s = None
            continue
        for rank, host in enumerate(HOSTS):
            done = "" if end > DURATION_S else _t(end - 0.002 * rank)
            rows.append((attempt, step, rank, host, _t(now), _t(now + 0.3), done, 1 if done else ""))
        now, step = end, step + 1
    return rows, [*events, {"t_s": DURATION_S, "source": "run", "event": "job_stop", "attempt": attempt, "step": step}]


def _retirements(rng: random.Random) -> list[dict]:
    events = []
    for _name, _kind, target, _tier, at, long in FAULTS:
        for ev, path in enumerate(PATHS):
            if target in path:
                seen = at + 0.012 + rng.uniform(0.002, 0.012)
                base = {"source": "h1", "event": "ev_state", "peer": "h5", "qp": 17, "ev": ev, "path": path}
                lost = {"reason": "loss_fifo", "last_tx_s": seen - 0.001, "first_lost_tx_s": seen - 0.003}
                back = at + long + 0.6
                events.append({"t_s": seen, **base, "from": "GOOD", "to": "ASSUMED_BAD", **lost})
                events += [
                    {"t_s": seen + 0.25 * i, "source": "h1", "event": "probe", "peer": "h5", "ev": ev, "outcome": "sent"}
                    for i in range(1, int((back - seen) * 4))
                ]
                events.append({"t_s": back, **base, "from": "ASSUMED_BAD", "to": "GOOD", "reason": "probe", "last_tx_s": None})
    return events


def _path_rows(rng: random.Random, retirements: list[dict], mrc: bool, stalls: dict[str, float]) -> list[tuple]:
    rows, evs = [], range(4) if mrc else range(1)
    sent = dict.fromkeys(evs, 0)
    for tick in range(int(DURATION_S * 10)):
        t = tick / 10
        bad = {}
        for event in retirements:
            if event["event"] == "ev_state" and event["t_s"] <= t:
                bad[event["ev"]] = event["to"] == "ASSUMED_BAD"
        stalled = not mrc and any(at <= t < at + stalls.get(name, 0.0) for name, _k, _t, _tier, at, _d in FAULTS)
        for ev in evs:
            sent[ev] += 0 if bad.get(ev) or stalled or tick % 5 > 2 else rng.randint(18, 24) * (1 if mrc else 4)
            rows.append((t, "h1", "h5", ev, "ASSUMED_BAD" if bad.get(ev) else "GOOD", sent[ev], 0, 0))
    return rows


def _link_rows(rng: random.Random, mrc: bool) -> list[tuple]:
    rows = []
    links = [f"t0_{p}_{n}-t1_{p}_{a}" for p in (1, 2, 3, 4) for n in (1, 2) for a in (1, 2)]
    links += [f"t1_{p}_{a}-t2_{2 * a - 2 + c}" for p in (1, 2, 3, 4) for a in (1, 2) for c in (1, 2)]
    faults = {target: (at, long) for _n, _k, target, _tier, at, long in FAULTS}
    for link in [*links, "h1-t0_1_1", "h5-t0_2_1"]:
        for node in link.split("-"):
            rate = rng.uniform(95, 105) if mrc else rng.choice((0, 0, 40, 180, 400))
            for tick in range(0, int(DURATION_S * 2) + 1, 4):
                at, long = faults.get(link, (1e9, 0))
                drops = int(max(0.0, min(tick / 2 - at, long)) * 3)
                rows.append((tick / 2, link, node, int(rate * tick), int(rate * tick * 4200), drops))
    return rows


def _t(value: float) -> str:
    return f"{value:.6f}"


def _csv(path: Path, header: str, rows: list[tuple]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header.split(","))
        writer.writerows(rows)


def _json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1))
