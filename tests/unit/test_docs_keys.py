"""The tables of the documentation name every key, kind and option that there is, and no other."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import get_args

import click
import pytest
from pydantic import BaseModel

from hosts.tcp.params import TcpParams
from testbed.cli.app import cli, run
from testbed.link_settings import MIN_RATE_BPS
from testbed.scenario import schema
from testbed.scenario.schema_deny import Deny
from testbed.scenario.schema_faults import EXPLICIT, MAX_EVS, MAX_PERIOD_S, MIN_FLAP_S, MIN_PERIOD_S, ChurnKind
from testbed.scenario.schema_sweep import MAX_POINTS, Sweep
from testbed.units import format_duration

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROW = re.compile(r"^\| (?P<first>.*?) \| (?P<second>.*?) \|", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")


def rows(page: str) -> list[tuple[list[str], list[str]]]:
    """What stands in backticks in the first two columns of each row of a page's tables."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [(CODE.findall(found["first"]), CODE.findall(found["second"])) for found in ROW.finditer(text)]


def keys(section: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in section.model_fields.items()}


def told(page: str, section: str) -> set[str]:
    """Keys of a section that have a row: `links.rate` and so on."""
    return {
        name.removeprefix(f"{section}.")
        for first, _ in rows(page)
        for name in first
        if name.startswith(f"{section}.") and name != "sweep.json"
    }


KINDS = [(kind, keys(model) - {"kind", "at", "for"}) for model in EXPLICIT for kind in get_args(model.model_fields["kind"].annotation)]


@pytest.mark.parametrize(
    ("page", "section", "model"),
    [
        ("scenarios.md", "links", schema.Links),
        ("scenarios.md", "run", schema.Run),
        ("scenarios.md", "deny", Deny),
        ("denylist.md", "deny", Deny),
        ("sweeps.md", "sweep", Sweep),
    ],
)
def test_each_key_of_a_section_has_a_row(page: str, section: str, model: type[BaseModel]) -> None:
    assert told(page, section) == keys(model)


@pytest.mark.parametrize(("kind", "named"), KINDS)
def test_each_kind_of_fault_has_a_row_with_its_keys(kind: str, named: set[str]) -> None:
    (row,) = [second for first, second in rows("scenarios.md") if first == [kind]]
    assert set(row) == named


def test_each_kind_of_fault_is_explained() -> None:
    explained = {name for first, _ in rows("faults.md") for name in first}
    assert {kind for kind, _ in KINDS} <= explained


def test_every_arm_and_every_kind_that_churn_draws_is_named() -> None:
    text = (DOCS / "scenarios.md").read_text(encoding="utf-8")
    assert all(re.search(rf"\b{name}\b", text) for name in (*get_args(schema.Arm), *get_args(ChurnKind)))


def test_the_limits_that_the_pages_name_are_those_of_the_code() -> None:
    text = (DOCS / "scenarios.md").read_text(encoding="utf-8")
    assert f"up to {MAX_EVS} EV numbers" in text
    assert f"each {format_duration(MIN_FLAP_S)} at least" in text
    assert f"{format_duration(MIN_PERIOD_S)} to {MAX_PERIOD_S:g} s" in text
    assert f"{MIN_RATE_BPS / 1000:g} kbit/s at least" in text
    assert f"1 to {MAX_POINTS} single values" in (DOCS / "sweeps.md").read_text(encoding="utf-8")


def test_each_option_of_run_and_each_command_is_on_the_page_of_the_command_line() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    options = {name for parameter in run.params if isinstance(parameter, click.Option) for name in parameter.opts if name.startswith("--")}
    assert [name for name in sorted(options) if name not in text] == []
    assert [name for name in cli.commands if f"`{name} " not in text and f"`{name}`" not in text] == []
    listed = {name.split()[0] for first, _ in rows("cli.md") for name in first if name.startswith("--")}
    assert listed <= options


def test_each_parameter_of_tcp_has_a_row_with_its_default() -> None:
    defaults = {field.name: field.default for field in dataclasses.fields(TcpParams)}
    text = (DOCS / "tcp.md").read_text(encoding="utf-8").split("## Parameters")[1].split("\n## ")[0]
    told = {CODE.findall(row["first"])[0]: row["second"].strip("`") for row in ROW.finditer(text) if CODE.findall(row["first"])}
    assert told == {name: f"{value:g}" if isinstance(value, int | float) else value for name, value in defaults.items()}
