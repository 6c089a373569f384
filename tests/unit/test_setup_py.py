"""setup.py describes what is there: every import is required, every requirement is imported, every data file is packed."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("testbed", "topologies", "hosts")
# Needed though nobody imports them: mininet imports distutils, which comes from setuptools since Python 3.12.
INDIRECT = {"setuptools"}
# Not for run time of every arm: extras.
EXTRA_ONLY = {"ryu", "eventlet"}


@pytest.fixture(scope="module")
def metadata() -> dict[str, Any]:
    """The arguments with which setup.py calls setuptools.setup."""
    with mock.patch("setuptools.setup") as called:
        runpy.run_path(str(ROOT / "setup.py"))
    return dict(called.call_args.kwargs)


def names(requirements: list[str]) -> set[str]:
    """Project names without their versions, in lower case."""
    return {re.split(r"[<>=!~\[; ]", requirement)[0].lower() for requirement in requirements}


def imported_modules() -> set[str]:
    """Top-level names of all modules that our packages import and that are neither ours nor Python's."""
    found: set[str] = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            found |= set(imports_of(ast.parse(path.read_text(encoding="utf-8"))))
    return found - set(PACKAGES) - set(sys.stdlib_module_names)


def imports_of(tree: ast.Module) -> Iterator[str]:
    """Top-level names of the modules that `tree` imports anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def imported_projects() -> set[str]:
    """The projects that bring those modules."""
    owners = packages_distributions()
    return {project.lower() for module in imported_modules() for project in owners.get(module, [module])}


def test_every_import_is_a_requirement(metadata: dict[str, Any]) -> None:
    assert imported_projects() - names(metadata["install_requires"]) - EXTRA_ONLY == set()


def test_every_requirement_is_imported(metadata: dict[str, Any]) -> None:
    assert names(metadata["install_requires"]) - imported_projects() - INDIRECT == set()


def test_every_package_is_packed(metadata: dict[str, Any]) -> None:
    there = {str(p.parent.relative_to(ROOT)).replace("/", ".") for name in PACKAGES for p in (ROOT / name).rglob("__init__.py")}
    assert there - set(metadata["packages"]) == set()


def test_every_folder_with_code_is_a_package() -> None:
    bare = {p.parent for name in PACKAGES for p in (ROOT / name).rglob("*.py") if not (p.parent / "__init__.py").exists()}
    assert sorted(str(folder.relative_to(ROOT)) for folder in bare) == []


def test_every_data_file_is_packed(metadata: dict[str, Any]) -> None:
    folders = [ROOT / package.replace(".", "/") for package in metadata["packages"]]
    packed = {path for folder in folders for pattern in metadata["package_data"][""] for path in folder.glob(pattern)}
    data = [p for name in (*PACKAGES, "scenarios") for p in (ROOT / name).rglob("*") if is_data(p)]
    assert [str(p.relative_to(ROOT)) for p in data if p not in packed] == []


def is_data(path: Path) -> bool:
    """A file that is not Python's and that a clone has (compiled programs are made on each machine)."""
    return path.is_file() and path.suffix not in (".py", ".pyc", ".o", ".md")


def test_the_command_is_the_cli(metadata: dict[str, Any]) -> None:
    assert metadata["entry_points"] == {"console_scripts": ["testbed = testbed.cli:main"]}


def test_python_of_the_oldest_distribution_is_enough(metadata: dict[str, Any]) -> None:
    assert "3.10" in metadata["python_requires"], "Ubuntu 22.04 has Python 3.10"


def test_ryu_is_an_extra_with_an_eventlet_that_imports(metadata: dict[str, Any]) -> None:
    assert metadata["extras_require"]["ryu"] == ["ryu==4.34", "eventlet>=0.38.2"]
