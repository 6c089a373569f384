"""The link program's parameters by name and in human units, and what a row of its map says of them.

The program reads them with every packet, so all may change while traffic flows, one field after the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import numpy.typing as npt

from testbed.errors import UsageError
from testbed.fabric.bpf import GENERATORS, MAX_EVS, OUTCOMES, row_of
from testbed.link_settings import LinkSettings
from topologies import Link, Topology

CERTAIN = 0xFFFFFFFF  # of a probability in 2^-32: always, not almost always
Role = Literal["host", "fabric", "last_hop"]
"""Who sends on a link direction: a NIC (which waits: it neither marks nor trims its own packets), a switch to a switch, or to a host."""
ROLES: tuple[Role, ...] = ("host", "fabric", "last_hop")
_U32 = 1 << 32
_U64 = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class LinkParameters:
    """What the program does on one link direction. The defaults are a link that only counts."""

    rate_bps: int = 0
    """Of the virtual queue; 0: none, then there are no marks, no trimming and no queue drops."""
    room_bytes: int = 0
    """Of the real queue: what exceeds it is dropped there, so it takes no time of the link. 0: no bound."""
    ecn_min_bytes: int = 0
    ecn_max_bytes: int = 0
    """The share of marked packets rises from 0 to 1 between the two; maximum 0: no marks."""
    trim_bytes: int = 0
    """Above it packets are trimmed; 0: never."""
    limit_bytes: int = 0
    """Above it what cannot be trimmed is dropped; 0: left to the real queue."""
    last_hop: bool = False
    """Towards the receiver: no marks, TRIMMED_LASTHOP."""
    loss: float = 0.0
    """Share of all packets lost by chance."""
    evs: tuple[int, ...] = ()
    """Entropy values, as in the packets: flow label's low 16 bits above the UDP source port."""
    ev_loss: float = 0.0
    """Share of the packets with one of `evs` that is lost."""
    drop_data: bool = False
    """All is lost but routing (DSCP 48) and neighbour discovery: a switch that hangs while its sessions stay up."""
    drop_all: bool = False
    """All is lost."""


def of_settings(settings: LinkSettings, role: Role, loss: float = 0.0) -> LinkParameters:
    """The parameters of a healthy link direction. Without a bounded queue and ECN, and at a host, the program only counts and loses."""
    last_hop = role == "last_hop"
    if role == "host" or not settings.least_queue_bytes:
        return LinkParameters(last_hop=last_hop, loss=loss)
    low, high = settings.ecn_bytes
    depth = settings.depth_bytes(last_hop)
    trim = depth if settings.trimming else 0
    unmarked = last_hop and not settings.last_hop_marks
    return LinkParameters(settings.rate_bps, settings.queue_bytes, low, high, trim, limit_bytes=depth, last_hop=unmarked, loss=loss)


def role_of(link: Link, from_a: bool) -> Role:
    """Whether that direction is sent by a host, by a switch towards another, or by a switch to a host."""
    if link.tier != "NIC-T0":
        return "fabric"
    return "host" if from_a else "last_hop"


def set_up_rows(rows: npt.NDArray[Any], topology: Topology, settings: LinkSettings) -> None:
    """Writes the parameters of all link directions and seeds their chance."""
    for link in topology.links.values():
        for from_a in (True, False):
            number = row_of(link, from_a)
            reseed(rows[number], number, settings.seed)
            write(rows[number], of_settings(settings, role_of(link, from_a), settings.loss.get(link.tier, 0.0)))


def manifest(settings: LinkSettings) -> dict[str, Any]:
    """The parameters of a healthy link by role, JSON-able."""
    common = {"seed": settings.seed, "base_rtt_s": settings.base_rtt_s, "bdp_bytes": settings.bdp_bytes}
    return {**common, "loss_by_tier": dict(settings.loss), **{role: asdict(of_settings(settings, role)) for role in ROLES}}


def write(row: Any, parameters: LinkParameters) -> None:
    """Writes all parameters of a row."""
    change(row, **{field.name: getattr(parameters, field.name) for field in fields(parameters)})


def change(row: Any, **parameters: Any) -> None:
    """Writes the named parameters of a row (fields of LinkParameters) and leaves the others alone; UsageError names a bad value."""
    for name, value in _raw(parameters):
        row[name] = value


def read(row: Any) -> LinkParameters:
    """The parameters that a row has; `write` of them restores it."""
    return LinkParameters(
        rate_bps=8 * int(row["rate_bytes_per_s"]),
        room_bytes=int(row["room_bytes"]),
        ecn_min_bytes=int(row["ecn_min_bytes"]),
        ecn_max_bytes=int(row["ecn_max_bytes"]),
        trim_bytes=int(row["trim_bytes"]),
        limit_bytes=int(row["limit_bytes"]),
        last_hop=bool(row["last_hop"]),
        drop_data=bool(row["drop_data"]),
        drop_all=bool(row["drop_all"]),
        loss=_share(row["loss_probability"]),
        ev_loss=_share(row["ev_probability"]),
        evs=tuple(int(ev) for ev in row["evs"][: int(row["ev_count"])]),
    )


def reseed(row: Any, number: int, seed: int, generators: Iterable[str] = GENERATORS) -> None:
    """Starts sources of chance of row `number` again: the same seed gives the same sequence, another row another one."""
    for name in generators:
        row[f"{name}_state"] = state_of(seed, number, name)


def state_of(seed: int, number: int, generator: str) -> int:
    """The 64-bit state with which a source of chance starts."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{number}/{generator}".encode(), digest_size=8).digest(), "little")


def draws(state: int, count: int) -> list[int]:
    """The next `count` 32-bit numbers of the program's generator (SplitMix64, the upper half): what `loss` will do is known before."""
    return [_mixed((state + (index + 1) * _GOLDEN) & _U64) >> 32 for index in range(count)]


def counts(row: Any) -> dict[str, int]:
    """All counters of a row, `<outcome>_packets` and `<outcome>_bytes` (see `bpf.OUTCOMES`)."""
    return {f"{outcome}_{unit}": int(row[f"{outcome}_{unit}"]) for outcome in OUTCOMES for unit in ("packets", "bytes")}


def probability(share: float) -> int:
    """A share of 0 to 1 in 2^-32; 1 is CERTAIN."""
    if not 0 <= share <= 1:
        raise UsageError(f"a share of {share}: choose between 0 and 1")
    return min(round(share * _U32), CERTAIN)


def _raw(parameters: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """(row field, value) in the order of writing; all are checked before the first is written."""
    return [pair for name, value in parameters.items() for pair in _raw_field(name, value)]


def _raw_field(name: str, value: Any) -> list[tuple[str, Any]]:
    if name == "rate_bps":
        return [("rate_bytes_per_s", _whole(name, int(value) // 8))]
    if name == "evs":
        return _raw_evs(value)
    if name in ("loss", "ev_loss"):
        return [("loss_probability" if name == "loss" else "ev_probability", probability(value))]
    return [(name, _whole(name, int(value)))]


def _raw_evs(evs: Sequence[int]) -> list[tuple[str, Any]]:
    """The count is 0 meanwhile, so that no half-written list is obeyed."""
    if len(evs) > MAX_EVS:
        raise UsageError(f"{len(evs)} EVs: one link direction can single out {MAX_EVS}")
    listed = [_whole("EV", ev) for ev in evs]
    return [("ev_count", 0), ("evs", listed + [0] * (MAX_EVS - len(evs))), ("ev_count", len(evs))]


def _whole(name: str, value: int) -> int:
    if not 0 <= value < _U32:
        raise UsageError(f"link parameter {name}: {value} does not fit 32 bits")
    return value


def _share(raw: Any) -> float:
    return 1.0 if int(raw) == CERTAIN else int(raw) / _U32


def _mixed(z: int) -> int:
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _U64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _U64
    return z ^ z >> 31
