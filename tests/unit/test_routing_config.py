"""The text of bgpd's configuration: numbers, sessions, filters, options."""

from __future__ import annotations

from typing import get_args

import pytest

from testbed.errors import UsageError
from testbed.fabric.switching import RoutedSwitching
from testbed.routing.config import asn, bfdd_config, bgpd_config, fabric_ports, host_ports, router_id, zebra_commands
from testbed.routing.options import PROFILES, BgpOptions
from testbed.routing.ports import port_commands
from testbed.routing.readback import detection_faults, session_faults
from testbed.scenario.schema import BgpProfile
from topologies import build

K4 = build("fat-tree", k=4)
PLANES = build("multi-plane", planes=2, t0s=2, t1s=2, hosts_per_t0=2)


def config_lines(router: str, **options) -> list[str]:
    return [line.strip() for line in bgpd_config(K4, router, BgpOptions(**options)).splitlines()]


def asns(topology, tier: int) -> list[int]:
    return [asn(topology, name) for name in topology.switches if topology.nodes[name].tier == tier]


def test_all_t2s_share_one_asn():
    assert len(set(asns(K4, 2))) == 1


def test_t1s_share_their_pods_asn_and_pods_differ():
    by_pod = {K4.nodes[name].pod: asn(K4, name) for name in K4.switches if K4.nodes[name].tier == 1}
    assert len(set(by_pod.values())) == 4
    assert all(asn(K4, f"t1_{pod}_{n}") == by_pod[pod] for pod in by_pod for n in (1, 2))


def test_every_t0_has_its_own_asn():
    assert len(set(asns(K4, 0))) == len(asns(K4, 0)) == 8


def test_t1s_of_a_plane_share_one_asn_and_planes_differ():
    assert asn(PLANES, "t1_1_1") == asn(PLANES, "t1_1_2") != asn(PLANES, "t1_2_1")


def test_asns_are_private():
    """RFC 6996: 4200000000 to 4294967294."""
    assert all(4_200_000_000 <= asn(K4, name) <= 4_294_967_294 for name in K4.switches)


def test_tiers_never_share_an_asn():
    assert len({*asns(K4, 0)} & {*asns(K4, 1)}) == len({*asns(K4, 1)} & {*asns(K4, 2)}) == 0


def test_router_ids_are_unique():
    assert len({router_id(K4, name) for name in K4.switches}) == len(K4.switches)


@pytest.mark.parametrize("router", ["t0_1_1", "t1_3_2", "t2_4"])
def test_one_unnumbered_session_for_each_fabric_port(router):
    sessions = [line for line in config_lines(router) if line.endswith("interface remote-as external")]
    assert sessions == [f"neighbor {port} interface remote-as external" for port in fabric_ports(K4, router)]


def test_host_ports_speak_no_bgp():
    ports = {name for name, _ in host_ports(K4, "t0_1_1")}
    assert ports == {"t0_1_1-eth1", "t0_1_1-eth2"}
    assert not ports & set(fabric_ports(K4, "t0_1_1"))


def test_every_session_is_activated_for_ipv6():
    lines = config_lines("t1_1_1")
    assert all(f"neighbor {port} activate" in lines for port in fabric_ports(K4, "t1_1_1"))


def test_a_t0_announces_only_its_own_hosts():
    permits = [line.split()[-1] for line in config_lines("t0_1_1") if line.startswith("ipv6 prefix-list")]
    assert permits == ["fd00:0:0:8001::1/128", "fd00:0:0:8002::1/128"]


def test_the_host_filter_stands_before_its_use():
    """bgpd looks at a route map that is defined later only after five seconds."""
    lines = config_lines("t0_1_1")
    assert lines.index("route-map HOSTS permit 10") < lines.index("redistribute connected route-map HOSTS")


@pytest.mark.parametrize("router", ["t1_1_1", "t2_1"])
def test_switches_without_hosts_announce_nothing_of_their_own(router):
    assert not [line for line in config_lines(router) if line.startswith(("redistribute", "network", "ipv6 prefix-list"))]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "frr defaults datacenter"),
        ({"profile": "traditional-bfd-50x3"}, "frr defaults traditional"),
        ({}, "bgp bestpath as-path multipath-relax"),
        ({}, "no bgp ebgp-requires-policy"),
        ({}, "bgp graceful-restart-disable"),
        ({}, "bgp fast-external-failover"),
        ({"fast_external_failover": False}, "no bgp fast-external-failover"),
        ({}, "timers bgp 3 9"),
        ({"keepalive_s": 1, "hold_s": 4}, "timers bgp 1 4"),
        ({}, "coalesce-time 10"),
        ({"coalesce_ms": 500}, "coalesce-time 500"),
        ({}, "maximum-paths 64"),
        ({"ecmp_width": 2}, "maximum-paths 2"),
        ({"connect_retry_s": 5}, "neighbor t1_1_1-eth1 timers connect 5"),
        ({"advertisement_interval_s": 2}, "neighbor t1_1_1-eth1 advertisement-interval 2"),
    ],
)
def test_option_becomes_line(options, line):
    assert line in config_lines("t1_1_1", **options)


def test_without_bfd_no_session_names_it():
    assert not [line for line in config_lines("t1_1_1") if "bfd" in line]


def test_every_session_has_bfd_with_the_intervals_of_the_options():
    lines = config_lines("t1_1_1", bfd_interval_ms=50)
    assert all(f"neighbor {port} bfd profile fabric" in lines for port in fabric_ports(K4, "t1_1_1"))
    text = bfdd_config("t1_1_1", BgpOptions(bfd_interval_ms=70, bfd_multiplier=4))
    told = {line.strip() for line in text.splitlines()}
    assert told >= {"profile fabric", "transmit-interval 70", "receive-interval 70", "detect-multiplier 4", "debug bfd peer"}


def test_defaults_profile_comes_first():
    assert config_lines("t2_1")[0] == "frr defaults datacenter"


def test_a_host_is_refused():
    with pytest.raises(UsageError, match="h1 is not a switch"):
        bgpd_config(K4, "h1", BgpOptions())


def test_next_hops_lie_in_the_routes_unless_asked_otherwise():
    assert zebra_commands(BgpOptions()) == ("no zebra nexthop kernel enable",)
    assert zebra_commands(BgpOptions(kernel_nexthop_groups=True)) == ("zebra nexthop kernel enable",)


def test_all_bad_options_are_told_at_once():
    with pytest.raises(UsageError) as caught:
        BgpOptions(hold_s=2, ecmp_width=0, coalesce_ms=0)
    assert all(name in str(caught.value) for name in ("hold_s is 2", "ecmp_width is 0", "coalesce_ms is 0"))


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("datacenter", (3, 9, 10, 0)),
        ("datacenter-bfd-300x3", (3, 9, 10, 300)),
        ("datacenter-bfd-50x3", (3, 9, 10, 50)),
        ("traditional", (60, 180, 120, 0)),
        ("traditional-bfd-300x3", (60, 180, 120, 300)),
        ("traditional-bfd-50x3", (60, 180, 120, 50)),
    ],
)
def test_a_profile_gives_the_timers(profile, expected):
    options = BgpOptions.from_mapping({"profile": profile})
    assert (options.keepalive_s, options.hold_s, options.connect_retry_s, options.bfd_interval_ms) == expected
    assert options.profile == profile


def test_there_are_exactly_the_profiles_that_a_scenario_can_name():
    assert set(PROFILES) == set(get_args(BgpProfile))


def test_the_defaults_are_those_of_the_default_profile():
    assert BgpOptions() == BgpOptions.from_mapping({}) == BgpOptions.from_mapping({"profile": "datacenter"})


def test_an_option_overrides_the_profile():
    options = BgpOptions.from_mapping({"profile": "traditional-bfd-300x3", "hold_s": 240, "bfd_interval_ms": 100})
    assert (options.hold_s, options.keepalive_s, options.bfd_interval_ms) == (240, 60, 100)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"profile": "traditionel"}, "did you mean 'traditional'"),
        ({"hold": 3}, "option 'hold' is unknown: did you mean 'hold_s'"),
        ({"profile": 3}, "profile 3 is unknown: use one of datacenter"),
        ({"bfd_interval_ms": 5}, "must be 0 .off. or 10 to 60000"),
        ({"bfd_multiplier": 1}, "bfd_multiplier is 1: must be 2 to 255"),
        ({"hash_policy": "l2"}, "hash_policy is 'l2': must be one of l3, l4"),
    ],
)
def test_a_bad_option_is_told_with_what_to_write(raw, words):
    with pytest.raises(UsageError, match=words):
        BgpOptions.from_mapping(raw)


def test_keepalive_must_fit_the_hold_time():
    with pytest.raises(UsageError, match="keepalive_s is 4: must be 1 to a third of hold_s"):
        BgpOptions(keepalive_s=4, hold_s=9)


def test_host_port_has_gateway_host_route_and_neighbour():
    assert port_commands(K4, "t0_1_1", "t0_1_1-eth2") == [
        "address replace fe80::1/64 dev t0_1_1-eth2 nodad",
        "address replace fd00:0:0:1001::1 peer fd00:0:0:8002::1/128 dev t0_1_1-eth2 nodad",
        "neighbour replace fd00:0:0:8002::1 lladdr 02:00:80:02:00:00 dev t0_1_1-eth2 nud permanent",
    ]


def test_upper_tiers_have_no_host_ports_to_set_up():
    assert port_commands(K4, "t1_1_1") == port_commands(K4, "t2_1") == []


SESSION = {"bgpState": "Established", "bgpTimerHoldTimeMsecs": 9000, "bgpTimerKeepAliveIntervalMsecs": 3000}
TOLD = {"minBtwnAdvertisementRunsTimerMsecs": 0, "connectRetryTimer": 10}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        (TOLD, []),
        ({"bgpState": "Active"}, ["is Active, not Established"]),
        ({"bgpTimerHoldTimeMsecs": 180000}, ["bgpTimerHoldTimeMsecs is 180000, not 9000"]),
        ({"minBtwnAdvertisementRunsTimerMsecs": 30000}, ["minBtwnAdvertisementRunsTimerMsecs is 30000, not 0"]),
        ({"connectRetryTimer": 120}, ["connectRetryTimer is 120, not 10"]),
    ],
)
def test_a_session_with_other_timers_than_asked_for_is_told(changes, said):
    assert session_faults({**SESSION, **changes}, BgpOptions()) == said


def test_a_session_that_is_missing_is_told():
    assert session_faults({}, BgpOptions()) == ["is missing, not Established"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"status": "init"}, ["is init, not up"]),
        ({"remote-transmit-interval": 300}, ["remote-transmit-interval is 300, not 50"]),
        ({"detect-multiplier": 5}, ["detect-multiplier is 5, not 3"]),
    ],
)
def test_bfd_with_other_intervals_is_told(changes, said):
    intervals = {f"{end}{way}-interval": 50 for end in ("", "remote-") for way in ("receive", "transmit")}
    good = {"status": "up", **intervals, "detect-multiplier": 3, "remote-detect-multiplier": 3}
    assert detection_faults({**good, **changes}, BgpOptions(bfd_interval_ms=50)) == said


@pytest.mark.parametrize(
    ("given", "seconds"),
    [({}, 80), ({"profile": "traditional"}, 300), ({"advertisement_interval_s": 30}, 200)],
)
def test_patience_with_the_first_tables_covers_connect_retries_and_mrais(tmp_path, given, seconds):
    """Else an arm with slow timers would fail by luck, before anything is measured."""
    assert RoutedSwitching(K4, tmp_path, {"bgp": BgpOptions.from_mapping(given)})._timeout_s == seconds
    assert RoutedSwitching(K4, tmp_path, {"bgp": BgpOptions.from_mapping(given), "converge_timeout_s": 5})._timeout_s == 5
