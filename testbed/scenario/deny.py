"""What a denylist means on a topology: which EVs it takes, what about it makes no sense, how it is told. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hosts.core import PathSpec
from hosts.mrc.evs import spread
from testbed.errors import UsageError
from testbed.scenario.check_job import host_problems
from testbed.scenario.derived_links import USID_ARMS
from testbed.scenario.problems import Place, Problem, did_you_mean
from testbed.scenario.schema_deny import DeniedEvs, Deny
from testbed.scenario.targets import UnknownTarget, link_name
from testbed.units import counted
from topologies import Topology

DENY: Place = ("deny",)
Pair = tuple[str, str]


class Evs(NamedTuple):
    """How many EVs a scenario gives a pair: MRC's parameters `evs` (0: one a path) and `qps`."""

    evs: int = 0
    qps: int = 1

    def links(self, topology: Topology, host: str, peer: str) -> list[dict[int, tuple[str, ...]]]:
        """For each QP of a pair its EVs by number, each with the links of its path. UsageError: more paths than a QP can have EVs."""
        paths = tuple(PathSpec(number, path.port, "", path.plane, path.links) for number, path in enumerate(topology.paths(host, peer)))
        return [{ev.index: ev.path.links for ev in spread(paths, self.evs, place)} for place in range(self.qps)]

    def most(self, topology: Topology) -> int:
        """The most EVs that a pair of hosts has, of all its QPs; 0 with fewer than two hosts. UsageError as `links`."""
        alike = {shape: host for host, shape in topology.path_shapes(topology.hosts[0]).items()}
        return max((sum(map(len, self.links(topology, host, topology.hosts[0]))) for host in alike.values()), default=0)


def given_evs(mrc: Mapping[str, Any]) -> Evs:
    """What MRC's parameters, which must make sense, say of EVs."""
    return Evs(**{key: value for key, value in mrc.items() if key in Evs._fields})


def deny_problems(deny: Deny, topology: Topology, pairs: Sequence[Pair] | None, given: Evs) -> list[Problem]:
    """What is wrong with the section; `pairs` are those of the job (who sends to whom), None when the job makes no sense itself."""
    try:
        problems = [*_link_problems(deny.links, topology), *_ev_problems(deny.evs, topology, pairs, given)]
        return problems or (list(_path_problems(deny, topology, pairs, given)) if pairs is not None else [])
    except UsageError as error:
        return [Problem(DENY, str(error))]


def _link_problems(links: Sequence[str], topology: Topology) -> Iterator[Problem]:
    seen = set[str]()
    for index, named in enumerate(links):
        place = (*DENY, "links", index)
        try:
            name = link_name(topology, named)
        except UnknownTarget as error:
            yield Problem(place, error.message, error.hint)
            continue
        if name in seen:
            yield Problem(place, f"link {name!r} is there twice", "name each link once")
        seen.add(name)


def _ev_problems(evs: Sequence[DeniedEvs], topology: Topology, pairs: Sequence[Pair] | None, given: Evs) -> Iterator[Problem]:
    for index, entry in enumerate(evs):
        place, pair = (*DENY, "evs", index), (entry.host, entry.peer)
        unknown = [*host_problems(entry.host, (*place, "host"), topology), *host_problems(entry.peer, (*place, "peer"), topology)]
        yield from unknown
        if unknown:
            continue
        if pair in [(other.host, other.peer) for other in evs[:index]]:
            yield Problem(place, f"{entry.host} and {entry.peer} are there twice", "list all EVs of a pair in one entry")
        elif pairs is not None and pair not in pairs:
            hint = did_you_mean("", [peer for host, peer in pairs if host == entry.host], "it sends to")
            yield Problem((*place, "peer"), f"{entry.host} sends nothing to {entry.peer} in this job", hint)
        elif entry.host != entry.peer:
            yield from _number_problems(entry, (*place, "evs"), [ev for qp in given.links(topology, *pair) for ev in qp])


def _number_problems(entry: DeniedEvs, place: Place, known: Sequence[int]) -> Iterator[Problem]:
    for index, ev in enumerate(entry.evs):
        if ev not in known:
            text = f"there is no EV {ev} from {entry.host} to {entry.peer}: they are numbered from 0 to {known[-1]}"
            yield Problem((*place, index), text, "see `testbed topo show --paths`, or set transport.mrc.evs")
        elif ev in entry.evs[:index]:
            yield Problem((*place, index), f"EV {ev} is there twice", "name each EV once")


def _path_problems(deny: Deny, topology: Topology, pairs: Sequence[Pair], given: Evs) -> Iterator[Problem]:
    """At most one: the first pair that would have no EV left, and how many more there are."""
    stranded = _stranded(deny, topology, pairs, given)
    if stranded:
        host, peer = stranded[0]
        more = f", nor {counted(len(stranded) - 1, 'more pair')} of the job any" if len(stranded) > 1 else ""
        yield Problem(DENY, f"leaves {host} no path to {peer}{more}", "deny fewer links or EVs: each QP needs one EV at least")


def _stranded(deny: Deny, topology: Topology, pairs: Sequence[Pair], given: Evs) -> list[Pair]:
    """The pairs that the denylist leaves without an EV."""
    links = {topology.link(name).name for name in deny.links}
    numbers = {(entry.host, entry.peer): set(entry.evs) for entry in deny.evs}
    cut_off = {peer: topology.cut_off(peer, links) for peer in {peer for _, peer in pairs}} if links else {}
    return [
        pair for pair in pairs
        if pair[0] in cut_off.get(pair[1], ()) or (pair in numbers and _bars(given.links(topology, *pair), links, numbers[pair]))
    ]  # fmt: skip


def _bars(qps: Iterable[Mapping[int, tuple[str, ...]]], links: set[str], denied: Collection[int]) -> bool:
    """Whether one of the QPs has no EV left."""
    return any(all(ev in denied or not links.isdisjoint(path) for ev, path in evs.items()) for evs in qps)


def ignored_by(arms: Collection[str]) -> list[str]:
    """The arms without EVs whose paths are known, and therefore without a use for a denylist."""
    return [arm for arm in arms if arm not in USID_ARMS]


def no_evs_text(arms: Sequence[str]) -> str:
    """Why such arms ignore a denylist, for the reader: "RC over BGP has no EVs with known paths"."""
    return f"{' and '.join(arms)} {'have' if len(arms) > 1 else 'has'} no EVs with known paths"


def agent_deny(deny: Deny, topology: Topology, host: str, arm: str) -> dict[str, dict[str, object]]:
    """A host's part of the denylist, as its agent's `config` has it; nothing when it denies nothing, or the arm has no EVs."""
    if arm not in USID_ARMS:
        return {}
    links = [topology.link(name).name for name in deny.links]
    evs = {entry.peer: list(entry.evs) for entry in deny.evs if entry.host == host}
    return {"deny": {"links": links, "evs": evs}} if links or evs else {}


def deny_text(deny: Mapping[str, object]) -> str:
    """A denylist in words, from its JSON form, damaged or not; nothing when it denies nothing."""
    links, evs = deny.get("links"), deny.get("evs")
    told = [f"link {link}" for link in _listed(links)]
    return ", ".join([*told, *(_entry_text(entry) for entry in _listed(evs) if isinstance(entry, Mapping))])


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, (list, tuple)) else []


def _entry_text(entry: Mapping[str, object]) -> str:
    numbers = ", ".join(map(str, _listed(entry.get("evs")))) or "?"
    return f"EV {numbers} from {entry.get('host')} to {entry.get('peer')}"
