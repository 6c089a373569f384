"""Streams over a perfect in-memory channel: when they send, how much, and that a receiver sees every wrong byte."""

from __future__ import annotations

import math
import random
from collections import deque

import pytest

from hosts.commands import Start
from hosts.jobs import JobError, Write
from hosts.jobs.streams import Outgoing, Payloads, StreamsJob
from testbed.errors import UsageError

SIZE = 1000


def sender(*flows: Outgoing, at: float = 0.0, origin: float = 0.0) -> StreamsJob:
    job = StreamsJob("h1", SIZE, 3, flows, (), seed=1)
    job.start(Start(at, 0, 1, origin))
    return job


def receiver(*sources: str, outstanding: int = 3) -> StreamsJob:
    job = StreamsJob("h2", SIZE, outstanding, (), sources, seed=1)
    job.start(Start(0.0, 0, 1, 0.0))
    return job


def posted(job: StreamsJob, now: float, outstanding: int = 0) -> int:
    job.advance(now, lambda _peer: outstanding)
    return len(job.take_writes())


def test_the_asked_number_of_messages_is_kept_outstanding():
    job = sender(Outgoing("h2"))
    assert [posted(job, 1.0, outstanding) for outstanding in (0, 3, 2, 0)] == [3, 0, 1, 3]


def test_a_flow_is_on_from_its_start_to_its_stop():
    job = sender(Outgoing("h2", start_s=5.0, stop_s=7.0), at=10.0, origin=10.0)
    assert [posted(job, now) for now in (14.99, 15.0, 16.99, 17.0, 99.0)] == [0, 3, 3, 0, 0]


def test_the_start_of_each_flow_is_a_deadline():
    job = sender(Outgoing("h2", start_s=5.0), Outgoing("h3", start_s=2.0), Outgoing("h4", start_s=9.0, stop_s=9.0))
    deadlines = [job.next_deadline()]
    for now in (2.0, 5.0):
        posted(job, now)
        deadlines.append(job.next_deadline())
    assert deadlines == [2.0, 5.0, None]


def test_after_a_restart_times_still_count_from_the_first_start():
    job = sender(Outgoing("h2", stop_s=8.0), Outgoing("h3", start_s=30.0), at=20.0, origin=10.0)
    assert job.next_deadline() == 40.0
    assert posted(job, 20.0) == 0


def test_a_flow_that_should_be_on_at_a_restart_begins_at_once():
    job = sender(Outgoing("h2", start_s=2.0), at=20.0, origin=10.0)
    assert (posted(job, 19.9), posted(job, 20.0)) == (0, 3)


def test_after_an_error_that_flow_ends_and_others_go_on():
    job = sender(Outgoing("h2"), Outgoing("h3"))
    job.on_error("h2")
    job.advance(1.0, lambda _peer: 0)
    assert {write.peer for write in job.take_writes()} == {"h3"}


def test_a_host_that_only_receives_sends_nothing_and_waits_for_nothing():
    job = receiver("h1")
    assert (posted(job, 1.0), job.next_deadline(), job.moves_on_acknowledgements) == (0, None, False)


def test_report_counts_whole_messages():
    job = sender(Outgoing("h2"))
    posted(job, 0.0)
    posted(job, 2.0, 1)
    assert job.report() == {"acked_bytes": 2 * SIZE, "received_bytes": 0, "wrong_messages": 0, "elapsed_s": 2.0}


class Fan:
    """Three senders to one receiver; what is posted lies in a queue a sender, and is acknowledged when it was delivered."""

    def __init__(self, outstanding: int) -> None:
        self.names = ["h1", "h3", "h4"]
        self.senders = {
            name: StreamsJob(name, SIZE, outstanding, [Outgoing("h2", place=place)], (), seed=1) for place, name in enumerate(self.names)
        }
        self.receiver = receiver(*self.names, outstanding=outstanding)
        self.queues: dict[str, deque[Write]] = {name: deque() for name in self.names}
        for job in self.senders.values():
            job.start(Start(0.0, 0, 1, 0.0))

    def advance(self, name: str) -> None:
        self.senders[name].advance(1.0, lambda _peer: len(self.queues[name]))
        self.queues[name] += self.senders[name].take_writes()

    def place(self, name: str, at: int = 0) -> None:
        """Puts a message into the receiver's memory; those after the first are early, as on several paths."""
        write = self.queues[name][at]
        self.receiver.region[write.remote_offset : write.remote_offset + SIZE] = write.data

    def complete(self, name: str) -> None:
        self.place(name)
        self.receiver.on_completion(name, self.queues[name].popleft().imm)


@pytest.mark.parametrize("outstanding", [1, 2, 5])
def test_any_order_between_flows_and_early_data_are_right(outstanding: int):
    fan, draw = Fan(outstanding), random.Random(outstanding)
    for _ in range(3000):
        name = draw.choice(fan.names)
        if queue := fan.queues[name]:
            fan.place(name, draw.randrange(len(queue)))
            draw.choice((lambda: None, lambda name=name: fan.complete(name)))()
        fan.advance(name)
    assert fan.receiver.take_wrong() == []
    assert fan.receiver.report()["received_bytes"] > 600 * SIZE


@pytest.mark.parametrize("at", [0, SIZE // 2, SIZE - 1])
def test_one_wrong_byte_is_told_with_message_and_peer(at: int):
    fan = Fan(2)
    fan.advance("h3")
    fan.complete("h3")
    fan.place("h3")
    write = fan.queues["h3"].popleft()
    fan.receiver.region[write.remote_offset + at] ^= 1
    fan.receiver.on_completion("h3", write.imm)
    assert [tuple(wrong) for wrong in fan.receiver.take_wrong()] == [(1, "h3")]
    assert fan.receiver.report()["wrong_messages"] == 1


def test_the_message_that_was_in_the_slot_before_is_wrong():
    fan = Fan(1)
    for _ in range(2):
        fan.advance("h1")
        write = fan.queues["h1"].popleft()
        if write.imm == 0:
            fan.receiver.region[write.remote_offset : write.remote_offset + SIZE] = write.data
        fan.receiver.on_completion("h1", write.imm)
    assert [tuple(wrong) for wrong in fan.receiver.take_wrong()] == [(1, "h1")]


@pytest.mark.parametrize("number", [1, 2**32 - 1])
def test_a_message_that_is_missing_or_came_twice_is_the_transports_fault(number: int):
    with pytest.raises(JobError, match=f"from h1: message {number} completed where 0"):
        receiver("h1").on_completion("h1", number)


def test_messages_of_a_flow_differ_from_those_that_share_its_slot():
    payloads = Payloads(SIZE, seed=1)
    for outstanding in range(1, 8):
        assert bytes(payloads.of("h1", "h2", 3)) != bytes(payloads.of("h1", "h2", 3 + outstanding))
    assert bytes(payloads.of("h1", "h2", 3)) != bytes(payloads.of("h3", "h2", 3))


@pytest.mark.parametrize(("message_bytes", "outstanding"), [(0, 4), (1000, 0), (1000, 251), (1 << 26, 2)])
def test_senseless_streams_are_refused(message_bytes: int, outstanding: int):
    with pytest.raises(UsageError, match=r"job\.outstanding"):
        StreamsJob("h1", message_bytes, outstanding, (), (), 1)


def test_a_flow_without_stop_goes_on():
    assert Outgoing("h2").stop_s == math.inf


def test_a_paced_flow_posts_one_message_an_interval_and_its_deadline_is_the_next():
    job = sender(Outgoing("h2", every_s=0.5))
    assert [posted(job, now) for now in (0.0, 0.25, 0.5, 0.75, 1.125)] == [1, 0, 1, 0, 1]
    assert job.next_deadline() == 1.5


def test_a_paced_flow_that_was_held_up_does_not_catch_up():
    job = sender(Outgoing("h2", every_s=0.5))
    assert [posted(job, now) for now in (0.0, 5.0, 5.25, 5.5)] == [1, 1, 0, 1]


def test_a_paced_flow_without_room_waits_for_acknowledgements_only():
    job = sender(Outgoing("h2", every_s=0.5))
    posted(job, 0.0)
    assert posted(job, 0.5, outstanding=3) == 0
    assert job.next_deadline() is None


def test_a_negative_interval_is_refused():
    with pytest.raises(UsageError, match="every_s"):
        sender(Outgoing("h2", every_s=-1.0))
