"""The control socket of a run: what it answers, and that no client disturbs the others."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from testbed.control import MAX_REQUEST_BYTES, NAME, Request, ask, is_live, read_line
from testbed.errors import HostError, UsageError
from testbed.reporting import SilentReporter
from testbed.run import control as served
from testbed.run.control import MAX_CLIENTS, Control, Desk, control_of

DENY = {"do": "deny", "links": ["h1-t0_1_1"]}


class Denials:
    """Answers at once with what it was asked, or as `answer` says."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.answer: Callable[[Future[Any]], None] = lambda reply: reply.set_result({"h1": {"h3": [0]}})

    def ask(self, request: Request) -> Future[Any]:
        self.asked.append(request)
        reply: Future[Any] = Future()
        self.answer(reply)
        return reply


@pytest.fixture
def denials() -> Denials:
    return Denials()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Deep enough that a socket's name could not hold its path."""
    deep = tmp_path / ("a" * 100) / ("b" * 100)
    deep.mkdir(parents=True)
    return deep


@pytest.fixture
def control(folder: Path, denials: Denials) -> Iterator[Control]:
    made = Control(folder)
    with made.serving(Desk("mrc", 1, denials)):  # type: ignore[arg-type]
        yield made
    made.close()


@contextlib.contextmanager
def client(folder: Path) -> Iterator[socket.socket]:
    descriptor = os.open(folder, os.O_PATH)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as it:
        it.connect(f"/proc/self/fd/{descriptor}/{NAME}")
        os.close(descriptor)
        it.settimeout(60)
        yield it


def said(folder: Path, line: bytes) -> Mapping[str, Any]:
    with client(folder) as it:
        it.sendall(line)
        answer: Mapping[str, Any] = json.loads(read_line(it, 1 << 20, 60) or b"null")
        return answer


def test_a_request_is_answered_with_what_it_concerned(control: Control, folder: Path, denials: Denials) -> None:
    assert ask(folder, DENY) == {"ok": True, "arm": "mrc", "repeat": 1, "evs": {"h1": {"h3": [0]}}}
    assert denials.asked == [Request("deny", ("h1-t0_1_1",))]


def test_only_root_may_ask(control: Control, folder: Path) -> None:
    assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"\n", "not JSON"),
        (b"garbage \xff\x00\n", "not JSON"),
        (b"[" * 60_000 + b"\n", "not JSON"),
        (b"9" * 60_000 + b"\n", "JSON"),
        (b"[]\n", "give a JSON object"),
        (b"{}\n", "$.do is missing"),
        (b'{"do": "drop"}\n', "give one of deny, allow, list"),
        (b'{"do": "deny"}\n', "say which EVs"),
        (b'{"do": "deny", "links": "h1"}\n', "$.links"),
        (b'{"do": "deny", "links": [7]}\n', "$.links"),
        (b'{"do": "deny", "links": ["a"], "more": 1}\n', "unknown keys more"),
        (b'{"do": "deny", "host": "h1", "peer": "h2"}\n', "--host, --peer and --ev together"),
        (b'{"do": "deny", "host": "h1", "peer": "h2", "evs": [true]}\n', "$.evs"),
        (b'{"do": "deny", "host": "h1", "peer": "h2", "evs": [-1]}\n', "$.evs"),
        (b'{"do": "deny", "host": 1, "peer": "h2", "evs": [1]}\n', "$.host"),
        (b'{"do": "list", "links": ["a"]}\n', "a list is of all EVs"),
    ],
)
def test_nonsense_is_answered_and_nothing_is_done(control: Control, folder: Path, denials: Denials, line: bytes, words: str) -> None:
    answer = said(folder, line)
    assert (answer["ok"], answer["exit_code"]) == (False, 2)
    assert words in answer["error"]
    assert denials.asked == []


def test_a_request_that_is_longer_than_a_run_reads_is_refused_at_once(control: Control, folder: Path, denials: Denials) -> None:
    with pytest.raises(UsageError, match="ask for fewer at a time"):
        ask(folder, {"do": "deny", "host": "h1", "peer": "h3", "evs": list(range(20_000))})
    assert denials.asked == []


def test_what_the_agents_refuse_is_a_usage_error_on_the_other_side(control: Control, folder: Path, denials: Denials) -> None:
    denials.answer = lambda reply: reply.set_exception(UsageError("the last EV"))
    with pytest.raises(UsageError, match="the last EV"):
        ask(folder, DENY)


def test_agents_that_do_not_answer_are_not_waited_for_without_end(
    control: Control, folder: Path, denials: Denials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "ANSWER_S", 0.05)
    denials.answer = lambda reply: None
    with pytest.raises(HostError, match="not every agent answered"):
        ask(folder, DENY)


def test_clients_that_say_nothing_leave_or_flood_keep_nobody_from_being_heard(
    control: Control, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "REQUEST_S", 0.2)
    with contextlib.ExitStack() as stack:
        for number in range(3 * MAX_CLIENTS):
            silent = stack.enter_context(client(folder))
            silent.sendall(b'{"do"'[: number % 6])
        for _ in range(3 * MAX_CLIENTS):
            with client(folder) as gone:
                gone.sendall(b'{"do": "list"}\n')  # and does not wait for the answer
        assert ask(folder, DENY)["ok"]


def test_a_line_without_end_is_cut_off(control: Control, folder: Path) -> None:
    with client(folder) as it, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(64):
            it.sendall(b"x" * MAX_REQUEST_BYTES)
        pytest.fail("4 MiB without a newline were read")
    assert ask(folder, DENY)["ok"]


def test_a_client_that_reads_nothing_keeps_nobody_waiting(
    control: Control, folder: Path, denials: Denials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "WRITE_S", 0.2)
    denials.answer = lambda reply: reply.set_result(["x" * 100] * 100_000)
    with contextlib.ExitStack() as stack:
        for _ in range(2 * MAX_CLIENTS):
            stack.enter_context(client(folder)).sendall(b'{"do": "list"}\n')
        assert len(ask(folder, {"do": "list"})["evs"]) == 100_000


def test_between_two_jobs_and_in_an_arm_without_evs_the_answer_says_so(folder: Path) -> None:
    with contextlib.closing(Control(folder)) as made:
        with pytest.raises(HostError, match="no job runs at the moment"):
            ask(folder, DENY)
        with made.serving(Desk("rc-bgp", 1, None)), pytest.raises(HostError, match="arm rc-bgp has no EVs with known paths"):
            ask(folder, DENY)


def test_the_socket_goes_with_the_run(folder: Path) -> None:
    with control_of(folder, SilentReporter()):
        assert is_live(folder)
    assert list(folder.iterdir()) == []
    assert not is_live(folder)
    with pytest.raises(HostError, match="no run is going on"):
        ask(folder, DENY)


def test_a_run_ends_at_once_though_clients_hang_on(folder: Path) -> None:
    made = Control(folder)
    with contextlib.ExitStack() as stack:
        for _ in range(2 * MAX_CLIENTS):
            stack.enter_context(client(folder))
        closing = threading.Thread(target=made.close, daemon=True)
        closing.start()
        closing.join(served.REQUEST_S / 2)  # less than the clients are given
        assert not closing.is_alive()


def test_the_socket_of_a_killed_run_is_no_run(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        descriptor = os.open(folder, os.O_PATH)
        dead.bind(f"/proc/self/fd/{descriptor}/{NAME}")
        os.close(descriptor)
    assert (folder / NAME).exists()
    assert not is_live(folder)
    with pytest.raises(HostError, match="no run is going on"):
        ask(folder, DENY)


def test_a_folder_that_holds_no_sockets_costs_the_run_a_warning_only(tmp_path: Path) -> None:
    warnings = list[str]()
    reporter = SilentReporter()
    reporter.warn = warnings.append  # type: ignore[method-assign]
    with control_of(tmp_path / "not there", reporter) as control:
        assert control is None
    assert "testbed ev" in warnings[0]


def test_a_line_that_comes_in_pieces_is_put_together() -> None:
    here, there = socket.socketpair()
    with here, there:
        for piece in (b"ab", b"c\nrest"):
            there.sendall(piece)
            time.sleep(0.01)
        assert read_line(here, 10, 60) == b"abc"
