"""How runs end before their time, side by side, and on machines or in folders that will not do: nothing is left, all is told."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from netns.fabric_lab import REPO_ROOT, children, marked, traces
from run_lab import RAN, SMALL, assert_nothing_left, command, environment, eventually, found, kill, named, start, table

from testbed.routing.daemons import FOLDERS as FRR_FOLDERS

pytestmark = pytest.mark.fabric
LONG = {**SMALL, "run": {"duration": "1h", "warmup": "500ms", "settle": "500ms"}}


def in_terminal(tmp_path: Path, *arguments: str) -> tuple[int, int]:
    """A run on a terminal of its own, but its standard output in a file; the pid, and the terminal's other end."""
    argv, env = command(tmp_path, LONG, *arguments), environment(tmp_path)
    output = os.open(tmp_path / "out", os.O_CREAT | os.O_WRONLY)
    pid, terminal = pty.fork()
    if pid == 0:
        os.dup2(output, 1)
        os.execve(argv[0], argv, env)
    os.close(output)

    def drain() -> None:
        with contextlib.suppress(OSError):  # the terminal is closed
            while os.read(terminal, 4096):
                pass

    threading.Thread(target=drain, daemon=True).start()
    return pid, terminal


def test_ctrl_c_keeps_what_was_measured_and_marks_it(tmp_path: Path) -> None:
    """Meanwhile a host is slow and a link flaps: both heal."""
    before = traces()
    on = "at: 600ms, for: 50min"
    slow, flapping = f"{{kind: host-slow, host: h1, share: 80%, {on}}}", f"{{kind: flap, link: t0_1_1-t1_1_1, down: 20ms, up: 500ms, {on}}}"
    pid, terminal = in_terminal(tmp_path, "--json", "--set", f"faults=[{slow}, {flapping}]")
    # A step computes for 100 ms, so ten of them take longer than until the faults begin.
    steps = eventually(lambda: found(tmp_path, "*/*/mrc/1/agents/h1.steps.csv", 12))
    keepers = children(pid)
    os.write(terminal, b"\x03")
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    assert status == 130
    answer = json.loads((tmp_path / "out").read_text())
    folder = Path(answer["run"])
    assert (answer["exit_code"], folder) == (130, steps.parents[3])
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["interrupted"], manifest["complete"]) == (True, False)
    assert json.loads((folder / "mrc" / "1" / "arm.json").read_text())["interrupted"] is True
    assert table(folder / "mrc" / "1" / "steps.csv")
    assert (folder / "report.html").is_file()
    told = [(event["fault"], event["event"]) for event in named(folder / "mrc" / "1", "fault_begin", "fault_end")]
    assert sorted(told) == [(fault, event) for fault in ("f1", "f2") for event in ("fault_begin", "fault_end")]
    assert [event["up"] for event in named(folder / "mrc" / "1", "flap")][:2] == [True, False]
    assert_nothing_left(pid, keepers, before, tmp_path)


def test_ctrl_c_during_bring_up_is_an_interrupt_too(tmp_path: Path) -> None:
    before = traces()
    pid, terminal = in_terminal(tmp_path, "--json")
    eventually(lambda: found(tmp_path, "*/*/manifest.json"))
    keepers = children(pid)
    os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    os.close(terminal)
    assert json.loads((tmp_path / "out").read_text())["exit_code"] == 130
    assert_nothing_left(pid, keepers, before, tmp_path)


@pytest.mark.parametrize(
    ("moment", "pattern", "lines"),
    [
        ("bring-up", "*/*/manifest.json", 0),
        ("job", "*/*/mrc/1/agents/h1.steps.csv", 3),
        ("teardown", "*/*/mrc/1/arm.json", 0),
    ],
)
def test_sigkill_leaves_nothing(tmp_path: Path, moment: str, pattern: str, lines: int) -> None:
    before = traces()
    process = start(tmp_path, LONG if moment == "job" else SMALL, "--set", "run.duration=1h" if moment == "job" else "run.duration=3s")
    eventually(lambda: found(tmp_path, pattern, lines), process)
    keepers = kill(process)
    assert_nothing_left(process.pid, keepers, before, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"small.yaml", "results", "tmp", "out", "err"}


def test_sigterm_is_an_interrupt(tmp_path: Path) -> None:
    process = start(tmp_path, LONG, "--json")
    eventually(lambda: found(tmp_path, "*/*/manifest.json"), process)
    process.terminate()
    assert process.wait(60) == 130
    assert json.loads((tmp_path / "out").read_text())["exit_code"] == 130


def test_two_runs_at_once_in_one_results_folder(tmp_path: Path) -> None:
    """One of them keeps its results below /run, where the sandbox has a tree of its own: only they may be there afterwards."""
    first, second, results = tmp_path / "1", tmp_path / "2", Path(f"/run/testbed-test-{os.getpid()}")
    for folder in (first, second):
        folder.mkdir()
    before = traces()
    try:
        both = [start(folder, SMALL, "--json", "--results", str(results)) for folder in (first, second)]
        statuses = [process.wait(120) for process in both]
        answers = [json.loads((folder / "out").read_text()) for folder in (first, second)]
        assert all(status in RAN for status in statuses), answers
        assert answers[0]["run"] != answers[1]["run"]
        assert all((Path(answer["run"]) / "mrc" / "1" / "events.jsonl").stat().st_size for answer in answers)
        assert str((results / "latest").resolve()) in {answer["run"] for answer in answers}
    finally:
        shutil.rmtree(results, ignore_errors=True)
    assert traces() == before
    assert not any(marked(process.pid) for process in both)


def test_an_arm_that_fails_leaves_the_others_results(tmp_path: Path) -> None:
    """The second arm's agents are killed: what the first one measured is summed up and reported."""
    process = start(tmp_path, {**SMALL, "arms": ["rc-bgp", "mrc"]}, "--json", "--set", "run.duration=3s")
    eventually(lambda: found(tmp_path, "*/*/mrc/1/agents/h1.steps.csv", 3), process)
    agent = next(pid for pid in marked(process.pid) if b"hosts.agent" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(agent, signal.SIGKILL)
    assert process.wait(60) == 3
    answer = json.loads((tmp_path / "out").read_text())
    assert "the agent of h" in answer["problems"][0]
    assert {arm: len(told["repeats"]) for arm, told in answer["summary"]["arms"].items()}["rc-bgp"] == 1
    manifest = json.loads((Path(answer["run"]) / "manifest.json").read_text())
    assert (manifest["complete"], manifest["interrupted"]) == (False, False)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("kind: rate, share: 50%", "rate on h1-t0_1_1 (f1) could not be carried out: link h1-t0_1_1, port of h1: its classes"),
        ("kind: loss, share: 1%", "link h1-t0_1_1, port h1-eth0: not as set up"),
    ],
)
def test_a_port_that_is_not_what_it_was_ends_the_run_and_is_named(tmp_path: Path, kind: str, says: str) -> None:
    """Somebody takes a port's queues away while a fault is on: healing it finds that out, or the look at all ports behind the job."""
    faults = f"faults=[{{{kind}, link: h1-t0_1_1, at: 600ms, for: 3s}}]"
    process = start(tmp_path, SMALL, "--json", "--set", faults, "--set", "run.duration=5s")
    eventually(lambda: found(tmp_path, "*/*/mrc/1/agents/h1.steps.csv", 12), process)
    node = next(pid for pid in marked(process.pid) if b"mininet:h1\0" in Path(f"/proc/{pid}/cmdline").read_bytes())
    subprocess.run(["nsenter", "-t", str(node), "-n", "tc", "qdisc", "del", "dev", "h1-eth0", "root"], check=True)
    assert process.wait(60) == 3
    answer = json.loads((tmp_path / "out").read_text())
    assert says in answer["problems"][0]
    folder = Path(answer["run"])
    assert says in json.loads((folder / "mrc" / "1" / "arm.json").read_text())["error"]
    assert (folder / "report.html").is_file()


def test_a_full_disk_ends_the_run_and_is_told(tmp_path: Path) -> None:
    """The small disk is mounted in a mount namespace of the run's own: other tests compare this machine's mounts meanwhile."""
    small = tmp_path / "small disk"
    small.mkdir()
    mount = 'mount -t tmpfs -o size=40k testbed-test "$0"; exec "$@"'
    process = start(tmp_path, LONG, "--json", "--results", str(small), prefix=["unshare", "--mount", "sh", "-ec", mount, str(small)])
    status = process.wait(120)
    answer = json.loads((tmp_path / "out").read_text())
    assert status == answer["exit_code"] == 3
    assert "No space left" in (answer.get("error") or str(answer["problems"]))
    assert "Traceback" not in (tmp_path / "err").read_text()


def without(tmp_path: Path, *programs: str) -> str:
    """A PATH with all programs of this machine but some."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in ("/usr/local/bin", "/bin", "/sbin", "/usr/bin", "/usr/sbin"):
        for program in Path(place).iterdir():
            link = folder / program.name
            if program.name not in programs and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


def call(tmp_path: Path, argv: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, env={**environment(tmp_path), **env}, capture_output=True, text=True, timeout=120, check=False)


def test_everything_that_is_missing_is_named_before_anything_starts(tmp_path: Path) -> None:
    path = without(tmp_path, "tc", "ovs-vswitchd", "ovs-ofctl", "clang", "unshare")
    done = call(tmp_path, command(tmp_path, {**SMALL, "arms": ["mrc", "rc-bgp"]}, "--json"), PATH=path)
    assert done.returncode == 3
    error = json.loads(done.stdout)["error"]
    assert all(f"{program}: not installed" in error for program in ("tc", "ovs-vswitchd", "ovs-ofctl", "clang", "unshare"))
    assert "CONFIG_" not in error  # what was not tried is not blamed on the kernel
    assert not list((tmp_path / "results").glob("*"))


def test_frr_is_missed_before_the_first_arm_runs(tmp_path: Path) -> None:
    """FRR's daemons are not on PATH but in folders of their own, which a mount namespace of the test hides."""
    folders = " ".join(folder for folder in FRR_FOLDERS if (Path(folder) / "zebra").exists())
    hide = f'for folder in {folders}; do mount -t tmpfs none $folder; done; exec "$@"'
    argv = ["unshare", "--mount", "sh", "-ec", hide, "sh", *command(tmp_path, {**SMALL, "arms": ["mrc", "rc-bgp"]}, "--json")]
    done = call(tmp_path, argv)
    assert done.returncode == 3
    assert all(f"{daemon}: not installed" in json.loads(done.stdout)["error"] for daemon in ("zebra", "bgpd"))
    assert not list((tmp_path / "results").glob("*"))


def test_an_arm_needs_only_its_own_programs(tmp_path: Path) -> None:
    path = without(tmp_path, "tc", "ovs-ofctl")
    done = call(tmp_path, command(tmp_path, {**SMALL, "arms": ["rc-bgp"]}, "--json"), PATH=path)
    error = json.loads(done.stdout)["error"]
    assert done.returncode == 3
    assert "tc: not installed" in error
    assert "ovs-ofctl" not in error


def test_doctor_names_everything_that_is_missing(tmp_path: Path) -> None:
    done = call(tmp_path, [sys.executable, "-m", "testbed", "doctor", "--json"], PATH=without(tmp_path, "unshare", "clang", "mnexec"))
    assert done.returncode == 3
    checks = {check["name"]: check["ok"] for check in json.loads(done.stdout)["checks"]}
    assert [checks[name] for name in ("unshare", "clang", "mnexec", "tc")] == [False, False, False, True]


@pytest.mark.parametrize("place", ["a file", "a loop", "/proc/nowhere", "/run", "below a file"])
def test_results_that_will_not_do_are_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").touch()
    (tmp_path / "a loop").symlink_to("a loop")
    where = {"below a file": tmp_path / "a file" / "x"}.get(place, tmp_path / place)
    before = traces()
    done = call(tmp_path, [*command(tmp_path, SMALL, "--json"), "--results", str(where)])
    assert done.returncode == 2, done.stderr
    assert str(where) in json.loads(done.stdout)["error"]
    assert traces() == before


def test_no_root_makes_nothing() -> None:
    results = Path(tempfile.gettempdir()) / f"testbed-of-nobody-{os.getpid()}"  # where anybody may write
    argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-m", "testbed", "run", "quick", "--json"]
    done = subprocess.run([*argv, "--results", str(results)], cwd=REPO_ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "sudo" in json.loads(done.stdout)["error"]
    assert not results.exists()
