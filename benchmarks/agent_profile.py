"""Where the agents' time goes, as cProfile has it: own time by part of the agent, as a share of all but waiting.

cProfile makes Python's calls dearer and leaves system calls and CRCs as they are: so the shares of Python are upper bounds.
"""

from __future__ import annotations

import pstats
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

WAITING = "select.select"
BUILT_IN = {
    "sendmsg": "send (system call)", "recv_into": "receive (system call)", "crc32": "CRC", "monotonic": "clock",
    "pack_into": "struct", "unpack_from": "struct",
}  # fmt: skip
MOST = 14


def profiled(run: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """Runs with the folder that the agents write their profiles to; for each end the shares by part, and the dearest functions."""
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder))
        return {end: shares(Path(folder) / f"{host}.prof") for end, host in (("sender", "h1"), ("receiver", "h2"))}


def shares(profile: Path) -> dict[str, Any]:
    """Own time by part and by function, in percent of all that is neither waiting nor importing; what is below 1 % is left out."""
    stats = pstats.Stats(str(profile)).stats  # type: ignore[attr-defined]
    parts, functions = defaultdict[str, float](float), defaultdict[str, float](float)
    for (file, _line, name), (_calls, _primitive, own_s, _total_s, callers) in stats.items():
        spent_s = sum(by[2] for (caller, _, what), by in callers.items() if is_ours(caller, what)) if file == "~" else own_s
        if (file == "~" or is_ours(file, name)) and WAITING not in name:
            part = part_of(file, name)
            parts[part] += spent_s
            functions[f"{part}: {name}"] += spent_s
    whole_s = sum(parts.values())
    return {"parts_percent": _percent(parts, whole_s), "functions_percent": _percent(functions, whole_s)}


def _percent(spent: Mapping[str, float], whole_s: float) -> dict[str, float]:
    dearest = sorted(spent.items(), key=lambda part: part[1], reverse=True)[:MOST]
    return {name: round(own_s / whole_s * 100, 1) for name, own_s in dearest if own_s >= 0.01 * whole_s}


def is_ours(file: str, name: str) -> bool:
    """Whether it is a function of the agent's own modules, and no module's body, which runs once."""
    return "hosts/" in file and name not in ("<module>", "_start")


def part_of(file: str, name: str) -> str:
    """The module under hosts/, or a kind of built-in function."""
    if file == "~":
        return next((part for key, part in BUILT_IN.items() if key in name), "other built-in functions")
    return "hosts/" + file.rpartition("hosts/")[2]
