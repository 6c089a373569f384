"""docs/decode.md has a row for every header, opcode, kind and reason, and each says what the tables say."""

from __future__ import annotations

from pathlib import Path

import pytest

from hosts import wire
from hosts.decode import KINDS, REASONS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "decode.md").read_text(encoding="utf-8")


def header_row(header: wire.Header) -> str:
    fields = ", ".join(f"{name} {bits}" for name, bits in header.fields)
    return f"| `{header.name}` | {header.size_bytes} | {fields} |"


@pytest.mark.parametrize("name", set(wire.HEADERS) - {"IPV6", "UDP"})
def test_each_header_has_a_row_with_its_fields(name: str) -> None:
    assert header_row(wire.HEADERS[name]) in PAGE.splitlines()


@pytest.mark.parametrize("opcode", wire.OPCODES)
def test_each_opcode_has_a_row_with_its_headers(opcode: int) -> None:
    headers = " ".join(f"[{header.name}]" if header is wire.TSETH else header.name for header in wire.headers_of(opcode, True))
    assert f"| {opcode:#04x} | {wire.OPCODES[opcode]} | {headers} |" in PAGE.splitlines()


@pytest.mark.parametrize(("name", "meaning"), [*KINDS.items(), *REASONS.items()])
def test_each_kind_and_each_reason_has_a_row(name: str, meaning: str) -> None:
    assert f"| `{name}` | {meaning} |" in PAGE.splitlines()
