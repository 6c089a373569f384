"""The sandbox: what it hides, how it ends, and that nothing is left of it whatever kills it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fabric_lab import PREPARE, ask, children, marked, start, traces

from testbed import sandbox
from testbed.errors import HostError

PATIENCE_S = 60.0
WAIT = f"{PREPARE}import signal; print('ready', flush=True); signal.pause()"
DEPLOY = f"""{PREPARE}
import signal
from pathlib import Path
from testbed.fabric import Fabric, LinkSettings
from topologies import build
fabric = Fabric(build("fat-tree", k=2), LinkSettings(rate_bps=20_000_000), "SWITCHING", Path("/run/testbed/x"))
timed = fabric._timed
def told(name, step):
    print("step " + name, flush=True)
    timed(name, step)
fabric._timed = told
fabric.deploy()
print("step deployed", flush=True)
signal.pause()
"""


def eventually(condition: Callable[[], bool]) -> bool:
    """Waits for a condition, for a generous while."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def read_until(process: subprocess.Popen[str], line: str) -> None:
    """Reads the process's output up to a line; fails when it ends before."""
    assert process.stdout is not None
    for found in process.stdout:
        if found.strip() == line:
            return
    pytest.fail(f"no {line!r}: the sandbox ended with {process.wait()}")


def kill_and_compare(process: subprocess.Popen[str], before: dict[str, object]) -> None:
    """SIGKILL to the outer process only; then everything must go."""
    keepers = children(process.pid)
    process.kill()
    process.wait()
    assert eventually(lambda: not marked(process.pid)), f"still alive: {marked(process.pid)}"
    assert eventually(lambda: not any(Path(f"/proc/{keeper}").exists() for keeper in keepers))
    assert traces() == before


def test_without_root_it_says_how_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(HostError, match=r"sudo \./testbed\.sh"):
        sandbox.enter(["run", "quick"])


def test_prepare_refuses_outside_of_a_sandbox() -> None:
    with pytest.raises(HostError, match="not the first process of a sandbox"):
        sandbox.prepare()


def test_run_id_outside_of_a_sandbox_says_how_to_get_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(sandbox.RUN_VARIABLE, raising=False)
    with pytest.raises(HostError, match="testbed run"):
        sandbox.run_id()


@pytest.mark.netns
def test_exit_code_comes_through() -> None:
    assert start("import sys; sys.exit(4)").wait(PATIENCE_S) == 4


@pytest.mark.netns
def test_death_by_signal_is_128_and_the_signal() -> None:
    process = start("import time; print('ready', flush=True); time.sleep(600)")
    read_until(process, "ready")
    os.kill(marked(process.pid)[0], signal.SIGKILL)
    assert process.wait(PATIENCE_S) == 128 + signal.SIGKILL


@pytest.mark.netns
@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_first_process_as_an_interrupt(signo: signal.Signals) -> None:
    code = f"{PREPARE}import signal, sys\ntry:\n    print('ready', flush=True); signal.pause()\nexcept KeyboardInterrupt:\n    sys.exit(77)"
    process = start(code)
    read_until(process, "ready")
    process.send_signal(signo)
    assert process.wait(PATIENCE_S) == 77


@pytest.mark.netns
def test_run_and_temporary_files_are_private() -> None:
    def look() -> dict[str, object]:
        import os
        import tempfile
        from pathlib import Path

        Path("/run/openvswitch/testbed-was-here").touch()
        mounts = [place for place in ("/run", "/var/tmp", "/sys/fs/bpf") if os.path.ismount(place)]
        return {"tmp": tempfile.gettempdir(), "sys": os.listdir("/sys/class/net"), "mounts": mounts}

    assert ask(look) == {"tmp": "/run/tmp", "sys": ["lo"], "mounts": ["/run", "/var/tmp", "/sys/fs/bpf"]}
    assert not Path("/run/openvswitch/testbed-was-here").exists()


@pytest.mark.netns
def test_a_kept_folder_stays_visible(tmp_path: Path) -> None:
    code = "from pathlib import Path; from testbed import sandbox; kept = Path('/var/tmp/testbed-kept'); sandbox.prepare(keep=[kept])\n"
    kept = Path("/var/tmp/testbed-kept")
    kept.mkdir(exist_ok=True)
    try:
        assert start(code + "(kept / 'result').write_text('x')").wait(PATIENCE_S) == 0
        assert (kept / "result").exists()
    finally:
        (kept / "result").unlink(missing_ok=True)
        kept.rmdir()


@pytest.mark.netns
def test_every_process_carries_the_mark() -> None:
    code = WAIT.replace("print", "import subprocess; subprocess.Popen(['sleep', '600']); print")
    process = start(code)
    try:
        read_until(process, "ready")
        names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in marked(process.pid)}
        assert "sleep" in names
        assert len(names) == 2
    finally:
        process.kill()
        process.wait()


@pytest.mark.netns
def test_sigkill_at_the_very_start_leaves_nothing() -> None:
    before = traces()
    for pause_s in (0.0, 0.02, 0.05, 0.1, 0.15):  # whatever point of Python's and unshare's start each of them hits
        process = start(WAIT)
        time.sleep(pause_s)
        kill_and_compare(process, before)


@pytest.mark.netns
@pytest.mark.parametrize("step", ["start_nodes", "load_program", "make_links", "set_up_ports", "set_up_hosts", "boot", "deployed"])
def test_sigkill_during_bring_up_leaves_nothing(step: str) -> None:
    before = traces()
    process = start(DEPLOY.replace("SWITCHING", "ovs"))
    read_until(process, f"step {step}")
    kill_and_compare(process, before)


@pytest.mark.netns
def test_sigkill_of_a_routed_fabric_leaves_nothing() -> None:
    before = traces()
    process = start(DEPLOY.replace("SWITCHING", "frr"))
    read_until(process, "step deployed")
    kill_and_compare(process, before)


@pytest.mark.netns
def test_sigkill_of_the_keeper_takes_the_sandbox_down() -> None:
    process = start(WAIT)
    read_until(process, "ready")
    os.kill(children(process.pid)[0], signal.SIGKILL)
    assert process.wait(PATIENCE_S) == 128 + signal.SIGKILL
    assert eventually(lambda: not marked(process.pid))


@pytest.mark.netns
def test_two_fabrics_at_once() -> None:
    processes = [start(DEPLOY.replace("SWITCHING", "ovs")) for _ in range(2)]
    try:
        for process in processes:
            read_until(process, "step deployed")
        assert all(process.poll() is None for process in processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.netns
def test_the_host_network_is_out_of_sight() -> None:
    outside = os.readlink("/proc/self/ns/net")

    def look() -> str:
        import os

        return os.readlink("/proc/self/ns/net")

    assert ask(look) != outside


def test_the_interpreter_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(sandbox, "run_inside", lambda command: seen.extend(command) or 0)
    sandbox.enter(["doctor"])
    assert seen == [sys.executable, "-m", "testbed", "doctor"]
