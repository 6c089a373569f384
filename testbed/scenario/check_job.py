"""Whether a scenario's job makes sense with its topology and its run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testbed.scenario.problems import Place, Problem, did_you_mean
from testbed.scenario.schema import Run
from testbed.scenario.schema_job import MAX_WINDOW_BYTES, AllReduce, Ends, Flows, Incast, Job, Lockstep, Permutation, Streams
from testbed.scenario.traffic import hosts_of, incast_candidates
from testbed.units import format_duration
from topologies import Topology

FLOAT32_BYTES = 4
JOB: Place = ("job",)


def job_problems(job: Job, topology: Topology | None, run: Run | None) -> list[Problem]:
    """Everything that makes no sense in the job; what needs a section that is not there is left out."""
    if isinstance(job, Lockstep):
        return [*_vector_problems(job), *(_rank_problems(job, topology) if topology else ())]
    problems = [*_window_problems(job), *(_time_problems(job, run) if run else ())]
    return problems + (list(_traffic_problems(job, topology)) if topology else [])


def _vector_problems(job: Lockstep) -> Iterator[Problem]:
    if isinstance(job, AllReduce) and job.vector_bytes % FLOAT32_BYTES:
        yield Problem(("job", "vector"), f"{job.vector_bytes} B is not a whole number of float32", "use a multiple of 4 B")


def _rank_problems(job: Lockstep, topology: Topology) -> Iterator[Problem]:
    hosts = hosts_of(job.hosts, topology)
    yield from _list_problems(hosts, ("job", "hosts"), topology, "a host has one rank")
    unit, what, job_is = (FLOAT32_BYTES, "one float32", "a ring") if isinstance(job, AllReduce) else (1, "one byte", "an all-to-all")
    if len(hosts) < 2:
        yield Problem(("job", "hosts"), f"{job_is} needs two hosts, this one has {len(hosts)}", "list more hosts, or use `all`")
    elif job.vector_bytes < unit * len(hosts):
        yield Problem(("job", "vector"), f"is less than {what} for each of {len(hosts)} hosts", f"use at least {unit * len(hosts)}B")


def _list_problems(hosts: Sequence[str], place: Place, topology: Topology, once: str) -> Iterator[Problem]:
    for index, host in enumerate(hosts):
        unknown = list(host_problems(host, (*place, index), topology))
        yield from unknown
        if not unknown and host in hosts[:index]:
            yield Problem((*place, index), f"host {host!r} is there twice", once)


def host_problems(host: str, place: Place, topology: Topology) -> Iterator[Problem]:
    """One, if the topology has no such host."""
    if host not in topology.hosts:
        yield Problem(place, f"there is no host {host!r} in this topology", did_you_mean(host, topology.hosts, "hosts"))


def _window_problems(job: Streams) -> Iterator[Problem]:
    if job.message_bytes * job.outstanding > MAX_WINDOW_BYTES:
        message = f"{job.outstanding} messages of {job.message_bytes} B are more than the {MAX_WINDOW_BYTES >> 20} MiB of a flow's receiver"
        yield Problem(("job", "outstanding"), message, "use smaller messages, or fewer of them")


def _time_problems(job: Streams, run: Run) -> Iterator[Problem]:
    if isinstance(job, Flows):
        for index, flow in enumerate(job.flows):
            yield from _on_problems(flow.at_s, flow.for_s, ("job", "flows", index), run)
    elif isinstance(job, Incast):
        yield from _on_problems(job.at_s, job.for_s, JOB, run)


def _on_problems(at_s: float, for_s: float | None, place: Place, run: Run) -> Iterator[Problem]:
    end = f"the run's end ({format_duration(run.duration_s)})"
    if at_s >= run.duration_s:
        yield Problem((*place, "at"), f"begins at {format_duration(at_s)}, after {end}", "begin earlier, or make run.duration longer")
    elif for_s is not None and at_s + for_s > run.duration_s:
        hint = "end it earlier, leave `for` out, or make run.duration longer"
        yield Problem((*place, "for"), f"lasts until {format_duration(at_s + for_s)}, after {end}", hint)


def _traffic_problems(job: Streams, topology: Topology) -> Iterator[Problem]:
    if isinstance(job, Flows):
        yield from _flow_problems(job, topology)
    elif isinstance(job, Permutation):
        hosts = hosts_of(job.hosts, topology)
        yield from _list_problems(hosts, ("job", "hosts"), topology, "a host sends to one other")
        if len(hosts) < 2:
            yield Problem(("job", "hosts"), f"a permutation needs two hosts, this one has {len(hosts)}", "list more hosts, or use `all`")
    elif isinstance(job, Incast):
        yield from _incast_problems(job, topology)


def _flow_problems(job: Flows, topology: Topology) -> Iterator[Problem]:
    pairs = [(flow.source, flow.target) for flow in job.flows]
    for index, (source, target) in enumerate(pairs):
        place = ("job", "flows", index)
        yield from _ends_problems(source, target, place, topology)
        if (source, target) in pairs[:index]:
            first = pairs.index((source, target))
            yield Problem(place, f"{source} sends to {target} in $.job.flows[{first}] already", "two hosts have one flow a direction")


def _ends_problems(source: str, target: str, place: Place, topology: Topology) -> Iterator[Problem]:
    yield from host_problems(source, (*place, "from"), topology)
    yield from host_problems(target, (*place, "to"), topology)
    if source == target:
        yield Problem((*place, "to"), f"{source} would send to itself", "name two hosts")


def _incast_problems(job: Incast, topology: Topology) -> Iterator[Problem]:
    unknown = list(host_problems(job.target, ("job", "to"), topology))
    yield from unknown
    if job.victim is not None:
        yield from _victim_problems(job, job.victim, topology)
    if (job.sources is None) == (job.senders is None):
        yield Problem(JOB, "an incast needs senders, in one way", "list them as `from: [...]`, or write `senders: n`")
    elif job.sources is not None:
        yield from _list_problems(job.sources, ("job", "from"), topology, "a sender has one flow")
        if job.target in job.sources:
            place = ("job", "from", job.sources.index(job.target))
            yield Problem(place, f"{job.target} would send to itself", "leave the receiver out")
    elif not unknown and (job.senders or 0) > (able := len(incast_candidates(job, topology))):
        yield Problem(("job", "senders"), f"asks for {job.senders} senders, and this topology has {able}", f"use at most {able}")


def _victim_problems(job: Incast, victim: Ends, topology: Topology) -> Iterator[Problem]:
    place = ("job", "victim")
    yield from _ends_problems(victim.source, victim.target, place, topology)
    if victim.target == job.target:
        yield Problem((*place, "to"), f"{job.target} is the incast's receiver: they would share its last link", "name another host")
    if victim.source in (job.sources or ()):
        yield Problem((*place, "from"), f"{victim.source} sends to the incast: they would share its first link", "name another host")
