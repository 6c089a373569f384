"""`testbed decode`: lines, JSON, selections, exit codes, streams."""

from __future__ import annotations

import json
import os
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from captures import WALL_NS, pcap_file, pcapng_file
from wire_samples import FRAMES, SOURCE, TARGET

from testbed.cli import main

ALL = list(FRAMES.values())
NAMES = {SOURCE: "h1", TARGET: "h2", "fcbb:bb00:101::": "t0_1_1", "fcbb:bb00:201::": "t1_1_1", "fcbb:bb00:2::": "h2"}
BROKEN = FRAMES["Probe"][:-1] + b"\0"


@pytest.fixture
def sound(tmp_path: Path) -> str:
    path = tmp_path / "sound.pcapng"
    path.write_bytes(pcapng_file(ALL, NAMES, zero_ns=WALL_NS))
    return str(path)


def written(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "file"
    path.write_bytes(data)
    return str(path)


def test_each_packet_is_a_line_and_the_end_a_summary(sound: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", sound]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == len(ALL)
    assert out.splitlines()[0] == (
        "   0.001000  h1-eth0 in  h1 > h2  3 left: t0_1_1 t1_1_1 h2  EV 131073  Write First PSN 258 MSN 5, 7 B to 0x10000, ts 596.5 us  "
        "TRIMMABLE Not-ECT"
    )
    assert err.splitlines()[0].startswith(f"{len(ALL)} packets: 26 trimmed, 13 data, ")
    assert err.splitlines()[1] == "0 malformed"


def test_json_is_an_object_a_line(sound: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", sound, "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [packet["number"] for packet in told] == list(range(1, len(ALL) + 1))
    first = told[0]
    assert (first["kind"], first["time_s"], first["direction"], first["entropy"]) == ("data", 0.001, "in", 131073)
    assert [layer["name"] for layer in first["layers"]] == ["ETHERNET", "IPV6", "IPV6", "UDP", "BTH", "METH", "TSETH", "RETH", "ICRC"]


def test_only_some_kinds(sound: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", sound, "--only", "probe, nack"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 8
    assert err.startswith(f"{len(ALL)} packets")


def test_a_kind_that_there_is_not_is_refused_with_a_hint(sound: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", sound, "--only", "sakc"]) == 2
    assert "did you mean `sack`?" in capsys.readouterr().err


def test_malformed_packets_are_told_counted_and_give_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", written(tmp_path, pcapng_file([*ALL, BROKEN])), "--only", "malformed"]) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    assert "  !! the ICRC is " in out
    assert "1 malformed: icrc 1" in err


def test_times_count_from_the_first_packet_where_the_file_does_not_tell_time_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["decode", written(tmp_path, pcap_file(ALL[:2]))]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["0.000000", "0.001000"]


@pytest.mark.parametrize(
    ("data", "code", "says"),
    [
        (b"", 2, "is empty"),
        (os.urandom(1000), 2, "neither pcap nor pcapng"),
        (pcapng_file(ALL)[:-70], 1, "the file is damaged, and ends here"),
        (pcapng_file([]), 0, "0 packets"),
        (pcap_file([]), 0, "0 packets"),
        (pcapng_file(ALL, snaplen=100), 0, "of which the capture kept too little"),
        (pcapng_file(ALL, dropped=3), 0, "3 more were dropped by the kernel"),
        (pcap_file([b"abcd"], link_type=147), 0, "1 packet: 1 other"),
    ],
)
def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, code: int, says: str) -> None:
    assert main(["decode", written(tmp_path, data)]) == code
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("name", ["nothing/here", "a\0b", "."])
def test_a_file_that_cannot_be_read_is_wrong_usage(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", name]) == 2
    assert "cannot be read" in capsys.readouterr().err


def decoding(*arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "testbed", "decode", *arguments]
    return subprocess.run(argv, capture_output=True, check=False, timeout=300, **options)  # type: ignore[call-overload, no-any-return]


def test_standard_input_is_read(sound: str) -> None:
    done = decoding("-", input=Path(sound).read_bytes())
    assert (done.returncode, len(done.stdout.splitlines())) == (0, len(ALL))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_a_name_that_the_terminal_has_no_letters_for_is_escaped(tmp_path: Path, encoding: str, arguments: tuple[str, ...]) -> None:
    path = written(tmp_path, pcapng_file(ALL[:1], interfaces=("p\u00f6rt\u2013",)))
    done = decoding(path, *arguments, env={**os.environ, "PYTHONIOENCODING": encoding})
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1), done.stderr
    assert done.stdout.decode(encoding).startswith("{") == bool(arguments)


def test_an_argument_that_is_no_text_is_told_even_as_json() -> None:
    done = decoding("nothing", "--only", "\udcff", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["exit_code"] == 2


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    path = written(tmp_path, pcap_file(ALL * 50))
    line = f"{shlex.quote(sys.executable)} -m testbed decode {path} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=300)
    assert done.stderr == ""
    assert done.stdout.splitlines()[1:] == ["0"]


def test_a_long_capture_needs_no_more_memory_than_a_short_one(tmp_path: Path) -> None:
    """200 MB of packets, in an address space that does not hold them."""
    path, frame = tmp_path / "long.pcap", bytes(60_000)
    with path.open("wb") as file:
        file.write(pcap_file([]))
        record = pcap_file([frame])[24:]
        for _ in range(3_500):
            file.write(record)
    space = 190_000_000

    done = decoding(str(path), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (space, space)))
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 3_500), done.stderr[-300:]
