"""One entropy value (EV): its path, its state, its counters."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from hosts.core import PathSpec

if TYPE_CHECKING:
    from hosts.mrc.loss import Tx

GOOD, SKIP, ASSUMED_BAD, DENIED = "GOOD", "SKIP", "ASSUMED_BAD", "DENIED"
LOCAL_DOWN, PEER_DOWN = 1, 2  # whose NIC port is down
PROBE, PORT_UP = "probe", "port_up"  # what brings an EV back


class Ev:
    """One entropy value and what is known of its path."""

    __slots__ = (
        "acked_order", "asked", "cause", "down", "index", "last_tx_s", "lost_packets", "marked_packets", "misses", "out", "path",
        "probe_at", "probe_id", "probes_answered", "probes_sent", "proof", "retired_at", "rtt_s", "sent", "state",
        "trimmed_packets", "tx_packets", "was_good",
    )  # fmt: skip

    def __init__(self, index: int, path: PathSpec) -> None:
        self.index, self.path, self.state = index, path, GOOD
        self.sent: deque[Tx] = deque()  # data transmissions in order, from the first that is not yet settled
        self.acked_order = -1  # order of the newest transmission on this EV that surely arrived
        self.out = False  # of use: ASSUMED_BAD, DENIED, or SKIP while it is not sure that it is bad
        self.cause: Tx | None = None  # the loss that took it out
        self.down = 0  # LOCAL_DOWN | PEER_DOWN
        self.was_good = False  # of a denied EV: whether it is GOOD as soon as it is allowed
        self.tx_packets = self.lost_packets = self.trimmed_packets = self.marked_packets = 0
        self.probes_sent = self.probes_answered = self.misses = 0  # of the last two: in a row
        self.last_tx_s: float | None = None
        self.retired_at = self.probe_at = float("-inf")
        self.probe_id, self.proof = -1, PROBE
        self.asked: dict[int, float] = {}  # when its newest probes without an answer were sent, by their numbers
        self.rtt_s = 0.0  # smoothed; 0 = unknown

    @property
    def is_mute(self) -> bool:
        """Whether not even a probe may be sent on it."""
        return self.state == DENIED or self.down & LOCAL_DOWN != 0

    def sample_rtt(self, rtt_s: float) -> None:
        """Takes one RTT sample of this EV's path."""
        self.rtt_s += (rtt_s - self.rtt_s) / 8 if self.rtt_s else rtt_s

    def expect(self, proof: str) -> None:
        """What brings it back begins anew: `proof` PROBE or PORT_UP."""
        self.proof, self.probes_answered, self.misses = proof, 0, 0
        self.asked.clear()
