"""tests/conftest.py: what needs root is skipped with a reason, and in CI never skipped."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"


class Item:
    """As much of a pytest item as the hook looks at."""

    def __init__(self, *markers: str) -> None:
        self.nodeid = "tests/made_up.py::test_x"
        self.markers = markers
        self.added: list[pytest.MarkDecorator] = []

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.markers else None

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.added.append(marker)


@pytest.fixture(scope="module")
def conftest() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conftest_under_test", CONFTEST)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not root, and not in CI."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("CI", raising=False)


@pytest.mark.parametrize("marker", ["netns", "fabric"])
@pytest.mark.usefixtures("nobody")
def test_without_root_a_marked_test_is_skipped_with_the_command_to_run(conftest: ModuleType, marker: str) -> None:
    item = Item(marker)
    conftest.pytest_collection_modifyitems([item])
    assert [mark.kwargs["reason"] for mark in item.added] == ["needs root: sudo ./testbed.sh test"]


@pytest.mark.usefixtures("nobody")
def test_without_root_an_unmarked_test_runs(conftest: ModuleType) -> None:
    item = Item()
    conftest.pytest_collection_modifyitems([item])
    assert item.added == []


@pytest.mark.usefixtures("nobody")
def test_in_ci_a_skip_for_want_of_root_is_an_error(conftest: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.UsageError, match="CI must run as root: 1 selected tests"):
        conftest.pytest_collection_modifyitems([Item("fabric")])


def test_as_root_nothing_is_skipped(conftest: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    item = Item("netns")
    conftest.pytest_collection_modifyitems([item])
    assert item.added == []
