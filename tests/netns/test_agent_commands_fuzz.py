"""Commands that are almost right: an agent understands them, or says what is wrong with them and ends; a traceback is neither."""

from __future__ import annotations

import copy
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from fuzzing import seeded, times

from benchmarks.agent_lab import Lab, lab
from hosts import agent
from testbed.fabric.namespaces import entered

pytestmark = pytest.mark.netns

ROUNDS = 100
RUNS_S = 0.02  # what the job gets before the end of the commands
PATIENCE_S = 20
MOST_MEMORY_BYTES = 3 << 30
GOOD, BAD_USAGE, BAD_HOST = 0, 2, 3
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3.5, 1 << 31, 1 << 63, 1 << 64, -(1 << 70), 1e308, float("nan"), "", "x", "\0", "\ud800", "h1", "h2",
    "x" * 5000, "fd00::1", "::", [], [[]], {}, [{}], {"x": 1}, {"h2": {}}, [1, 2, 3], [None],
)  # fmt: skip


class Outcome(NamedTuple):
    """How an agent ended, and what it said."""

    status: int
    messages: list[dict[str, Any]]
    stderr: str


@pytest.mark.parametrize("transport", ["mrc", "rc"])
def test_almost_right_commands_are_understood_or_refused_in_a_sentence(transport: str, tmp_path: Path) -> None:
    rng, statuses = seeded(f"commands {transport}"), set()
    with lab(2) as net:
        commands = sound(net, transport, tmp_path)
        assert played(net, tmp_path, [written(command) for command in commands]).status == GOOD
        for number in range(times(ROUNDS)):
            lines = almost(commands, rng)
            outcome = played(net, tmp_path, lines)
            assert judged(outcome), (number, lines, outcome)
            statuses.add(outcome.status)
    assert {GOOD, BAD_USAGE} <= statuses


def judged(outcome: Outcome) -> bool:
    """Whether this is how an agent may end."""
    said = outcome.messages[-1] if outcome.messages else {}
    if outcome.status == GOOD:
        return outcome.stderr == ""
    return outcome.status in (BAD_USAGE, BAD_HOST) and said.get("msg") == "error" and bool(said["text"]) and outcome.stderr == ""


def sound(net: Lab, transport: str, folder: Path) -> list[dict[str, Any]]:
    """A whole job of h1, with the attributes of a real h2."""
    job = {"ranks": 2, "vector_bytes": 4096, "compute_s": 0.001, "checkpoint_every": 5}
    files = {kind: str(folder / kind) for kind in ("events", "steps", "flows", "paths")}
    net.agents["h2"].send(net.config("h2", transport, job))
    attributes = net.agents["h2"].wait_for("ready")["attributes"]
    return [
        net.config("h1", transport, job, files=files),
        {"cmd": "connect", "peers": {"h2": attributes}},
        {"cmd": "start", "at": time.monotonic(), "first_step": 0, "attempt": 1},
    ]


def almost(commands: list[dict[str, Any]], rng: Random) -> list[bytes]:
    """The commands with something wrong in one of them, in their order, or in the bytes."""
    changed = copy.deepcopy(commands)
    for _ in range(rng.choice((1, 1, 1, 3))):
        spoil(rng.choice(changed), rng)
    if rng.random() < 0.1:
        rng.shuffle(changed)
    lines = [written(command) for command in changed]
    if rng.random() < 0.15:
        at = rng.randrange(len(lines))
        lines[at] = spoiled_bytes(lines[at], rng)
    return lines


def spoil(command: dict[str, Any], rng: Random) -> None:
    """One place of the command gets an odd value, or vanishes, or gets the value of another place."""
    holder, key = rng.choice([place for place in places(command) if place[1] != "cmd" or rng.random() < 0.05])
    match rng.randrange(4):
        case 0:
            del holder[key]
        case 1:
            other, at = rng.choice(list(places(command)))
            holder[key] = copy.deepcopy(other[at])
        case _:
            holder[key] = copy.deepcopy(rng.choice(ODD))


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of all that lies inside."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def spoiled_bytes(line: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(line))
    return rng.choice(
        (line[:at] + b"\n", line[:at] + rng.randbytes(3) + line[at:], line[:at] + b"[" * 100_000 + b"\n", rng.randbytes(50) + b"\n")
    )


def written(command: dict[str, Any]) -> bytes:
    return json.dumps(command).encode() + b"\n"


def played(net: Lab, folder: Path, lines: list[bytes]) -> Outcome:
    """What a fresh agent in h1's namespace makes of the lines."""
    commands, messages, errors = os.pipe(), os.pipe(), os.pipe()
    with entered(net.agents["h1"].pid):
        child = os.fork()
        if child == 0:
            serve(folder, commands, messages, errors)
    for end in (commands[0], messages[1], errors[1]):
        os.close(end)
    try:
        os.write(commands[1], b"".join(lines))
        time.sleep(RUNS_S)
    except BrokenPipeError:
        pass
    os.close(commands[1])
    said, stderr = drained(messages[0], errors[0])
    _, status = os.waitpid(child, 0)
    return Outcome(os.waitstatus_to_exitcode(status), [json.loads(line) for line in said.splitlines()], stderr.decode())


def serve(folder: Path, commands: tuple[int, int], messages: tuple[int, int], errors: tuple[int, int]) -> None:
    """The forked agent; never returns."""
    for target, source in enumerate((commands[0], messages[1], errors[1])):
        os.dup2(source, target)
    os.closerange(3, 1000)
    os.chdir(folder)
    signal.alarm(PATIENCE_S)  # a hang ends as a signal
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
    status = 70
    try:
        status = agent.main()
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(status)


def drained(*pipes: int) -> list[bytes]:
    """All that comes out of the pipes until their ends."""
    found, open_pipes = dict.fromkeys(pipes, b""), set(pipes)
    while open_pipes:
        for pipe in select.select(list(open_pipes), (), ())[0]:
            data = os.read(pipe, 65536)
            found[pipe] += data
            if not data:
                open_pipes.discard(pipe)
                os.close(pipe)
    return [found[pipe] for pipe in pipes]
