"""Writing files so that a reader never meets half of one, and giving them to whoever called sudo."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Replaces the file in one step: after an interrupt, or on a full disk (OSError), it is the old one or the new one."""
    write_lines(path, [text])


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """As `write_text`, of lines that hold their own ends: as they come, so that a long text is never held whole."""
    temporary = path.with_name(path.name + ".part")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(lines)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise named(error, path) from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def named(error: OSError, path: Path) -> OSError:
    """The error with the file's name in it: a failed write, as on a full disk, does not tell where by itself."""
    if error.filename is None:
        error.filename = str(path)
    return error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replaces the file by one JSON object; what JSON does not know is written as text."""
    write_text(path, json.dumps(content, indent=1, default=str) + "\n")


def make_folder(path: Path) -> None:
    """Makes the folder and those above it that are missing, all of them the invoker's."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    give_to_invoker(*missing)


def give_to_invoker(*paths: Path) -> None:
    """Under sudo what we made belongs to whoever called it; links themselves are given, not what they lead to."""
    uid, gid = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() != 0 or not (uid.isdecimal() and gid.isdecimal()):
        return
    for path in paths:
        if path.is_symlink() or path.exists():
            os.chown(path, int(uid), int(gid), follow_symlinks=False)
