"""Programs that run for a share of each period: they stop and go on, and none is left stopped."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import PATIENCE_S, eventually

from testbed.errors import UsageError
from testbed.fabric.host_cpu import HostCpu, Pace

WORK = "import time\nfor number in range(10**9):\n    print(number, flush=True)\n    time.sleep(0.001)"
RARELY = Pace(0.001, 10.0)  # stopped for ten seconds at a time


def state(process: subprocess.Popen[bytes]) -> str:
    """As ps: T is stopped, Z has ended."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def work() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts a program that counts its work on standard output."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-c", WORK], stdout=subprocess.PIPE))
        assert started[-1].stdout is not None
        started[-1].stdout.readline()
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def cpu() -> Iterator[HostCpu]:
    cpu = HostCpu()
    yield cpu
    cpu.close()


def runs(process: subprocess.Popen[bytes]) -> bool:
    """Whether it does work from now on: what was in the pipe before is read first."""
    assert process.stdout is not None
    before = int(process.stdout.readline())
    return any(int(line) > before + 200 for line in process.stdout)


def test_a_slow_hosts_program_is_stopped_at_once_and_goes_on_at_the_end(cpu: HostCpu, work: Callable[[], subprocess.Popen[bytes]]) -> None:
    process = work()
    cpu.add("h1", process)
    issued, effective = cpu.slow("h1", "f1", RARELY)
    assert issued <= effective
    eventually(lambda: state(process) == "T")
    cpu.restore("h1", "f1")
    eventually(lambda: state(process) != "T")
    assert runs(process)


def test_it_stops_and_goes_on_over_and_over(cpu: HostCpu, work: Callable[[], subprocess.Popen[bytes]]) -> None:
    process = work()
    cpu.add("h1", process)
    cpu.slow("h1", "f1", Pace(0.5, 0.2))
    for _ in range(3):
        eventually(lambda: state(process) == "T")
        eventually(lambda: state(process) != "T")
    assert runs(process)


def test_a_slow_program_does_less_work(cpu: HostCpu, work: Callable[[], subprocess.Popen[bytes]]) -> None:
    """A tenth of each period, against a twin that runs all the time: they share the machine's noise."""
    slow, free = work(), work()
    cpu.add("h1", slow)
    cpu.slow("h1", "f1", Pace(0.1, 0.1))
    assert free.stdout is not None
    while int(free.stdout.readline()) < 1500:
        pass
    cpu.restore("h1", "f1")
    slow.terminate()
    assert slow.stdout is not None
    done = len(slow.stdout.readlines())
    assert 0 < done < 1500 / 2


def test_only_that_host_is_slow(cpu: HostCpu, work: Callable[[], subprocess.Popen[bytes]]) -> None:
    slow, other = work(), work()
    cpu.add("h1", slow)
    cpu.add("h2", other)
    cpu.slow("h1", "f1", RARELY)
    eventually(lambda: state(slow) == "T")
    assert runs(other)


def test_a_program_that_starts_meanwhile_is_slow_too(cpu: HostCpu, work: Callable[[], subprocess.Popen[bytes]]) -> None:
    cpu.slow("h1", "f1", Pace(0.01, 0.1))
    process = work()
    cpu.add("h1", process)
    eventually(lambda: state(process) == "T")


def test_a_program_that_ends_while_it_is_stopped_ends(cpu: HostCpu, work: Callable[[], subprocess.Popen[bytes]]) -> None:
    process = work()
    cpu.add("h1", process)
    cpu.slow("h1", "f1", RARELY)
    process.kill()
    process.wait(PATIENCE_S)
    cpu.restore("h1", "f1")


def test_of_several_reasons_the_last_lets_it_go(cpu: HostCpu, work: Callable[[], subprocess.Popen[bytes]]) -> None:
    process = work()
    cpu.add("h1", process)
    cpu.slow("h1", "f1", RARELY)
    cpu.slow("h1", "f2", Pace(0.5, 10.0))
    cpu.restore("h1", "f2")
    eventually(lambda: state(process) == "T")
    cpu.restore("h1", "f1")
    eventually(lambda: state(process) != "T")


def test_closing_leaves_none_stopped(cpu: HostCpu, work: Callable[[], subprocess.Popen[bytes]]) -> None:
    process = work()
    cpu.add("h1", process)
    cpu.slow("h1", "f1", RARELY)
    cpu.close()
    assert runs(process)


@pytest.mark.parametrize(("share", "period_s"), [(0, 1), (1, 1), (0.5, 0)])
def test_an_impossible_pace_is_refused(share: float, period_s: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        Pace(share, period_s)
