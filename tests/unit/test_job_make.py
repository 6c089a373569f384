"""From the `job` of a `config` command to a job: what is understood, and that each refusal says what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hosts.commands import Config, parse_config, parse_line
from hosts.jobs import make_job
from hosts.jobs.all_to_all import AllToAllJob
from hosts.jobs.ring import RingJob
from hosts.jobs.streams import StreamsJob
from testbed.errors import UsageError

RING = {"ranks": 2, "vector_bytes": 400, "compute_s": 0}
EXCHANGE = {"kind": "all-to-all", "hosts": ["h1", "h2", "h3"], "vector_bytes": 400, "compute_s": 0}
STREAMS = {
    "kind": "streams", "message_bytes": 4096, "outgoing": [{"to": "h2", "start_s": 0.0, "stop_s": None, "place": 0}],
    "incoming": [{"from": "h3"}],
}  # fmt: skip


def config(job: dict[str, Any], send_to: tuple[str, ...] = ("h2",), receive_from: tuple[str, ...] = ("h2",), rank: int = 0) -> Config:
    def peers(names: tuple[str, ...]) -> list[dict[str, Any]]:
        return [{"name": name, "address": "fd00::2", "paths": []} for name in names]

    command = {
        "cmd": "config", "host": f"h{rank + 1}", "rank": rank, "transport": "rc", "params": {}, "job": job, "seed": 1, "files": {},
        "addresses": {"inner": "fd00::1"}, "send_to": peers(send_to), "receive_from": peers(receive_from),
    }  # fmt: skip
    return parse_config(parse_line(json.dumps(command).encode())[1])


@pytest.mark.parametrize("more", [{}, {"kind": "all-reduce"}])
def test_all_reduce_is_the_default(more: dict):
    job, region = make_job(config({**RING, **more}))
    assert isinstance(job, RingJob)
    assert len(region) == job.plan.region_bytes


def test_all_to_all():
    job, region = make_job(config(EXCHANGE, ("h2", "h3"), ("h2", "h3")))
    assert isinstance(job, AllToAllJob)
    assert len(region) == job.plan.region_bytes


def test_streams():
    job, region = make_job(config(STREAMS, ("h2",), ("h3",)))
    assert isinstance(job, StreamsJob)
    assert len(region) == 4 * 4096


@pytest.mark.parametrize("job", [
    {}, {"kind": "tree"}, {"kind": ["streams"]}, {"ranks": 2, "vector_bytes": 400}, {**RING, "ranks": "2"}, {**RING, "vektor": 1},
    {**RING, "compute_s": None}, {"kind": "streams"}, {**STREAMS, "incoming": [{}]}, {**STREAMS, "incoming": []},
    {**STREAMS, "outgoing": [{"to": "h3", "start_s": 0}]}, {**STREAMS, "outgoing": [{"to": "h2"}]}, {**STREAMS, "message_bytes": 0},
    {**EXCHANGE, "hosts": ["h1", "h2", "h2"]}, {**EXCHANGE, "hosts": ["h2", "h1"]}, {**EXCHANGE, "hosts": ["h1", "h3"]},
])  # fmt: skip
def test_senseless_job_is_refused(job: dict):
    with pytest.raises(UsageError, match=r"\$\.job|job\.|\$\.send_to|\$\.receive_from"):
        make_job(config(job))


def test_rank_outside_of_the_ring_is_refused():
    with pytest.raises(UsageError, match="rank is 2"):
        make_job(config(RING, rank=2))


@pytest.mark.parametrize(("send_to", "receive_from"), [((), ("h2",)), (("h2",), ()), (("h2", "h3"), ("h2",))])
def test_a_ring_has_one_peer_on_each_side(send_to: tuple, receive_from: tuple):
    with pytest.raises(UsageError, match="needs 1 peer in each"):
        make_job(config(RING, send_to, receive_from))
