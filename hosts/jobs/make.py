"""From the `job` of an agent's `config` command to a job and the region that its peers write to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from hosts.commands import Config, Fields
from hosts.jobs.all_to_all import MAX_RANKS as MOST_HOSTS
from hosts.jobs.all_to_all import AllToAllJob, AllToAllPlan
from hosts.jobs.common import Job
from hosts.jobs.ring import MAX_RANKS, RingJob, RingPlan
from hosts.jobs.streams import MAX_WINDOW_BYTES, ROTATIONS, Outgoing, StreamsJob
from testbed.errors import UsageError

MAX_VECTOR_BYTES = 1 << 30


def make_job(config: Config) -> tuple[Job, memoryview]:
    """The job of one agent, and its region; UsageError names what is missing, unknown, or does not fit the peers."""
    job = Fields(config.job, "$.job")
    kind = job.text("kind") if "kind" in config.job else "all-reduce"
    if kind not in MAKERS:
        raise UsageError(f"$.job.kind is {kind!r:.80}: give one of {', '.join(MAKERS)}")
    return MAKERS[kind](config, job)


def _all_reduce(config: Config, job: Fields) -> tuple[Job, memoryview]:
    job.refuse_unknown("kind", "ranks", "vector_bytes", "compute_s", "checkpoint_every")
    ranks = job.whole("ranks", 1, MAX_RANKS)
    plan = RingPlan(ranks, job.whole("vector_bytes", 1, MAX_VECTOR_BYTES), job.number("compute_s"), config.seed)
    wanted = min(1, ranks - 1)
    if len(config.send_to) != wanted or len(config.receive_from) != wanted:
        raise UsageError(f"$.send_to and $.receive_from: a ring of {ranks} needs {wanted} peer in each, the next rank and the previous one")
    region = memoryview(bytearray(plan.region_bytes))
    return RingJob(plan, config.rank, region, config.send_to[0].name if wanted else ""), region


def _all_to_all(config: Config, job: Fields) -> tuple[Job, memoryview]:
    job.refuse_unknown("kind", "hosts", "vector_bytes", "compute_s", "checkpoint_every")
    hosts = [str(host) for host in job.items("hosts")]
    if len(set(hosts)) != len(hosts) or len(hosts) > MOST_HOSTS:
        raise UsageError(f"$.job.hosts: give each host once, at most {MOST_HOSTS}")
    if config.rank >= len(hosts) or hosts[config.rank] != config.host:
        raise UsageError(f"$.job.hosts[{config.rank}] is not {config.host}: give all ranks' hosts, in the order of ranks")
    others = [host for host in hosts if host != config.host]
    _match(config, others, others)
    plan = AllToAllPlan(len(hosts), job.whole("vector_bytes", 1, MAX_VECTOR_BYTES), job.number("compute_s"), config.seed)
    region = memoryview(bytearray(plan.region_bytes))
    return AllToAllJob(plan, config.rank, region, hosts), region


def _streams(config: Config, job: Fields) -> tuple[Job, memoryview]:
    job.refuse_unknown("kind", "message_bytes", "outstanding", "outgoing", "incoming")
    outgoing = [_outgoing(flow) for flow in job.objects("outgoing")]
    incoming = [flow.text("from") for flow in job.objects("incoming")]
    _match(config, [flow.peer for flow in outgoing], incoming)
    message_bytes, outstanding = job.whole("message_bytes", 1, MAX_WINDOW_BYTES), job.whole("outstanding", 1, ROTATIONS - 1, 4)
    streams = StreamsJob(config.host, message_bytes, outstanding, outgoing, incoming, config.seed)
    return streams, streams.region


def _outgoing(flow: Fields) -> Outgoing:
    """`stop_s` may be null: the flow is on until the job ends."""
    flow.refuse_unknown("to", "start_s", "stop_s", "place", "every_s")
    stop_s = math.inf if flow.raw.get("stop_s") is None else flow.number("stop_s")
    every_s = flow.number("every_s") if "every_s" in flow.raw else 0.0
    return Outgoing(flow.text("to"), flow.number("start_s"), stop_s, flow.whole("place", 0, 1 << 20, 0), every_s)


def _match(config: Config, targets: Sequence[str], sources: Sequence[str]) -> None:
    """The job's peers must be those that the QPs are made for."""
    for key, peers, named in (("send_to", config.send_to, targets), ("receive_from", config.receive_from, sources)):
        if sorted(peer.name for peer in peers) != sorted(named):
            raise UsageError(f"$.{key} holds {[peer.name for peer in peers]}, and the job {list(named)}: give each peer once in both")


Maker = Callable[[Config, Fields], tuple[Job, memoryview]]
MAKERS: Mapping[str, Maker] = {"all-reduce": _all_reduce, "all-to-all": _all_to_all, "streams": _streams}
