"""Messages over several byte streams: cut, dealt, put together, acknowledged; what a hostile stream does not do."""

from __future__ import annotations

import random

import pytest
from tcp_lab import HEADER_BYTES, PORT, Lab

from hosts.core import Completion, PeerSpec
from hosts.tcp.core import HELLO_S, MOST_STRANGERS, TcpCore
from hosts.tcp.frames import ACKNOWLEDGE, CHUNK, FRAME, HELLO, MAGIC, VERSION, WELCOME, Frame, pack
from hosts.tcp.info import TcpInfo
from hosts.tcp.params import MOST_CONNECTIONS, TcpParams
from hosts.tcp.receiver import MOST_OPEN
from testbed.errors import UsageError


def chunk(message: int = 0, total: int = 8, offset: int = 0, length: int = 8, at: int = 0, imm: int = 5) -> bytes:
    return pack(Frame(CHUNK, message, at, total, offset, length, imm)) + bytes(length)


def data_bytes(lab: Lab) -> list[int]:
    """What each connection of a holds, without headers of one frame."""
    return [len(out) - HEADER_BYTES if out else 0 for out in lab.pipes["a"].out.values()]


def test_the_fast_format_is_the_tables():
    frame = Frame(CHUNK, 7, 1 << 40, 100, 20, 30, 0xFFFFFFFF)
    table = FRAME.pack(magic=MAGIC, version=VERSION, kind=CHUNK, message=7, remote_offset=1 << 40, total=100, offset=20, length=30,
                       immediate=0xFFFFFFFF)  # fmt: skip
    assert pack(frame) == table


@pytest.mark.parametrize("seed", range(20))
def test_messages_of_all_sizes_arrive_whole_and_in_order_however_the_bytes_come(seed: int):
    lab, draw = Lab(seed=seed, chunk_bytes=100, connections=3).connect(), random.Random(seed)
    messages, at = [draw.randbytes(draw.choice([0, 1, 99, 100, 101, 299, 301, 5000])) for _ in range(12)], 0
    for number, message in enumerate(messages):
        lab.a.post_write(0.0, "b", memoryview(message), at, number)
        at += len(message)
    lab.run()
    assert lab.b.take_completions() == [Completion("a", number) for number in range(12)]
    assert bytes(lab.region[:at]) == b"".join(messages)
    assert lab.a.outstanding_messages("b") == 0
    assert lab.a.acked_bytes() == at


def test_a_message_is_dealt_to_all_connections():
    lab = Lab().connect()
    lab.a.post_write(0.0, "b", memoryview(bytes(32768)), 0, 1)
    lab.send("a")
    assert data_bytes(lab) == [8192] * 4


def test_small_messages_take_turns():
    lab = Lab().connect()
    for number in range(3):
        lab.a.post_write(0.0, "b", memoryview(bytes(100)), 0, number)
    lab.send("a")
    assert data_bytes(lab) == [100, 100, 100, 0]


def test_a_message_completes_only_when_the_one_before_it_is_there():
    lab = Lab(connections=2).connect()
    first = lab.a._senders["b"].lanes[0].number
    for number in range(2):
        lab.a.post_write(0.0, "b", memoryview(bytes(100)), 0, number)
    lab.send("a")
    while lab.carry("a", held=[first]):
        pass
    assert lab.b.take_completions() == []
    lab.run()
    assert [completion.imm for completion in lab.b.take_completions()] == [0, 1]


def test_a_connection_that_is_full_gets_nothing_and_the_others_go_on():
    lab = Lab().connect()
    lanes = [lane.number for lane in lab.a._senders["b"].lanes]
    lab.pipes["a"].full.add(lanes[1])
    lab.a.post_write(0.0, "b", memoryview(bytes(32768)), 0, 1)
    lab.send("a")
    assert data_bytes(lab) == [8192, 0, 8192, 8192]
    lab.pipes["a"].full.clear()
    lab.run()
    assert lab.b.take_completions() == [Completion("a", 1)]


def test_what_is_taken_a_packet_at_a_time_is_complete():
    lab = Lab().connect()
    lab.a.post_write(0.0, "b", memoryview(bytes(32768)), 0, 1)
    while (packet := next(lab.a.transmit(0.0), None)) is not None:
        lab.pipes["a"].out[packet.port] += bytes(packet.header) + bytes(packet.payload)
    lab.run()
    assert lab.b.take_completions() == [Completion("a", 1)]


def test_an_acknowledgement_goes_on_the_connection_that_ended_the_message():
    lab = Lab(connections=2).connect()
    lab.a.post_write(0.0, "b", memoryview(bytes(20000)), 0, 1)
    lab.send("a")
    second = lab.a._senders["b"].lanes[1].number
    while lab.carry("a", held=[second]):
        pass
    while lab.carry("a"):
        pass
    (packet,) = lab.b.transmit(0.0)
    assert lab.pipes["b"].far[packet.port] == second


def test_drained_when_everything_is_acknowledged():
    lab = Lab().connect()
    lab.a.post_write(0.0, "b", memoryview(bytes(100)), 0, 1)
    lab.a.close(1.0)
    assert not lab.a.closed
    lab.run()
    lab.a.on_receive_done(2.0)
    assert lab.a.closed
    assert lab.a.report()["closed"] == {"b": True}
    assert [(event.t, event.event, event.fields["peer"]) for event in lab.a.take_events()] == [(2.0, "qp_closed", "b")]


def test_an_ended_connection_fails_the_peer_once():
    lab = Lab().connect()
    for lane in lab.a._senders["b"].lanes:
        lab.a.on_closed(lane.number, "ETIMEDOUT (Connection timed out)")
    assert lab.a.take_errors() == [("b", "ETIMEDOUT (Connection timed out)")]
    assert lab.a.take_errors() == []
    lab.a.post_write(0.0, "b", memoryview(bytes(100)), 0, 1)
    assert list(lab.a.transmit(0.0)) == []


def test_after_the_end_of_the_job_a_closed_connection_is_no_error():
    lab = Lab().connect()
    lab.a.close(1.0)
    lab.b.close(1.0)
    lab.a.on_closed(lab.a._senders["b"].lanes[0].number, "closed by the peer")
    lab.b.on_closed(lab.b._receivers["a"].connections[0], "closed by the peer")
    assert (lab.a.take_errors(), lab.b.take_errors()) == ([], [])


def test_one_that_still_has_to_be_acknowledged_is():
    lab = Lab().connect()
    lab.a.post_write(0.0, "b", memoryview(bytes(100)), 0, 1)
    lab.a.close(1.0)
    lab.a.on_closed(lab.a._senders["b"].lanes[0].number, "closed by the peer")
    assert [error.peer for error in lab.a.take_errors()] == ["b"]
    assert lab.a.closed
    assert lab.a.report()["closed"] == {"b": False}


def test_who_is_not_joined_in_time_has_failed():
    lab = Lab(connect_timeout_s=5.0)
    lab.a.connect({"b": lab.b.attributes()})
    assert not lab.a.joined
    lab.a.on_timer(100.0)
    assert lab.a.next_deadline() == 105.0
    lab.a.on_timer(104.9)
    assert lab.a.take_errors() == []
    lab.a.on_timer(105.0)
    assert lab.a.take_errors() == [("b", "not connected within 5 s")]
    assert lab.a.joined


def test_unusable_attributes_are_refused():
    lab = Lab()
    for wrong in ({}, {"port": 0, "region_bytes": 1, "receive": {"a": 1}}, {"port": 1, "region_bytes": 1, "receive": {}}):
        with pytest.raises(UsageError):
            lab.a.connect({"b": wrong})


def test_a_write_outside_of_the_peers_region_is_refused_here():
    lab = Lab(region_bytes=100).connect()
    with pytest.raises(UsageError, match="region"):
        lab.a.post_write(0.0, "b", memoryview(bytes(50)), 51, 1)


# --- hostile streams -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (bytes(HEADER_BYTES), "bad_magic"),
        (b"GET / HTTP/1.1\r\nHost: somebody\r\nUser-Agent: curl\r\n", "bad_magic"),
        (pack(Frame(HELLO, 12345, 0, 4, 0)), "foreign"),
        (chunk(), "foreign"),
        (pack(Frame(ACKNOWLEDGE, 0)), "foreign"),
    ],
)
def test_a_stranger_is_counted_and_closed(said: bytes, reason: str):
    lab = Lab().connect()
    assert not lab.stranger(said)
    assert lab.b.report()["drops"] == {reason: 1}
    assert lab.b.take_errors() == []
    assert len(lab.pipes["b"].closed) == 1


@pytest.mark.parametrize(
    ("index", "wanted", "reason"), [(0, 4, "joined_twice"), (4, 4, "bad_hello"), (1, 5, "bad_hello"), (1, 0, "bad_hello")]
)
def test_who_knows_the_nonce_still_has_to_keep_the_rules(index: int, wanted: int, reason: str):
    lab = Lab().connect()
    assert not lab.stranger(lab.hello(lab.nonce(), index, wanted))
    assert lab.b.report()["drops"] == {reason: 1}
    assert lab.b.take_errors() == []


REFUSED = [
    (pack(Frame(HELLO, 0, 0, 4, 0)), "unexpected_frame"),
    (pack(Frame(ACKNOWLEDGE, 0)), "unexpected_frame"),
    (pack(Frame(99, 0)), "unexpected_frame"),
    (pack(Frame(99, 0, length=1)), "unexpected_frame"),
    (b"\0" * HEADER_BYTES, "bad_magic"),
    (chunk(at=1 << 16), "out_of_region"),
    (chunk(at=(1 << 16) - 7), "out_of_region"),
    (chunk(at=(1 << 64) - 4), "out_of_region"),
    (chunk(offset=4), "chunk_out_of_message"),
    (chunk(offset=0xFFFFFFFF), "chunk_out_of_message"),
    (chunk(length=0), "chunk_out_of_message"),
    (chunk(message=MOST_OPEN), "unexpected_message"),
    (chunk() + chunk(), "unexpected_message"),
    (chunk(message=1) + chunk(message=1), "unexpected_message"),
    (chunk(length=4) + chunk(offset=3, length=5), "overlap"),
    (chunk(length=4) + chunk(offset=4, length=4, imm=6), "inconsistent"),
    (chunk(length=4) + chunk(offset=4, length=4, at=8), "inconsistent"),
    (chunk(length=4) + chunk(total=9, offset=4, length=5), "inconsistent"),
    (b"".join(chunk(total=100, offset=at, length=1) for at in range(17)), "too_many_chunks"),
]


@pytest.mark.parametrize(("said", "reason"), REFUSED)
def test_a_peer_that_breaks_the_rules_fails(said: bytes, reason: str):
    lab = Lab().connect()
    assert not lab.into(0, said)
    assert lab.b.report()["drops"] == {reason: 1}
    ((peer, told),) = lab.b.take_errors()
    assert (peer, reason in told) == ("a", True)


def test_nothing_outside_of_the_chunks_place_is_written():
    lab = Lab(region_bytes=64).connect()
    lab.region[:] = b"\xff" * 64
    assert lab.into(0, chunk(at=8, total=16, offset=4, length=8))
    assert bytes(lab.region) == b"\xff" * 12 + bytes(8) + b"\xff" * 44


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (pack(Frame(ACKNOWLEDGE, 2)), "acknowledges_unsent"),
        (pack(Frame(ACKNOWLEDGE, 1)), "acknowledges_unsent"),
        (pack(Frame(WELCOME, 0, 0, 4, 0)), "bad_welcome"),
        (chunk(), "unexpected_frame"),
        (pack(Frame(HELLO, 0)), "unexpected_frame"),
    ],
)
def test_a_peer_that_answers_what_was_not_asked_fails(said: bytes, reason: str):
    lab = Lab().connect()
    lab.a.post_write(0.0, "b", memoryview(bytes(100)), 0, 1)
    assert not lab.back(0, said)
    assert lab.a.report()["drops"] == {reason: 1}
    assert [error.peer for error in lab.a.take_errors()] == ["b"]


def test_an_old_acknowledgement_says_nothing_new():
    lab = Lab().connect()
    for number in range(2):
        lab.a.post_write(0.0, "b", memoryview(bytes(100)), 0, number)
    lab.run()
    assert lab.back(0, pack(Frame(ACKNOWLEDGE, 1)))
    assert lab.a.outstanding_messages("b") == 0


@pytest.mark.parametrize("seed", range(300))
def test_a_stream_of_anything_is_never_raised(seed: int):
    draw = random.Random(seed)
    lab = Lab(region_bytes=256).connect()
    wrong = bytearray(b"".join(draw.choice(REFUSED)[0] if draw.random() < 0.2 else chunk(message=number) for number in range(6)))
    for _ in range(draw.randint(1, 8)):
        wrong[draw.randrange(len(wrong))] = draw.randrange(256)
    for say in (lambda data: lab.into(0, data), lab.stranger, lambda data: lab.back(0, data)):
        say(bytes(wrong))
    assert sum(lab.b.report()["drops"].values()) + sum(lab.a.report()["drops"].values()) >= 2


def test_of_too_many_strangers_the_oldest_goes():
    lab = Lab().connect()
    for _ in range(MOST_STRANGERS + MOST_CONNECTIONS + 3):
        lab.stranger(b"")
    assert lab.b.report()["drops"] == {"too_many_strangers": 3}


def test_all_connections_of_all_peers_may_be_there_before_the_first_of_them_says_who_it_is():
    names = [f"h{number}" for number in range(15)]
    lab = Lab(connections=MOST_CONNECTIONS)
    peers = {name: PeerSpec(name, name, ()) for name in names}
    core = TcpCore("b", TcpParams(connections=MOST_CONNECTIONS), {}, peers, lab.region, 1, lab.pipes["b"], PORT)
    core.connect({})
    nonces = core.attributes()["receive"]
    hellos = [lab.hello(nonces[name], index, MOST_CONNECTIONS) for name in names for index in range(MOST_CONNECTIONS)]
    for number in range(len(hellos)):
        core.on_accepted(0.0, number)
    for number, hello in enumerate(hellos):
        core.room(number)[: len(hello)] = hello
        assert core.received(number, len(hello))
    assert core.joined
    assert core.report()["drops"] == {}


def test_a_stranger_that_says_nothing_goes():
    lab = Lab().connect()
    lab.now = 5.0
    lab.stranger(b"M")
    assert lab.b.next_deadline() == 5.0 + HELLO_S
    lab.b.on_timer(5.0 + HELLO_S)
    assert lab.b.report()["drops"] == {"silent_stranger": 1}
    assert lab.b.next_deadline() is None


# --- counters --------------------------------------------------------------------------------------------------------------------------


def test_rows_are_what_the_kernel_counts():
    lab = Lab(connections=2).connect()
    first, second = (lane.number for lane in lab.a._senders["b"].lanes)
    lab.pipes["a"].infos = {
        first: TcpInfo(rtt=2000, snd_cwnd=10, total_retrans=1, data_segs_out=7, min_rtt=900, delivered_ce=2),
        second: TcpInfo(rtt=4000, snd_cwnd=30, total_retrans=4, data_segs_out=5, backoff=2, min_rtt=800),
    }
    lab.a.post_write(0.0, "b", memoryview(bytes(100)), 0, 1)
    lab.run()
    assert lab.a.flow_rows() == [("b", 12, 5, 100, 40, 0.003, 0, 2)]
    assert lab.a.path_rows() == [("b", 0, "GOOD", 7, 1, 0, 0, 2), ("b", 1, "ASSUMED_BAD", 5, 4, 0, 0, 0)]
    report = lab.a.report()
    assert (report["data_packets_sent"], report["data_packets_retransmitted"]) == (12, 5)
    assert report["base_rtt_s"] == {"b": 0.0008}
