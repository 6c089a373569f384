"""The page of RoCE RC names every parameter and preset with its figures."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from hosts.rc.params import PRESETS, RcParams

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "rc.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `([a-z0-9_-]+)` \| (.*?) \|", PAGE, re.MULTILINE))


@pytest.mark.parametrize("name", [field.name for field in fields(RcParams) if field.name != "dcqcn_time_scale"])
def test_each_parameter_has_a_row(name: str) -> None:
    assert name in ROWS


@pytest.mark.parametrize("name", ["qps", "payload_bytes", "window_packets", "ack_every", "link_rate_bps"])
def test_defaults_are_those_of_the_code(name: str) -> None:
    assert float(ROWS[name]) == float(getattr(RcParams(), name))


def test_the_default_preset_and_the_scale_of_time_are_named() -> None:
    assert ROWS["preset"] == f"`{RcParams().preset}`"
    assert f"`dcqcn_time_scale` = {RcParams().dcqcn_time_scale:g}" in PAGE


@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_their_timeouts(name: str) -> None:
    params = RcParams(preset=name)
    timeout_s, fails_s = (float(text.split()[0]) for text in re.findall(rf"^\| `{name}` \| (.*?) \| (.*?) \|", PAGE, re.MULTILINE)[0])
    assert timeout_s == pytest.approx(params.ack_timeout_s, rel=0.03)
    assert fails_s == pytest.approx(params.ack_timeout_s * (params.retries + 1), rel=0.03)
