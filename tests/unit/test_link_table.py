"""What a report says of an arm's links, from the manifest that the fabric itself writes."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.fabric import link_parameters
from testbed.link_settings import LinkSettings
from testbed.report.link_table import link_rows


def told(settings: LinkSettings) -> dict[str, str]:
    fabric = {"rate_bps": settings.rate_bps, "mtu_bytes": settings.mtu_bytes, "queue_bytes": settings.queue_bytes}
    return dict(link_rows({**fabric, "link_program": link_parameters.manifest(settings)}))


def test_thresholds_are_in_bytes_and_by_sender() -> None:
    settings = LinkSettings(10**8, queue_bytes=10**6, ecn=True, trimming=True, base_rtt_s=0.004, loss={"NIC-T0": 0.01})
    assert told(settings) == {
        "rate": "100 Mbit/s",
        "MTU": "4,352 B",
        "data queue": "1,000,000 B",
        "base RTT": "4 ms",
        "BDP": "50,000 B",
        "switch to switch: marks from": "10,000 B",
        "switch to switch: all marked from": "40,000 B",
        "switch to switch: trims above": "50,000 B",
        "switch to switch: drops above": "50,000 B",
        "switch to host: trims above": "75,000 B",
        "switch to host: drops above": "75,000 B",
        "loss on NIC-T0": "1.00%",
    }


def test_a_fabric_without_trimming_drops_and_does_not_trim() -> None:
    rows = told(LinkSettings(10**8, queue_bytes=10**6, ecn=True, tail_drop=True, base_rtt_s=0.004))
    assert rows["switch to switch: drops above"] == "50,000 B"
    assert not [name for name in rows if "trims" in name]


def test_links_that_only_count_have_no_thresholds() -> None:
    assert set(told(LinkSettings(10**8))) == {"rate", "MTU", "data queue"}


@pytest.mark.parametrize(
    "fabric", [None, "x", {}, {"link_program": 7}, {"rate_bps": "fast", "link_program": {"base_rtt_s": 1, "fabric": 3}}]
)
def test_a_damaged_manifest_is_no_error(fabric: Any) -> None:
    assert all(isinstance(text, str) for row in link_rows(fabric) for text in row)
