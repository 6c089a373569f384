"""Link parameters in human units, thresholds from the BDP, and the rows they become."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from testbed.errors import HostError, UsageError
from testbed.fabric import bpf
from testbed.fabric import link_parameters as links
from testbed.fabric.bpf import ROW
from testbed.fabric.link_parameters import LinkParameters
from testbed.fabric.rates import slowed
from testbed.link_settings import MIN_BDP_FRAMES, LinkSettings
from topologies import build

FAST = LinkSettings(rate_bps=1_000_000_000, queue_bytes=4_000_000, ecn=True, trimming=True, base_rtt_s=0.004)  # BDP 500 kB
SLOW = LinkSettings(rate_bps=1_000_000, ecn=True, trimming=True, base_rtt_s=0.001)
FULL = LinkParameters(8000, 1, 2, 3, 4, 5, True, 0.25, (1, 0xFFFFFFFF), 1.0, True, True)


@pytest.fixture
def row() -> Any:
    return np.zeros(2, ROW)[1]


def test_without_ecn_and_trimming_a_link_only_counts() -> None:
    assert links.of_settings(LinkSettings(rate_bps=10**7), "fabric") == LinkParameters()


def test_thresholds_are_shares_of_the_bdp() -> None:
    found = links.of_settings(FAST, "fabric")
    assert (found.ecn_min_bytes, found.ecn_max_bytes, found.trim_bytes) == (100_000, 400_000, 500_000)


def test_the_last_hop_trims_later() -> None:
    assert links.of_settings(FAST, "last_hop").trim_bytes == 750_000


def test_what_cannot_be_trimmed_is_dropped_at_the_same_threshold() -> None:
    found = links.of_settings(FAST, "last_hop")
    assert found.limit_bytes == found.trim_bytes


def test_a_bdp_below_a_few_frames_counts_as_a_few_frames() -> None:
    assert SLOW.bdp_bytes == MIN_BDP_FRAMES * SLOW.frame_bytes


def test_ecn_alone_neither_trims_nor_drops() -> None:
    found = links.of_settings(replace(FAST, trimming=False), "fabric")
    assert (found.trim_bytes, found.limit_bytes, found.ecn_max_bytes) == (0, 0, 400_000)


def test_trimming_alone_does_not_mark() -> None:
    assert links.of_settings(replace(FAST, ecn=False), "fabric").ecn_max_bytes == 0


def test_a_queue_smaller_than_the_thresholds_is_refused_with_the_size_it_needs() -> None:
    with pytest.raises(UsageError, match="needs 875000 bytes"):
        replace(FAST, queue_bytes=500_000)


def test_a_base_rtt_below_zero_is_refused() -> None:
    with pytest.raises(UsageError, match="base RTT"):
        replace(FAST, base_rtt_s=-1.0)


def test_parameters_survive_a_row(row: Any) -> None:
    links.write(row, FULL)
    assert links.read(row) == FULL


def test_writing_what_was_read_restores_every_byte(row: Any) -> None:
    links.write(row, FULL)
    before = row.tobytes()
    links.write(row, replace(links.read(row), loss=0.1, evs=(7,), drop_all=False))
    links.write(row, FULL)
    assert row.tobytes() == before


def test_a_change_leaves_the_other_parameters_alone(row: Any) -> None:
    links.write(row, FULL)
    links.change(row, loss=0.5)
    assert links.read(row) == replace(FULL, loss=0.5)


@pytest.mark.parametrize("wrong", [{"loss": 1.1}, {"ev_loss": -0.1}, {"evs": tuple(range(9))}, {"evs": (-1,)}, {"trim_bytes": 2**32}])
def test_a_bad_value_is_refused_and_nothing_is_written(row: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        links.change(row, drop_all=True, **wrong)
    assert not row["drop_all"]


def test_a_share_of_one_is_certain_and_zero_is_never() -> None:
    assert (links.probability(1.0), links.probability(0.0)) == (links.CERTAIN, 0)


def test_the_generator_is_splitmix64() -> None:
    assert links.draws(0, 3) == [0xE220A839, 0x6E789E6A, 0x06C45D18]  # first outputs for seed 0, upper halves


def test_draws_are_spread_evenly() -> None:
    numbers = links.draws(links.state_of(1, 2, "loss"), 20_000)
    assert np.mean(numbers) / 2**32 == pytest.approx(0.5, abs=0.01)


def test_rows_and_generators_have_states_of_their_own() -> None:
    states = {links.state_of(seed, number, name) for seed in (0, 1) for number in (2, 3) for name in bpf.GENERATORS}
    assert len(states) == 12


def test_only_the_way_down_to_a_host_is_a_last_hop() -> None:
    topology = build("fat-tree", k=4)
    rows = np.zeros(bpf.MAX_ROWS, ROW)
    links.set_up_rows(rows, topology, SLOW)
    down = {bpf.row_of(link, False) for link in topology.links.values() if link.tier == "NIC-T0"}
    assert set(np.flatnonzero(rows["last_hop"])) == down


def test_a_host_neither_marks_nor_trims_what_it_sends() -> None:
    assert links.of_settings(FAST, "host") == LinkParameters()


def test_switches_trim_towards_switches_and_towards_hosts() -> None:
    topology = build("fat-tree", k=4)
    rows = np.zeros(bpf.MAX_ROWS, ROW)
    links.set_up_rows(rows, topology, SLOW)
    up = {bpf.row_of(link, True) for link in topology.links.values() if link.tier == "NIC-T0"}
    everything = {bpf.row_of(link, from_a) for link in topology.links.values() for from_a in (True, False)}
    assert set(np.flatnonzero(rows["trim_bytes"])) == everything - up


def test_a_row_is_whole_cache_lines() -> None:
    assert ROW.itemsize % 64 == 0


def test_a_map_of_another_shape_is_refused() -> None:
    with pytest.raises(HostError, match="out of step"):
        bpf._compare_sizes(ROW.itemsize + 8, bpf.MAX_ROWS)


def test_the_programs_structure_has_the_fields_of_the_row_in_their_order() -> None:
    body = bpf.SOURCE.read_text().partition("struct link_row {")[2].partition("};")[0]
    names = [line.split(";")[0].split()[1].partition("[")[0] for line in body.splitlines() if line.strip().startswith("__u")]
    assert names == list(ROW.names or ())


def test_a_slowed_class_keeps_quantum_and_priority() -> None:
    import struct

    format_ = "=8sI8sIIIIII"
    before = struct.pack(format_, b"r" * 8, 1000, b"c" * 8, 125_000, 11, 12, 4366, 0, 1)
    after = struct.unpack(format_, slowed(before, LinkSettings(rate_bps=500_000)))
    assert (after[1], after[3], after[6], after[8]) == (1000, 62_500, 4366, 1)
