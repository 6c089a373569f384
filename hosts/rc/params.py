"""What a user may set about RoCE RC; each default says where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from hosts.parameters import refuse_unknown
from testbed.errors import UsageError

# InfiniBand Architecture Specification volume 1, 9.7.6.1.3: the Local ACK Timeout is 4.096 us x 2^exponent, exponent 5 bits, 0 = never.
ACK_TIMEOUT_UNIT_S = 4.096e-6
AS_PRESET = -1
MAX_QPS = 16


class Preset(NamedTuple):
    """How long a QP waits for an acknowledgement, and how often it tries again."""

    timeout_exponent: int
    retries: int


PRESETS: Mapping[str, Preset] = {
    "nccl-18x7": Preset(18, 7),
    "nccl-20x7": Preset(20, 7),
    "fast": Preset(16, 7),
}
"""NCCL_IB_TIMEOUT x NCCL_IB_RETRY_CNT of NCCL's src/transport/net_ib: 18 in earlier ones, 20 now, 7 in both. `fast`: ours, docs/rc.md"""


@dataclass(frozen=True)
class RcParams:
    """Parameters of every RC QP of a host; UsageError names the one that makes no sense."""

    preset: str = "nccl-18x7"
    """Gives `timeout_exponent` and `retries`: one of PRESETS."""
    timeout_exponent: int = AS_PRESET
    """ACK timeout = 4.096 us x 2^this; AS_PRESET: the preset's, which then stands here."""
    retries: int = AS_PRESET
    """Retries without progress before the QP fails, at most 7, what the 3-bit field holds; AS_PRESET: the preset's."""
    qps: int = 1
    """QPs a pair, each with a source port of its own: NCCL_IB_QPS_PER_CONNECTION, whose default is 1."""
    split_data: bool = False
    """Each message is cut over all QPs, else messages go to them in turn: NCCL_IB_SPLIT_DATA_ON_QPS, 0 today (1 in older releases)."""
    payload_bytes: int = 4096
    """Path MTU: payload of a full packet, in bytes. 4096 is InfiniBand's largest."""
    window_packets: int = 16
    """Packets that may be outstanding over all QPs of a pair. RC has no congestion window; NICs bound what is in flight in hardware."""
    ack_every: int = 4
    """The receiver acknowledges every so many packets of a QP, and whenever one asks for it (AckReq, last packet of a message)."""
    link_rate_bps: float = 0.0
    """Rate of the NIC's link, which DCQCN starts from; 0 = unknown."""
    dcqcn: bool = False
    """Rate control on ECN marks (Zhu et al., SIGCOMM 2015)."""
    dcqcn_time_scale: float = 160.0
    """How much slower than the paper's time this one runs: base RTT 4 ms here, 25 us assumed there. It stretches the next four."""
    dcqcn_cnp_interval_us: float = 50.0
    """At most one CNP a QP in that time (paper, section 3.1)."""
    dcqcn_alpha_timer_us: float = 55.0
    """Without a CNP for so long alpha decays (K in the paper)."""
    dcqcn_increase_timer_us: float = 55.0
    """A step of rate increase each (T, as the paper deploys it)."""
    dcqcn_byte_counter_us: float = 2000.0
    """Another step whenever so much of line rate was sent: B = 10 MB at 40 Gbit/s."""
    dcqcn_g: float = 1 / 256
    """Weight of a CNP in alpha."""
    dcqcn_stages: int = 5
    """Steps of fast recovery (F)."""
    dcqcn_additive_share: float = 0.001
    """Additive increase, as a share of line rate: R_AI = 40 Mbit/s of 40 Gbit/s."""
    dcqcn_hyper_share: float = 0.01
    """Hyper increase: ten times R_AI, which is our choice; the paper gives no value."""
    dcqcn_min_rate_share: float = 0.005
    """The least rate; our choice: a full packet takes 0.7 s at 10 Mbit/s."""

    def __post_init__(self) -> None:
        """Refuses values outside of what the header fields and the protocol allow; takes from the preset what is not given."""
        if not isinstance(self.preset, str) or self.preset not in PRESETS:
            near = get_close_matches(str(self.preset), PRESETS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"use {', '.join(PRESETS)}"
            raise UsageError(f"RC parameter preset is {self.preset!r}: {hint}")
        for name, value in PRESETS[self.preset]._asdict().items():
            given = getattr(self, name)
            if given == AS_PRESET and not isinstance(given, bool):
                object.__setattr__(self, name, value)  # frozen for everybody else
        for problem in self._problems():
            raise UsageError(problem)

    def _problems(self) -> Iterator[str]:
        yield from _between("payload_bytes", self.payload_bytes, 4, 4096, multiple=4)
        yield from _between("window_packets", self.window_packets, 1, 4096)
        yield from _between("ack_every", self.ack_every, 1, max(1, self.window_packets // 2), why="half of window_packets")
        yield from _between("timeout_exponent", self.timeout_exponent, 1, 31)
        yield from _between("retries", self.retries, 0, 7)
        yield from _between("qps", self.qps, 1, min(MAX_QPS, self.window_packets), why="no more than window_packets")
        yield from _between("dcqcn_stages", self.dcqcn_stages, 1, 100)
        for name in ("split_data", "dcqcn"):
            if not isinstance(getattr(self, name), bool):
                yield f"RC parameter {name} is {getattr(self, name)!r}: give true or false"
        yield from _number("link_rate_bps", self.link_rate_bps, 0, 1e12)
        for name in ("cnp_interval", "alpha_timer", "increase_timer", "byte_counter"):
            yield from _number(f"dcqcn_{name}_us", getattr(self, f"dcqcn_{name}_us"), 1, 1e6)
        yield from _number("dcqcn_time_scale", self.dcqcn_time_scale, 1, 1e6)
        for name in ("g", "additive_share", "hyper_share", "min_rate_share"):
            yield from _number(f"dcqcn_{name}", getattr(self, f"dcqcn_{name}"), 1e-6, 1)

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> RcParams:
        """Parameters from the agent protocol's mapping; UsageError for a name that RC does not know."""
        refuse_unknown("RC", raw, cls)
        return cls(**raw)

    @property
    def ack_timeout_s(self) -> float:
        """The Local ACK Timeout in seconds."""
        return float(ACK_TIMEOUT_UNIT_S * 2**self.timeout_exponent)

    @property
    def qp_ack_every(self) -> int:
        """`ack_every` of one QP: all of a pair together may hold back less than half their window, or the pair would stand still."""
        return max(1, min(self.ack_every, self.window_packets // (2 * self.qps)))


def _between(name: str, value: object, low: int, high: int, *, multiple: int = 1, why: str = "") -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high or value % multiple:
        steps = f" in steps of {multiple}" if multiple > 1 else f" ({why})" if why else ""
        yield f"RC parameter {name} is {value!r}: give a whole number from {low} to {high}{steps}"


def _number(name: str, value: object, low: float, high: float) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        yield f"RC parameter {name} is {value!r}: give a number from {low:g} to {high:g}"
