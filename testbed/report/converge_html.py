"""The pictures and the page of a measurement of convergence, from its converge.json."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.converge.profiles import PROFILES
from testbed.errors import UsageError
from testbed.files import write_text
from testbed.report import converge_words, plot_converge, style
from testbed.report.html import command, overrides, template
from testbed.report.plots import write_figure


def read(folder: Path) -> dict[str, Any]:
    """converge.json. UsageError if it is not there or damaged."""
    content = _object(folder / "converge.json")
    missing = [name for name in NEEDED if name not in content]
    if missing or not isinstance(content["rows"], list):
        raise UsageError(f"{folder / 'converge.json'} has no {', '.join(missing) or 'list of rows'}: it is damaged")
    return content


NEEDED = (
    "scenario", "title", "hypothesis", "seed", "profiles", "repeats", "flows", "probe_rate_per_s", "resolution_s", "skipped", "machine",
    "complete", "problems", "rows", "fabrics",
)  # fmt: skip
"""What the page and the pictures are made of."""


def _object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path.parent} holds no measurement of convergence that can be read: {error}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} is no JSON object: it is damaged")
    return content


def write_pictures(folder: Path, content: Mapping[str, Any]) -> list[Path]:
    """Writes plots/converge-begin and -end as PNG and SVG; returns their paths."""
    fidelity = converge_words.worst_fidelity(content)
    with style.styled():
        return [path for name, figure in plot_converge.draw(content) for path in write_figure(folder, name, figure, fidelity)]


def write_report(folder: Path) -> Path:
    """Writes the pictures and report.html; returns the page's path."""
    content = read(folder)
    pictures = [path for path in write_pictures(folder, content) if path.suffix == ".png"]
    path = folder / "report.html"
    write_text(path, render(folder, content, pictures))
    return path


def render(folder: Path, content: Mapping[str, Any], pictures: list[Path]) -> str:
    """The whole page; every string from the measurement is escaped by the template."""
    shown = [(base64.b64encode(path.read_bytes()).decode("ascii"), plot_converge.CAPTIONS[path.stem]) for path in pictures]
    return template("converge.html.j2").render(**page(folder, content), pictures=shown)


def page(folder: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Everything on the page but the pictures, as plain values."""
    manifest = _object(folder / "manifest.json")
    tables = converge_words.headings(content["rows"])
    return {
        **{name: content[name] for name in ("hypothesis", "seed", "problems", "repeats")},
        "title": content["title"] or content["scenario"], "name": content["scenario"], "folder": folder.name,
        "headline": headline(content), "findings": converge_words.findings(content), "footer": converge_words.footer(content),
        "head": converge_words.TABLE_HEAD, "classes": converge_words.CLASS_WORDS,
        "tables": [(heading, [converge_words.table_row(row) for row in rows]) for heading, rows in tables],
        "fidelity": converge_words.fidelity(content), "timers": converge_words.timers(content), "command": command(manifest),
        "again": again(folder, content, manifest),
        "started": str(manifest.get("started") or "unknown"), "revision": str(manifest.get("revision") or "unknown"),
    }  # fmt: skip


def again(folder: Path, content: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """A command that repeats it from the scenario in its folder: the same profiles, probes, seed and overrides."""
    plan = {
        "--repeats": content["repeats"],
        "--flows": content["flows"],
        "--probe-rate": content["probe_rate_per_s"],
        "--seed": content["seed"],
    }
    options = [word for name, value in plan.items() for word in (name, str(value))]
    profiles = [word for name in content["profiles"] for word in ("--profile", str(name))]
    own = {PROFILES[name].override for name in content["profiles"] if name in PROFILES}
    sets = overrides(manifest.get("scenario"), leave_out=own)
    return shlex.join(["sudo", "./testbed.sh", "converge", str(folder / "scenario.yaml"), *profiles, *options, *sets])


def headline(content: Mapping[str, Any]) -> tuple[str, str]:
    """(good | bad | unsure, one sentence): the verdict on top of the page."""
    fidelity = converge_words.worst_fidelity(content)
    if not content["complete"]:
        return "bad", "Not a whole measurement: what was measured until it ended follows."
    if fidelity == "invalid":
        return "bad", "Not valid: the machine could not carry it for every profile; see fidelity."
    told = f"Every fault was measured {content['repeats']} times with each of {len(content['profiles'])} profiles."
    return ("good", told) if fidelity == "good" else ("unsure", f"{told} The emulation's fidelity is {fidelity}.")
