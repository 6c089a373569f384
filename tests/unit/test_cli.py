"""The command line without root: answers, errors, exit codes, and what goes to which stream."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.cli import engine, failures, main
from testbed.errors import FidelityError
from testbed.scenario import draw, load
from testbed.scenario.builtin import find

Captured = pytest.CaptureFixture[str]
UNPRIVILEGED = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []


def process(*arguments: str, stdout: object = subprocess.PIPE, prefix: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    argv = [*(prefix or []), sys.executable, "-m", "testbed", *arguments]
    return subprocess.run(argv, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False)  # type: ignore[call-overload]


def test_list_names_every_scenario(capsys: Captured) -> None:
    assert main(["list"]) == 0
    assert "construction-site" in capsys.readouterr().out


def test_list_as_json_has_times_in_seconds(capsys: Captured) -> None:
    assert main(["list", "--json"]) == 0
    scenarios = {row["name"]: row for row in json.loads(capsys.readouterr().out)["scenarios"]}
    assert scenarios["quick"]["duration_s"] == 20.0


def test_validate_accepts_a_good_scenario(capsys: Captured) -> None:
    assert main(["validate", "quick"]) == 0
    assert "quick is valid" in capsys.readouterr().out


def test_validate_refuses_a_bad_one_with_its_places(capsys: Captured) -> None:
    assert main(["validate", "quick", "--set", "job.vectr=1MiB", "--set", "links.rate=10MB/s"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "$.job.vectr" in captured.err
    assert "$.links.rate" in captured.err


def test_validate_as_json_lists_the_problems(capsys: Captured) -> None:
    assert main(["validate", "quick", "--json", "--set", "job.vectr=1MiB"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["exit_code"] == 2
    assert [problem["place"] for problem in answer["problems"]] == ["$.job.vectr"]


def test_a_dry_run_tells_what_links_do_with_packets(capsys: Captured) -> None:
    assert main(["run", "loss-all-reduce", "--set", "sweep=null", "--set", "links.loss.NIC-T0=1%", "--dry-run"]) == 0
    assert "; with MRC ECN on, trimming on; random loss NIC-T0 1%\n" in capsys.readouterr().out
    assert main(["run", "one-cut", "--arm", "rc-bgp", "--dry-run"]) == 0
    assert "KiB; random loss none\n" in capsys.readouterr().out


@pytest.mark.parametrize(("scenario", "words"), [("one-cut", ": 1 fault, "), ("quick", ": 2 faults, "), ("incast", ": 0 faults, ")])
def test_one_fault_is_not_called_faults(capsys: Captured, scenario: str, words: str) -> None:
    assert main(["validate", scenario]) == 0
    assert words in capsys.readouterr().out


def test_a_dry_run_tells_what_bgp_is_allowed(capsys: Captured) -> None:
    assert main(["run", "compare-all", "--set", "bgp.profile=datacenter-bfd-300x3", "--set", "bgp_ovs.mrai_s=5", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "BGP of mrc-bgp, rc-bgp, tcp-bgp (FRR, profile datacenter-bfd-300x3): keepalive 3 s, hold 9 s, BFD 900 ms\n" in told
    assert "BGP of rc-bgp-ovs (a controller, preset frr): keepalive 3 s, hold 9 s, no BFD, mrai_s 5\n" in told
    assert main(["run", "one-ev-loss", "--dry-run"]) == 0
    assert "BGP" not in capsys.readouterr().out


def test_a_dry_run_tells_the_faults(capsys: Captured) -> None:
    assert main(["run", "quick", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "t1_2_1-t2_1 (T1-T2)" in out
    assert "16 hosts, 20 switches" in out


def test_a_dry_run_as_json_is_complete(capsys: Captured) -> None:
    assert main(["run", "quick", "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (len(plan["nodes"]), len(plan["links"]), len(plan["rules"]), len(plan["faults"])) == (36, 48, 20, 2)


def test_a_verbose_dry_run_shows_the_flows(capsys: Captured) -> None:
    assert main(["run", "quick", "--dry-run", "-v"]) == 0
    assert "ipv6_dst=fcbb:bb00:" in capsys.readouterr().out


def test_a_dry_run_without_static_arms_has_no_rules(capsys: Captured) -> None:
    assert main(["run", "quick", "--dry-run", "--json", "--arm", "rc-bgp"]) == 0
    assert json.loads(capsys.readouterr().out)["rules"] == {}


def test_a_dry_run_needs_no_root() -> None:
    done = process("run", "construction-site", "--dry-run", prefix=UNPRIVILEGED)
    assert done.returncode == 0, done.stderr


def test_arm_repeat_and_seed_are_taken(capsys: Captured) -> None:
    assert main(["run", "quick", "--dry-run", "--json", "--arm", "mrc", "--repeat", "3", "--seed", "9"]) == 0
    scenario = json.loads(capsys.readouterr().out)["scenario"]
    assert (scenario["arms"], scenario["repeats"], scenario["seed"]) == (["mrc"], 3, 9)


def test_the_seed_changes_the_drawn_faults(capsys: Captured) -> None:
    lists = []
    for seed in ("1", "2"):
        main(["run", "construction-site", "--dry-run", "--json", "--seed", seed])
        lists.append(json.loads(capsys.readouterr().out)["faults"])
    assert lists[0] != lists[1]


def test_faults_of_another_run_are_replayed(capsys: Captured, tmp_path: Path) -> None:
    from testbed.scenario import write_faults

    original = draw(load(find("construction-site"), ["seed=5"]))
    write_faults(tmp_path / "faults.json", original)
    assert main(["run", "construction-site", "--dry-run", "--json", "--faults", str(tmp_path / "faults.json")]) == 0
    assert json.loads(capsys.readouterr().out)["faults"] == original.as_dict()["faults"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "qick"], "did you mean `quick`"),
        (["run", "quick", "--dry-run", "--arm", "mcr"], "did you mean `mrc`"),
        (["run", "quick", "--dry-run", "--arm", ""], "arms"),
        (["run", "quick", "--repeat", "0"], "--repeat"),
        (["run", "quick", "--dry-run", "--faults", "/nonexistent"], "cannot be read"),
        (["run"], "Missing argument"),
        (["frobnicate"], "No such command"),
        (["run", "quick", "--nope"], "No such option"),
        (["topo", "show", "fattree"], "did you mean `fat-tree`"),
        (["topo", "show", "fat-tree", "--param", "k=5"], "must be even"),
        (["topo", "show", "fat-tree", "--param", "k"], "name=number"),
        (["topo", "show", "fat-tree", "--paths", "h1", "h99"], "h99"),
        (["validate", "./none.yaml"], "does not exist"),
        (["plot", "latest", "--results", "/nonexistent"], "there is no run"),
        (["plot", "x" * 5000], "there is no run"),
        (["run", "x" * 5000], "there is no scenario"),
        (["run", "x/" + "x" * 5000], "cannot be read"),
        (["topo", "show", "x" * 5000], "there is no topology"),
        (["run", "quick", "--dry-run", "--faults", "/dev/zero"], "is not a file"),
        (["run", "quick", "--dry-run", "--faults", "/tmp"], "is not a file"),
        (["run", "/dev/zero"], "is not a file"),
        (["run", "quick", "--seed", "9" * 30], "$.seed"),
        (["run", "quick", "--repeat", "9" * 30], "--repeat"),
        (["run", "quick", "--arm", "mrc,mrc"], "is there twice"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_explained(capsys: Captured, arguments: list[str], said: str) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert said in captured.err


@pytest.mark.parametrize("arguments", [["run", "qick", "--json"], ["frobnicate", "--json"], ["list", "--json", "--nope"]])
def test_errors_with_json_are_one_object(capsys: Captured, arguments: list[str]) -> None:
    assert main(arguments) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["error"]
    assert answer["exit_code"] == 2


def test_help_is_no_error(capsys: Captured) -> None:
    assert main(["run", "--help"]) == 0
    assert "--dry-run" in capsys.readouterr().out


def test_no_command_says_where_the_help_is(capsys: Captured) -> None:
    main([])
    captured = capsys.readouterr()
    assert "--help" in captured.err + captured.out


def test_topo_show_lists_all_paths_of_a_pair(capsys: Captured) -> None:
    assert main(["topo", "show", "fat-tree", "--paths", "h1", "h16", "--json"]) == 0
    paths = json.loads(capsys.readouterr().out)["paths"]
    assert len(paths) == 4
    assert paths[0]["destination"].startswith("fcbb:bb00:")


def test_topo_show_takes_a_scenario(capsys: Captured) -> None:
    assert main(["topo", "show", "quick", "--param", "k=6"]) == 0
    assert "54" in capsys.readouterr().out


@pytest.fixture
def broken_engine(monkeypatch: pytest.MonkeyPatch):
    """Makes `run` raise what it is given."""

    def install(error: BaseException) -> None:
        def run(*_: object) -> None:
            raise error

        monkeypatch.setattr(engine, "run", run)

    return install


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (KeyboardInterrupt(), 130),
        (FidelityError("too slow"), 4),
        (PermissionError(13, "Permission denied", "/x"), 3),
        (BrokenPipeError(), 0),
    ],
)
def test_each_failure_has_its_exit_code(broken_engine, capsys: Captured, error: BaseException, exit_code: int) -> None:
    broken_engine(error)
    assert main(["run", "quick"]) == exit_code
    assert "Traceback" not in capsys.readouterr().err


def test_a_bug_is_told_with_the_file_of_its_traceback(broken_engine, capsys: Captured) -> None:
    broken_engine(ZeroDivisionError("oops"))
    assert main(["run", "quick"]) == failures.INTERNAL
    said = capsys.readouterr().err
    path = Path(said.rpartition("traceback: ")[2].strip().rstrip(")"))
    try:
        assert "Traceback" not in said
        assert "ZeroDivisionError: oops" in path.read_text()
    finally:
        path.unlink()


def test_debug_prints_the_traceback(broken_engine, capsys: Captured) -> None:
    broken_engine(ZeroDivisionError("oops"))
    assert main(["--debug", "run", "quick"]) == failures.INTERNAL
    assert "Traceback" in capsys.readouterr().err


def test_without_root_a_run_says_what_to_do() -> None:
    done = process("run", "quick", "--json", prefix=UNPRIVILEGED)
    assert done.returncode == 3
    assert "sudo" in json.loads(done.stdout)["error"]


def test_a_reader_that_goes_away_is_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = process("run", "quick", "--dry-run", "-v", stdout=write_end)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


def closed(descriptors: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command whose shell closed some of its standard streams, as in `>&-`."""
    argv = ["sh", "-c", f'exec "$@" {descriptors}', "sh", sys.executable, "-m", "testbed", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_a_closed_standard_error_does_not_put_errors_among_the_data() -> None:
    done = closed("2>&-", "run", "qick", "--json")
    assert (done.returncode, done.stderr) == (2, "")
    assert json.loads(done.stdout)["exit_code"] == 2


@pytest.mark.parametrize("descriptors", [">&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(descriptors: str) -> None:
    done = closed(descriptors, "run", "quick", "--dry-run", "--json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_pipe_of_faults_is_refused_at_once(capsys: Captured, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "faults")
    assert main(["run", "quick", "--dry-run", "--faults", str(tmp_path / "faults")]) == 2
    assert "is not a file" in capsys.readouterr().err


def test_a_full_disk_is_told() -> None:
    with Path("/dev/full").open("w") as full:
        done = process("list", stdout=full)
    assert done.returncode == 3
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_engine_is_not_imported_for_light_commands() -> None:
    code = "import sys; from testbed.cli import main; main(['list']); print({'mininet', 'matplotlib', 'scapy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
