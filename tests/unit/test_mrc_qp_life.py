"""The life of a QP: close, errors, what is left behind."""

from __future__ import annotations

import pytest
from mrc_lab import NOW, Pair, answers, tell

from hosts.mrc import MrcCore
from testbed.errors import UsageError


def closing_events(core: MrcCore) -> list[dict[str, object]]:
    return [dict(event.fields) for event in core.take_events() if event.event == "qp_closed"]


def test_a_closed_core_takes_no_more_writes() -> None:
    pair = Pair()
    pair.a.close(NOW)
    with pytest.raises(UsageError, match="post before `close`"):
        pair.send()


def test_it_is_closed_once_all_that_was_posted_is_acknowledged() -> None:
    pair = Pair()
    packets = pair.send(2 * 4096)
    pair.a.close(NOW)
    assert not pair.a.closed
    assert closing_events(pair.a) == []
    tell(pair, *answers(pair, *packets))
    assert pair.a.closed
    assert pair.a.report()["closed"] == {"b": True}
    assert [fields["peer"] for fields in closing_events(pair.a)] == ["b"]


def test_a_core_with_nothing_outstanding_closes_at_once() -> None:
    pair = Pair()
    assert not pair.a.closed
    pair.a.close(NOW)
    assert pair.a.closed


def test_without_close_no_qp_is_reported_as_closed() -> None:
    assert Pair().a.report()["closed"] == {"b": False}
