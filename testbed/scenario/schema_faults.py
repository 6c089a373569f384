"""The shape of the `faults` section: one model a kind of fault, and the generator of random cuts.

What needs the topology or the run (is there such a link, do faults overlap) is in check_faults.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from testbed.scenario.schema import Duration, Number, Part, Rate, Share, Span, Tier, Weight, as_tuple, tag_of

Cut = Literal["carrier", "silent"]
"""How a bundle or a flapping link is cut: both ends see it, or nobody does."""
Loss = Annotated[Share, Field(gt=0)]
Less = Annotated[Share, Field(gt=0, lt=1)]
MAX_EVS = 8  # that the link program can single out a direction (testbed.fabric.bpf)
# A change of a link takes some milliseconds: a link that flaps faster would not be where it should be.
MIN_FLAP_S = 0.02
MIN_FAULT_S = 0.001  # the timeline counts milliseconds
MIN_PERIOD_S, MAX_PERIOD_S = 0.001, 60
EV_LIMIT = 2**32
Ev = Annotated[int, Field(ge=0, lt=EV_LIMIT)]


class TimedFault(Part):
    """What all faults have: when they begin, from the job's start, and how long they last."""

    at_s: Duration = Field(alias="at")
    for_s: Span = Field(alias="for", ge=MIN_FAULT_S)


class LinkFault(TimedFault):
    """A cut that both ends see (carrier), or that nobody sees (silent)."""

    kind: Literal["carrier", "silent"]
    link: str


class RemoteFault(TimedFault):
    """A cut that only one end sees, as one with a broken receiver; packets of both directions are lost."""

    kind: Literal["remote"]
    link: str
    seen_by: str


class OneWayFault(TimedFault):
    """What one end sends is lost and nobody sees it; the other direction works."""

    kind: Literal["one-way"]
    link: str
    from_node: str = Field(alias="from")


class LossFault(TimedFault):
    """Packets are lost by chance, both ways or only those that one end sends; with `evs` only those of these entropy values."""

    kind: Literal["loss"]
    link: str
    share: Loss
    from_node: str | None = Field(None, alias="from")
    evs: Annotated[tuple[Ev, ...], BeforeValidator(as_tuple), Field(max_length=MAX_EVS)] = ()


class RateFault(TimedFault):
    """A link that runs at another rate, or at a share of its own: both ways, or only what one end sends."""

    kind: Literal["rate"]
    link: str
    rate_bps: Rate | None = Field(None, alias="rate")
    share: Less | None = None
    from_node: str | None = Field(None, alias="from")

    @model_validator(mode="after")
    def _one_of_two(self) -> RateFault:
        if (self.rate_bps is None) == (self.share is None):
            raise ValueError("needs either `rate` or `share`")
        return self


class FlapFault(TimedFault):
    """A link that goes down and comes up again, over and over: begins down, ends up."""

    kind: Literal["flap"]
    link: str
    down_s: Span = Field(alias="down")
    up_s: Span = Field(alias="up")
    of: Cut = "carrier"


class BundleFault(TimedFault):
    """Several links cut at once, as by one excavator."""

    kind: Literal["bundle"]
    links: Annotated[tuple[str, ...], BeforeValidator(as_tuple), Field(min_length=1)]
    of: Cut = "carrier"


class PortFault(TimedFault):
    """A NIC port of a host goes down; both ends see it."""

    kind: Literal["port"]
    port: str


class SwitchFault(TimedFault):
    """A switch that dies or is rebooted in order, and starts to boot after `for_s`; or one that keeps its sessions and forwards nothing."""

    kind: Literal["switch-kill", "switch-reboot", "switch-hang"]
    switch: str


class HostSlowFault(TimedFault):
    """A host whose programs run only for a share of each period."""

    kind: Literal["host-slow"]
    host: str
    share: Less
    period_s: Span = Field(0.02, alias="period", ge=MIN_PERIOD_S, le=MAX_PERIOD_S)


class ControllerFault(TimedFault):
    """The process that programs the switches dies, and is started again after `for_s`; the switches keep what they hold."""

    kind: Literal["controller-kill"]


class TierRate(Part):
    """How often links of one tier are cut, all links of the tier together."""

    cuts_per_minute: Weight


class FixedDown(Part):
    """Every cut lasts the same."""

    distribution: Literal["fixed"]
    value_s: Span = Field(alias="value")


class UniformDown(Part):
    """Any time between two bounds, each as likely."""

    distribution: Literal["uniform"]
    min_s: Span = Field(alias="min")
    max_s: Span = Field(alias="max")


class ExponentialDown(Part):
    """Mean of the untruncated distribution, and bounds."""

    distribution: Literal["exponential"]
    mean_s: Span = Field(alias="mean")
    min_s: Span = Field(0.5, alias="min")
    max_s: Span | None = Field(None, alias="max")


class LognormalDown(Part):
    """Mean of the untruncated distribution, standard deviation of the logarithm, and bounds."""

    distribution: Literal["lognormal"]
    mean_s: Span = Field(alias="mean")
    sigma: Number = Field(0.5, gt=0, le=3)
    min_s: Span = Field(0.5, alias="min")
    max_s: Span | None = Field(None, alias="max")


class UnknownDown(Part):
    """Never valid: makes the message for a distribution that does not exist."""

    model_config = ConfigDict(extra="ignore")
    distribution: Literal["fixed", "uniform", "exponential", "lognormal"]


Down = Annotated[
    Annotated[FixedDown, Tag("<fixed>")]
    | Annotated[UniformDown, Tag("<uniform>")]
    | Annotated[ExponentialDown, Tag("<exponential>")]
    | Annotated[LognormalDown, Tag("<lognormal>")]
    | Annotated[UnknownDown, Tag("<unknown>")],
    Discriminator(tag_of("distribution", {name: f"<{name}>" for name in ("fixed", "uniform", "exponential", "lognormal")}, "<unknown>")),
]


ChurnKind = Literal["carrier", "silent", "remote", "one-way"]


class Churn(Part):
    """A construction site: cuts arrive at random (Poisson) on each tier; drawn by churn.py."""

    tiers: dict[Tier, TierRate] = Field(min_length=1)
    down: Down = Field(default_factory=lambda: ExponentialDown.model_validate({"distribution": "exponential", "mean": "6s", "max": "30s"}))
    kinds: dict[ChurnKind, Weight] = Field({"carrier": 0.5, "silent": 0.5}, min_length=1)
    from_s: Duration | None = Field(None, alias="from")
    to_s: Duration | None = Field(None, alias="to")
    keep_connected: bool = True
    max_concurrent: int = Field(4, ge=1, le=10_000)


class ChurnFault(Part):
    """The entry of `faults` that holds a generator."""

    churn: Churn


ExplicitFault = (
    LinkFault
    | RemoteFault
    | OneWayFault
    | LossFault
    | RateFault
    | FlapFault
    | BundleFault
    | PortFault
    | SwitchFault
    | HostSlowFault
    | ControllerFault
)
EXPLICIT: tuple[type[TimedFault], ...] = get_args(ExplicitFault)
TAG_OF_KIND = {kind: f"<{model.__name__}>" for model in EXPLICIT for kind in get_args(model.model_fields["kind"].annotation)}
FAULT_KINDS = tuple(TAG_OF_KIND)


class UnknownFault(Part):
    """Never valid: makes the message for a fault kind that does not exist."""

    model_config = ConfigDict(extra="ignore")
    kind: Literal[
        "carrier", "silent", "remote", "one-way", "loss", "rate", "flap", "bundle", "port",
        "switch-kill", "switch-reboot", "switch-hang", "host-slow", "controller-kill",
    ]  # fmt: skip


_tag_of_kind = tag_of("kind", TAG_OF_KIND, "<UnknownFault>")


def _fault_tag(data: Any) -> str:
    return "<ChurnFault>" if isinstance(data, dict) and "churn" in data else _tag_of_kind(data)


FaultSpec = Annotated[
    Annotated[LinkFault, Tag("<LinkFault>")]
    | Annotated[RemoteFault, Tag("<RemoteFault>")]
    | Annotated[OneWayFault, Tag("<OneWayFault>")]
    | Annotated[LossFault, Tag("<LossFault>")]
    | Annotated[RateFault, Tag("<RateFault>")]
    | Annotated[FlapFault, Tag("<FlapFault>")]
    | Annotated[BundleFault, Tag("<BundleFault>")]
    | Annotated[PortFault, Tag("<PortFault>")]
    | Annotated[SwitchFault, Tag("<SwitchFault>")]
    | Annotated[HostSlowFault, Tag("<HostSlowFault>")]
    | Annotated[ControllerFault, Tag("<ControllerFault>")]
    | Annotated[ChurnFault, Tag("<ChurnFault>")]
    | Annotated[UnknownFault, Tag("<UnknownFault>")],
    Discriminator(_fault_tag),
]
"""An entry of `faults`; the tags begin with "<", which load.py leaves out of places."""
