"""The shape of a scenario's `job`: a tagged union of the lockstep jobs and the streams. Same rules as in schema.py."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag

from testbed.scenario.schema import Duration, Part, Size, Span, as_tuple

KINDS = ("all-reduce", "all-to-all", "streams")
PATTERNS = ("permutation", "incast")
MAX_MESSAGE_BYTES = 2**24
MAX_FLOWS = 10_000
# What an agent takes (hosts/jobs/streams.py, which needs NumPy): messages and bytes of a flow under way.
MOST_OUTSTANDING = 250
MAX_WINDOW_BYTES = 2**26

Hosts = Literal["all"] | Annotated[tuple[str, ...], BeforeValidator(as_tuple)]
Names = Annotated[tuple[str, ...], BeforeValidator(as_tuple), Field(min_length=1)]


class Lockstep(Part):
    """What the jobs that go step by step have in common: compute, exchange, check, over and over."""

    hosts: Hosts = "all"
    vector_bytes: Size = Field(256 * 1024, alias="vector", ge=4, le=2**30)
    compute_s: Duration = Field(0.3, alias="compute")
    checkpoint_every: int = Field(10, ge=1, le=1_000_000)
    restart_s: Duration = Field(5.0, alias="restart")


class AllReduce(Lockstep):
    """A ring all-reduce of `vector_bytes` in each step."""

    kind: Literal["all-reduce"] = "all-reduce"
    ring: Literal["adjacent", "strided"] = "adjacent"


class AllToAll(Lockstep):
    """In each step every rank sends every other one a slice of the `vector_bytes` that it holds."""

    kind: Literal["all-to-all"]


class Streams(Part):
    """Back-to-back messages on every flow, `outstanding` of them unacknowledged. After a crash all flows begin anew, after `restart_s`."""

    kind: Literal["streams"]
    message_bytes: Size = Field(64 * 1024, alias="message", le=MAX_MESSAGE_BYTES)
    outstanding: int = Field(4, ge=1, le=MOST_OUTSTANDING)
    restart_s: Duration = Field(5.0, alias="restart")
    checkpoint_every: ClassVar[None] = None


class FlowSpec(Part):
    """A flow from one host to another, on from `at_s` for `for_s` (None: until the run ends)."""

    source: str = Field(alias="from")
    target: str = Field(alias="to")
    at_s: Duration = Field(0.0, alias="at")
    for_s: Span | None = Field(None, alias="for")


class Flows(Streams):
    """Streams whose flows are listed."""

    flows: Annotated[tuple[FlowSpec, ...], BeforeValidator(as_tuple), Field(min_length=1, max_length=MAX_FLOWS)]


class Permutation(Streams):
    """Every host sends to one other and receives from one other, drawn by the scenario's seed; groups are left where that is possible."""

    pattern: Literal["permutation"]
    hosts: Hosts = "all"


class Ends(Part):
    """The two ends of a flow that runs all the time."""

    source: str = Field(alias="from")
    target: str = Field(alias="to")


class Incast(Streams):
    """Several hosts send to one: those listed, or `senders` of them, from other groups first. The victim shares only the fabric."""

    pattern: Literal["incast"]
    target: str = Field(alias="to")
    sources: Names | None = Field(None, alias="from")
    senders: int | None = Field(None, ge=1)
    at_s: Duration = Field(0.0, alias="at")
    for_s: Span | None = Field(None, alias="for")
    victim: Ends | None = None


class UnknownJob(Part):
    """Never valid: makes the message for a kind of job that does not exist."""

    model_config = ConfigDict(extra="ignore")
    kind: Literal["all-reduce", "all-to-all", "streams"]


class UnknownPattern(Part):
    """Never valid: makes the message for a pattern that does not exist."""

    model_config = ConfigDict(extra="ignore")
    kind: Literal["streams"]
    pattern: Literal["permutation", "incast"]


def _tag(data: Any) -> str:
    """The variant of a job; load.py leaves tags in "<>" out of places."""
    if not isinstance(data, dict):
        data = {name: getattr(data, name) for name in ("kind", "pattern") if hasattr(data, name)}
    kind = data.get("kind", "all-reduce")
    if kind != "streams":
        return f"<{kind}>" if kind in KINDS else "<unknown>"
    if "pattern" not in data:
        return "<flows>"
    return f"<{data['pattern']}>" if data["pattern"] in PATTERNS else "<unknown-pattern>"


Job = AllReduce | AllToAll | Flows | Permutation | Incast
JobSpec = Annotated[
    Annotated[AllReduce, Tag("<all-reduce>")]
    | Annotated[AllToAll, Tag("<all-to-all>")]
    | Annotated[Flows, Tag("<flows>")]
    | Annotated[Permutation, Tag("<permutation>")]
    | Annotated[Incast, Tag("<incast>")]
    | Annotated[UnknownJob, Tag("<unknown>")]
    | Annotated[UnknownPattern, Tag("<unknown-pattern>")],
    Discriminator(_tag),
]
