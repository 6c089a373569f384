"""What a report says of TCP: its settings, its round trips, what its packets leave to payload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.report import context, goodput
from testbed.report.model import ArmRun
from testbed.report.reading import RunData


def data(**transport: Any) -> RunData:
    info = {"fabric": {"rate_bps": 10e6, "mtu_bytes": 4352}, "transport": transport}
    arm = ArmRun("tcp-bgp", 1, 20.0, info=info, agents={"h1": {"base_rtt_s": {"h2": 20e-6}}})
    return RunData(Path("/"), {}, {}, 1, {"tcp-bgp": (arm,)}, ())


def test_the_footer_tells_what_tcp_was_allowed():
    told = context.tcp_line(data(connections=2, user_timeout_s=2.5))
    assert "connections 2" in told
    assert "cubic" in told
    assert "user timeout 2.5 s" in told


def test_round_trips_below_a_tenth_of_a_millisecond_are_not_told_as_none():
    assert "TCP over BGP 0.02 ms (smallest of handshakes and data)" in context.conservative_line(data())


def test_full_segments_leave_headers_and_timestamps_out():
    (arm,) = data().arms["tcp-bgp"]
    assert goodput.payload_share(arm) == pytest.approx((4352 - 40 - 20 - 12) / (4352 + 14))
