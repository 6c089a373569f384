"""bgpd's MRT files: what is in them, and that what no bgpd writes is an MrtError with its place, never anything else."""

from __future__ import annotations

import struct
from ipaddress import IPv6Address

import pytest
from fuzzing import mutated, seeded, times

from testbed.routing import mrt
from testbed.routing.mrt import MARKER, Message, MrtError, Peering, StateChange, records

PEER, LOCAL = IPv6Address("fe80::20ff:fe01:1").packed, IPv6Address("fe80::10ff:fe01:3").packed
PEERS = struct.pack("!IIHH", 4_200_100_001, 4_200_200_001, 110, 2) + PEER + LOCAL
PEERING = Peering("fe80::20ff:fe01:1", "fe80::10ff:fe01:3", 4_200_100_001, 4_200_200_001, 110)
FAMILY = b"\0\2\1"  # IPv6, unicast


def record(subtype: int, body: bytes, micros: int = 250_000) -> bytes:
    return struct.pack("!IHHII", 1000, 17, subtype, len(body) + 4, micros) + body


def message(kind: int, body: bytes, length: int | None = None) -> bytes:
    return record(4, PEERS + MARKER + struct.pack("!HB", 19 + len(body) if length is None else length, kind) + body)


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("!BBH", 0x90, kind, len(value)) + value


def update(*attributes: bytes, withdrawn: bytes = b"", announced: bytes = b"") -> bytes:
    told = b"".join(attributes)
    return message(2, struct.pack("!H", len(withdrawn)) + withdrawn + struct.pack("!H", len(told)) + told + announced)


def prefix(text: str, bits: int = 128) -> bytes:
    return bytes([bits]) + IPv6Address(text).packed[: (bits + 7) // 8]


REACH = update(
    attribute(1, b"\0"), attribute(14, FAMILY + bytes([32]) + LOCAL + LOCAL + b"\0" + prefix("fd00::1") + prefix("fd00:1::", 64))
)
UNREACH = update(attribute(15, FAMILY + prefix("fd00::2") + prefix("fd00::3")))
CHANGE = record(5, PEERS + b"\0\6\0\7")
SHORT = record(5, PEERS[:8] + b"\0\7\0\1")
GOOD = (REACH, UNREACH, CHANGE, SHORT, message(3, b"\6\x0a"), message(4, b""), update(withdrawn=b"\x18\x0a\0\0", announced=b"\x08\x0b"))


def test_announced_prefixes_of_ipv6():
    assert records(REACH) == [Message(1000.25, PEERING, "update", ("fd00::1/128", "fd00:1::/64"))]


def test_withdrawn_prefixes_of_ipv6():
    assert records(UNREACH) == [Message(1000.25, PEERING, "update", (), ("fd00::2/128", "fd00::3/128"))]


def test_an_end_of_table_announces_and_withdraws_nothing():
    assert records(update(attribute(15, FAMILY))) == [Message(1000.25, PEERING, "update")]


def test_prefixes_of_ipv4_lie_outside_the_attributes():
    (found,) = records(update(withdrawn=b"\x18\x0a\0\1", announced=b"\x08\x0b"))
    assert (found.announced, found.withdrawn) == (("11.0.0.0/8",), ("10.0.1.0/24",))


def test_a_notification_has_its_code():
    assert records(message(3, b"\4\0")) == [Message(1000.25, PEERING, "notification", notification=(4, 0))]


def test_a_change_of_state():
    assert records(CHANGE) == [StateChange(1000.25, PEERING, "Established", "Clearing")]


def test_a_change_without_addresses():
    """FRR writes it when the session's address went with its interface."""
    assert records(SHORT) == [StateChange(1000.25, Peering(None, None, 4_200_100_001, 4_200_200_001, 0), "Clearing", "Idle")]


def test_records_follow_each_other():
    assert [type(found) for found in records(REACH + CHANGE + UNREACH)] == [Message, StateChange, Message]


@pytest.mark.parametrize("cut", range(1, len(CHANGE)))
def test_the_last_record_may_be_cut_short(cut):
    """bgpd may be writing it."""
    assert len(records(REACH + CHANGE[:cut])) == 1


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (REACH + b"\0" * 12, f"record at byte {len(REACH)}: type 0, subtype 0"),
        (record(5, PEERS + b"\0\x63\0\1"), "record at byte 0: there is no state 99"),
        (record(5, PEERS + b"\0\6\0\7\0"), "1 bytes too many"),
        (record(4, PEERS[:10] + b"\0\7" + PEERS[12:]), "address family 7 is neither"),
        (record(4, PEERS[:20]), "peer's address needs 16 bytes, and 8 are left"),
        (record(4, PEERS + bytes(19)), "no BGP message of 0 bytes with its marker"),
        (message(4, b"", length=20), "no BGP message of 20 bytes"),
        (message(9, b""), "there is no BGP message of type 9"),
        (message(3, b"\6"), "error subcode needs 1 bytes, and 0 are left"),
        (update(attribute(15, b"\0\2\x80")), "attributes, attribute 15: prefixes of family 2/128 are not known here"),
        (update(attribute(15, FAMILY + b"\x81")), "a prefix of 129 bits"),
        (update(attribute(15, FAMILY + b"\x80\0")), "prefix needs 16 bytes, and 1 are left"),
        (message(2, b"\0\0\0\5\x40"), "attributes needs 5 bytes, and 1 are left"),
        (record(5, PEERS + b"\0\6\0\7", micros=1_000_000), "1000000 microseconds are more than a second"),
    ],
)
def test_what_no_bgpd_writes_is_an_error_with_its_place(data, words):
    with pytest.raises(MrtError, match=words):
        records(data)


def test_whatever_is_in_a_file_there_are_records_or_an_error():
    draw, refused = seeded("mrt"), 0
    for _ in range(times(20_000)):
        data = b"".join(draw.choice(GOOD) for _ in range(draw.randint(1, 3)))
        try:
            assert all(isinstance(found, Message | StateChange) for found in records(mutated(data, GOOD, draw)))
        except MrtError as error:
            assert "record at byte" in str(error)  # noqa: PT017 - most rounds raise nothing
            refused += 1
    assert refused > times(2000)


def test_every_message_of_rfc_4271_has_a_name():
    assert sorted(mrt.KINDS) == [1, 2, 3, 4, 5]
