"""What bgpd's and bfdd's logs tell of sessions: lines to data. Pure. Lines that tell nothing of a session are passed over."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

# FRR bgpd/bgp_fsm.c, bgpd/bgp_debug.c, bfdd/bfd.c; the same in 8.1, 8.4 and 10. A neighbour may be followed by its name in brackets.
_TIME = r"^(?P<time>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d)\.(?P<fraction>\d{1,9}) "
_ADJACENCY = re.compile(_TIME + r".*%ADJCHANGE: neighbor (?P<ifname>[^\s(]+)\S* in vrf \S+ (?P<what>Up|Down)(?: (?P<words>.*))?$")
_NOTIFICATION = re.compile(
    _TIME + r".*%NOTIFICATION: (?P<way>sent to|received from) neighbor (?P<ifname>[^\s(]+)\S* (?P<code>\d+/\d+) \((?P<words>[^)]*)\)"
)
_DETECTION = re.compile(
    _TIME + r".*state-change: \[.*ifname:(?P<ifname>[^\s\]]+)\S*\] (?P<old>[\w-]+) -> (?P<new>[\w-]+)(?: reason:(?P<words>.*))?$"
)
# FRR's reasons (bgpd/bgp_fsm.c, peer_down_str) that come of a carrier: the neighbour's link-local address and its next hop go with it.
CARRIER = ("Interface down", "Waiting for NHT", "Neighbor address lost", "No path to specified Neighbor", "Waiting for Peer IPv6 LLA")
REASONS = {
    **dict.fromkeys(CARRIER, "carrier"),
    "BFD down received": "bfd",
    "Peer closed the session": "closed",
    "Neighbor deleted": "shutdown",
    "Admin. shutdown": "shutdown",
    "BGP Notification send": "notification",
    "BGP Notification received": "notification",
}
SENT = {"4/0": "hold", "6/10": "bfd"}  # RFC 4271 6.5: Hold Timer Expired; RFC 9384: BFD Down


@dataclass(frozen=True)
class Change:
    """A session that came up or went down: `t_s` in seconds since 1970, `words` in the daemon's own words."""

    t_s: float
    ifname: str
    up: bool
    reason: str
    words: str


def session_changes(text: str) -> Iterator[Change]:
    """BGP sessions in bgpd's log. A notification just before an end says why it was."""
    last: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        if said := _NOTIFICATION.match(line):
            last[said["ifname"]] = (SENT.get(said["code"], "") if said["way"] == "sent to" else "", f"{said['way']} it: {said['words']}")
        elif found := _ADJACENCY.match(line):
            notified = last.pop(found["ifname"], ("", ""))
            yield _change(found, *(notified if "Notification" in (found["words"] or "") else ("", "")))


def detection_changes(text: str) -> Iterator[Change]:
    """BFD sessions in bfdd's log: only what comes up, and what was up and is no more."""
    for line in text.splitlines():
        found = _DETECTION.match(line)
        if found and "up" in (found["old"], found["new"]):
            up, words = found["new"] == "up", (found["words"] or "").strip()
            yield Change(_seconds(found), found["ifname"], up, "up" if up else words or found["new"], words)


def _change(found: re.Match[str], why: str, notification: str) -> Change:
    words = (found["words"] or "").strip()
    if found["what"] == "Up":
        return Change(_seconds(found), found["ifname"], True, "established", "")
    reason = why or REASONS.get(words, words or "unknown")
    return Change(_seconds(found), found["ifname"], False, reason, f"{words}, {notification}" if notification else words)


def _seconds(found: re.Match[str]) -> float:
    """The daemons run with TZ=UTC."""
    return calendar.timegm(time.strptime(found["time"], "%Y/%m/%d %H:%M:%S")) + float(f"0.{found['fraction']}")
