"""The documented commands that need root, run in order in one scratch folder, as a reader of the pages would."""

from __future__ import annotations

from pathlib import Path

import docs_runner
import pytest
from docs_blocks import Command, all_commands

ROOT = Path(__file__).resolve().parents[2]
ROOT_COMMANDS = [command for command in all_commands(ROOT) if command.mode == "root"]

pytestmark = pytest.mark.fabric


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all: a later command may show what an earlier one measured."""
    return docs_runner.scratch_folder(ROOT, tmp_path_factory.mktemp("docs"))


@pytest.mark.parametrize("command", ROOT_COMMANDS, ids=str)
def test_root_commands_do_what_the_page_shows(command: Command, folder: Path) -> None:
    assert docs_runner.difference(command, docs_runner.run(command, folder, timeout_s=400)) == ""
