"""Round robin among send QPs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from hosts.core import Turns


class Queue:
    """A send QP that holds `packets`."""

    def __init__(self, name: str, count: int) -> None:
        self.packets = [f"{name}{number}" for number in range(count)]

    @property
    def ready(self) -> bool:
        return bool(self.packets)

    def transmit(self, now: float) -> Iterator[Any]:
        while self.packets:
            yield self.packets.pop(0)


def test_each_qp_sends_a_packet_in_turn_and_an_empty_one_holds_nobody_up():
    assert list(Turns().packets(0.0, [Queue("a", 3), Queue("b", 1), Queue("c", 2)])) == ["a0", "b0", "c0", "a1", "c1", "a2"]


def test_a_call_that_was_left_early_is_continued_with_the_next_qp():
    turns, queues = Turns(), [Queue("a", 4), Queue("b", 4), Queue("c", 4)]
    assert [list(islice(turns.packets(0.0, queues), 2)) for _ in range(4)] == [["a0", "b0"], ["c0", "a1"], ["b1", "c1"], ["a2", "b2"]]


def test_no_packet_is_lost_when_calls_are_left_early():
    turns, queues = Turns(), [Queue("a", 7), Queue("b", 2), Queue("c", 9)]
    taken = [packet for _ in range(30) for packet in islice(turns.packets(0.0, queues), 1)]
    assert (len(taken), len(set(taken)), any(queue.packets for queue in queues)) == (18, 18, False)


def test_one_qp_needs_no_turns():
    assert list(Turns().packets(0.0, [Queue("a", 2)])) == ["a0", "a1"]
    assert list(Turns().packets(0.0, [])) == []


def test_a_qp_that_was_alone_does_not_go_first_again():
    turns, queues = Turns(), [Queue("a", 1), Queue("b", 0)]
    assert list(turns.packets(0.0, queues)) == ["a0"]
    for queue in queues:
        queue.packets = ["x"]
    queues[1].packets = ["b0"]
    assert next(iter(turns.packets(0.0, queues))) == "b0"
