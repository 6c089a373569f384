"""The job's supervisor over a pool of agents that say what the test wants: crashes, restarts, wrong data."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from testbed.reporting import SilentReporter
from testbed.run.supervisor import JobSupervisor

Message = dict[str, Any]


class Pool:
    """Agents that answer every command, and say what is in `news` when they are listened to."""

    def __init__(self) -> None:
        self.hosts, self.news, self.sent = ("h1", "h2"), deque[tuple[str, Message]](), list[Message]()
        self.unreachable, self.patience_s = set[str](), list[float]()
        self.crossing: dict[str, tuple[str, Message]] = {}  # what comes while answers of a kind are gathered

    def send(self, host: str, command: Mapping[str, Any]) -> None:
        self.sent.append(dict(command))

    def send_all(self, command: Mapping[str, Any]) -> None:
        self.sent.append(dict(command))

    def gather(self, kind: str, timeout_s: float, note: Callable[[str, Message], None] | None = None) -> dict[str, Message]:
        self.sent.append({"gathered": kind})
        if note is not None and kind in self.crossing:
            note(*self.crossing.pop(kind))
        return {host: {"msg": kind, "attributes": {}, "report": {}} for host in self.hosts}

    def gathered(self, kind: str, timeout_s: float, note: Callable[[str, Message], None] | None = None) -> dict[str, Message]:
        self.patience_s.append(timeout_s)
        answers = self.gather(kind, timeout_s, note)
        return {host: answer for host, answer in answers.items() if host not in self.unreachable}

    def next_message(self, timeout_s: float) -> tuple[str, Message] | None:
        return self.news.popleft() if self.news else None


class Listener(SilentReporter):
    """Keeps warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


class Run:
    """A supervisor that is followed until all news are told."""

    def __init__(self, checkpoint_every: int | None) -> None:
        self.pool, self.events, self.reporter = Pool(), list[Message](), Listener()
        configs = {host: {"cmd": "config", "host": host} for host in self.pool.hosts}
        self.supervisor = JobSupervisor(
            self.pool, configs, checkpoint_every=checkpoint_every, restart_s=0.0, record=self.events.append, reporter=self.reporter
        )  # type: ignore[arg-type]
        self.supervisor.connect()
        self.supervisor.start()

    def follow(self, *news: tuple[str, Message], for_s: float = 3600) -> None:
        self.pool.news.extend(news)

        def told() -> None:
            if not self.pool.news:
                raise StopIteration

        with pytest.raises(StopIteration):
            self.supervisor.supervise(time.monotonic() + for_s, told)

    @property
    def warnings(self) -> list[str]:
        return self.reporter.warnings

    def starts(self) -> list[Message]:
        return [command for command in self.pool.sent if command.get("cmd") == "start"]

    def names(self) -> list[str]:
        return [event["event"] for event in self.events]


CRASH = ("h1", {"msg": "qp_error", "peer": "h2", "reason": "retry counter exceeded"})


def steps(last: int) -> list[tuple[str, Message]]:
    return [(host, {"msg": "step", "step": last}) for host in ("h1", "h2")]


def test_a_lockstep_job_goes_on_from_its_checkpoint() -> None:
    run = Run(checkpoint_every=5)
    run.follow(*steps(7), CRASH)
    assert [(start["attempt"], start["first_step"]) for start in run.starts()] == [(1, 0), (2, 5)]
    assert run.names() == ["job_start", "job_crash", "job_restart"]
    assert run.warnings == ["h1: QP to h2: retry counter exceeded; the job crashed at step 8"]


def test_streams_begin_anew_after_a_crash_and_keep_the_first_starts_clock() -> None:
    run = Run(checkpoint_every=None)
    run.follow(CRASH)
    run.follow(CRASH)
    starts = run.starts()
    assert [(start["attempt"], start["first_step"]) for start in starts] == [(1, 0), (2, 0), (3, 0)]
    assert [start["origin"] for start in starts] == [starts[0]["at"]] * 3
    assert starts[2]["at"] > starts[1]["at"] > starts[0]["at"]
    assert [command.get("cmd") for command in run.pool.sent].count("abort") == 2
    assert run.warnings[0] == "h1: QP to h2: retry counter exceeded; the job crashed"


def test_a_job_that_fails_while_it_is_joined_crashes_when_it_begins_and_restarts_after_that() -> None:
    run = Run(checkpoint_every=5)
    run.follow(CRASH, CRASH)
    times = [event["t"] for event in run.events]
    assert run.names() == ["job_start", "job_crash", "job_restart", "job_crash", "job_restart"]
    assert times == sorted(times)


def test_an_attempt_that_is_not_joined_before_the_jobs_end_does_not_begin_and_does_not_prolong_it() -> None:
    run = Run(checkpoint_every=5)
    run.pool.unreachable = {"h2"}
    run.follow(CRASH, for_s=30)
    assert run.names() == ["job_start", "job_crash"]
    (patience_s,) = run.pool.patience_s
    assert patience_s <= 30


def test_an_attempt_that_is_joined_just_before_the_jobs_end_begins() -> None:
    run = Run(checkpoint_every=5)
    run.follow(CRASH, for_s=55)
    assert run.names() == ["job_start", "job_crash", "job_restart"]


@pytest.mark.parametrize(
    ("checkpoint_every", "peer", "words"),
    [(5, None, "the sum of step 3 is wrong"), (5, "h1", "the data from h1 of step 3"), (None, "h1", "the data from h1 of message 3")],
)
def test_wrong_data_is_counted_and_told(checkpoint_every: int | None, peer: str | None, words: str) -> None:
    run = Run(checkpoint_every)
    run.follow(("h2", {"msg": "wrong_sum", "step": 3, "peer": peer}))
    assert run.supervisor.state.wrong_sums == 1
    assert words in run.warnings[0]
    assert {key: run.events[-1][key] for key in ("event", "source", "step", "peer")} == {
        "event": "wrong_sum", "source": "h2", "step": 3, "peer": peer,
    }  # fmt: skip


class Desk:
    """Stands for the administrator's desk: notes what it is told."""

    def __init__(self) -> None:
        self.told = list[Any]()

    def config(self, host: str) -> Message:
        self.told.append(("config", host))
        return {"cmd": "config", "host": host, "deny": {}}

    def ready(self, now: float, denied: Mapping[str, Any]) -> None:
        self.told.append(("ready", sorted(denied)))

    def turn(self) -> None:
        self.told.append("turn")

    def answer(self, host: str, message: Message) -> None:
        self.told.append((host, message["msg"]))


def test_the_administrators_desk_makes_the_configs_has_its_turns_and_hears_the_answers() -> None:
    run, desk = Run(checkpoint_every=None), Desk()
    run.supervisor._denials = desk  # type: ignore[assignment]
    run.follow(*((host, {"msg": kind}) for host, kind in (("h1", "denied"), ("h2", "refused"), ("h1", "evs"))))
    assert [told for told in desk.told if told != "turn"] == [("h1", "denied"), ("h2", "refused"), ("h1", "evs")]
    assert desk.told.count("turn") == 3
    desk.told.clear()
    run.follow(CRASH)
    assert [told for told in desk.told if told != "turn"] == [("config", "h1"), ("config", "h2"), ("ready", ["h1", "h2"])]
    assert [command for command in run.pool.sent if command.get("cmd") == "config"][-1]["deny"] == {}


@pytest.mark.parametrize("kind", ["aborted", "ready", "connected"])
def test_an_answer_that_crosses_a_restart_still_counts(kind: str) -> None:
    run, desk = Run(checkpoint_every=None), Desk()
    run.supervisor._denials = desk  # type: ignore[assignment]
    run.pool.crossing[kind] = ("h1", {"msg": "refused", "text": "`deny` without a `config`"})
    run.follow(CRASH)
    assert ("h1", "refused") in desk.told


@pytest.mark.parametrize("kind", ["drained", "stopped"])
def test_an_answer_that_crosses_a_stop_still_counts(kind: str) -> None:
    run, desk = Run(checkpoint_every=None), Desk()
    run.supervisor._denials = desk  # type: ignore[assignment]
    run.pool.crossing[kind] = ("h1", {"msg": "denied", "evs": {}})
    run.supervisor.stop()
    assert desk.told == [("h1", "denied")]


def test_no_agent_is_stopped_before_all_have_drained() -> None:
    run = Run(checkpoint_every=5)
    run.supervisor.stop()
    assert run.pool.sent[-4:] == [{"cmd": "drain"}, {"gathered": "drained"}, {"cmd": "stop"}, {"gathered": "stopped"}]
