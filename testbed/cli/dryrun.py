"""What a run would do, without root: nodes, links, rules, the drawn faults, the time it takes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import topologies
from testbed.pathvector.options import BgpOvsOptions
from testbed.routing.options import BgpOptions
from testbed.scenario import Drawn, Fault, Scenario, total_duration_s
from testbed.scenario.deny import deny_text, ignored_by, no_evs_text
from testbed.scenario.derived_links import SWITCHING_OF_ARM, USID_ARMS
from testbed.scenario.schema_job import AllReduce, Lockstep
from testbed.units import counted, format_duration, format_rate, format_share, format_size
from topologies import Topology


def plan_data(scenario: Scenario, topology: Topology, drawn: Drawn) -> dict[str, Any]:
    """The plan as JSON-able data. Rules are there when an arm forwards by uSID."""
    return {
        "dry_run": True,
        "scenario": scenario.resolved(),
        "topology": topologies.summary(topology),
        "nodes": [asdict(node) for node in topology.nodes.values()],
        "links": [{"name": link.name, "tier": link.tier, "plane": link.plane} for link in topology.links.values()],
        "rules": rule_counts(topology) if _has_mrc(scenario) else {},
        **{key: value for key, value in drawn.as_dict().items() if key != "seed"},
        "expected_s": total_duration_s(scenario),
    }


def _has_mrc(scenario: Scenario) -> bool:
    return not set(USID_ARMS).isdisjoint(scenario.arms)


def rule_counts(topology: Topology) -> dict[str, int]:
    """Rules of each switch."""
    return {switch: len(topologies.usid.rules(topology, switch)) for switch in topology.switches}


def plan_lines(scenario: Scenario, topology: Topology, drawn: Drawn, verbose: bool) -> list[str]:
    """The plan for people; `verbose` names every node and link, and every rule."""
    lines = [f"{scenario.name}: {scenario.title}", *_job_lines(scenario), *_routing_lines(scenario)]
    lines += [*_node_lines(topology, verbose), *_link_lines(scenario, topology, verbose)]
    if _has_mrc(scenario):
        lines += _rule_lines(topology, verbose)
    return [*lines, *_deny_lines(scenario), *fault_lines(drawn), _time_line(scenario)]


def _deny_lines(scenario: Scenario) -> list[str]:
    """The denylist, and who has no use for it."""
    if not scenario.deny:
        return []
    ignoring = ignored_by(scenario.arms)
    tail = f"; {no_evs_text(ignoring)} and will ignore it" if ignoring else ""
    return [f"denylist, from the first packet: {deny_text(scenario.deny.model_dump())}{tail}"]


def _job_lines(scenario: Scenario) -> list[str]:
    arms = f"arms: {', '.join(scenario.arms)}; repeats: {scenario.repeats}; seed: {scenario.seed}"
    return [arms, *(_lockstep_lines(scenario, scenario.job) if isinstance(scenario.job, Lockstep) else _stream_lines(scenario))]


def _lockstep_lines(scenario: Scenario, job: Lockstep) -> list[str]:
    times = f"compute {format_duration(job.compute_s)}, checkpoint every {job.checkpoint_every} steps"
    kind = f"{job.ring} ring" if isinstance(job, AllReduce) else "all-to-all"
    return [f"job: {len(scenario.job_hosts())} hosts, {kind}, {format_size(job.vector_bytes)} a step, {times}"]


def _stream_lines(scenario: Scenario) -> list[str]:
    record, flows = scenario.job_record(), scenario.flows()
    each = f"{record['outstanding']} messages of {format_size(record['message_bytes'])} under way on each"
    lines = [f"  {flow.role} {flow.source} to {flow.target}, {_on(flow.at_s, flow.for_s)}" for flow in flows]
    return [f"job: {counted(len(flows), 'stream')} between {len(scenario.job_hosts())} hosts, {each}", *lines]


def _routing_lines(scenario: Scenario) -> list[str]:
    """What BGP is allowed, for each kind of switches that runs it: profile or preset, timers, and what the scenario sets on top."""
    kinds = (("frr", "FRR, profile", scenario.bgp, BgpOptions), ("ovs-bgp", "a controller, preset", scenario.bgp_ovs, BgpOvsOptions))
    lines = []
    for switching, words, given, kind in kinds:
        if arms := [arm for arm in scenario.arms if SWITCHING_OF_ARM[arm] == switching]:
            options = vars(kind.from_mapping(given))
            name = options.get("profile") or options["preset"]
            more = [f"{option} {value}" for option, value in given.items() if option not in SHOWN]
            timers = f"keepalive {options['keepalive_s']:g} s, hold {options['hold_s']:g} s, {_bfd_words(options)}"
            lines.append(f"BGP of {', '.join(arms)} ({words} {name}): {', '.join([timers, *more])}")
    return lines


SHOWN = ("profile", "preset", "keepalive_s", "hold_s", "bfd_interval_s", "bfd_interval_ms", "bfd_multiplier")


def _bfd_words(options: Mapping[str, Any]) -> str:
    """After how long without a packet BFD ends a session."""
    interval_s = options.get("bfd_interval_s") or options.get("bfd_interval_ms", 0) / 1e3
    return f"BFD {format_duration(interval_s * options['bfd_multiplier'])}" if interval_s else "no BFD"


def _on(at_s: float, for_s: float) -> str:
    return f"on from {format_duration(at_s)} to {format_duration(at_s + for_s)}"


def _node_lines(topology: Topology, verbose: bool) -> list[str]:
    tiers = Counter(node.tier for node in topology.nodes.values() if node.kind == "switch")
    counts = ", ".join(f"{count} T{tier}" for tier, count in sorted(tiers.items()))
    lines = [f"nodes: {len(topology.hosts)} hosts, {len(topology.switches)} switches ({counts})"]
    return lines + [f"  {', '.join(names)}" for names in (topology.hosts, topology.switches) if verbose]


def _link_lines(scenario: Scenario, topology: Topology, verbose: bool) -> list[str]:
    tiers = Counter(link.tier for link in topology.links.values())
    counts = ", ".join(f"{count} {tier}" for tier, count in tiers.items())
    links = scenario.links
    sizes = f"{format_rate(links.rate_bps)}, MTU {links.mtu_bytes} B, queue {format_size(scenario.queue_bytes)}"
    lines = [f"links: {len(topology.links)} ({counts}), each {sizes}; {_behaviour(scenario)}"]
    return lines + [f"  {link.name} ({link.tier})" for link in topology.links.values() if verbose]


def _behaviour(scenario: Scenario) -> str:
    """What the links do with packets: marks and trimming (of MRC's arms), random loss."""
    links, loss = scenario.links, [f"{tier} {format_share(share)}" for tier, share in scenario.links.loss.items() if share]
    words = [f"{name} {'on' if on else 'off'}" for name, on in (("ECN", links.ecn), ("trimming", links.trimming))]
    mrc = [f"with MRC {', '.join(words)}"] if _has_mrc(scenario) else []
    return "; ".join([*mrc, f"random loss {', '.join(loss) or 'none'}"])


def _rule_lines(topology: Topology, verbose: bool) -> list[str]:
    counts = rule_counts(topology)
    by_tier: dict[int, set[int]] = {}
    for switch, count in counts.items():
        by_tier.setdefault(topology.nodes[switch].tier, set()).add(count)
    each = ", ".join(f"{' or '.join(map(str, sorted(found)))} on a T{tier}" for tier, found in sorted(by_tier.items()))
    lines = [f"rules: {sum(counts.values())} ({each}), static"]
    if verbose:
        for switch in topology.switches:
            flows = topologies.usid.flow_file(topologies.usid.rules(topology, switch)).splitlines()
            lines += [f"  {switch}:", *(f"    {flow}" for flow in flows)]
    return lines


def fault_lines(drawn: Drawn) -> list[str]:
    """Every fault with its time, then what the drawing did."""
    lines = [f"faults: {len(drawn.faults)}" + (" (times from the job's start)" if drawn.faults else "")]
    lines += [_fault_line(fault) for fault in drawn.faults]
    notes = {key: count for key, count in drawn.counts.items() if key not in ("asked", "drawn") and count}
    return lines + ([f"  while drawing: {', '.join(f'{count} {_word(key)}' for key, count in notes.items())}"] if notes else [])


def _fault_line(fault: Fault) -> str:
    when = f"{fault.at_s:8.3f} s  for {fault.for_s:7.3f} s"
    return f"  {fault.id:>4}  {when}  {fault.kind:13}  {fault.target} ({fault.tier}){_parameters(fault)}"


def _parameters(fault: Fault) -> str:
    """A bundle's links and the kind's own parameters, in words."""
    links = [", ".join(fault.links[1:])] if fault.target_type == "bundle" and len(fault.links) > 1 else []
    words = [_in_words(name, value) for name, value in fault.params.items()]
    return "".join(f", {text}" for text in [*words, *links])


def _in_words(name: str, value: Any) -> str:
    if name == "rate_bps":
        return format_rate(value)
    if name.endswith("_s"):
        return f"{name.removesuffix('_s')} {format_duration(value)}"
    if name == "share":
        return format_share(value)
    return f"{_word(name)} {', '.join(map(str, value)) if isinstance(value, (list, tuple)) else value}"


def _word(key: str) -> str:
    return key.replace("_", " ")


def _time_line(scenario: Scenario) -> str:
    runs = len(scenario.arms) * scenario.repeats
    each = format_duration(scenario.run.duration_s)
    return f"time: {counted(runs, 'run')} of {each}, about {format_duration(total_duration_s(scenario))} in all"


def topology_lines(topology: Topology) -> list[str]:
    """A topology for people."""
    facts = topologies.summary(topology)
    params = ", ".join(f"{name}={value}" for name, value in topology.params.items())
    switches = ", ".join(f"{count} {tier}" for tier, count in facts["switches"].items())
    links = ", ".join(f"{count} {tier}" for tier, count in facts["links"].items())
    return [
        f"{topology.kind} ({params})",
        f"hosts: {facts['hosts']} ({_range(topology.hosts)})",
        f"switches: {len(topology.switches)} ({switches})",
        f"links: {len(topology.links)} ({links})",
        f"paths of a pair: {facts['paths_min']} to {facts['paths_max']}",
        *(f"  {name}: {', '.join(link.other(name).node for link in topology.links_of(name))}" for name in topology.switches),
    ]


def _range(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def path_lines(topology: Topology, source: str, target: str) -> list[str]:
    """All shortest paths of a pair, with the uSID list that leads along each."""
    paths = path_data(topology, (source, target))
    lines = [f"  {number:>3}  {' > '.join(path['nodes'])}  to {path['destination']}" for number, path in enumerate(paths)]
    return [f"{len(paths)} shortest paths from {source} to {target}:", *lines]


def path_data(topology: Topology, pair: Iterable[str]) -> list[dict[str, Any]]:
    """The same, JSON-able."""
    source, target = pair
    return [{**asdict(path), "destination": topologies.usid.destination(topology, path)} for path in topology.paths(source, target)]
