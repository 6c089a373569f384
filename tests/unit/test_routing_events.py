"""From bgpd's and bfdd's logs to sessions and their reasons, and to history events."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_routing_mrt import GOOD, REACH, UNREACH

from testbed.errors import HostError
from testbed.routing.events import Written, link_local, read, router_events
from testbed.routing.logs import detection_changes, session_changes
from topologies import build

PLANE = build("multi-plane", planes=1, t0s=2, t1s=2, hosts_per_t0=2)
HEAD = "2026/11/30 21:55:29.168511 BGP: [HZN6M-XRM1G] "
UP = HEAD + "%ADJCHANGE: neighbor t0_1_1-eth3(t1_1_1) in vrf default Up\n"
DOWN = HEAD + "%ADJCHANGE: neighbor t0_1_1-eth3(t1_1_1) in vrf default Down "
SENT = HEAD + "%NOTIFICATION: sent to neighbor t0_1_1-eth3 "
RECEIVED = HEAD + "%NOTIFICATION: received from neighbor t0_1_1-eth3 "
BFD_HEAD = "2026/11/30 21:55:29.000001 BFD: [SEY1D-NT8EQ] "
BFD = BFD_HEAD + "state-change: [mhop:no peer:fe80::1 local:fe80::2 vrf:default ifname:t0_1_1-eth3] "


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (DOWN + "Waiting for NHT", "carrier"),
        (DOWN + "Interface down", "carrier"),
        (DOWN + "BFD down received", "bfd"),
        (SENT + "6/10 (Cease/BFD Down) 0 bytes \n" + DOWN + "BGP Notification send", "bfd"),
        (SENT + "4/0 (Hold Timer Expired) 0 bytes \n" + DOWN + "BGP Notification send", "hold"),
        (RECEIVED + "4/0 (Hold Timer Expired) 0 bytes \n" + DOWN + "BGP Notification received", "notification"),
        (SENT + "4/0 (Hold Timer Expired) 0 bytes \n" + DOWN + "Waiting for NHT", "carrier"),
        (DOWN + "Peer closed the session", "closed"),
        (DOWN + "Neighbor deleted", "shutdown"),
        (DOWN + "something new", "something new"),
    ],
)
def test_why_a_session_went_down(text, reason):
    (change,) = session_changes(text)
    assert (change.up, change.reason, change.ifname) == (False, reason, "t0_1_1-eth3")


def test_a_notification_that_was_long_before_says_nothing():
    text = SENT + "6/10 (Cease/BFD Down) 0 bytes\n" + UP + DOWN + "BGP Notification send"
    assert [change.reason for change in session_changes(text)] == ["established", "notification"]


def test_time_is_utc_with_microseconds():
    (change,) = session_changes(UP)
    assert (change.up, change.reason, change.t_s) == (True, "established", pytest.approx(1796075729.168511, abs=1e-6))


def test_the_words_of_the_router_are_kept():
    (change,) = session_changes(RECEIVED + "6/2 (Cease/Administrative Shutdown) 0 bytes \n" + DOWN + "BGP Notification received")
    assert change.words == "BGP Notification received, received from it: Cease/Administrative Shutdown"


def test_other_lines_are_passed_over():
    text = HEAD + "bgpd 8.4.4 starting: vty@0\nnot a line of a log\n2026/11/30 21:55:29 BGP: %ADJCHANGE: neighbor x in vrf default Up\n"
    assert list(session_changes(text)) == list(detection_changes(text)) == []


def test_bfd_came_up_and_went_down():
    text = BFD + "down -> init\n" + BFD + "init -> up\n" + BFD + "up -> down reason:control-expired\n" + BFD + "down -> admindown\n"
    assert [(change.up, change.reason) for change in detection_changes(text)] == [(True, "up"), (False, "control-expired")]


def test_link_local_addresses_are_those_of_the_macs():
    assert link_local("02:00:20:01:00:01") == "fe80::20ff:fe01:1"


def test_events_name_the_peer_and_count_prefixes_on_the_runs_clock():
    events = router_events(PLANE, "t0_1_1", Written(UP, BFD + "init -> up", (REACH, UNREACH)), -1000.0)
    assert [event["event"] for event in events] == ["bgp_message", "bgp_message", "session", "bfd"]
    assert {(event["node"], event["peer"]) for event in events} == {("t0_1_1", "t1_1_1")}
    assert [(event["kind"], event["announced"], event["withdrawn"], event["t"]) for event in events[:2]] == [
        ("update", 2, 0, 0.25), ("update", 0, 2, 0.25),
    ]  # fmt: skip
    assert {event["source"] for event in events} == {"routing"}


def test_keepalives_and_changes_of_state_are_no_events():
    events = router_events(PLANE, "t0_1_1", Written("", "", (b"".join(GOOD),)), 0.0)
    assert {event["kind"] for event in events} == {"update", "notification"}


def test_a_record_that_is_gone_is_told(tmp_path: Path):
    with pytest.raises(HostError, match="what its routing daemons recorded cannot be read"):
        read(tmp_path, [tmp_path / "bgp-1.mrt"])
