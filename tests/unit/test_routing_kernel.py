"""Kernel settings as a table, netlink messages as bytes, FIBs compared, vty replies: everything around the daemons that needs no root."""

from __future__ import annotations

import socket
import struct
import threading
from ipaddress import IPv6Address

import pytest

from testbed import rtnetlink
from testbed.netlink_wire import HEADER, NLM_F_REPLACE, NLMSG_DONE, NLMSG_ERROR, NetlinkError, attribute
from testbed.routing.fib import differences, fib_of
from testbed.routing.options import PROFILES, BgpOptions
from testbed.routing.sysctl import FIELDS, POLICY, SEED, settings
from testbed.routing.sysctl import differences as sysctl_differences
from testbed.routing.vty import Vty, VtyError
from topologies import build

K4 = build("fat-tree", k=4)


def values(router: str, has_seed: bool, **options) -> dict[str, str]:
    return {setting.key: setting.value for setting in settings(K4, router, BgpOptions(**options), has_seed)}


def route_body(prefix: str, length: int, *attributes: bytes, flags: int = 0, table: int = 254) -> bytes:
    head = rtnetlink.ROUTE.pack(socket.AF_INET6, length, 0, 0, table, 186, 0, 1, flags)
    return head + attribute(rtnetlink.RTA_DST, IPv6Address(prefix).packed) + b"".join(attributes)


def hop(ifindex: int, flags: int = 0) -> bytes:
    return rtnetlink.HOP.pack(8, flags, 0, ifindex)


def test_every_router_hashes_with_another_seed():
    assert len({values(name, True)[SEED] for name in K4.switches}) == len(K4.switches)


def test_seeds_are_never_zero_which_would_mean_random():
    assert "0" not in {values(name, True)[SEED] for name in K4.switches}


def test_udp_ports_are_hashed_with_seeds():
    assert all(values(name, True)[POLICY] == "3" for name in K4.switches), "policy 1 trusts the hash that a sender's kernel made"
    assert all(int(values(name, True)[FIELDS], 0) & 0x30 == 0x30 for name in K4.switches)


def test_without_seeds_t0_and_t1_hash_different_fields():
    t0, t1 = values("t0_1_1", False), values("t1_1_1", False)
    assert t0[POLICY] == t1[POLICY] == "3"
    assert t0[FIELDS] != t1[FIELDS]


def test_without_seeds_the_ports_are_still_hashed():
    """Bits 4 and 5: source and destination port."""
    assert all(int(values(name, False)[FIELDS], 0) & 0x30 == 0x30 for name in K4.switches)


@pytest.mark.parametrize("has_seed", [True, False])
def test_on_layer_3_no_port_is_hashed(has_seed):
    wanted = values("t1_1_1", has_seed, hash_policy="l3")
    assert wanted[POLICY] == "3"
    assert int(wanted[FIELDS], 0) & 0x33 == 0x3


def test_every_port_of_a_router_is_set():
    wanted = values("t1_1_1", True)
    assert all(f"ipv6/conf/{link.end('t1_1_1').ifname}/ignore_routes_with_linkdown" in wanted for link in K4.links_of("t1_1_1"))


@pytest.mark.parametrize("has_seed", [True, False])
def test_every_setting_is_in_the_docs(has_seed, repo_root):
    text = (repo_root / "docs/bgp.md").read_text()
    assert [key for key in values("t1_1_1", has_seed) if f"`{key.rpartition('/')[2]}`" not in text] == []


def test_every_option_and_profile_is_in_the_docs(repo_root):
    text = (repo_root / "docs/bgp.md").read_text()
    assert [name for name in (*vars(BgpOptions()), *PROFILES) if f"`{name}`" not in text and f"`bgp.{name}`" not in text] == []


def test_a_missing_required_setting_is_named():
    wanted = settings(K4, "t2_1", BgpOptions(), True)
    found = {setting.key: setting.value for setting in wanted} | {"ipv6/conf/all/forwarding": ""}
    assert sysctl_differences("t2_1", wanted, found) == ["t2_1: ipv6/conf/all/forwarding is missing, not 1"]


def test_an_optional_setting_may_be_missing():
    wanted = settings(K4, "t2_1", BgpOptions(), True)
    found = {setting.key: setting.value if setting.required else "" for setting in wanted}
    assert sysctl_differences("t2_1", wanted, found) == []


def test_multipath_route_is_taken_apart():
    body = route_body("fd00::1", 128, attribute(rtnetlink.RTA_MULTIPATH, hop(7) + hop(9, rtnetlink.RTNH_F_LINKDOWN)))
    route = rtnetlink.parse_route(rtnetlink.RTM_NEWROUTE, 0, body)
    assert route.prefix == "fd00::1/128"
    assert route.hops == (rtnetlink.NextHop(7, True), rtnetlink.NextHop(9, False))


def test_single_path_route_carries_its_flags_itself():
    body = route_body("fd00::1", 128, attribute(rtnetlink.RTA_OIF, struct.pack("=I", 5)), flags=rtnetlink.RTNH_F_DEAD)
    assert rtnetlink.parse_route(rtnetlink.RTM_NEWROUTE, 0, body).hops == (rtnetlink.NextHop(5, False),)


@pytest.mark.parametrize(
    ("kind", "flags", "change"),
    [
        (rtnetlink.RTM_NEWROUTE, 0x400, "add"),
        (rtnetlink.RTM_NEWROUTE, NLM_F_REPLACE, "replace"),
        (rtnetlink.RTM_DELROUTE, 0, "del"),
    ],
)
def test_kind_and_flags_say_what_changed(kind, flags, change):
    assert rtnetlink.parse_route(kind, flags, route_body("fd00::1", 128)).change == change


def test_ipv4_routes_are_passed_over():
    assert rtnetlink.parse_route(rtnetlink.RTM_NEWROUTE, 0, rtnetlink.ROUTE.pack(socket.AF_INET, *[0] * 8)) is None


@pytest.mark.parametrize(("flags", "up"), [(0x10001, True), (0x1, False), (0x10000, False)])
def test_a_link_is_up_with_carrier_and_administratively(flags, up):
    body = rtnetlink.LINK.pack(0, 1, 3, flags, 0) + attribute(rtnetlink.IFLA_IFNAME, b"t0_1_1-eth1\0")
    assert rtnetlink.parse_link(rtnetlink.RTM_NEWLINK, body) == rtnetlink.LinkMessage(3, "t0_1_1-eth1", up, False)


@pytest.mark.parametrize(("operstate", "up"), [(b"\5", False), (b"\6", True)])
def test_a_link_with_a_carrier_that_is_not_to_be_used_is_not_up(operstate, up):
    body = (
        rtnetlink.LINK.pack(0, 1, 3, 0x10001, 0) + attribute(rtnetlink.IFLA_IFNAME, b"x\0") + attribute(rtnetlink.IFLA_OPERSTATE, operstate)
    )
    assert rtnetlink.parse_link(rtnetlink.RTM_NEWLINK, body).up is up


def test_a_datagram_is_split_into_its_messages():
    one = HEADER.pack(17, rtnetlink.RTM_NEWLINK, 2, 0, 0) + b"x" + bytes(3)
    two = HEADER.pack(16, NLMSG_DONE, 0, 0, 0)
    assert list(rtnetlink.messages(one + two)) == [(rtnetlink.RTM_NEWLINK, 2, b"x"), (NLMSG_DONE, 0, b"")]


def test_a_broken_message_length_is_an_error_and_no_endless_loop():
    with pytest.raises(ValueError, match="netlink message of 0 bytes"):
        list(rtnetlink.messages(HEADER.pack(0, 16, 0, 0, 0)))


def test_a_kernel_error_carries_its_number():
    datagram = HEADER.pack(20, NLMSG_ERROR, 0, 0, 0) + struct.pack("=i", -1)
    with pytest.raises(NetlinkError) as caught:
        list(rtnetlink.messages(datagram))
    assert caught.value.errno == 1


def test_fib_holds_only_usable_host_routes():
    bodies = [
        route_body("fd00::1", 128, attribute(rtnetlink.RTA_MULTIPATH, hop(1) + hop(2, rtnetlink.RTNH_F_LINKDOWN))),
        route_body("fd00::2", 128, attribute(rtnetlink.RTA_OIF, struct.pack("=I", 2)), flags=rtnetlink.RTNH_F_LINKDOWN),
        route_body("fe80::", 64, attribute(rtnetlink.RTA_OIF, struct.pack("=I", 1))),
    ]
    routes = [rtnetlink.parse_route(rtnetlink.RTM_NEWROUTE, 0, body) for body in bodies]
    assert fib_of(routes, {1: "a", 2: "b"}) == {"fd00::1": frozenset({"a"})}


def test_a_difference_says_router_address_and_both_directions():
    wrong = differences("t0_1_1", {"fd00::1": frozenset("ab")}, {"fd00::1": frozenset("bc")}, frozenset({"fd00::1"}))
    assert [str(difference) for difference in wrong] == ["t0_1_1: fd00::1: lacks a and has c too many"]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ("a", []),
        ("b", []),
        ("", ["t0_1_1: fd00::1: lacks a, b"]),
        ("ab", ["t0_1_1: fd00::1: has a, b too many"]),
        ("c", ["t0_1_1: fd00::1: lacks a, b and has c too many"]),
    ],
)
def test_of_more_next_hops_than_the_width_any_will_do(found, said):
    wrong = differences("t0_1_1", {"fd00::1": frozenset("ab")}, {"fd00::1": frozenset(found)}, frozenset({"fd00::1"}), 1)
    assert [str(difference) for difference in wrong] == said


def test_a_route_that_should_be_gone_is_a_difference():
    assert differences("t2_1", {}, {"fd00::1": frozenset("a")}, frozenset({"fd00::1"}))


def test_routes_to_other_things_than_hosts_do_not_count():
    assert differences("t2_1", {}, {"fd00::9": frozenset("a")}, frozenset({"fd00::1"})) == []


@pytest.fixture
def daemon(tmp_path):
    """A socket that answers `enable` and then one command as an FRR daemon would: with the status it is given."""
    path, reply = tmp_path / "bgpd.vty", {"text": b"hello", "status": b"\0"}
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(100)
            connection.sendall(b"\0\0\0\0")
            if connection.recv(100):
                connection.sendall(reply["text"] + b"\0\0\0" + reply["status"])

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield path, reply
    server.close()
    thread.join(5)


def test_vty_returns_what_the_daemon_says(daemon):
    with Vty(daemon[0]) as vty:
        assert vty.command("show version") == "hello"


def test_vty_raises_when_the_daemon_refuses(daemon):
    daemon[1].update(text=b"% Unknown command", status=b"\2")
    with Vty(daemon[0]) as vty, pytest.raises(VtyError, match=r"`bogus` was refused \(status 2\): % Unknown command"):
        vty.command("bogus")


def test_vty_names_the_socket_that_nobody_listens_on(tmp_path):
    with pytest.raises(VtyError, match=r"zebra\.vty: .*is the daemon running"):
        Vty(tmp_path / "zebra.vty")
