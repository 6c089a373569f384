"""Messages on the wire: opcodes, MSN and RQMSN, empty ones, and numbers that wrap."""

from __future__ import annotations

from random import Random

import pytest
from mrc_lab import NOW, Pair, World, on_wire, tell

from hosts import wire
from hosts.core import Transmit
from hosts.mrc.channel import Conditions

LAST_PSN = (1 << 24) - 1
SIZES = (0, 1, 4096, 4097, 3 * 4096)


def post(pair: Pair, size_bytes: int, imm: int | None) -> list[Transmit]:
    """Posts a message and returns its packets."""
    pair.a.post_write(NOW, "b", memoryview(bytes(size_bytes)), 0, imm)
    return list(pair.a.transmit(NOW))


def opcodes(packets: list[Transmit]) -> list[str]:
    return [wire.OPCODES[packet.header[wire.BTH_OFFSET]] for packet in packets]


def numbers(packet: Transmit) -> tuple[int, int]:
    """(RQMSN, MSN)."""
    meth = wire.METH.unpack(on_wire(packet), wire.BTH_OFFSET + wire.BTH.size_bytes)
    return meth["rqmsn"], meth["msn"]


@pytest.mark.parametrize(
    ("size_bytes", "plain", "with_imm"),
    [
        (0, ["Only"], ["Only with Immediate"]), (5, ["Only"], ["Only with Immediate"]),
        (5000, ["First", "Last"], ["First", "Last with Immediate"]),
        (9000, ["First", "Middle", "Last"], ["First", "Middle", "Last with Immediate"]),
    ],
)  # fmt: skip
def test_the_opcode_says_which_part_of_which_message_a_packet_is(size_bytes: int, plain: list[str], with_imm: list[str]) -> None:
    for imm, expected in ((None, plain), (7, with_imm)):
        assert opcodes(post(Pair(), size_bytes, imm)) == [f"Write {name}" for name in expected]


def test_msn_counts_all_messages_and_rqmsn_those_with_an_immediate() -> None:
    pair = Pair()
    said = [numbers(post(pair, 0, imm)[0]) for imm in (1, None, None, 2, 3, None)]
    assert said == [(0, 0), (1, 1), (1, 2), (1, 3), (2, 4), (3, 5)]


def test_all_packets_of_a_message_carry_its_numbers() -> None:
    pair = Pair()
    post(pair, 0, 1)
    assert {numbers(packet) for packet in post(pair, 3 * 4096, 2)} == {(1, 1)}


def test_both_numbers_wrap_at_16_bits() -> None:
    pair = Pair()
    outgoing = pair.a._send["b"].qps[0]._outgoing
    outgoing.posted, outgoing._immediates = 0x1FFFF, 0x2FFFF
    assert [numbers(post(pair, 0, imm)[0]) for imm in (1, 2)] == [(0xFFFF, 0xFFFF), (0, 0)]


def test_a_plain_write_places_its_data_and_completes_nothing() -> None:
    pair = Pair()
    pair.a.post_write(NOW, "b", memoryview(b"plain"), 3, None)
    pair.give(*[on_wire(packet) for packet in pair.a.transmit(NOW)])
    assert bytes(pair.region[3:8]) == b"plain"
    assert pair.b.take_completions() == []


def test_an_empty_write_with_immediate_completes_after_what_was_posted_before_it() -> None:
    pair = Pair()
    pair.a.post_write(NOW, "b", memoryview(bytes(4096)), 0, None)
    pair.a.post_write(NOW, "b", memoryview(b""), 0, 9)
    data, empty = [on_wire(packet) for packet in pair.a.transmit(NOW)]
    pair.give(empty)
    assert pair.b.take_completions() == []
    pair.give(data)
    assert [done.imm for done in pair.b.take_completions()] == [9]


def test_a_plain_write_is_outstanding_until_it_is_acknowledged() -> None:
    pair = Pair()
    (packet,) = post(pair, 100, None)
    assert pair.a.outstanding_messages("b") == 1
    pair.give(on_wire(packet))
    due = pair.b.next_deadline()
    assert due is not None
    pair.b.on_timer(due)
    tell(pair, *pair.b.transmit(due))
    assert pair.a.outstanding_messages("b") == 0


@pytest.mark.parametrize("first_psn", [LAST_PSN, LAST_PSN - 3, LAST_PSN - 40])
@pytest.mark.parametrize("write_bytes", [0, 5000])
def test_psns_wrap_in_the_middle_of_every_kind_of_message(first_psn: int, write_bytes: int) -> None:
    network = Conditions(loss=0.1, duplication=0.05, trimming=0.05, jitter_s=0.001)
    world = World(network, initial_psn=first_psn, write_bytes=write_bytes, payload_bytes=1024)
    rng, offset = Random(first_psn), 0
    for _ in range(12):
        size_bytes = rng.choice(SIZES)
        world.post(size_bytes, offset)
        offset += size_bytes
    world.run(30)
    world.assert_delivered()


def test_msns_wrap_while_messages_flow() -> None:
    world = World()
    outgoing = world.a._send["b"].qps[0]._outgoing
    outgoing.posted = outgoing._immediates = 0xFFFF - 3
    world.post_row([100] * 8)
    world.run(5)
    world.assert_delivered()


@pytest.mark.parametrize(
    ("size_bytes", "sizes"), [(0, [0]), (10_000, [10_000]), (10_001, [10_000, 1]), (30_000, [10_000] * 3), (25_000, [10_000, 10_000, 5000])]
)
def test_a_long_message_goes_out_as_plain_writes_and_a_last_one_with_the_immediate(size_bytes: int, sizes: list[int]) -> None:
    pair = Pair(write_bytes=10_000, payload_bytes=10_000)
    packets = post(pair, size_bytes, 4)
    assert [len(packet.payload) for packet in packets] == sizes
    assert opcodes(packets) == ["Write Only"] * (len(sizes) - 1) + ["Write Only with Immediate"]
    assert pair.a.outstanding_messages("b") == 1
    pair.give(*[on_wire(packet) for packet in reversed(packets)])
    assert [done.imm for done in pair.b.take_completions()] == [4]
