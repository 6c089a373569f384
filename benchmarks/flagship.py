"""The flagship comparison in one table: construction-site, several repeats, both arms, faults by kind apart.

    sudo python benchmarks/flagship.py [--repeats 5] [--scenario construction-site] [--results DIR]
    python benchmarks/flagship.py --run results/construction-site/<time>      # a run that is there already

Prints JSON taken from the run's summary.json: for each arm the step times, stalls and lost job time (median over the repeats and range),
the stall of carrier cuts and of silent cuts that no other fault overlapped, and for MRC how long end points went on sending into dead
paths.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
METRICS = (
    "healthy_median_s", "step_p50_s", "step_p99_s", "step_p100_s", "step_over_median_p100", "stall_p99_s", "stall_p100_s", "stalled_steps",
    "lost_job_time_s", "steps_completed", "crashes", "lost_steps", "wrong_sums", "false_retirements", "detection_median_s",
    "detection_median_rtt", "after_first_loss_median_s", "after_first_loss_max_s", "packets_lost",
)  # fmt: skip


def main() -> int:
    """Runs the scenario, or reads a run, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="construction-site")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--run", type=Path, help="read this run's folder and run nothing")
    arguments = parser.parse_args()
    folder = arguments.run or run(arguments.scenario, arguments.repeats, arguments.results)
    print(json.dumps(table(folder), indent=1))
    return 0


def run(scenario: str, repeats: int, results: Path) -> Path:
    """The folder of a new run; its progress goes to stderr, and a verdict that is not met is no error here."""
    argv = [sys.executable, "-m", "testbed", "run", scenario, "--repeat", str(repeats), "--results", str(results), "--json"]
    done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, check=False)
    answer = json.loads(done.stdout)
    if "run" not in answer:
        raise SystemExit(f"the run failed: {answer.get('error', answer)}")
    return Path(answer["run"])


def table(folder: Path) -> dict[str, Any]:
    """What the closing note needs, from summary.json and the arms' own files."""
    summary = json.loads((folder / "summary.json").read_text())
    return {"run": folder.name, "scenario": summary["scenario"], "seed": summary["seed"],
            "arms": {arm: of_arm(found) for arm, found in summary["arms"].items()}}  # fmt: skip


def of_arm(found: dict[str, Any]) -> dict[str, Any]:
    """Median [least, most] a metric, and the stalls of each kind of fault."""
    kinds = {kind: {key: _round(value) for key, value in row["alone"].items()} for kind, row in found["by_kind"].items()}
    return {**{name: spread(found[name]) for name in METRICS}, "stall_by_kind_alone": kinds, "fidelity": found["fidelity"]}


def spread(metric: dict[str, Any]) -> str | None:
    """`median [least, most]`, or None where the arm has no such thing."""
    return None if metric["median"] is None else f"{_round(metric['median'])} [{_round(metric['min'])}, {_round(metric['max'])}]"


def _round(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


if __name__ == "__main__":
    raise SystemExit(main())
