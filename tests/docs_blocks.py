"""Finds the commands that README.md and docs/ show, and how CI treats each: run as it is, run as root, or skipped with a reason.

A command is a line that starts with `$ ` in a ```console or ```bash block; the lines below it are its output, where `...` stands for
anything. An HTML comment above a block tags all of its commands: `<!-- ci: root -->` or `<!-- ci: skip reason="why" -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SHELL_LANGUAGES = ("console", "bash")
FENCE = re.compile(r"^```(?P<language>\S*)\s*$")
TAG = re.compile(r"^<!--\s*ci:\s*(?P<mode>root|skip)(?:\s+reason=\"(?P<reason>[^\"]*)\")?\s*-->$")
TESTBED_COMMAND = re.compile(r"^(?:sudo )?\./testbed\.sh (?P<arguments>.+)$")


@dataclass(frozen=True)
class Command:
    """One shown command: where it stands, what it is, the output shown below it, and its tag (`quick` when it has none)."""

    page: str
    line: int
    text: str
    output: str
    mode: str
    reason: str

    @property
    def arguments(self) -> str | None:
        """What follows `./testbed.sh`, or None for a command of another program."""
        found = TESTBED_COMMAND.match(self.text)
        return found["arguments"] if found else None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the line of its first content line (from 1), its lines, and the tag above it."""

    page: str
    language: str
    line: int
    lines: tuple[str, ...]
    tag: str


def pages(root: Path) -> list[Path]:
    """The pages whose commands CI runs: README.md and everything in docs/."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def blocks(page: str, text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order. Raises ValueError for a block that is never closed."""
    lines, position = text.splitlines(), 0
    while position < len(lines):
        opening = FENCE.match(lines[position])
        if opening is None:
            position += 1
            continue
        first = position + 1
        position = next((n for n in range(first, len(lines)) if lines[n] == "```"), -1)
        if position < 0:
            raise ValueError(f"{page}:{first}: this block is never closed")
        yield Block(page, opening["language"], first + 1, tuple(lines[first:position]), last_text(lines[: first - 1]))
        position += 1


def last_text(lines: list[str]) -> str:
    """The last line that is not blank, or an empty string."""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def commands(block: Block) -> Iterator[Command]:
    """The commands of one block with their tag; raises ValueError for a tag that is wrong."""
    mode, reason = mode_of(block)
    starts = [n for n, line in enumerate(block.lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(block.lines)], strict=True):
        output = "\n".join(block.lines[start + 1 : end])
        yield Command(block.page, block.line + start, block.lines[start][2:].strip(), output, mode, reason)


def mode_of(block: Block) -> tuple[str, str]:
    """`(mode, reason)` from the tag above a block; a skip without a reason or a tag that cannot be read is an error."""
    if not block.tag.startswith("<!-- ci:"):
        return "quick", ""
    found = TAG.match(block.tag)
    if found is None:
        raise ValueError(f"{block.page}:{block.line}: cannot read the tag {block.tag}")
    if found["mode"] == "skip" and not found["reason"]:
        raise ValueError(f'{block.page}:{block.line}: a skipped block needs reason="..."')
    return found["mode"], found["reason"] or ""


def all_commands(root: Path) -> list[Command]:
    """Every command of every page."""
    return [command for block in all_blocks(root) if block.language in SHELL_LANGUAGES for command in commands(block)]


def contents(root: Path, name: str, language: str) -> list[str]:
    """What stands in the blocks of one language of a page in docs/."""
    text = (root / "docs" / name).read_text(encoding="utf-8")
    return ["\n".join(block.lines) for block in blocks(f"docs/{name}", text) if block.language == language]


def all_blocks(root: Path) -> list[Block]:
    """Every fenced block of every page."""
    return [block for page in pages(root) for block in blocks(str(page.relative_to(root)), page.read_text(encoding="utf-8"))]
