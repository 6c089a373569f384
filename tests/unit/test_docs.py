"""README and docs: every command is run or skipped with a reason, every page is listed, every link leads somewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import docs_runner
import pytest
from docs_blocks import SHELL_LANGUAGES, Block, Command, all_blocks, all_commands, blocks, commands, pages

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|#|mailto:)([^)#\s]+)[^)]*\)")
QUICK = [command for command in all_commands(ROOT) if command.mode == "quick"]


def parsed(markdown: str) -> list[Command]:
    return [command for block in blocks("page.md", markdown) if block.language in SHELL_LANGUAGES for command in commands(block)]


def test_finds_a_command_with_its_output_and_line() -> None:
    (found,) = parsed("# t\n\n```console\n$ ./testbed.sh list\nquick ...\n```\n")
    assert (found.text, found.output, found.line, found.mode) == ("./testbed.sh list", "quick ...", 4, "quick")


def test_takes_the_tag_above_a_block() -> None:
    assert [c.mode for c in parsed("<!-- ci: root -->\n```console\n$ ./testbed.sh doctor\n```\n")] == ["root"]


def test_refuses_a_skip_without_a_reason() -> None:
    with pytest.raises(ValueError, match="needs reason"):
        parsed("<!-- ci: skip -->\n```console\n$ reboot\n```\n")


def test_refuses_a_misspelt_tag() -> None:
    with pytest.raises(ValueError, match="cannot read the tag"):
        parsed("<!-- ci: rot -->\n```console\n$ reboot\n```\n")


def test_a_command_of_another_program_is_not_run_without_a_tag(tmp_path: Path) -> None:
    (found,) = parsed("```console\n$ rm -rf /\n```\n")
    with pytest.raises(AssertionError, match="tag its block"):
        docs_runner.run(found, tmp_path, timeout_s=1)


def test_shown_output_that_differs_is_reported() -> None:
    (found,) = parsed("```console\n$ ./testbed.sh list\nquick ... minute\n```\n")
    assert docs_runner.difference(found, "quick is under a minute\n") == ""
    assert "the page shows" in docs_runner.difference(found, "nothing\n")


def test_a_slow_machines_verdict_is_no_failure_of_the_docs() -> None:
    assert docs_runner.ran_to_its_end("run quick", ended(4, "results: x\nmrc repeat 1 is not valid: CPU 100% busy\n"))


@pytest.mark.parametrize(
    ("arguments", "status", "output"),
    [
        ("run quick", 3, "results: x\n"),
        ("run quick", 1, "no folder\n"),
        ("run quick", 1, "results: x\nmrc: wrong_sums == 0: NOT met\n"),
        ("doctor", 1, "results: x\n"),
    ],
)
def test_other_failures_are_failures(arguments: str, status: int, output: str) -> None:
    assert not docs_runner.ran_to_its_end(arguments, ended(status, output))


def ended(status: int, output: str) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], status, output, "")


@pytest.mark.parametrize("block", [b for b in all_blocks(ROOT) if b.language in SHELL_LANGUAGES], ids=lambda b: f"{b.page}:{b.line}")
def test_shell_blocks_start_with_a_command(block: Block) -> None:
    assert block.lines, "an empty block"
    assert block.lines[0].startswith("$ "), "CI takes lines that start with `$ ` for commands; here it would run none"


@pytest.mark.parametrize("block", [b for b in all_blocks(ROOT) if b.language not in SHELL_LANGUAGES], ids=lambda b: f"{b.page}:{b.line}")
def test_commands_stand_in_shell_blocks_only(block: Block) -> None:
    assert not [line for line in block.lines if line.startswith("$ ")], "CI runs commands of ```console blocks only"


@pytest.mark.parametrize("command", QUICK, ids=str)
def test_quick_commands_do_what_the_page_shows(command: Command, repo_root: Path, tmp_path: Path) -> None:
    output = docs_runner.run(command, docs_runner.scratch_folder(repo_root, tmp_path), timeout_s=120)
    assert docs_runner.difference(command, output) == ""


@pytest.mark.parametrize("page", pages(ROOT), ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    missing = [target for target in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / target).exists()]
    assert missing == []


def test_index_lists_every_page(repo_root: Path) -> None:
    index = repo_root / "docs" / "index.md"
    listed = {(index.parent / target).resolve() for target in LINK.findall(index.read_text(encoding="utf-8"))}
    there = {page.resolve() for page in (repo_root / "docs").rglob("*.md")} - {index.resolve()}
    assert sorted(str(page.relative_to(repo_root)) for page in there - listed) == []


def test_readme_lists_every_scenario(repo_root: Path) -> None:
    readme = (repo_root / "README.md").read_text(encoding="utf-8")
    scenarios = [path.stem for path in sorted((repo_root / "scenarios").glob("*.yaml"))]
    assert [name for name in scenarios if f"`{name}`" not in readme] == []


def test_changelog_has_the_version_of_setup_py(repo_root: Path) -> None:
    version = re.search(r'^VERSION = "(.+)"$', (repo_root / "setup.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None
    assert f"## {version[1]}" in (repo_root / "CHANGELOG.md").read_text(encoding="utf-8")
