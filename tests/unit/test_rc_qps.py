"""Several RC QPs a pair: hash inputs of their own, messages in turn or in pieces, one order, one window, one fate."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rc_lab import Ends, raw

from hosts.core import Completion, Transmit
from hosts.qps import InPieces, InTurn
from hosts.rc import RcParams, wire
from hosts.rc.params import PRESETS
from hosts.rc.qps import PIECE_BYTES, pieces
from testbed.errors import UsageError

MODES = pytest.mark.parametrize("split", [False, True])


def ports(packets: list) -> list[int]:
    return [packet.source_port for packet in packets]


@pytest.mark.parametrize("qps", [1, 4, 16])
def test_each_qp_has_its_own_number_and_source_port_in_both_directions(qps: int):
    ends = Ends(qps=qps)
    for own in (ends.attributes["a"]["send"]["b"], ends.attributes["b"]["receive"]["a"]):
        assert [len({end[name] for end in own}) for name in ("qpn", "source_port")] == [qps, qps]


def test_messages_go_to_the_qps_in_turn():
    ends = Ends(qps=4)
    for imm in range(6):
        ends.write(b"x", imm, imm)
    by_qp = [end["source_port"] for end in ends.attributes["a"]["send"]["b"]]
    assert sorted(ports(ends.data())) == sorted([*by_qp, *by_qp[:2]])


def test_split_message_has_a_piece_on_each_qp():
    ends = Ends(qps=4, split_data=True)
    ends.write(bytes(4 * PIECE_BYTES))
    sent = ends.data()
    counts = {port: ports(sent).count(port) for port in ports(sent)}
    assert list(counts.values()) == [PIECE_BYTES // 64] * 4


@given(st.integers(0, 5000), st.integers(1, 16))
def test_pieces_are_the_message(size: int, count: int):
    data = memoryview(random.Random(size).randbytes(size))
    cut = pieces(data, count)
    assert len(cut) == count
    assert b"".join(piece for _, piece in cut) == bytes(data)
    assert all(bytes(data[start : start + len(piece)]) == bytes(piece) and start <= size for start, piece in cut)


def test_last_empty_pieces_at_the_regions_end_are_no_error():
    ends = Ends(qps=4, split_data=True)
    ends.write(b"end", offset=(1 << 16) - 3)
    ends.finish(random.Random(1), 0.0)
    assert (bytes(ends.region[-3:]), ends.b.take_completions(), ends.a.take_errors()) == (b"end", [("a", 1)], [])


@MODES
def test_completion_waits_for_what_was_posted_before(split: bool):
    ends = Ends(qps=2, split_data=split)
    ends.write(bytes(PIECE_BYTES + 1), 0, 1)
    ends.write(bytes(PIECE_BYTES + 1), 1000, 2)
    late = ends.attributes["a"]["send"]["b"][0]["source_port"]
    sent = ends.data()
    ends.to_b(*(packet for packet in sent if packet.source_port != late))
    assert ends.b.take_completions() == []
    ends.to_b(*(packet for packet in sent if packet.source_port == late))
    assert ends.b.take_completions() == [("a", 1), ("a", 2)]


@MODES
def test_message_counts_as_outstanding_until_all_of_it_and_all_before_it_is_acknowledged(split: bool):
    ends = Ends(qps=2, split_data=split)
    ends.write(bytes(PIECE_BYTES + 1), 0, 1)
    ends.write(bytes(PIECE_BYTES + 1), 1000, 2)
    late = ends.attributes["b"]["receive"]["a"][0]["source_port"]
    ends.to_b(*ends.data())
    answers = ends.answers()
    ends.to_a(*(packet for packet in answers if packet.source_port != late))
    assert ends.a.outstanding_messages("b") == 2
    ends.to_a(*(packet for packet in answers if packet.source_port == late))
    assert ends.a.outstanding_messages("b") == 0


@pytest.mark.parametrize("qps", [1, 4, 16])
def test_window_is_the_pairs(qps: int):
    ends = Ends(qps=qps)
    for imm in range(qps):
        ends.write(bytes(64 * 40), 0, imm)
    assert len(ends.data()) == ends.params.window_packets


@pytest.mark.parametrize("qps", [1, 2, 3, 4, 7, 8, 15, 16])
def test_pair_never_waits_for_acknowledgements_that_nobody_owes(qps: int):
    ends = Ends(qps=qps)
    for imm in range(qps):
        ends.write(bytes(64 * 40), 0, imm)
    for _ in range(qps * 40):
        ends.to_b(*ends.data())
        ends.to_a(*ends.answers())
    assert (ends.a.outstanding_messages("b"), len(ends.b.take_completions()), ends.now) == (0, qps, 0.0)


@MODES
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(0, 0.25), st.integers(1, 16), st.lists(st.integers(0, 900), min_size=1, max_size=20), st.booleans())
def test_lossy_reordering_channel_delivers_every_byte_once_and_in_order(
    split: bool, seed: int, loss: float, qps: int, sizes: list[int], dcqcn: bool
):
    ends = Ends(seed % 97, qps=qps, split_data=split, dcqcn=dcqcn, link_rate_bps=10e6)
    draw = random.Random(seed)
    sent = [draw.randbytes(size) for size in sizes]
    for imm, data in enumerate(sent):
        ends.write(data, imm * 900, imm)
    ends.finish(draw, loss)
    completed = [completion.imm for completion in ends.b.take_completions()]
    assert completed == list(range(len(sizes) if not ends.a.take_errors() else len(completed)))
    assert all(bytes(ends.region[imm * 900 : imm * 900 + sizes[imm]]) == sent[imm] for imm in completed)


@MODES
def test_one_qps_error_fails_the_pair_once(split: bool):
    ends = Ends(qps=4, split_data=split, retries=1)
    for imm in range(4):
        ends.write(bytes(4 * PIECE_BYTES), 0, imm)
    dead = ends.attributes["a"]["send"]["b"][2]["source_port"]
    for _ in range(200):
        ends.to_b(*(packet for packet in ends.data() if packet.source_port != dead))
        ends.to_a(*ends.answers())
        ends.tick()
    assert ends.a.take_errors() == [("b", "retry counter exceeded")]
    ends.write(b"more", 0, 9)
    ends.tick()
    assert (ends.data(), ends.a.take_errors(), ends.a.next_deadline()) == ([], [], None)
    assert {row[2] for row in ends.a.path_rows()} == {"ASSUMED_BAD"}


def test_the_timeout_of_a_qp_runs_only_while_something_of_it_is_outstanding():
    """Of four QPs that share a window of four packets the first one times out, and the others take all the room that this makes."""
    ends = Ends(qps=4, window_packets=4, ack_every=1)
    timeout_s, of_port = ends.params.ack_timeout_s, {end["source_port"]: at for at, end in enumerate(ends.attributes["a"]["send"]["b"])}
    flying: dict[int, list[Transmit]] = {at: [] for at in range(4)}

    def send() -> list[int]:
        sent = ends.data()
        for packet in sent:
            flying[of_port[packet.source_port]].append(packet)
        return [of_port[packet.source_port] for packet in sent]

    def acknowledged(now: float, *qps: int) -> list[int]:
        ends.now = now * timeout_s
        for qp in qps:
            ends.to_b(*flying[qp])
            flying[qp].clear()
        ends.to_a(*ends.answers())
        return send()

    for imm in range(4):
        ends.write(bytes(64 * 40), 0, imm)
    assert [send(), acknowledged(0.5, 2, 3), acknowledged(0.6, 1), acknowledged(0.7, 3)] == [[0, 1, 2, 3], [0, 1], [2, 3], [0]]
    ends.now = timeout_s
    ends.a.on_timer(ends.now)
    assert send() == [1, 2, 3]
    ends.now = 1.6 * timeout_s
    ends.a.on_timer(ends.now)
    assert send() == [0, 1]
    ends.now = 2.5 * timeout_s
    ends.a.on_timer(ends.now)
    assert next(row[4] for row in ends.a.path_rows()) == 1


def test_a_late_acknowledgement_moves_nothing_once_the_pair_has_failed():
    ends = Ends(qps=2, retries=0)
    for _ in range(2):
        ends.write(bytes(64 * 8))
    ends.to_b(*ends.data()[:12])
    late = ends.answers()
    while not (failed := ends.a.take_errors()):
        ends.tick()
    ends.to_a(*late)
    assert failed == [("b", "retry counter exceeded")]
    assert (ends.a.report()["drops"], ends.a.next_deadline()) == ({"qp_in_error": len(late)}, None)
    assert late


def test_rows_are_the_pairs_sums_and_a_path_each():
    ends = Ends(qps=4)
    for imm in range(8):
        ends.write(bytes(128), 0, imm)
    ends.finish(random.Random(1), 0.0)
    assert [row[:2] for row in ends.a.path_rows()] == [("b", number) for number in range(4)]
    ((peer, packets, _, acked, window, *_),) = ends.a.flow_rows()
    assert (peer, packets, acked, window) == ("b", sum(row[3] for row in ends.a.path_rows()), 1024, 16)


def test_ends_with_other_numbers_of_qps_do_not_join():
    ends, other = Ends(qps=4), Ends(qps=2)
    with pytest.raises(UsageError, match="unusable attributes"):
        ends.a.connect(other.attributes)


def test_close_closes_all_of_them():
    ends = Ends(qps=4)
    ends.write(b"x")
    ends.a.close(0.0)
    ends.finish(random.Random(1), 0.0)
    closed = [event.fields["qp"] for event in ends.a.take_events() if event.event == "qp_closed"]
    assert (ends.a.closed, len(set(closed))) == (True, 4)


@pytest.mark.parametrize("name", PRESETS)
def test_preset_gives_timeout_and_retries_and_both_can_be_overridden(name: str):
    params, own = RcParams(preset=name), RcParams(preset=name, timeout_exponent=12, retries=0)
    assert (params.timeout_exponent, params.retries) == PRESETS[name]
    assert (own.timeout_exponent, own.retries) == (12, 0)


def test_unknown_preset_is_refused_with_a_hint():
    with pytest.raises(UsageError, match="did you mean 'nccl-18x7'"):
        RcParams(preset="nccl-18")


def test_in_turn_and_in_pieces_tell_what_is_whole():
    lists: list[list[Completion]] = [[], [Completion("a", 2)]]
    turn, whole = InTurn(lists), InPieces(lists)
    assert turn.take() == []
    lists[0].append(Completion("a", 1))
    assert [completion.imm for completion in turn.take()] == [1, 2]
    lists[0].append(Completion("a", 3))
    assert whole.take() == []
    lists[1].append(Completion("a", 3))
    assert whole.take() == [("a", 3)]


def test_ack_names_the_sending_qp():
    ends = Ends(qps=4)
    ends.write(b"x")
    ends.to_b(*ends.data())
    (ack,) = ends.answers()
    assert wire.parse_bth(raw(ack)).qpn == ends.attributes["a"]["send"]["b"][0]["qpn"]
