"""The agent protocol's commands: what is understood, and that each refusal names its place."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hosts.agent import merged
from hosts.commands import Deny, parse_config, parse_connect, parse_deny, parse_line, parse_start
from hosts.session import derived_seed
from testbed.errors import UsageError

PEER = {"name": "h2", "address": "fd00::2", "paths": [{"ev": 0, "port": 1, "destination": "fcbb:bb00:1::", "plane": 1, "links": ["a-b"]}]}
CONFIG = {
    "cmd": "config", "host": "h1", "rank": 0, "transport": "rc", "params": {}, "job": {"ranks": 2}, "seed": 1, "files": {"steps": "s.csv"},
    "addresses": {"outer": "fcbb:bb00:9::", "inner": "fd00:0::1"}, "send_to": [PEER], "receive_from": [PEER],
}  # fmt: skip


def parsed(**changes: object):
    return parse_config(parse_line(json.dumps({**CONFIG, **changes}).encode())[1])


def test_config_is_understood():
    config = parsed()
    assert (config.host, config.address, config.send_to[0].paths[0].destination, config.ports) == ("h1", "fd00::1", "fcbb:bb00:1::", [1])


def test_a_path_may_name_the_port_at_the_peer_and_otherwise_it_is_port_0():
    path = PEER["paths"][0]
    told = parsed(send_to=[{**PEER, "paths": [path, {**path, "peer_port": 3}]}])
    assert [path.peer_port for path in told.send_to[0].paths] == [0, 3]


@pytest.mark.parametrize("key", ["port", "peer_port"])
def test_a_port_beyond_the_bits_of_a_port_mask_is_refused(key: str):
    with pytest.raises(UsageError, match=rf"paths\[0\].{key} is 32: give a whole number from 0 to 31"):
        parsed(send_to=[{**PEER, "paths": [{**PEER["paths"][0], key: 32}]}])


@pytest.mark.parametrize(("transport", "dscp"), [("mrc", 4), ("rc", 0)])
def test_data_class_depends_on_the_transport(transport: str, dscp: int):
    assert parsed(transport=transport).sockets.data_dscp == dscp


def test_sockets_may_be_set():
    assert parsed(sockets={"data_dscp": 8}).sockets.data_dscp == 8


@pytest.mark.parametrize("key", ["send_to", "receive_from"])
def test_host_may_send_only_or_receive_only(key: str):
    assert getattr(parsed(**{key: []}), key) == ()


def test_ports_are_those_of_all_peers():
    other = {"name": "h3", "address": "fd00::3", "paths": [{**PEER["paths"][0], "port": 3}]}
    assert parsed(send_to=[PEER, other]).ports == [1, 3]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"host": ""}, r"\$\.host"),
        ({"rank": True}, r"\$\.rank"),
        ({"rank": -1}, r"\$\.rank"),
        ({"transport": "udp"}, r"\$\.transport"),
        ({"params": []}, r"\$\.params"),
        ({"addresses": {}}, r"\$\.addresses\.inner is missing"),
        ({"addresses": {"inner": "10.0.0.1"}}, r"\$\.addresses\.inner"),
        ({"send_to": [{**PEER, "address": "x"}]}, r"\$\.send_to\[0\]\.address"),
        ({"send_to": [PEER, PEER]}, r"\$\.send_to names a peer twice"),
        ({"send_to": None}, r"\$\.send_to"),
        ({"transport": "mrc", "send_to": [{**PEER, "paths": []}]}, r"\$\.send_to\[0\]\.paths is empty: give at least one path to h2"),
        ({"receive_from": [PEER, {**PEER, "paths": [{}]}]}, r"\$\.receive_from\[1\]\.paths\[0\]"),
        ({"files": {"log": "x"}}, r"\$\.files has unknown keys log"),
        ({"files": {"steps": 3}}, r"\$\.files\.steps"),
        ({"sockets": {"data_dscp": 64}}, r"\$\.sockets\.data_dscp"),
        ({"colour": 1}, "unknown keys colour"),
    ],
)
def test_wrong_config_is_refused_with_its_place(changes: dict, place: str):
    with pytest.raises(UsageError, match=place):
        parsed(**changes)


@pytest.mark.parametrize("line", [b"hello", b"[1]", b"{}", b'{"cmd":"fly"}', b'{"cmd":3}', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_command_is_refused(line: bytes):
    with pytest.raises(UsageError):
        parse_line(line)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_any_json_value_in_a_config_is_understood_or_refused(value: object):
    for key in CONFIG:
        if key != "cmd":
            try:
                parsed(**{key: value})
            except UsageError:
                continue


@pytest.mark.parametrize("change", [{"at": "now"}, {"at": float("nan")}, {"first_step": -1}, {"attempt": 1.5}])
def test_wrong_start_is_refused(change: dict):
    line = json.dumps({"cmd": "start", "at": 1.0, "first_step": 0, "attempt": 1, **change}).encode()
    with pytest.raises(UsageError, match=rf"\$\.{next(iter(change))}"):
        parse_start(parse_line(line)[1])


def test_a_first_start_is_the_origin_of_all_times():
    first, again = ({"cmd": "start", "at": 3.0, "first_step": 0, "attempt": 1, **more} for more in ({}, {"origin": 1.0}))
    assert [parse_start(parse_line(json.dumps(line).encode())[1]).origin for line in (first, again)] == [3.0, 1.0]


def test_connect_gives_attributes_by_host():
    assert parse_connect(parse_line(b'{"cmd":"connect","peers":{"h2":{"rkey":1}}}')[1]) == {"h2": {"rkey": 1}}


def test_every_host_and_incarnation_has_a_seed_of_its_own():
    assert len({derived_seed(1, host, incarnation) for host in ("h1", "h2") for incarnation in (0, 1)}) == 4


def test_reports_of_attempts_add_up():
    first = {"data_packets_sent": 3, "drops": {"short": 1}, "base_rtt_s": {"h2": 0.2, "h3": None}, "lateness_max_s": 0.5}
    second = {"data_packets_sent": 4, "drops": {"short": 1, "bad": 2}, "base_rtt_s": {"h2": 0.1, "h3": None}, "lateness_max_s": 0.1}
    assert merged(first, second) == {
        "data_packets_sent": 7, "drops": {"short": 2, "bad": 2}, "base_rtt_s": {"h2": 0.1}, "lateness_max_s": 0.5,
    }  # fmt: skip


def test_idle_round_trips_of_attempts_do_not_add_up():
    assert merged({"idle_rtt_s": {"h2": 0.002, "h3": None}}, {"idle_rtt_s": {"h2": 0.003, "h3": 0.001}}) == {
        "idle_rtt_s": {"h2": 0.002, "h3": 0.001},
    }  # fmt: skip


def test_quantiles_of_recoveries_are_those_of_the_attempt_that_had_more():
    first = {"recoveries": {"trimmed": {"count": 3, "median_s": 0.1}, "timeout": {"count": 1, "median_s": 0.5}}}
    second = {"recoveries": {"trimmed": {"count": 9, "median_s": 0.2}, "loss_rack": {"count": 2, "median_s": 0.3}}}
    assert merged(first, second)["recoveries"] == {
        "trimmed": {"count": 12, "median_s": 0.2}, "timeout": {"count": 1, "median_s": 0.5}, "loss_rack": {"count": 2, "median_s": 0.3},
    }  # fmt: skip


def denied(**fields: object):
    return parse_deny(parse_line(json.dumps({"cmd": "deny", **fields}).encode())[1])


def test_deny_is_understood():
    told = denied(links=["a-b"], evs={"h2": [1, 1, 3]}, deny=False)
    assert (told.links, told.evs, told.on) == ({"a-b"}, {"h2": {1, 3}}, False)


def test_a_config_may_begin_with_a_denylist_and_without_one_denies_nothing():
    assert not parsed().deny
    assert parsed(deny={"links": [], "evs": {"h2": [1]}}).deny == Deny(frozenset(), {"h2": frozenset({1})})
    assert parsed(deny={"ways_back": ["a-b"]}).deny.ways_back == {"a-b"}


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"links": []}, r"\$.deny is missing: give true or false"),
        ({"deny": 1}, r"\$.deny is 1"),
        ({"deny": True, "links": "a-b"}, r"\$.links is 'a-b': give a list"),
        ({"deny": True, "links": ["a-b", 7]}, r"\$.links\[1\] is 7"),
        ({"deny": True, "evs": [1]}, r"\$.evs is \[1\]: give a JSON object"),
        ({"deny": True, "evs": {"h2": [0, True]}}, r"\$.evs.h2\[1\] is True"),
        ({"deny": True, "evs": {"h2": [-1]}}, r"\$.evs.h2\[0\] is -1"),
        ({"deny": True, "ports": []}, "unknown keys ports"),
        ({"deny": True, "ways_back": [""]}, r"\$.ways_back\[0\] is ''"),
    ],
)
def test_a_deny_that_makes_no_sense_is_refused_with_its_place(fields: dict[str, object], place: str):
    with pytest.raises(UsageError, match=place):
        denied(**fields)
