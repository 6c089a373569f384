"""The sampler's files, and what happens when it cannot go on."""

import csv
import time

import numpy as np
import pytest

from testbed.collect.sampler import CPU_COLUMNS, LINK_COLUMNS, LINK_COUNTERS, Sampler
from testbed.fabric.bpf import ROW, row_of
from topologies import build


def counters():
    return np.zeros(2000, ROW)


def test_the_last_sample_has_every_direction_of_every_link(tmp_path):
    topology = build("fat-tree", k=2)
    sampler = Sampler(topology, counters, tmp_path, time.monotonic())
    sampler.start()
    sampler.stop()
    lines = (tmp_path / "links.csv").read_text().splitlines()
    assert lines[0] == ",".join(LINK_COLUMNS)
    assert len(lines) - 1 >= 2 * len(topology.links)
    assert (tmp_path / "cpu.csv").read_text().splitlines()[0] == ",".join(CPU_COLUMNS)


def test_each_counter_of_the_map_is_in_its_own_column(tmp_path):
    topology, rows = build("fat-tree", k=2), counters()
    link = topology.link("h1-t0_1_1")
    for place, name in enumerate(LINK_COUNTERS):
        rows[row_of(link, from_a=False)][name] = 100 + place
    sampler = Sampler(topology, lambda: rows, tmp_path, time.monotonic())
    sampler.start()
    sampler.stop()
    with (tmp_path / "links.csv").open() as file:
        (found,) = [row for row in csv.DictReader(file) if (row["link"], row["from_node"]) == (link.name, "t0_1_1")]
    assert [found[name] for name in LINK_COUNTERS] == [str(100 + place) for place in range(len(LINK_COUNTERS))]


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
