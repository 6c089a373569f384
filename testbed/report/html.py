"""report.html: one self-contained file with verdict, findings, tables, pictures and how to reproduce it."""

from __future__ import annotations

import base64
import io
import shlex
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from matplotlib.figure import Figure

from testbed.files import write_text
from testbed.report import comparison_page, context, denylist, findings, findings_head, findings_streams, routing_words, step_goodput, style
from testbed.report import statistics as stats
from testbed.report.link_table import link_rows
from testbed.report.metrics import METRICS
from testbed.report.model import STREAMS, ArmRun
from testbed.report.plots import CAPTIONS, draw
from testbed.report.reading import RunData, read_run
from testbed.report.summary import summarise_data
from testbed.report.verdict import Verdict, expectations, judge

FAULT_COLUMNS = ("fault", "kind", "tier", "target", "planned_s")
UNKNOWN = "–"
FLATTERED_SHARE = 0.05  # of a step's bytes; what bursts add below this is no more than what headers take away
# The metrics of the big table, most telling first; the others are in summary.json.
TABLE = tuple(metric for metric in METRICS if not metric.name.startswith(("stall_p50", "lost_stall", "lost_crash")))


def write_report(run_dir: Path) -> Path:
    """Writes report.html and returns its path. What is missing is said in the report; UsageError if the folder is no run."""
    data = read_run(run_dir)
    summary = summarise_data(data)
    with style.styled():
        pictures = {name: _png(figure, summary["fidelity"]["verdict"]) for name, figure in draw(data, summary)}
    return write_page(data, summary, pictures)


def write_page(data: RunData, summary: dict[str, Any], pictures: Mapping[str, bytes]) -> Path:
    """As `write_report`, from a run that was read already, and its pictures (name -> PNG)."""
    path = data.folder / "report.html"
    write_text(path, render(data, summary, pictures))
    return path


def render(data: RunData, summary: dict[str, Any], pictures: Mapping[str, bytes]) -> str:
    """The whole page; every string from the run is escaped by the template."""
    shown = {name: (name, base64.b64encode(png).decode("ascii"), CAPTIONS[name]) for name, png in pictures.items()}
    values = page(data, summary)
    first = [shown.pop(name) for name in comparison_page.PICTURES if name in shown] if values["comparison"] else []
    return template("report.html.j2").render(**values, compared_pictures=first, pictures=list(shown.values()))


def template(name: str) -> jinja2.Template:
    """A page's template, for `report` and `sweep` alike: everything is escaped, and a value that is missing is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("testbed.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def page(data: RunData, summary: dict[str, Any]) -> dict[str, Any]:
    """Everything on the page but the pictures, as plain values."""
    verdicts = judge(expectations(data.scenario), summary)
    scenario, streams = data.scenario, summary["job"] == STREAMS
    return {
        "title": str(scenario.get("title") or summary["scenario"]), "name": summary["scenario"], "folder": data.folder.name,
        "hypothesis": str(scenario.get("hypothesis") or ""), "headline": headline(verdicts, summary, errors(data)), "verdicts": verdicts,
        "fidelity": summary["fidelity"], "fidelity_line": context.fidelity_line(summary), "problems": summary["problems"],
        "errors": errors(data),
        "findings": [*findings_head.findings(summary), *filter(None, [context.hold_sentence(data)]), *denylist.sentences(data)],
        "arms": [(arm, context.label(arm)) for arm in summary["arms"]],
        "comparison": comparison_page.comparison_of(data, summary), "metric_rows": metric_rows(summary),
        "fault_rows": fault_rows(data, summary),
        "kind_rows": [] if streams else group_rows(summary, "by_kind"),
        "tier_rows": [] if streams else group_rows(summary, "by_tier"), "streams": streams,
        "allowed": [allowed(run, data.scenario) for run in context.first_runs(data)],
        "fidelity_rows": fidelity_rows(data), "weak": [] if streams else [*weak_medians(summary), *flattered(data)],
        "machine": context.machine_text(data), "captures": context.captures_line(data),
        "versions": _table(data.manifest.get("versions")), "revision": str(data.manifest.get("revision") or "unknown"),
        "command": command(data.manifest), "again": again(data, summary), "seed": summary["seed"], "settle_s": summary["settle_s"],
        "conservative": context.conservative_line(data), "started": str(data.manifest.get("started") or "unknown"),
    }  # fmt: skip


def errors(data: RunData) -> list[str]:
    """One sentence an arm and repeat that did not come to its end."""
    told = ((run, run.info.get("error") or ("it was interrupted" if run.info.get("interrupted") else "")) for runs in data.arms.values()
            for run in runs)  # fmt: skip
    return [f"{context.label(run.arm)}, repeat {run.repeat}, ended early: {error}" for run, error in told if error]


def headline(verdicts: Iterable[Verdict], summary: Mapping[str, Any], ended_early: Sequence[str] = ()) -> tuple[str, str]:
    """(good | bad | unsure, one sentence): the verdict on top of the page."""
    judged = list(verdicts)
    if ended_early:
        return "bad", "Not a whole run: an arm ended early. What was measured until then follows."
    missed = sum(not verdict.met for verdict in judged)
    fidelity = summary["fidelity"]["verdict"]
    if fidelity == "invalid":
        return "bad", "Not valid: the machine could not carry this run; do not use its figures."
    if missed:
        return "bad", f"{missed} of {len(judged)} expectations were not met."
    doubt = "" if fidelity == "good" else f" The emulation's fidelity is {fidelity}."
    if not judged:
        return "unsure", "No expectation was judged." + doubt
    return ("good" if fidelity == "good" else "unsure"), f"All {len(judged)} expectations were met." + doubt


# --- tables ------------------------------------------------------------------------------------------------------------------------------


def metric_rows(summary: Mapping[str, Any]) -> list[tuple[str, str, str, list[str]]]:
    """(name, unit, meaning, one cell an arm), of the metrics that any arm has: steps and streams have different ones."""
    rows = []
    for metric in TABLE:
        cells = [spread_text(told.get(metric.name, {})) for told in summary["arms"].values()]
        if any(cell != UNKNOWN for cell in cells):
            rows.append((metric.name, metric.unit, metric.meaning, cells))
    return rows


def spread_text(told: Mapping[str, Any]) -> str:
    """Median and range of the repeats; a dash if nothing was measured."""
    if told.get("median") is None:
        return UNKNOWN
    median, low, high = (findings.number(told[name]) for name in ("median", "min", "max"))
    return median if low == high else f"{median} ({low} to {high})"


def fault_rows(data: RunData, summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a fault: what was planned, when it came (first repeat of each arm), and each arm's stalls over its repeats."""
    rows: dict[str, dict[str, Any]] = {}
    for arm, told in summary["arms"].items():
        for entry in told["repeats"]:
            for fault in entry["faults"]:
                row = rows.setdefault(fault["fault"], {**{name: fault[name] for name in FAULT_COLUMNS}, "arms": {}})
                row["arms"].setdefault(arm, []).append(fault)
    return [
        {**row, "lasted": _lasted(row["arms"]), "cells": [_fault_cell(row["arms"].get(arm, [])) for arm in summary["arms"]]}
        for row in rows.values()
    ]


def _lasted(arms: Mapping[str, list[dict[str, Any]]]) -> str:
    """How long the fault was on, in the first arm and repeat that knows; arms differ by milliseconds."""
    known = [fault for seen in arms.values() for fault in seen if fault["effective_s"] is not None and fault["end_s"] is not None]
    return findings.seconds(known[0]["end_s"] - known[0]["effective_s"]) if known else "–"


def _fault_cell(seen: list[dict[str, Any]]) -> dict[str, str]:
    stalls = sorted(fault["stall_s"] for fault in seen if fault["stall_s"] is not None)
    first = seen[0] if seen else {"issued_s": None, "effective_s": None}
    ends = [stalls[0], stalls[-1]] if stalls else []
    crashes = sum(fault["crashes"] for fault in seen)
    missed = bool(seen) and all(fault["hit"] is False for fault in seen)
    notes = ["no impact: not on its traffic's path"] if missed else []
    kept = [fault["goodput_share"] for fault in seen if fault["goodput_share"] is not None]
    worst = [fault["worst_flow_share"] for fault in seen if fault["worst_flow_share"] is not None]
    notes += [f"goodput {findings_streams.share(min(kept))}, worst flow {findings_streams.share(min(worst))}"] if kept and worst else []
    notes += ["overlapping"] * any(fault["overlapping"] for fault in seen) + [findings.plural(crashes, "crash")] * bool(crashes)
    return {
        "issued": _offset(first["issued_s"], first.get("planned_s")),
        "effective": _offset(first["effective_s"], first.get("planned_s")),
        "stall": " to ".join(dict.fromkeys(findings.seconds(stall) for stall in ends)),
        "notes": ", ".join(notes),
    }


def _offset(t_s: float | None, planned_s: float | None) -> str:
    return "–" if t_s is None or planned_s is None else f"+{(t_s - planned_s) * 1e3:.1f} ms"


def group_rows(summary: Mapping[str, Any], key: str) -> list[tuple[str, list[str]]]:
    """One row a kind or tier, one cell an arm: stalls of faults that hit traffic and did not overlap, and of all that hit traffic."""
    names = dict.fromkeys(name for told in summary["arms"].values() for name in told[key])
    return [(name, [_group_text(told[key].get(name)) for told in summary["arms"].values()]) for name in names]


def _group_text(group: Mapping[str, Any] | None) -> str:
    if group is None:
        return "–"
    told = [f"{group['hit']} of {group['faults']} hit traffic"]
    for name, part, count in (("alone", group["alone"], group["alone"]["faults"]), ("all", group, group["hit"])):
        if part["stall_median_s"] is not None:
            median, longest = findings.seconds(part["stall_median_s"]), findings.seconds(part["stall_max_s"])
            told.append(f"{name}: {median}, max {longest} (n = {count})")
    return "; ".join(told)


def fidelity_rows(data: RunData) -> list[tuple[str, int, Mapping[str, Any]]]:
    """(arm, repeat, its fidelity entry)."""
    return [(run.arm, run.repeat, run.info.get("fidelity") or {}) for runs in data.arms.values() for run in runs]


def weak_medians(summary: Mapping[str, Any]) -> list[str]:
    """Where the healthy median rests on little."""
    return [
        f"{arm} {entry['repeat']}: "
        + (f"steps clear of faults: only {entry['healthy_steps']}" if entry["healthy_is_clear"] else "no step was clear of faults; "
           "the median of all steps stands in, so its stalls and losses are understated")
        for arm, told in summary["arms"].items() for entry in told["repeats"] if entry["healthy_steps"] < stats.MIN_HEALTHY_STEPS
    ]  # fmt: skip


def flattered(data: RunData) -> list[str]:
    """Arms whose steps are so short that the links' bursts show in their goodput."""
    told = ((run, step_goodput.burst_share(run)) for run in context.first_runs(data))
    return [
        f"{run.arm}: its steps are short: after a compute phase up to {share:.0%} of what a rank sends in a step passes at once, as "
        "the burst of links that were idle, so job_goodput_bps may lie above the links' rate; a larger vector avoids it"
        for run, share in told if share is not None and share > FLATTERED_SHARE
    ]  # fmt: skip


def allowed(run: ArmRun, scenario: Mapping[str, Any]) -> dict[str, Any]:
    """What one arm was allowed: its datapath, its links, its transport's parameters, its BGP options."""
    given = context.set_by_scenario(scenario, run.arm)
    return {
        "arm": context.label(run.arm),
        "datapath": context.datapath(run),
        "links": link_rows(run.info.get("fabric")),
        "transport": [(name, str(value), name in given) for name, value in context.transport_parameters(run).items()],
        "bgp": _table(routing_words.bgp_parameters(run)),
    }


def _table(value: Any) -> list[tuple[str, str]]:
    return [(str(name), str(entry)) for name, entry in value.items()] if isinstance(value, Mapping) else []


def command(manifest: Mapping[str, Any]) -> str:
    """The command line as it was given; the program without its folder."""
    told = manifest.get("command")
    if isinstance(told, list) and told:
        program = Path(str(told[0])).name
        return shlex.join(["testbed" if program == "__main__.py" else program, *map(str, told[1:])])
    return str(told or "unknown")


def again(data: RunData, summary: Mapping[str, Any]) -> str:
    """A command that repeats the run from the scenario and the seed in its folder."""
    sets = overrides(data.scenario)
    seed = [] if summary["seed"] is None else ["--seed", str(summary["seed"])]
    arms = ["--arm", ",".join(data.arms)] if data.arms else []
    usual = Path("results") / data.folder.parent.name / data.folder.name
    folder = usual if data.folder.resolve().parts[-3:] == usual.parts else data.folder
    return shlex.join(["sudo", "./testbed.sh", "run", str(folder / "scenario.yaml"), *seed, *arms, *sets])


def overrides(scenario: Any, leave_out: Container[str] = ()) -> list[str]:
    """The --set words that a run's scenario was given."""
    told = scenario.get("overrides") if isinstance(scenario, Mapping) else None
    return [word for entry in (told if isinstance(told, list) else ()) if entry not in leave_out for word in ("--set", str(entry))]


def _png(figure: Figure, fidelity: str) -> bytes:
    buffer = io.BytesIO()
    style.stamp(figure, fidelity)
    figure.savefig(buffer, format="png", dpi=style.DPI)
    return buffer.getvalue()
