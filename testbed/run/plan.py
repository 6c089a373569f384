"""What each agent is told, as pure data: its share of the job, and the paths to its peers. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hosts.commands import ECMP
from hosts.mrc.params import MrcParams
from hosts.rc.params import RcParams
from hosts.tcp.params import TcpParams
from testbed.link_settings import LinkSettings
from testbed.pathvector.options import BgpOvsOptions
from testbed.routing.options import BgpOptions
from testbed.run import hashed_evs
from testbed.scenario import Scenario
from testbed.scenario.deny import agent_deny, given_evs
from testbed.scenario.derived_links import HASHED_ARMS, SWITCHING_OF_ARM, TRANSPORT_OF_ARM
from testbed.scenario.schema_job import AllReduce, AllToAll, Streams
from testbed.scenario.traffic import Flow, hosts_a_group, ring_order
from topologies import Topology, addresses, usid

PARAMETERS: Mapping[str, type[MrcParams] | type[RcParams] | type[TcpParams]] = {"mrc": MrcParams, "rc": RcParams, "tcp": TcpParams}


@dataclass(frozen=True)
class Share:
    """One agent's share of the job: the protocol's `job`, and whom the host sends to and receives from."""

    job: Mapping[str, Any]
    send_to: Sequence[str]
    receive_from: Sequence[str]


def given_parameters(scenario: Scenario, arm: str) -> dict[str, Any]:
    """Named parameters that differ from the transport's defaults: what the scenario gives, on top of what the fabric implies."""
    transport = TRANSPORT_OF_ARM[arm]
    return {**implied_parameters(scenario.link_settings(arm), transport), **scenario.transport.get(transport, {})}


def implied_parameters(settings: LinkSettings, transport: str) -> dict[str, Any]:
    """What the fabric implies: MRC and RC know their link's rate, as a NIC does, and MRC whether switches trim."""
    trimming = {"trimming": settings.trimming} if transport == "mrc" else {}
    return {"link_rate_bps": settings.rate_bps, **trimming} if transport in ("mrc", "rc") else {}


def fabric_options(scenario: Scenario, arm: str, repeat: int = 1) -> dict[str, Any]:
    """The `options` of the arm's Fabric, from the scenario's sections about routing; BGP's model draws anew in each repeat."""
    switching = SWITCHING_OF_ARM[arm]
    if switching == "frr":
        return {"bgp": BgpOptions.from_mapping(scenario.bgp)}
    if switching not in ("ovs-bgp", "ovs-ecmp"):
        return {}
    return {"bgp_ovs": BgpOvsOptions.from_mapping(scenario.bgp_ovs), "seed": scenario.seed + repeat - 1}


def transport_parameters(scenario: Scenario, arm: str) -> dict[str, Any]:
    """Every parameter of the arm's transport, defaults included: what its side of the comparison was allowed."""
    kind = PARAMETERS[TRANSPORT_OF_ARM[arm]]
    return asdict(kind.from_mapping(given_parameters(scenario, arm)))


def peer(topology: Topology, source: str, target: str, hashed: Mapping[str, int] | None = None) -> dict[str, Any]:
    """How `source` reaches `target`: an entry of the agent protocol's `send_to` and `receive_from`.

    `hashed`: `evs`, `qps` and `seed` where routers hash EVs; without it the sender names its paths.
    """
    paths = _named_paths(topology, source, target) if hashed is None else hashed_evs.paths(topology, source, target, **hashed)
    return {"name": target, "address": str(addresses.host_address(topology.nodes[target])), "paths": paths}


def _named_paths(topology: Topology, source: str, target: str) -> list[dict[str, Any]]:
    return [
        {
            "ev": number,
            "port": path.port,
            "destination": str(usid.destination(topology, path)),
            "plane": path.plane,
            "links": list(path.links),
            "peer_port": path.far_port,
        }
        for number, path in enumerate(topology.paths(source, target))
    ]


def _hashed(arm: str, params: Mapping[str, Any], seed: int) -> dict[str, int] | None:
    """What the EVs of an arm follow from whose routers hash them; None for the other arms."""
    return {**given_evs(params)._asdict(), "seed": seed} if arm in HASHED_ARMS else None


def rank_order(scenario: Scenario, topology: Topology) -> tuple[str, ...]:
    """The hosts that run an agent, in the order of their ranks."""
    job, hosts = scenario.job, scenario.job_hosts()
    return ring_order(hosts, job.ring, hosts_a_group(topology)) if isinstance(job, AllReduce) else hosts


def shares(scenario: Scenario, topology: Topology) -> dict[str, Share]:
    """Each agent's share, in the order of ranks."""
    job, hosts = scenario.job, rank_order(scenario, topology)
    if isinstance(job, AllReduce):
        return _ring_shares(job, hosts)
    if isinstance(job, AllToAll):
        return _exchange_shares(job, hosts)
    return _stream_shares(job, hosts, scenario.flows())


def _lockstep(job: AllReduce | AllToAll) -> dict[str, Any]:
    return {"kind": job.kind, "vector_bytes": job.vector_bytes, "compute_s": job.compute_s, "checkpoint_every": job.checkpoint_every}


def _ring_shares(job: AllReduce, ring: Sequence[str]) -> dict[str, Share]:
    whole = {**_lockstep(job), "ranks": len(ring)}
    return {host: Share(whole, [ring[(rank + 1) % len(ring)]], [ring[rank - 1]]) for rank, host in enumerate(ring)}


def _exchange_shares(job: AllToAll, hosts: Sequence[str]) -> dict[str, Share]:
    """Destinations in the order of the job: from the next rank on."""
    whole, others = {**_lockstep(job), "hosts": list(hosts)}, [[*hosts[at + 1 :], *hosts[:at]] for at in range(len(hosts))]
    return {host: Share(whole, others[rank], others[rank]) for rank, host in enumerate(hosts)}


def _stream_shares(job: Streams, hosts: Sequence[str], flows: Sequence[Flow]) -> dict[str, Share]:
    senders = {host: [flow.source for flow in flows if flow.target == host] for host in hosts}
    return {host: _stream_share(job, host, flows, senders) for host in hosts}


def _stream_share(job: Streams, host: str, flows: Sequence[Flow], senders: Mapping[str, Sequence[str]]) -> Share:
    """`senders` are those to each target, in the order of the target's `incoming`."""
    outgoing = [flow for flow in flows if flow.source == host]
    told = {
        "kind": job.kind,
        "message_bytes": job.message_bytes,
        "outstanding": job.outstanding,
        "outgoing": [_outgoing(flow, senders[flow.target]) for flow in outgoing],
        "incoming": [{"from": source} for source in senders[host]],
    }
    return Share(told, [flow.target for flow in outgoing], senders[host])


def _outgoing(flow: Flow, rivals: Sequence[str]) -> dict[str, Any]:
    """A flow as its sender has to know it; `rivals` are all senders to its target, in the order of the target's `incoming`."""
    return {"to": flow.target, "start_s": flow.at_s, "stop_s": flow.at_s + flow.for_s, "place": rivals.index(flow.source)}


def agent_configs(
    scenario: Scenario, topology: Topology, arm: str, *, params: Mapping[str, Any], seed: int, folder: Path, send_buffer_bytes: int
) -> dict[str, dict[str, Any]]:
    """The `config` command of every agent, by host in the order of ranks; an agent's files go to `folder`.

    A socket that holds less than the link's own queue makes the agent wait when its link is full, as a NIC does, instead of losing packets.
    """
    hashed = _hashed(arm, params, seed)
    files = {"events": "events.jsonl", "steps": "steps.csv", "flows": "flows.csv", "paths": "paths.csv"}
    return {
        host: {
            "cmd": "config",
            "host": host,
            "rank": rank,
            "transport": TRANSPORT_OF_ARM[arm],
            "params": dict(params),
            "job": dict(share.job),
            "addresses": {
                "outer": str(addresses.usid_address(topology.nodes[host])),
                "inner": str(addresses.host_address(topology.nodes[host])),
            },
            "send_to": [peer(topology, host, target, hashed) for target in share.send_to],
            "receive_from": [peer(topology, host, source, hashed) for source in share.receive_from],
            "files": {kind: str(folder / f"{host}.{suffix}") for kind, suffix in files.items()},
            "seed": seed,
            "sockets": {"send_buffer_bytes": send_buffer_bytes},
            **({"forwarding": ECMP} if hashed is not None else {}),
            **agent_deny(scenario.deny, topology, host, arm),
        }
        for rank, (host, share) in enumerate(shares(scenario, topology).items())
    }


def restart_step(completed: Mapping[str, int], ranks: int, first_step: int, checkpoint_every: int) -> int:
    """The step at which a crashed job goes on: the last checkpoint that every rank had reached.

    `completed` maps each host to the last step it finished in this attempt; steps count from 0, a checkpoint is written before
    each step that is a multiple of `checkpoint_every`.
    """
    done = min(completed.values()) + 1 if len(completed) == ranks else first_step
    return max(first_step, done) // checkpoint_every * checkpoint_every
