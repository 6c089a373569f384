"""Every delay of the BGP that a controller runs for its switches, with where its value comes from; docs/bgp-ovs.md has the derivations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from testbed.errors import UsageError

MIN_BFD_INTERVAL_S = 0.05
"""Each packet costs the controller a packet-out and a packet-in: 64 ports at 50 ms are 1,280 of each a second."""


@dataclass(frozen=True)
class BgpOvsOptions:
    """Parameters of every switch. Times in seconds. The defaults are the preset `frr`, which fits what FRR does in this testbed.

    ``preset``: where the values come from that are not given: `frr` or `large-fabric`.
    ``keepalive_s``, ``hold_s``: session timers, 3/9 (FRR's datacenter profile); a silent loss is seen after the hold time.
    ``bfd_interval_s``, ``bfd_multiplier``: a session also falls after so many intervals without a packet; 0 = off.
    ``carrier_delay_s``: from the switch's loss of carrier to the speaker's knowledge of it (kernel, netlink, interface events).
    ``local_repair``, ``local_repair_s``: whether, and after how long, a switch itself skips a port without carrier, before BGP knows
    (the controller plays that part too, and it ends with the controller).
    ``process_s``, ``process_jitter``: work on one received message, times 1 to 1 + jitter (drawn); messages of a switch queue up.
    ``batch_s``: how long changes gather before a decision (FRR: 50 ms a hop, docs/bgp.md; some of it is the real packet's here).
    ``mrai_s``: least time between two UPDATEs to a neighbour (RFC 4271 9.2.1.1, withdrawals included).
    ``propagation_s``: the least time that a message takes from speaker to speaker; it also needs a real packet to arrive.
    ``fib_base_s``, ``fib_prefix_s``: a burst of changes takes the base, and then so long for each prefix, one after the other.
    ``session_min_s``, ``session_max_s``: establishment, from packets passing both ways (drawn uniformly).
    ``ecmp_width``: most next hops of a prefix. ``ecmp_seed``: base of the switches' hash bases.
    """

    preset: str = "frr"
    keepalive_s: float = 3.0
    hold_s: float = 9.0
    bfd_interval_s: float = 0.0
    bfd_multiplier: int = 3
    carrier_delay_s: float = 0.015
    local_repair: bool = True
    local_repair_s: float = 0.0
    process_s: float = 0.001
    process_jitter: float = 0.5
    batch_s: float = 0.045
    mrai_s: float = 0.0
    propagation_s: float = 0.0
    fib_base_s: float = 0.0
    fib_prefix_s: float = 0.0005
    session_min_s: float = 0.15
    session_max_s: float = 0.95
    ecmp_width: int = 64
    ecmp_seed: int = 0x4D52

    def __post_init__(self) -> None:
        """Refuses what no switch could be; all of it in one `UsageError`."""
        problems = [text for good, text in _rules(self) if not good]
        if problems:
            raise UsageError("bgp_ovs: " + "; ".join(problems))

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> BgpOvsOptions:
        """The preset's values (`frr` if none is named), and on top of them those given. UsageError for unknown names."""
        preset = str(given.get("preset", "frr"))
        if preset not in PRESETS:
            raise UsageError(f"bgp_ovs: unknown preset {preset!r}{_near(preset, tuple(PRESETS))}")
        known = tuple(field.name for field in fields(cls))
        if unknown := [name for name in given if name not in known]:
            raise UsageError(f"bgp_ovs: unknown parameter {unknown[0]!r}{_near(unknown[0], known)}")
        return cls(**{**PRESETS[preset], **given})

    @property
    def liveness_s(self) -> float:
        """Seconds between the packets that an established session sends."""
        return min(self.keepalive_s, self.bfd_interval_s or math.inf)

    @property
    def bfd_detect_s(self) -> float:
        """Seconds without a packet after which BFD ends the session; infinite without BFD."""
        return self.bfd_interval_s * self.bfd_multiplier or math.inf


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "frr": {},
    "large-fabric": {
        "preset": "large-fabric",
        "carrier_delay_s": 0.1,
        "local_repair_s": 0.05,
        "process_s": 0.05,
        "process_jitter": 2.0,
        "batch_s": 0.05,
        "mrai_s": 5.0,
        "fib_base_s": 0.1,
        "fib_prefix_s": 0.25,
        "session_min_s": 2.0,
        "session_max_s": 10.0,
    },
}
"""What differs from the defaults. Where `large-fabric` comes from, and what in it is assumed: docs/bgp-ovs.md."""


def _near(word: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(word, known, n=2)
    return f": did you mean {' or '.join(near)}?" if near else f": choose from {', '.join(known)}"


def _rules(options: BgpOvsOptions) -> list[tuple[bool, str]]:
    """Limits as (holds, sentence)."""
    bfd, times = options.bfd_interval_s, [name for name in vars(options) if name.endswith("_s")]
    small = [name for name in times if not 0 <= getattr(options, name) <= 3600]
    return [
        (options.preset in PRESETS, f"preset is {options.preset!r}: must be {' or '.join(PRESETS)}"),
        (not small, f"{', '.join(small)}: must be 0 to 3600 seconds"),
        (options.hold_s >= 3, f"hold_s is {options.hold_s:g}: must be 3 or more (RFC 4271 4.2)"),
        (1 <= options.keepalive_s <= options.hold_s / 3, f"keepalive_s is {options.keepalive_s:g}: must be 1 to a third of hold_s"),
        (bfd == 0 or bfd >= MIN_BFD_INTERVAL_S, f"bfd_interval_s is {bfd:g}: must be 0 (off) or {MIN_BFD_INTERVAL_S:g} or more"),
        (2 <= options.bfd_multiplier <= 255, f"bfd_multiplier is {options.bfd_multiplier}: must be 2 to 255 (FRR's limits)"),
        (0 <= options.process_jitter <= 100, f"process_jitter is {options.process_jitter:g}: must be 0 to 100"),
        (options.session_min_s <= options.session_max_s, "session_min_s must not be above session_max_s"),
        (1 <= options.ecmp_width <= 256, f"ecmp_width is {options.ecmp_width}: must be 1 to 256"),
        (0 <= options.ecmp_seed < 2**16, f"ecmp_seed is {options.ecmp_seed}: must be 0 to 65535"),
    ]
