"""A link that is slowed down: HTB and virtual queue change together, and come back to the last byte of the kernel's answer."""

from __future__ import annotations

from typing import Any

import pytest
from fabric_lab import ask

pytestmark = pytest.mark.netns


def tell() -> dict[str, Any]:
    """Slows the lab's link down for one and for two reasons, with a backlog and without, and says what the kernel says."""
    import time

    from link_lab import Lab, mrc

    from testbed.errors import HostError, UsageError
    from testbed.fabric import link_parameters
    from testbed.fabric.bpf import row_of
    from testbed.fabric.links import ifindex, verify_port
    from testbed.fabric.rates import LinkRates, set_virtual_rate

    lab = Lab(rate_bps=20_000_000)
    rates = LinkRates(lab.kernels, lab.program, lab.settings)
    said: dict[str, Any] = {}

    def state() -> list[str]:
        kernel = lab.kernels["h1"]
        parts = []
        for at_a in (True, False):
            index = ifindex(lab.link, at_a)
            parts += [f"{class_.handle:x} {class_.attributes[2].hex()}" for class_ in kernel.classes(index)]
            parts += [f"{queue.handle:x} {queue.attributes.get(2, b'').hex()}" for queue in kernel.qdiscs() if queue.ifindex == index]
            parts.append(repr(link_parameters.read(lab.program.rows[row_of(lab.link, at_a)])))
        return parts

    def verified(settings: Any) -> str:
        try:
            verify_port(lab.kernels["h1"], lab.link, True, settings, lab.program.program_id)
            return ""
        except HostError as error:
            return str(error)

    lab.fresh(rate_bps=20_000_000, trim_bytes=40_000, ecn_min_bytes=100, ecn_max_bytes=200)
    healthy = state()
    issued, effective = rates.slow(lab.link, "f1", 2_000_000)
    said["times_ordered"] = issued <= effective <= time.monotonic()
    said["slow_fits"] = verified(rates.settings_of(lab.link, True))
    said["slow_is_noticed"] = verified(lab.settings)
    said["virtual_bps"] = [8 * int(row["rate_bytes_per_s"]) for row in (lab.row, lab.other_row)]
    rates.slow(lab.link, "f2", 1_000_000)
    rates.restore(lab.link, "f1")
    said["other_reason_left"] = lab.row["rate_bytes_per_s"] * 8 == 1_000_000 and verified(rates.settings_of(lab.link, True)) == ""
    rates.restore(lab.link, "f2")
    said["restored"] = state() == healthy
    rates.restore(lab.link, "f2")
    said["restored_twice"] = state() == healthy
    rates.slow(lab.link, "f3", 5_000_000, ends=(True,))
    said["one_way"] = [rates.settings_of(lab.link, at_a).rate_bps for at_a in (True, False)]
    rates.restore(lab.link, "f3")
    said["one_way_restored"] = state() == healthy
    try:
        rates.slow(lab.link, "f4", 10)
    except UsageError as error:
        said["refused"] = str(error)
    said["refusal_changed_nothing"] = state() == healthy

    lab.row["free_at_ns"] = time.monotonic_ns() + 10**9
    set_virtual_rate(lab.program, lab.number, 2_000_000)
    said["waiting_s"] = (int(lab.row["free_at_ns"]) - time.monotonic_ns()) / 1e9

    lab.fresh()
    rates.slow(lab.link, "f5", 1_000_000)
    began = time.monotonic()
    lab.send(*[mrc()] * 60)  # 70 kB: 0.56 s at 1 Mbit/s, 0.03 s at 20
    said["slow_took_s"] = time.monotonic() - began
    return said


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    answer: dict[str, Any] = ask(tell)
    return answer


def test_the_kernel_has_the_lower_rate(said: dict[str, Any]) -> None:
    assert said["slow_fits"] == ""


def test_verification_with_the_healthy_rate_notices(said: dict[str, Any]) -> None:
    assert "class 1:1 " in said["slow_is_noticed"]


def test_the_virtual_queue_follows_where_there_is_one(said: dict[str, Any]) -> None:
    assert said["virtual_bps"] == [2_000_000, 0]


def test_times_are_ordered(said: dict[str, Any]) -> None:
    assert said["times_ordered"] is True


def test_a_reason_that_is_left_keeps_its_rate(said: dict[str, Any]) -> None:
    assert said["other_reason_left"] is True


@pytest.mark.parametrize("when", ["restored", "restored_twice", "one_way_restored", "refusal_changed_nothing"])
def test_classes_queues_and_parameters_are_exactly_the_former(said: dict[str, Any], when: str) -> None:
    assert said[when] is True


def test_one_direction_may_be_slow(said: dict[str, Any]) -> None:
    assert said["one_way"] == [5_000_000, 20_000_000]


def test_an_impossible_rate_is_refused(said: dict[str, Any]) -> None:
    assert "10 bit/s" in said["refused"]


def test_what_is_queued_takes_ten_times_as_long_at_a_tenth(said: dict[str, Any]) -> None:
    assert 9 < said["waiting_s"] <= 10


def test_packets_need_the_time_of_the_lower_rate(said: dict[str, Any]) -> None:
    assert said["slow_took_s"] > 0.4
