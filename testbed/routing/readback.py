"""What a router's daemons say of their sessions, compared with what was asked of them. Pure."""

from __future__ import annotations

from typing import Any

from testbed.routing.options import BgpOptions


def session_faults(session: dict[str, Any], options: BgpOptions) -> list[str]:
    """What is wrong with one session, from bgpd's own account of it."""
    if session.get("bgpState") != "Established":
        return [f"is {session.get('bgpState', 'missing')}, not Established"]
    wanted = {"bgpTimerHoldTimeMsecs": options.hold_s * 1000, "bgpTimerKeepAliveIntervalMsecs": options.keepalive_s * 1000}
    told = {"minBtwnAdvertisementRunsTimerMsecs": options.advertisement_interval_s * 1000, "connectRetryTimer": options.connect_retry_s}
    wanted |= {key: value for key, value in told.items() if key in session}  # not every version tells them
    return [f"{key} is {session.get(key)}, not {value}" for key, value in wanted.items() if session.get(key) != value]


def detection_faults(session: dict[str, Any], options: BgpOptions) -> list[str]:
    """What is wrong with one BFD session: not up, or other intervals than asked for at either end."""
    if session.get("status") != "up":
        return [f"is {session.get('status', 'missing')}, not up"]
    intervals = [f"{end}{way}-interval" for end in ("", "remote-") for way in ("receive", "transmit")]
    wanted = dict.fromkeys(intervals, options.bfd_interval_ms)
    wanted |= dict.fromkeys(("detect-multiplier", "remote-detect-multiplier"), options.bfd_multiplier)
    return [f"{key} is {session.get(key)}, not {value}" for key, value in wanted.items() if session.get(key) != value]
