"""What an administrator asks for, over agents that answer as the test wants: all or nothing, booked, kept over a restart."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from testbed.control import Request
from testbed.errors import HostError, UsageError
from testbed.run.denials import Denials
from topologies import build

Message = dict[str, Any]
LINK = "h1-t0_1_1"
DENY, ALLOW = Request("deny", (LINK,)), Request("allow", (LINK,))


class Desk:
    """Denials of three hosts in a ring, and what they sent and booked."""

    def __init__(self) -> None:
        topology = build("multi-plane", planes=2, t0s=3, t1s=1, hosts_per_t0=1)
        ring = {"h1": "h2", "h2": "h3", "h3": "h1"}
        self.configs: dict[str, Message] = {
            host: {
                "cmd": "config",
                "send_to": [{"name": peer, "paths": [{"plane": p.plane, "links": list(p.links)} for p in topology.paths(host, peer)]}],
            }
            for host, peer in ring.items()
        }
        self.sent, self.events, self.woken = list[tuple[str, Message]](), list[Message](), 0
        self.denials = Denials(topology, self.configs, self._send, self._wake, self.events.append)
        self.denials.ready(1.0, {})

    def _send(self, host: str, command: Message) -> None:
        self.sent.append((host, command))

    def _wake(self) -> None:
        self.woken += 1

    def ask(self, request: Request) -> Future[Any]:
        reply = self.denials.ask(request)
        self.denials.turn()
        return reply

    def answer(self, **evs: Any) -> None:
        """Each host's answer: its EVs concerned by peer, or the text of a refusal."""
        for host, told in evs.items():
            message = {"msg": "refused", "text": told} if isinstance(told, str) else {"msg": "denied", "evs": told}
            self.denials.answer(host, message)

    def taken(self) -> list[tuple[str, Message]]:
        sent, self.sent = self.sent, []
        return sent


@pytest.fixture
def desk() -> Desk:
    return Desk()


def command(on: bool, links: list[str], evs: dict[str, list[int]]) -> Message:
    return {"cmd": "deny", "links": links, "evs": evs, "deny": on}


def test_every_agent_is_told_of_a_link_and_the_answer_names_the_evs(desk: Desk) -> None:
    reply = desk.ask(Request("deny", ("t0_1_1-h1",)))
    assert desk.taken() == [(host, command(True, [LINK], {})) for host in ("h1", "h2", "h3")]
    desk.answer(h1={"h2": [0]}, h2={})
    assert not reply.done()
    desk.answer(h3={"h1": [0]})
    assert reply.result() == {"h1": {"h2": [0]}, "h3": {"h1": [0]}}
    assert desk.woken == 1


def test_numbers_of_evs_go_to_their_host_only(desk: Desk) -> None:
    desk.ask(Request("deny", host="h2", peer="h3", evs=(1,)))
    assert desk.taken() == [("h2", command(True, [], {"h3": [1]}))]


def test_it_is_booked_with_the_time_at_which_the_agents_were_told(desk: Desk) -> None:
    desk.ask(DENY)
    desk.answer(h1={"h2": [0]}, h2={}, h3={})
    (event,) = desk.events
    assert {key: event[key] for key in ("source", "event", "evs", "refused")} == {
        "source": "admin", "event": "deny", "evs": {"h1": {"h2": [0]}}, "refused": None,
    }  # fmt: skip
    assert event["asked"] == {"links": [LINK], "host": None, "peer": None, "evs": []}


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request("deny", ("h1-t0_1_3",)), "h1-t0_1_3"),
        (Request("deny", host="h9", peer="h2", evs=(0,)), "there is no agent on 'h9'"),
        (Request("deny", host="h1", peer="h3", evs=(0,)), "h1 sends nothing to 'h3' .*h2"),
        (Request("list", host="h9"), "there is no agent on 'h9'"),
    ],
)
def test_names_that_mean_nothing_are_refused_before_any_agent_is_told(desk: Desk, request_: Request, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        desk.ask(request_).result(0)
    assert (desk.sent, desk.events) == ([], [])


def test_what_one_agent_refuses_the_others_take_back(desk: Desk) -> None:
    desk.ask(Request("deny", host="h3", peer="h1", evs=(0,)))
    desk.answer(h3={"h1": [0]})
    reply = desk.ask(DENY)
    desk.taken()
    desk.answer(h1={"h2": [0]}, h2="the last EV", h3={"h1": [0, 1]})
    # EV 0 of h3 was denied before, and stays so.
    undone = [("h1", command(False, [], {"h2": [0]})), ("h3", command(False, [], {"h1": [1]}))]
    assert desk.taken() == [(host, {**told, "ways_back": [LINK]}) for host, told in undone]
    assert not reply.done()
    desk.answer(h1={"h2": [0]}, h3={"h1": [1]})
    with pytest.raises(UsageError, match="nothing has changed: h2: the last EV"):
        reply.result(0)
    assert (desk.events[-1]["refused"], desk.events[-1]["evs"]) == ("h2: the last EV", {})
    assert desk.denials.config("h3")["deny"]["evs"] == {"h1": [0]}
    assert desk.denials.config("h1")["deny"]["evs"] == {}


def test_ways_back_are_taken_back_by_all_but_those_that_were_denied_before(desk: Desk) -> None:
    desk.ask(DENY)
    desk.answer(h1={"h2": [0]}, h2={}, h3={"h1": [0]})
    desk.taken()
    reply = desk.ask(Request("deny", (LINK, "h2-t0_1_2")))
    desk.taken()
    desk.answer(h1={"h2": [0]}, h2="the last EV", h3={"h1": [0]})
    assert desk.taken() == [(host, {**command(False, [], {}), "ways_back": ["h2-t0_1_2"]}) for host in ("h1", "h3")]
    desk.answer(h1={}, h3={})
    with pytest.raises(UsageError):
        reply.result(0)
    assert desk.denials.config("h2")["deny"]["ways_back"] == [LINK]


def test_a_refusal_by_all_needs_no_taking_back(desk: Desk) -> None:
    reply = desk.ask(DENY)
    desk.taken()
    desk.answer(h1="no", h2="no", h3="no")
    assert desk.taken() == []
    with pytest.raises(UsageError):
        reply.result(0)


def test_one_request_is_under_way_at_a_time(desk: Desk) -> None:
    first, second = desk.ask(DENY), desk.ask(ALLOW)
    assert len(desk.taken()) == 3
    desk.answer(h1={"h2": [0]}, h2={}, h3={})
    desk.denials.turn()
    assert [told["deny"] for _, told in desk.taken()] == [False] * 3
    desk.answer(h1={"h2": [0]}, h2={}, h3={})
    assert first.result(0) == second.result(0)


def test_a_restarted_job_has_the_denylist_as_it_was(desk: Desk) -> None:
    assert desk.denials.config("h1") == {**desk.configs["h1"], "deny": {"links": [], "evs": {}, "ways_back": []}}
    desk.denials.ready(1.0, {"h1": {"h2": [1]}})
    desk.ask(DENY)
    desk.answer(h1={"h2": [0]}, h2={}, h3={"h1": [0]})
    assert desk.denials.config("h1")["deny"] == {"links": [], "evs": {"h2": [0, 1]}, "ways_back": [LINK]}
    desk.ask(ALLOW)
    desk.answer(h1={"h2": [0]}, h2={}, h3={"h1": [0]})
    assert desk.denials.config("h1")["deny"] == {"links": [], "evs": {"h2": [1]}, "ways_back": []}
    assert desk.denials.config("h3")["deny"] == {"links": [], "evs": {}, "ways_back": []}


def test_the_first_agents_have_the_scenarios_denylist_and_it_is_booked_once() -> None:
    desk = Desk()
    desk.denials._denied = None  # as before any agent was ready
    assert desk.denials.config("h1") is desk.configs["h1"]
    for _ in range(2):
        desk.denials.ready(2.0, {"h1": {"h2": [1]}, "h2": {}})
    assert desk.events == [{"t": 2.0, "source": "run", "event": "deny", "evs": {"h1": {"h2": [1]}}}]


def test_a_list_has_a_row_an_ev_with_its_path(desk: Desk) -> None:
    reply = desk.ask(Request("list", host="h1"))
    assert desk.taken() == [("h1", {"cmd": "evs"})]
    desk.denials.answer("h1", {"msg": "evs", "evs": [{"peer": "h2", "ev": ev, "state": "GOOD"} for ev in range(4)]})
    rows = reply.result(0)
    assert [(row["host"], row["ev"], row["plane"], row["path"][0]) for row in rows] == [
        ("h1", 0, 1, "h1-t0_1_1"), ("h1", 1, 2, "h1-t0_2_1"), ("h1", 2, 1, "h1-t0_1_1"), ("h1", 3, 2, "h1-t0_2_1"),
    ]  # fmt: skip
    assert desk.events == []


def test_rows_stand_in_the_order_of_hosts_however_the_answers_come(desk: Desk) -> None:
    reply = desk.ask(Request("list"))
    for host, peer in (("h3", "h1"), ("h1", "h2"), ("h2", "h3")):
        desk.denials.answer(host, {"msg": "evs", "evs": [{"peer": peer, "ev": 0, "state": "GOOD"}]})
    assert [row["host"] for row in reply.result(0)] == ["h1", "h2", "h3"]


def test_an_answer_that_nobody_asked_for_changes_nothing(desk: Desk) -> None:
    desk.answer(h1={"h2": [0]})
    desk.ask(Request("deny", host="h2", peer="h3", evs=(1,)))
    desk.answer(h1={"h2": [0]})
    assert desk.events == []
    assert desk.denials.config("h1")["deny"]["evs"] == {}


def test_whoever_still_waits_at_the_end_is_told(desk: Desk) -> None:
    waiting = [desk.ask(DENY), desk.ask(ALLOW)]
    desk.denials.close()
    desk.answer(h1={"h2": [0]}, h2={}, h3={})
    for reply in [*waiting, desk.denials.ask(DENY)]:
        with pytest.raises(HostError, match="ended"):
            reply.result(0)
    assert desk.events == []
