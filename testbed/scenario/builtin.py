"""The scenarios that come with the testbed, by name."""

from __future__ import annotations

import sys
from pathlib import Path

from testbed.errors import UsageError
from testbed.scenario.problems import did_you_mean

SUFFIXES = (".yaml", ".yml")


def folder() -> Path:
    """Where the scenarios are: in the clone, beside the installed package, or in the environment's share folder. Raises UsageError."""
    package = Path(__file__).resolve().parents[1]
    candidates = (package.parent / "scenarios", package / "scenarios", Path(sys.prefix) / "share" / "testbed" / "scenarios")
    for candidate in candidates:
        if any(candidate.glob("*.yaml")):
            return candidate
    raise UsageError("the testbed's scenarios were not found: give the path of a scenario file")


def is_file(path: Path) -> bool:
    """Whether there is such a file; a name that the system refuses (too long) is no file."""
    try:
        return path.is_file()
    except OSError:
        return False


def names() -> dict[str, Path]:
    """Every scenario of the testbed: its name and file, sorted by name."""
    return {path.stem: path for path in sorted(folder().glob("*.yaml"))}


def find(name_or_path: str) -> Path:
    """The file of a scenario: a path to one, or the name of one that comes with the testbed. Raises UsageError with a hint."""
    path = Path(name_or_path)
    if path.suffix in SUFFIXES or "/" in name_or_path or is_file(path):
        return path
    known = names()
    if name_or_path in known:
        return known[name_or_path]
    raise UsageError(f"there is no scenario {name_or_path!r} ({did_you_mean(name_or_path, known, 'scenarios')})")
