"""The shape of a scenario: frozen, strict models, one a section. Keys as in the file; fields carry their units.

What needs more than one section (does the link exist, do faults overlap) is in check.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, StringConstraints, Tag, ValidationInfo, model_validator

from testbed.units import parse_duration, parse_rate, parse_share, parse_size

DEFAULT_ARMS = ("mrc", "rc-bgp")
# 1024 hosts: far more than one machine emulates, and still quick to check.
MAX_K = 16
MAX_SCALAR_CHARACTERS = 100

T = TypeVar("T")


def _positive(parse: Callable[[object], T]) -> Callable[[object], T]:
    def check(value: object) -> T:
        parsed = parse(value)
        if not parsed > 0:  # type: ignore[operator]
            raise ValueError("must be more than zero")
        return parsed

    return check


def as_tuple(value: object) -> object:
    """YAML has lists; frozen models hold tuples."""
    return tuple(value) if isinstance(value, list) else value


def _as_float(value: object) -> object:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**15 else value


def _one_value(value: object) -> object:
    if isinstance(value, (list, dict)) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError("must be one finite number, a text, true, false or null")
    if isinstance(value, str) and not 0 < len(value) <= MAX_SCALAR_CHARACTERS:
        raise ValueError(f"must have 1 to {MAX_SCALAR_CHARACTERS} characters")
    return value


Scalar = Annotated[Any, BeforeValidator(_one_value)]
Rate = Annotated[float, BeforeValidator(_positive(parse_rate))]
Size = Annotated[int, BeforeValidator(_positive(parse_size))]
Duration = Annotated[float, BeforeValidator(parse_duration)]
Span = Annotated[float, BeforeValidator(_positive(parse_duration))]
Share = Annotated[float, BeforeValidator(parse_share)]
Number = Annotated[float, BeforeValidator(_as_float), Field(allow_inf_nan=False)]
Weight = Annotated[float, BeforeValidator(_as_float), Field(allow_inf_nan=False, ge=0, le=1e6)]
Text = Annotated[str, StringConstraints(max_length=4000, strip_whitespace=True)]
# A name becomes a folder of results/, so it holds nothing that a path could misread.
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
Tier = Literal["NIC-T0", "T0-T1", "T1-T2"]
TIERS: tuple[str, ...] = get_args(Tier)
Arm = Literal["mrc", "mrc-no-trim", "mrc-bgp", "rc-bgp", "rc-bgp-ovs", "rc-static", "tcp-bgp"]
ARMS: tuple[str, ...] = get_args(Arm)


class Part(BaseModel):
    """Base of all sections: strict, frozen, no unknown keys."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, populate_by_name=False)

    @model_validator(mode="before")
    @classmethod
    def _remember_keys(cls, data: Any, info: ValidationInfo) -> Any:
        """Leaves the keys of this section for the message about an unknown one (see load.py)."""
        if isinstance(data, dict) and info.context is not None:
            info.context[id(data)] = tuple(field.alias or name for name, field in cls.model_fields.items())
        return data


class FatTree(Part):
    """Three tiers of k-port switches."""

    kind: Literal["fat-tree"]
    k: int = Field(4, ge=2, le=MAX_K)
    oversubscription: int = Field(1, ge=1, le=64)


class MultiPlane(Part):
    """Planes of two tiers; each host has a NIC port on each plane."""

    kind: Literal["multi-plane"]
    planes: int = Field(ge=1, le=16)
    t0s: int = Field(ge=1, le=64)
    t1s: int = Field(ge=1, le=64)
    hosts_per_t0: int = Field(ge=1, le=64)


class UnknownTopology(Part):
    """Never valid: makes the message for a topology kind that does not exist."""

    model_config = ConfigDict(extra="ignore")
    kind: Literal["fat-tree", "multi-plane"]


class Links(Part):
    """Every link of the fabric. A queue or base RTT of None is derived from rate and MTU; `loss` is by chance, all the time, both ways.

    `ecn` and `trimming` are what the switches of MRC's arms do; RC's arms have the deep queues that stand for a lossless fabric.
    """

    rate_bps: Rate = Field(10e6, alias="rate")
    mtu_bytes: Size = Field(4352, alias="mtu", ge=1280, le=65535)
    queue_bytes: Size | None = Field(None, alias="queue")
    ecn: bool = True
    trimming: bool = True
    base_rtt_s: Span | None = Field(None, alias="base_rtt")
    loss: dict[Tier, Share] = Field(default_factory=dict)


class Run(Part):
    """How long an arm runs; no fault begins before `warmup_s`, none is on in the last `settle_s`."""

    duration_s: Span = Field(alias="duration")
    warmup_s: Duration = Field(5.0, alias="warmup")
    settle_s: Duration = Field(5.0, alias="settle")


def tag_of(key: str, kinds: Mapping[str, str], other: str) -> Callable[[Any], str]:
    """Picks a variant's tag by the value of `key`; tags begin with "<", which load.py leaves out of places."""

    def tag(data: Any) -> str:
        value = data.get(key) if isinstance(data, dict) else getattr(data, key, None)
        return kinds.get(value, other) if isinstance(value, str) else other

    return tag


TopologySpec = Annotated[
    Annotated[FatTree, Tag("<fat-tree>")] | Annotated[MultiPlane, Tag("<multi-plane>")] | Annotated[UnknownTopology, Tag("<unknown>")],
    Discriminator(tag_of("kind", {"fat-tree": "<fat-tree>", "multi-plane": "<multi-plane>"}, "<unknown>")),
]


def _an_option(value: object) -> object:
    """What is none of an option's types would be told once for each of them."""
    if not isinstance(value, bool | int | float | str):
        raise ValueError("must be one value: a number, a text, true or false")
    if isinstance(value, str) and len(value) > MAX_SCALAR_CHARACTERS:
        raise ValueError(f"must have at most {MAX_SCALAR_CHARACTERS} characters")
    return value


Option = Annotated[bool | int | float | str, BeforeValidator(_an_option)]


class Transport(Part):
    """Named parameters of the transports, on top of their defaults."""

    mrc: dict[str, Option] = Field(default_factory=dict)
    rc: dict[str, Option] = Field(default_factory=dict)
    tcp: dict[str, Option] = Field(default_factory=dict)


BgpProfile = Literal[
    "datacenter", "datacenter-bfd-300x3", "datacenter-bfd-50x3", "traditional", "traditional-bfd-300x3", "traditional-bfd-50x3"
]  # testbed.routing.options.PROFILES


class Bgp(BaseModel):
    """A profile of testbed.routing, and named options on top of it (checked in check.py)."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Option]
    profile: BgpProfile = "datacenter"

    def options(self) -> dict[str, Option]:
        """The named options, as given."""
        return dict(self.__pydantic_extra__ or {})

    def given(self) -> dict[str, Option]:
        """The profile and the named options: what BgpOptions.from_mapping takes."""
        return {"profile": self.profile, **self.options()}


class BgpOvs(BaseModel):
    """A preset of testbed.pathvector, and named options on top of it (checked in check.py)."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Option]
    preset: Literal["frr", "large-fabric"] = "frr"

    def options(self) -> dict[str, Option]:
        """The named options, as given."""
        return dict(self.__pydantic_extra__ or {})

    def given(self) -> dict[str, Option]:
        """The preset and the named options: what BgpOvsOptions.from_mapping takes."""
        return {"preset": self.preset, **self.options()}


class Expectation(Part):
    """A metric of an arm's summary and its bound; a missed one makes the run's exit code 1. `at`: only at that value of the sweep."""

    arm: Arm
    metric: str
    at_most: Number | None = None
    at_least: Number | None = None
    equals: Number | bool | None = None
    at: Scalar = None

    def __str__(self) -> str:
        bounds = [("<=", self.at_most), (">=", self.at_least), ("==", self.equals)]
        return f"{self.arm}: {self.metric} " + " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)


Arms = Annotated[tuple[Arm, ...], BeforeValidator(as_tuple), Field(min_length=1)]
