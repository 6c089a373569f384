"""What a peer's `ready` said, damaged in any way: `connect` refuses it in a sentence, or what it accepted can be sent with."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tcp_lab import Lab

from hosts.core import Core, PeerSpec
from hosts.rc import RcCore, RcParams
from testbed.errors import UsageError

PEERS = {"b": PeerSpec("b", "fd00::2", ())}
NUMBERS = st.integers() | st.sampled_from([0, 1, 1 << 16, 1 << 24, 1 << 32, 1 << 63, 1 << 64]) | st.floats()
JSON = st.recursive(st.none() | st.booleans() | NUMBERS | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2), max_leaves=4)
ENDS = JSON | st.lists(st.fixed_dictionaries({"qpn": NUMBERS, "source_port": NUMBERS, "first_psn": NUMBERS}), min_size=1, max_size=1)
BY_PEER = JSON | st.fixed_dictionaries({"a": ENDS})
ATTRIBUTES = JSON | st.fixed_dictionaries({
    "port": NUMBERS, "region_bytes": NUMBERS, "receive": BY_PEER, "send": BY_PEER, "rkey": NUMBERS, "base_address": NUMBERS,
})  # fmt: skip


def rc() -> Core:
    return RcCore("a", "fd00::1", RcParams(), PEERS, PEERS, memoryview(bytearray(64)), 1)


def tcp() -> Core:
    lab = Lab()
    lab.pipes["a"].dial = lambda address, port: 1  # type: ignore[method-assign]
    return lab.a


@pytest.mark.parametrize("make", [rc, tcp])
@settings(max_examples=300, deadline=None)
@given(ATTRIBUTES)
def test_a_peers_attributes_are_refused_or_can_be_sent_with(make: Any, attributes: Any) -> None:
    core = make()
    with contextlib.suppress(UsageError):
        core.connect({"b": attributes})
        core.post_write(0.0, "b", memoryview(b"hello"), 0, 1)
        list(core.transmit(0.0))
