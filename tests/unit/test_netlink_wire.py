"""Netlink messages and attributes as bytes: what is built comes back, and what does not fit is refused."""

from __future__ import annotations

import struct

import pytest

from testbed.netlink_wire import (
    HEADER,
    NLMSG_DONE,
    NLMSG_ERROR,
    Message,
    NetlinkError,
    attribute,
    attribute_list,
    attributes,
    messages,
    request,
)

NESTED = 0x8000


def message(body: bytes, kind: int = 16, sequence: int = 7) -> bytes:
    return HEADER.pack(HEADER.size + len(body), kind, 2, sequence, 0) + body + bytes(-len(body) & 3)


def test_attributes_are_padded_to_four_bytes() -> None:
    assert attribute(1, b"\x07") + attribute(2, b"\x08\x09") == bytes([5, 0, 1, 0, 7, 0, 0, 0, 6, 0, 2, 0, 8, 9, 0, 0])


def test_attributes_come_back_in_order() -> None:
    pairs = [(1, b"a"), (3, b""), (1, b"bcde")]
    assert list(attribute_list(b"".join(attribute(kind, value) for kind, value in pairs))) == pairs


def test_of_a_repeated_attribute_the_last_counts() -> None:
    assert attributes(attribute(1, b"a") + attribute(1, b"b")) == {1: b"b"}


def test_the_flags_of_an_attributes_type_are_cut_off() -> None:
    assert attributes(attribute(NESTED | 2, b"x")) == {2: b"x"}


@pytest.mark.parametrize(
    "block",
    [
        struct.pack("=HH", 3, 1),  # shorter than its own head
        struct.pack("=HH", 0, 0),  # would never end
        struct.pack("=HH", 9, 1) + b"four",  # points behind the end
        attribute(1, b"good") + b"\x01\x02",  # half a head
    ],
)
def test_attributes_that_do_not_fit_are_refused(block: bytes) -> None:
    with pytest.raises(ValueError, match="netlink"):
        list(attribute_list(block))


def test_messages_are_told_apart_with_what_they_answer() -> None:
    found = list(messages(message(b"x", sequence=1) + message(b"", NLMSG_DONE, sequence=2)))
    assert found == [Message(16, 2, 1, b"x"), Message(NLMSG_DONE, 2, 2, b"")]


@pytest.mark.parametrize("datagram", [message(b"body")[:-1], HEADER.pack(15, 16, 0, 0, 0), message(b"body") + b"rest", b"x"])
def test_messages_that_do_not_fit_are_refused(datagram: bytes) -> None:
    with pytest.raises(ValueError, match="netlink"):
        list(messages(datagram))


@pytest.mark.parametrize("kind", [NLMSG_ERROR, NLMSG_DONE])
def test_a_refusal_and_a_dump_that_broke_off_are_errors(kind: int) -> None:
    with pytest.raises(NetlinkError) as caught:
        Message(kind, 0, 1, struct.pack("=i", -16)).raise_refusal()
    assert caught.value.errno == 16


@pytest.mark.parametrize("kind", [NLMSG_ERROR, NLMSG_DONE, 16])
def test_an_acknowledgement_is_none(kind: int) -> None:
    Message(kind, 0, 1, bytes(4)).raise_refusal()


def test_a_request_is_a_message_of_its_own_length() -> None:
    (found,) = messages(request(18, 0x300, 5, b"body"))
    assert found == Message(18, 0x301, 5, b"body")
