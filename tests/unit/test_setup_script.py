"""testbed.sh: each refusal says what to do and has the right exit code; nothing is left behind; a second run does nothing.

The script is sourced, and the functions that would touch the machine are replaced.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXIT_FAILED, EXIT_USAGE, EXIT_HOST = 1, 2, 3

# A set-up in which nothing is missing and every step only says its name.
QUIET_STEPS = """
check_distribution() { :; }
missing_packages() { :; }
make_venv() {
    echo make_venv
    mkdir -p "$VENV/bin"
    printf '#!/bin/sh\\necho "testbed $*"\\n' >"$VENV/bin/testbed"
    chmod +x "$VENV/bin/testbed"
}
install_python_packages() { echo install_python_packages; }
install_ryu() { echo install_ryu; }
compile_everything() { echo compile_everything; }
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with a space in its name that holds what testbed.sh reads."""
    folder = tmp_path / "a clone"
    folder.mkdir()
    for name in ("testbed.sh", "setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def bash(clone: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Sources the clone's testbed.sh, then runs `code`; stdin is empty and CI's variables do not reach it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TESTBED_") and name not in ("CI", "PYTHON")}
    script = f'source "$1"\n{code}'
    argv = ["bash", "-c", script, "bash", str(clone / "testbed.sh")]
    return subprocess.run(
        argv, env={**clean, **environment}, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )


def program(path: Path, body: str) -> Path:
    """Writes an executable shell script."""
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


# --- the script itself


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed (CI installs it)")
@pytest.mark.parametrize("script", ["testbed.sh", ".ci/run"])
def test_shellcheck_has_nothing_to_say(script: str) -> None:
    done = subprocess.run(["shellcheck", str(ROOT / script)], capture_output=True, text=True, check=False)
    assert done.stdout == ""


@pytest.mark.parametrize("script", ["testbed.sh", ".ci/run"])
def test_scripts_are_executable(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)


def test_without_arguments_it_shows_the_usage() -> None:
    done = subprocess.run([ROOT / "testbed.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_USAGE
    assert "./testbed.sh demo" in done.stderr


def test_an_unknown_option_of_setup_is_a_usage_error() -> None:
    assert subprocess.run([ROOT / "testbed.sh", "setup", "--agian"], capture_output=True, check=False).returncode == EXIT_USAGE


# --- what the host must be


@pytest.mark.parametrize("release", ["debian 12", "debian 13", "ubuntu 22.04", "ubuntu 24.04"])
def test_supported_distributions_pass(clone: Path, release: str) -> None:
    assert bash(clone, distribution(release)).returncode == 0


def test_another_distribution_is_refused_with_the_way_around(clone: Path) -> None:
    done = bash(clone, distribution("fedora 41"))
    assert done.returncode == EXIT_HOST
    assert "TESTBED_ANY_DISTRIBUTION=1" in done.stderr


def test_another_distribution_can_be_tried(clone: Path) -> None:
    done = bash(clone, distribution("fedora 41"), TESTBED_ANY_DISTRIBUTION="1")
    assert (done.returncode, "trying" in done.stderr) == (0, True)


def distribution(release: str) -> str:
    """Code that checks a made-up `/etc/os-release`."""
    name, version = release.split()
    return f"os_release() {{ case $1 in ID) printf {name};; VERSION_ID) printf {version};; *) printf made-up;; esac; }}\ncheck_distribution"


def test_a_python_that_is_too_old_is_refused(clone: Path, tmp_path: Path) -> None:
    old = program(tmp_path / "python", 'case "$2" in *print*) echo 3.9;; *) exit 1;; esac')
    done = bash(clone, "check_python", PYTHON=str(old))
    assert done.returncode == EXIT_HOST
    assert "is version 3.9; 3.10 or later is needed" in done.stderr


def test_a_python_that_does_not_run_is_refused(clone: Path) -> None:
    done = bash(clone, "check_python", PYTHON="/nowhere/python3")
    assert (done.returncode, "PYTHON=/nowhere/python3 does not run" in done.stderr) == (EXIT_HOST, True)


def test_a_missing_program_names_its_package(clone: Path) -> None:
    done = bash(clone, "present() { [[ $1 != mnexec ]]; }\nmissing_packages")
    assert done.stdout.split() == ["mininet"]


def test_missing_packages_without_root_say_sudo(clone: Path) -> None:
    done = bash(clone, "is_root() { false; }\ninstall_packages frr mininet")
    assert done.returncode == EXIT_HOST
    assert "frr mininet" in done.stderr
    assert "sudo ./testbed.sh setup" in done.stderr


def test_demo_without_root_says_sudo(clone: Path) -> None:
    done = bash(clone, "is_root() { false; }\nmain demo")
    assert (done.returncode, "sudo ./testbed.sh demo" in done.stderr) == (EXIT_HOST, True)


def test_a_command_before_set_up_without_root_says_what_to_run(clone: Path) -> None:
    done = bash(clone, "is_root() { false; }\nmain list")
    assert (done.returncode, "sudo ./testbed.sh setup" in done.stderr) == (EXIT_HOST, True)


# --- apt and pip

APT = """
is_root() { true; }
POLICY=%s
apt_get() { %s; }
systemctl() { echo "systemctl $*" >>"$POLICY.calls"; }
mkdir -p "$ROOT/build"
"""


def apt(policy: Path, does: str, packages: str = "frr") -> str:
    """Code that installs `packages` with an apt-get that only does `does`."""
    return APT % (policy, does) + f"start_log\ninstall_packages {packages}"


def test_a_failing_apt_shows_its_last_lines_the_log_and_the_way_out(clone: Path, tmp_path: Path) -> None:
    done = bash(clone, apt(tmp_path / "policy", "echo 'E: Unable to fetch frr'; return 100"))
    assert done.returncode == EXIT_HOST
    for part in ("E: Unable to fetch frr", str(clone / "build" / "setup.log"), "proxy", "held"):
        assert part in done.stderr


def test_services_are_held_back_while_apt_installs(clone: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy"
    done = bash(clone, apt(policy, f'[[ $1 == update ]] || {{ "{policy}"; [[ $? == 101 ]]; }}'))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("outcome", ["true", "false"])
def test_the_hold_is_gone_afterwards(clone: Path, tmp_path: Path, outcome: str) -> None:
    policy = tmp_path / "policy"
    bash(clone, apt(policy, f"[[ $1 == update ]] || {outcome}"))
    assert not policy.exists()


def test_a_policy_of_the_administrator_stays(clone: Path, tmp_path: Path) -> None:
    policy = program(tmp_path / "policy", "exit 104")
    bash(clone, apt(policy, "true"))
    assert policy.read_text(encoding="utf-8") == "#!/bin/sh\nexit 104\n"


def test_a_hold_left_by_a_killed_set_up_is_removed(clone: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy"
    bash(clone, f'POLICY={policy}\nprintf "%s\\n" "$POLICY_MARK" >"$POLICY"\n' + apt(policy, "true"))
    assert not policy.exists()


def test_only_services_of_new_packages_are_disabled(clone: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy"
    bash(clone, apt(policy, "true", packages="frr iperf3"))
    assert (tmp_path / "policy.calls").read_text(encoding="utf-8") == "systemctl disable frr\n"


def test_a_failing_pip_shows_its_last_lines_and_the_way_out(clone: Path) -> None:
    done = bash(clone, "pip() { echo 'ERROR: No matching distribution'; return 1; }\nstart_log\ninstall_python_packages")
    assert done.returncode == EXIT_HOST
    assert "ERROR: No matching distribution" in done.stderr
    assert "PIP_INDEX_URL" in done.stderr


def test_a_ryu_that_cannot_be_built_stops_the_set_up_with_the_way_around(clone: Path) -> None:
    done = bash(clone, "pip() { return 1; }\nstart_log\n(install_ryu)\necho went on")
    assert done.returncode == EXIT_HOST
    assert "TESTBED_WITHOUT_RYU=1" in done.stderr
    assert "went on" not in done.stdout


def test_without_ryu_is_said_aloud(clone: Path) -> None:
    done = bash(clone, "pip() { echo pip; }\ninstall_ryu", TESTBED_WITHOUT_RYU="1")
    assert (done.stdout, "WITHOUT Ryu" in done.stderr) == ("", True)


# --- the stamp and the lock


def test_the_second_set_up_does_nothing(clone: Path) -> None:
    assert "make_venv" in bash(clone, QUIET_STEPS + "main setup").stdout
    assert bash(clone, QUIET_STEPS + "main setup").stdout == ""


def test_again_starts_from_scratch(clone: Path) -> None:
    bash(clone, QUIET_STEPS + "main setup")
    assert "make_venv" in bash(clone, QUIET_STEPS + "main setup --again").stdout


@pytest.mark.parametrize("name", ["setup.py", "pyproject.toml", "testbed.sh"])
def test_a_changed_file_means_a_new_set_up(clone: Path, name: str) -> None:
    bash(clone, QUIET_STEPS + "main setup")
    with (clone / name).open("a", encoding="utf-8") as file:
        file.write("\n# changed\n")
    assert "make_venv" in bash(clone, QUIET_STEPS + "main setup").stdout


def test_a_failed_set_up_is_not_taken_for_done(clone: Path) -> None:
    failing = QUIET_STEPS + "install_ryu() { die 3 'no Ryu'; }\n"
    assert bash(clone, failing + "main setup").returncode == EXIT_HOST
    assert "make_venv" in bash(clone, QUIET_STEPS + "main setup").stdout


def test_two_set_ups_of_a_clone_wait_for_each_other(clone: Path) -> None:
    held = os.open(clone, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    code = QUIET_STEPS + 'flock() { [[ $1 == -n ]] || { echo would wait; exit 7; }; command flock "$@"; }\nmain setup'
    done = bash(clone, code)
    os.close(held)
    assert (done.returncode, done.stdout) == (7, "would wait\n")


# --- commands


def test_other_commands_reach_testbed_with_their_arguments(clone: Path) -> None:
    bash(clone, QUIET_STEPS + "main setup")
    done = bash(clone, QUIET_STEPS + "main run 'my scenario.yaml' --json")
    assert done.stdout == "testbed run my scenario.yaml --json\n"


def test_demo_runs_the_flagship(clone: Path) -> None:
    done = bash(clone, QUIET_STEPS + "is_root() { true; }\nmain demo --repeat 1")
    assert done.stdout.splitlines()[-1] == f"testbed run construction-site --results {clone}/results --repeat 1"


def test_the_status_of_testbed_is_handed_on(clone: Path) -> None:
    bash(clone, QUIET_STEPS + "main setup")
    program(clone / ".venv" / "bin" / "testbed", "exit 4")
    assert bash(clone, QUIET_STEPS + "main run quick").returncode == 4


def test_all_test_stages_run_even_when_the_first_fails(clone: Path) -> None:
    bash(clone, QUIET_STEPS + "main setup")
    program(clone / ".venv" / "bin" / "python", 'echo "ran $2"; [ "$2" != ruff ]')
    done = bash(clone, QUIET_STEPS + "main test -k x")
    assert [line for line in done.stdout.splitlines() if line.startswith("ran")] == ["ran ruff", "ran mypy", "ran pytest"]
    assert (done.returncode, "failed: ruff" in done.stderr) == (EXIT_FAILED, True)


def test_what_root_makes_in_anothers_clone_is_given_to_its_owner(clone: Path) -> None:
    code = 'is_root() { true; }\nstat() { echo 1234:1235; }\nfind() { echo "$*"; }\ngive_back'
    assert bash(clone, code).stdout == f"{clone} -xdev -uid 0 -exec chown -h -- 1234:1235 {{}} +\n"


def test_nothing_is_given_away_in_roots_own_clone(clone: Path) -> None:
    assert bash(clone, 'is_root() { true; }\nstat() { echo 0:0; }\nfind() { echo "$*"; }\ngive_back').stdout == ""
