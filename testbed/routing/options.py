"""Every knob of the BGP arm, with its default and where the default comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from testbed.errors import UsageError

DEFAULT_PROFILE = "datacenter"
# What `frr defaults` means for a session (FRR, bgpd/bgp_vty.c: FRR_CFG_DEFAULT_ULONG of BGP_KEEPALIVE, BGP_HOLDTIME, BGP_CONNECT_RETRY).
# FRR's MRAI is 0 in both (BGP_DEFAULT_EBGP_ROUTEADV); the 30 s that RFC 4271, 10, suggests are an option.
_SESSIONS: Mapping[str, Mapping[str, int]] = {
    "datacenter": {"keepalive_s": 3, "hold_s": 9, "connect_retry_s": 10},
    "traditional": {"keepalive_s": 60, "hold_s": 180, "connect_retry_s": 120},
}
# 300 ms x 3 is FRR's default (FRR manual, BFD); 50 ms x 3 what operators who want fast detection set.
_BFD: Mapping[str, Mapping[str, int]] = {
    "": {"bfd_interval_ms": 0},
    "-bfd-300x3": {"bfd_interval_ms": 300, "bfd_multiplier": 3},
    "-bfd-50x3": {"bfd_interval_ms": 50, "bfd_multiplier": 3},
}
PROFILES: Mapping[str, Mapping[str, int]] = {
    session + bfd: {**timers, **detection} for session, timers in _SESSIONS.items() for bfd, detection in _BFD.items()
}
"""Profile -> options that it sets; explicit options override them."""
HASH_POLICIES = ("l3", "l4")


@dataclass(frozen=True)
class BgpOptions:
    """Settings of every router. `from_mapping` takes the defaults from the profile; those written here are of `datacenter`.

    ``profile``: one of `PROFILES`; its first word is FRR's own profile (`frr defaults`).
    ``keepalive_s``, ``hold_s``: session timers in seconds, 3/9 or 60/180 (FRR manual, BGP, "timers bgp"). A silent loss is only seen after
    the hold time, unless BFD sees it.
    ``connect_retry_s``: seconds between connection attempts, 10 or 120.
    ``advertisement_interval_s``: the MRAI a neighbour in seconds, 0 (FRR, both profiles; RFC 7938 5.2.1 asks for a minimal value).
    ``coalesce_ms``: how long FRR waits, in *milliseconds*, before it sends the whole table to a newly formed group of neighbours. FRR's
    default of 1000 ms was made for routers with thousands of neighbours; 10 ms here, printed in the manifest.
    ``fast_external_failover``: a session falls at once when its interface loses carrier (FRR's default; RFC 7938 section 7.1 relies on it).
    Unnumbered sessions do so in FRR 8.4 even when it is off (measured): their neighbour's address goes with the interface.
    ``bfd_interval_ms``: BFD's transmit and receive interval (RFC 5880 6.8.1) in milliseconds, 10 to 60000; 0 = no BFD.
    ``bfd_multiplier``: how many intervals without a packet end a session (RFC 5880: Detect Mult), 3 (FRR's default).
    ``ecmp_width``: `maximum-paths`, the most next hops of one prefix (64; Debian's FRR is built for 256).
    ``hash_policy``: what chooses among the next hops: `l4` (addresses, protocol and ports) or `l3` (addresses and protocol: all
    flows of a pair go one way).
    ``kernel_nexthop_groups``: whether zebra installs next-hop objects (FRR's default) or writes the next hops into each route (ours: with
    groups IPv6 ECMP does not come back after a cut, FRR issue 12239, measured in docs/decisions/0002-frr-nexthops.md).
    ``ecmp_seed``: base of the routers' hash seeds; each router gets another one, else all tiers choose alike (polarisation).
    ``start_timeout_s``: how long one daemon may take until it answers on its socket.
    """

    profile: str = DEFAULT_PROFILE
    keepalive_s: int = 3
    hold_s: int = 9
    connect_retry_s: int = 10
    advertisement_interval_s: int = 0
    coalesce_ms: int = 10
    fast_external_failover: bool = True
    bfd_interval_ms: int = 0
    bfd_multiplier: int = 3
    ecmp_width: int = 64
    hash_policy: str = "l4"
    kernel_nexthop_groups: bool = False
    ecmp_seed: int = 0x4D52
    start_timeout_s: float = 20.0

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> BgpOptions:
        """Options from a scenario's `bgp` section: those of its profile, and on top what is written; UsageError for an unknown name."""
        known = [each.name for each in fields(cls)]
        problems = [f"option {name!r} is unknown{_near(name, known)}" for name in raw if name not in known]
        if problems:
            raise UsageError("BGP options: " + "; ".join(problems))
        return cls(**{**profile_options(raw.get("profile", DEFAULT_PROFILE)), **raw})

    def __post_init__(self) -> None:
        """Refuses values that bgpd would refuse or silently change; all of them in one `UsageError`."""
        problems = [text for good, text in _rules(self) if not good]
        if problems:
            raise UsageError("BGP options: " + "; ".join(problems))

    @property
    def has_bfd(self) -> bool:
        """Whether the routers run BFD."""
        return self.bfd_interval_ms > 0

    @property
    def frr_profile(self) -> str:
        """FRR's own profile, for `frr defaults`."""
        return self.profile.partition("-")[0]


def profile_options(profile: object) -> Mapping[str, int]:
    """What a profile sets; UsageError with a near name for one that does not exist."""
    if not isinstance(profile, str) or profile not in PROFILES:
        raise UsageError(f"BGP options: profile {profile!r} is unknown{_near(str(profile), list(PROFILES))}")
    return PROFILES[profile]


def _near(word: str, known: list[str]) -> str:
    """The end of a sentence about an unknown word."""
    near = get_close_matches(word, known, 1)
    return f": did you mean {near[0]!r}?" if near else f": use one of {', '.join(known)}"


def _rules(options: BgpOptions) -> list[tuple[bool, str]]:
    """The limits of FRR's own command line (8.1 to 10), as (holds, sentence)."""
    return [
        (options.profile in PROFILES, f"profile {options.profile!r} is unknown{_near(options.profile, list(PROFILES))}"),
        (3 <= options.hold_s <= 65535, f"hold_s is {options.hold_s}: must be 3 to 65535 seconds (RFC 4271 4.2)"),
        (1 <= options.keepalive_s <= options.hold_s // 3, f"keepalive_s is {options.keepalive_s}: must be 1 to a third of hold_s"),
        (1 <= options.connect_retry_s <= 65535, f"connect_retry_s is {options.connect_retry_s}: must be 1 to 65535 seconds"),
        (0 <= options.advertisement_interval_s <= 600, f"advertisement_interval_s is {options.advertisement_interval_s}: must be 0 to 600"),
        (1 <= options.coalesce_ms < 2**32, f"coalesce_ms is {options.coalesce_ms}: must be at least 1 millisecond"),
        (options.bfd_interval_ms == 0 or 10 <= options.bfd_interval_ms <= 60000, f"bfd_interval_ms is {options.bfd_interval_ms}: "
         "must be 0 (off) or 10 to 60000"),
        (2 <= options.bfd_multiplier <= 255, f"bfd_multiplier is {options.bfd_multiplier}: must be 2 to 255"),
        (1 <= options.ecmp_width <= 256, f"ecmp_width is {options.ecmp_width}: must be 1 to 256"),
        (options.hash_policy in HASH_POLICIES, f"hash_policy is {options.hash_policy!r}: must be one of {', '.join(HASH_POLICIES)}"),
        (0 <= options.ecmp_seed < 2**16, f"ecmp_seed is {options.ecmp_seed}: must be 0 to 65535"),
        (options.start_timeout_s > 0, "start_timeout_s must be above 0"),
    ]  # fmt: skip
