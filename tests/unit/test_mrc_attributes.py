"""The out-of-band exchange: what cannot be is refused by name, before any QP is connected."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from hosts.mrc import MrcCore, MrcParams
from hosts.mrc.channel import peer_spec
from testbed.errors import UsageError


def cores(a: MrcParams = MrcParams(), b: MrcParams = MrcParams()) -> tuple[MrcCore, MrcCore]:  # noqa: B008
    """Two hosts that send to each other, not yet connected."""
    to_a, to_b = {"a": peer_spec("a", "fd00::a", 4)}, {"b": peer_spec("b", "fd00::b", 4)}
    region = memoryview(bytearray(4096))
    return MrcCore("a", "fd00::a", a, to_b, to_b, region, 1), MrcCore("b", "fd00::b", b, to_a, to_a, region, 1)


def changed(raw: dict[str, Any], where: tuple[str, ...], value: object) -> dict[str, Any]:
    """A copy with something else there, or nothing if `value` is None."""
    whole = copy.deepcopy(raw)
    *path, last = where
    inner = whole
    for key in path:
        inner = inner[key]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return whole


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        (("rkey",), None, r"\$\.peers\.b\.rkey is missing"), (("rkey",), "x", r"\$\.peers\.b\.rkey is 'x'"),
        (("rkey",), 1 << 32, r"\$\.peers\.b\.rkey is"), (("base",), -1, r"\$\.peers\.b\.base is -1"),
        (("version",), 2, r"\$\.peers\.b\.version is 2"), (("version",), None, r"\$\.peers\.b\.version is missing"),
        (("udp_port",), 80, r"udp_port is 80: give one of \[4791, 4971\]"), (("mpr_packets",), 100, r"mpr_packets is 100"),
        (("mpr_packets",), 130, "give a multiple of 128"), (("mpr_packets",), 8192, r"\$\.peers\.b\.mpr_packets"),
        (("receive_qps", "a"), None, r"\$\.peers\.b\.receive_qps\.a is missing"),
        (("receive_qps",), [1], r"\$\.peers\.b\.receive_qps is \[1\]: give a JSON object"),
        (("receive_qps", "a"), [1, 2], "receive_qps.a has 2 entries: give 1"), (("send_qps", "a"), [1 << 24], r"send_qps\.a is 16777216"),
        (("send_qps", "a"), [True], r"send_qps\.a is True"), (("first_psns", "a"), ["0"], r"first_psns\.a is '0'"),
        (("first_psns", "a"), 7, r"first_psns\.a is 7: give a list"),
    ],
)  # fmt: skip
def test_attributes_that_cannot_be_are_refused_by_name_and_nothing_is_connected(where: tuple[str, ...], value: object, words: str) -> None:
    a, b = cores()
    with pytest.raises(UsageError, match=words):
        a.connect({"b": changed(b.attributes(), where, value)})
    a.post_write(0.0, "b", memoryview(b"data"), 0, 1)
    assert list(a.transmit(0.0)) == []
    assert a.next_deadline() is None


@pytest.mark.parametrize("raw", [None, [], "x", 7])
def test_attributes_that_are_no_object_are_refused(raw: Any) -> None:
    a, _ = cores()
    with pytest.raises(UsageError, match=r"\$\.peers\.b is"):
        a.connect({"b": raw})


def test_both_ends_must_have_as_many_qps() -> None:
    a, b = cores(MrcParams(qps=2), MrcParams(qps=3))
    with pytest.raises(UsageError, match="has 3 entries: give 2, one a QP; `qps` must be the same at both ends"):
        a.connect({"b": b.attributes()})


@pytest.mark.parametrize("port", [4791, 4971])
def test_each_end_sends_to_the_port_that_the_other_asked_for(port: int) -> None:
    a, b = cores(b=MrcParams(udp_port=port))
    a.connect({"b": b.attributes()})
    a.post_write(0.0, "b", memoryview(b"data"), 0, 1)
    ports = {int.from_bytes(packet.header[42:44], "big") for packet in a.transmit(0.0)}
    assert ports == {port}


def test_strangers_are_ignored() -> None:
    a, b = cores()
    a.connect({"b": b.attributes(), "c": {"no": "sense"}})
