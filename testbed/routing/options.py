"""Every knob of the BGP arm, with its default and where the default comes from."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.errors import UsageError


@dataclass(frozen=True)
class BgpOptions:
    """Settings of every router. Defaults are FRR's `frr defaults datacenter` profile unless a line says otherwise.

    ``keepalive_s``, ``hold_s``: session timers in seconds, 3/9 (FRR manual, BGP, "timers bgp": datacenter profile). A silent loss is only
    seen after the hold time.
    ``connect_retry_s``: seconds between connection attempts, 10 (datacenter profile).
    ``advertisement_interval_s``: the MRAI a neighbour in seconds, 0 (datacenter profile; RFC 7938 5.2.1 asks for a minimal value).
    ``coalesce_ms``: how long FRR waits, in *milliseconds*, before it sends the whole table to a newly formed group of neighbours. FRR's
    default of 1000 ms was made for routers with thousands of neighbours; 10 ms here, printed in the manifest.
    ``fast_external_failover``: a session falls at once when its interface loses carrier (FRR's default; RFC 7938 section 7.1 relies on it).
    Unnumbered sessions do so in FRR 8.4 even when it is off (measured): their neighbour's address goes with the interface.
    ``ecmp_width``: `maximum-paths`, the most next hops of one prefix (64; Debian's FRR is built for 256).
    ``kernel_nexthop_groups``: whether zebra installs next-hop objects (FRR's default) or writes the next hops into each route (ours: with
    groups IPv6 ECMP does not come back after a cut, FRR issue 12239, measured in docs/decisions/0002-frr-nexthops.md).
    ``ecmp_seed``: base of the routers' hash seeds; each router gets another one, else all tiers choose alike (polarisation).
    ``start_timeout_s``: how long one daemon may take until it answers on its socket.

    BFD will be one more field (None = off) with its own dataclass.
    """

    keepalive_s: int = 3
    hold_s: int = 9
    connect_retry_s: int = 10
    advertisement_interval_s: int = 0
    coalesce_ms: int = 10
    fast_external_failover: bool = True
    ecmp_width: int = 64
    kernel_nexthop_groups: bool = False
    ecmp_seed: int = 0x4D52
    start_timeout_s: float = 20.0

    def __post_init__(self) -> None:
        """Refuses values that bgpd would refuse or silently change; all of them in one `UsageError`."""
        problems = [text for good, text in _rules(self) if not good]
        if problems:
            raise UsageError("BGP options: " + "; ".join(problems))


def _rules(options: BgpOptions) -> list[tuple[bool, str]]:
    """The limits of FRR's own command line (8.1 to 10), as (holds, sentence)."""
    return [
        (3 <= options.hold_s <= 65535, f"hold_s is {options.hold_s}: must be 3 to 65535 seconds (RFC 4271 4.2)"),
        (1 <= options.keepalive_s <= options.hold_s // 3, f"keepalive_s is {options.keepalive_s}: must be 1 to a third of hold_s"),
        (1 <= options.connect_retry_s <= 65535, f"connect_retry_s is {options.connect_retry_s}: must be 1 to 65535 seconds"),
        (0 <= options.advertisement_interval_s <= 600, f"advertisement_interval_s is {options.advertisement_interval_s}: must be 0 to 600"),
        (1 <= options.coalesce_ms < 2**32, f"coalesce_ms is {options.coalesce_ms}: must be at least 1 millisecond"),
        (1 <= options.ecmp_width <= 256, f"ecmp_width is {options.ecmp_width}: must be 1 to 256"),
        (0 <= options.ecmp_seed < 2**16, f"ecmp_seed is {options.ecmp_seed}: must be 0 to 65535"),
        (options.start_timeout_s > 0, "start_timeout_s must be above 0"),
    ]
