"""The sampler's files, and what happens when it cannot go on."""

import time

import numpy as np
import pytest

from testbed.collect.sampler import CPU_COLUMNS, LINK_COLUMNS, Sampler
from topologies import build


def counters():
    return np.zeros(2000, [("tx_packets", "u8"), ("tx_bytes", "u8"), ("dropped_packets", "u8")])


def test_the_last_sample_has_every_direction_of_every_link(tmp_path):
    topology = build("fat-tree", k=2)
    sampler = Sampler(topology, counters, tmp_path, time.monotonic())
    sampler.start()
    sampler.stop()
    lines = (tmp_path / "links.csv").read_text().splitlines()
    assert lines[0] == ",".join(LINK_COLUMNS)
    assert len(lines) - 1 >= 2 * len(topology.links)
    assert (tmp_path / "cpu.csv").read_text().splitlines()[0] == ",".join(CPU_COLUMNS)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyError("x")])
def test_a_sampler_that_cannot_go_on_says_so(tmp_path, error):
    def broken():
        raise error

    sampler = Sampler(build("fat-tree", k=2), broken, tmp_path, time.monotonic())
    sampler.start()
    with pytest.raises(type(error)):
        sampler.stop()
    with pytest.raises(type(error)):
        sampler.check()
