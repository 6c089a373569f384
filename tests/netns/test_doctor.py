"""What `testbed doctor`, and a run before it starts, say about machines that lack something: a program, a privilege, a qdisc, BPF."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fabric_lab import REPO_ROOT, ask

pytestmark = pytest.mark.fabric

USER_NAMESPACE = ("unshare", "--user", "--map-root-user")
PORT, COMPILES = "link program on a port", "link program compiles"


def without(capability: str) -> tuple[str, ...]:
    return ("setpriv", f"--bounding-set=-{capability}", f"--inh-caps=-{capability}")


def call(*arguments: str, prefix: tuple[str, ...] = (), path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPO_ROOT), **({"PATH": str(path)} if path else {})}
    argv = [*prefix, sys.executable, "-m", "testbed", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, env=environment)


def doctor(prefix: tuple[str, ...] = (), path: Path | None = None) -> tuple[int, dict[str, dict[str, Any]]]:
    done = call("doctor", "--json", prefix=prefix, path=path)
    return done.returncode, {check["name"]: check for check in json.loads(done.stdout)["checks"]}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with links to all programs of this machine; a test takes some away, or puts others in their place."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"):
        for program in Path(place).glob("*") if Path(place).is_dir() else ():
            if not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return folder


def refuse(programs: Path, word: str, message: str) -> None:
    """A tc that refuses what has `word` in it, on its command line or in a batch, as a kernel without it would."""
    real = shutil.which("tc")
    (programs / "tc").unlink()
    (programs / "tc").write_text(
        f'#!/bin/sh\ncase " $* " in *-batch*) text=$(cat);; esac\n'
        f'case " $* $text " in *"{word}"*) echo "{message}" >&2; exit 2;; esac\n'
        f'case " $* " in *-batch*) printf "%s\\n" "$text" | {real} "$@";; *) exec {real} "$@";; esac\n'
    )
    (programs / "tc").chmod(0o755)


def test_this_machine_can_trim() -> None:
    status, checks = doctor()
    assert (status, checks[COMPILES]["ok"], checks[PORT]["ok"]) == (0, True, True), checks


def test_without_clang_the_program_is_not_compiled_and_not_tried(programs: Path) -> None:
    (programs / "clang").unlink()
    status, checks = doctor(path=programs)
    assert status == 3
    assert checks["clang"]["hint"] == "apt install clang"
    assert checks[COMPILES]["detail"] == "not tried, for want of clang"
    assert checks[PORT]["detail"] == f"not tried, for want of {COMPILES}"


def test_a_compiler_without_bpf_is_told(programs: Path) -> None:
    (programs / "clang").unlink()
    (programs / "clang").write_text("#!/bin/sh\necho \"error: unable to create target: 'No available targets'\" >&2\nexit 1\n")
    (programs / "clang").chmod(0o755)
    _status, checks = doctor(path=programs)
    assert "unable to create target" in checks[COMPILES]["detail"]
    assert "apt install clang" in checks[COMPILES]["hint"]


@pytest.mark.parametrize(
    ("name", "word", "kept"),
    [("htb and bfifo", "bfifo", "clsact"), ("clsact", "clsact", "htb and bfifo"), ("u32 filter", "u32", "clsact")],
)
def test_the_qdisc_or_filter_that_is_missing_is_named(programs: Path, name: str, word: str, kept: str) -> None:
    refuse(programs, word, "Error: Specified qdisc kind is unknown.")
    status, checks = doctor(path=programs)
    assert status == 3
    assert checks[name]["detail"] == "Error: Specified qdisc kind is unknown."
    assert "CONFIG_NET_" in checks[name]["hint"]
    assert checks[kept]["ok"]
    assert name in checks[PORT]["detail"]


def test_a_kernel_that_refuses_the_program_is_told(programs: Path) -> None:
    refuse(programs, " obj ", "Kernel has no BPF support")
    status, checks = doctor(path=programs)
    assert status == 3
    assert "Kernel has no BPF support" in checks[PORT]["detail"]
    assert "CONFIG_BPF_SYSCALL" in checks[PORT]["hint"]
    assert [name for name, check in checks.items() if check["required"] and not check["ok"]] == [PORT]


def try_without_trimming() -> str:
    """The trial of a program that is told not to trim."""
    from testbed.errors import HostError
    from testbed.fabric import trial
    from testbed.fabric.bpf import build_bpf

    real = trial.LinkParameters
    trial.LinkParameters = lambda **_parameters: real()
    try:
        trial.attempt(build_bpf())
    except HostError as error:
        return str(error)
    return "nothing wrong"


def test_a_program_that_loads_but_does_not_trim_is_found() -> None:
    assert "does not trim" in ask(try_without_trimming)


@pytest.mark.parametrize(
    ("prefix", "broken"),
    [(without("sys_admin"), "namespaces"), (without("net_admin"), "veth"), (USER_NAMESPACE, "bpf file system")],
    ids=["no CAP_SYS_ADMIN", "no CAP_NET_ADMIN", "user namespace"],
)
def test_a_root_that_may_not_is_told_so_and_the_kernel_is_not_blamed(prefix: tuple[str, ...], broken: str) -> None:
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"this machine has no `{' '.join(prefix)}`")
    status, checks = doctor(prefix)
    assert status == 3
    assert "ermi" in checks[broken]["detail"]
    assert "CAP_SYS_ADMIN" in checks[broken]["hint"]
    assert broken in checks[PORT]["detail"]


@pytest.mark.parametrize("command", [("run", "quick"), ("shell", "fat-tree")])
def test_a_command_that_needs_a_fabric_stops_before_it_starts(programs: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    refuse(programs, " obj ", "Kernel has no BPF support")
    results = ("--results", str(tmp_path / "results")) if command[0] == "run" else ()
    done = call(*command, *results, path=programs)
    assert done.returncode == 3
    assert f"{PORT}: loading the link program" in done.stderr
    assert not list((tmp_path / "results").glob("*"))
