"""The link program loads from wherever the clone lies."""

from __future__ import annotations

import pytest
from fabric_lab import ask

pytestmark = pytest.mark.netns


def load_from_a_folder_with_a_space() -> bool:
    """Whether the program is in the kernel after it."""
    import tempfile
    from pathlib import Path

    from testbed.fabric.bpf import LinkProgram, build_bpf

    with tempfile.TemporaryDirectory(prefix="a clone ") as folder:
        program = LinkProgram()
        program.load(build_bpf(Path(folder)))
        return program.program_id > 0


def test_a_folder_with_a_space_in_its_name_is_no_obstacle():
    assert ask(load_from_a_folder_with_a_space)
