"""pcap and pcapng: what we write is read, by others too; whatever is in a file, reading it has a clean end."""

from __future__ import annotations

import io
import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from captures import WALL_NS, pcap_file, pcapng_file
from hypothesis import given
from hypothesis import strategies as st
from wire_samples import FRAMES

from testbed.capture import pcapng
from testbed.capture.explain import Tally, explained
from testbed.capture.reading import Capture, NotACapture, Record

SOME = [FRAMES["Write Middle"], FRAMES["SACK m=0"], FRAMES["Probe"]]


def read(data: bytes) -> tuple[Capture, list[Record]]:
    capture = Capture(io.BytesIO(data), "file")
    return capture, list(capture.records())


def test_our_own_file_is_read_as_it_was_written() -> None:
    names = {"fd00:0:0:1::1": "h1"}
    capture, records = read(pcapng_file(SOME, names, zero_ns=WALL_NS, dropped=5))
    assert [record.data for record in records] == SOME
    assert [(record.interface, record.direction) for record in records] == [("h1-eth0", "in"), ("h1-eth0", "out"), ("h1-eth0", "in")]
    assert [record.time_ns - WALL_NS for record in records] == [1_000_000, 2_000_000, 3_000_000]
    assert (capture.names, capture.zero_ns, capture.dropped, capture.damage) == (names, WALL_NS, 5, "")


def test_a_time_zero_that_was_never_told_is_none() -> None:
    assert read(pcapng_file(SOME))[0].zero_ns is None


def test_what_was_cut_keeps_its_length() -> None:
    _, records = read(pcapng_file(SOME, snaplen=64))
    assert [(len(record.data), record.original_bytes) for record in records] == [(64, len(frame)) for frame in SOME]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nanoseconds", [False, True])
def test_each_form_of_pcap_is_read(order: str, nanoseconds: bool) -> None:
    capture, records = read(pcap_file(SOME, order, nanoseconds))
    assert [record.data for record in records] == SOME
    assert [record.time_ns - WALL_NS for record in records] == [1_000_000, 2_000_000, 3_000_000]
    assert capture.damage == ""


def test_scapy_reads_what_we_write(tmp_path: Path) -> None:
    from scapy.utils import RawPcapNgReader

    path = tmp_path / "ours.pcapng"
    path.write_bytes(pcapng_file(SOME))
    with RawPcapNgReader(str(path)) as reader:
        assert [data for data, _ in reader] == SOME


def test_we_read_what_scapy_writes(tmp_path: Path) -> None:
    from scapy.layers.l2 import Ether
    from scapy.utils import PcapNgWriter

    path = str(tmp_path / "scapys.pcapng")
    with PcapNgWriter(path) as writer:
        for frame in SOME:
            writer.write(Ether(frame))
    assert [record.data for record in read(Path(path).read_bytes())[1]] == SOME


@pytest.mark.skipif(shutil.which("tcpdump") is None, reason="no tcpdump on this machine")
def test_tcpdump_reads_what_we_write(tmp_path: Path) -> None:
    path = tmp_path / "ours.pcapng"
    path.write_bytes(pcapng_file(SOME, {"fd00:0:0:1::1": "h1"}))
    done = subprocess.run(["tcpdump", "-nn", "-r", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(SOME)


# Files that others make


def block(order: str, kind: int, content: bytes) -> bytes:
    total = len(content) + 12
    return struct.pack(order + "II", kind, total) + content + struct.pack(order + "I", total)


def start(order: str) -> bytes:
    return block(order, pcapng.SECTION, struct.pack(order + "IHHq", pcapng.BYTE_ORDER, 1, 0, -1))


@pytest.mark.parametrize("order", ["<", ">"])
def test_simple_and_obsolete_packets_and_coarse_times_are_read(order: str) -> None:
    resolution = struct.pack(order + "HHBxxxHH", pcapng.IF_RESOLUTION, 1, 3, 0, 0)  # milliseconds
    data = start(order) + block(order, pcapng.INTERFACE, struct.pack(order + "HHI", 1, 0, 0) + resolution)
    data += block(order, pcapng.SIMPLE, struct.pack(order + "I", 4) + b"abcd")
    data += block(order, pcapng.OBSOLETE, struct.pack(order + "HHIIII", 0, 0, 0, 7, 3, 9) + b"xyz\0")
    _, records = read(data)
    assert [(record.data, record.original_bytes, record.time_ns) for record in records] == [(b"abcd", 4, 0), (b"xyz", 9, 7_000_000)]


def test_the_check_sequence_behind_each_frame_is_no_part_of_it() -> None:
    with_checks = [frame + b"\xde\xad\xbe\xef" for frame in SOME]
    _, records = read(pcap_file(with_checks, link_type=1 | 1 << 26 | 2 << 28))
    assert [(record.data, record.original_bytes, record.link_type) for record in records] == [(frame, len(frame), 1) for frame in SOME]
    _, records = read(pcap_file([b"abc"], link_type=1 | 1 << 26 | 15 << 28))
    assert [(record.data, record.original_bytes) for record in records] == [(b"", 0)]


def test_sections_may_follow_each_other() -> None:
    assert len(read(pcapng_file(SOME) + pcapng_file(SOME[:1]))[1]) == 4


def test_blocks_of_other_kinds_are_passed_over() -> None:
    head = start("<") + block("<", 0xBAD, bytes(200_000))
    assert len(read(head + pcapng_file(SOME))[1]) == 3


def test_names_cannot_steer_a_terminal() -> None:
    capture, (record, *_) = read(pcapng_file(SOME, {"fd00::1": "a\x1b[31m\nb"}, interfaces=("e\x1b0",)))
    assert (capture.names, record.interface) == ({"fd00::1": "a?[31m?b"}, "e?0")


# Files that are none, or damaged


@pytest.mark.parametrize(("data", "why"), [(b"", "is empty"), (b"abc", "neither"), (b"\x7fELF" + bytes(100), "neither")])
def test_what_is_no_capture_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(NotACapture, match=why):
        read(data)


@pytest.mark.parametrize("whole", [pcapng_file(SOME), pcap_file(SOME)], ids=["pcapng", "pcap"])
def test_a_file_cut_anywhere_gives_what_is_whole_and_says_that_it_is_damaged(whole: bytes) -> None:
    for kept in range(4, len(whole)):
        capture, records = read(whole[:kept])
        assert [record.data for record in records] == SOME[: len(records)]
        assert capture.damage == "" or "ends within" in capture.damage, kept  # it may end between two blocks


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (pcap_file([])[:24] + struct.pack("<IIII", 0, 0, 1 << 30, 1 << 30), "no capture holds one"),
        (start("<") + struct.pack("<II", pcapng.ENHANCED, 0xFFFFFFFC), "cannot be"),
        (start("<") + struct.pack("<II", 0xBAD, 0xFFFFFFFC) + bytes(100), "ends within a block"),
        (start("<") + struct.pack("<II", 0xBAD, 3), "cannot be"),
        (start("<") + struct.pack("<II", pcapng.INTERFACE, 13), "cannot be"),
        (start("<") + block("<", pcapng.ENHANCED, bytes(20)), "interface 0, of which no block tells"),
        (start("<") + block("<", pcapng.INTERFACE, bytes(4)), "4 B in it"),
        (start("<") + block("<", pcapng.INTERFACE, bytes(8)) + block("<", pcapng.ENHANCED, bytes(8)), "8 B in it"),
        (
            start("<") + block("<", pcapng.INTERFACE, bytes(8)) + block("<", pcapng.ENHANCED, struct.pack("<IIIII", 0, 0, 0, 99, 99)),
            "99 B in a block with room for 0",
        ),
        (start("<")[:-4] + bytes(4), "ends with another length"),
        (struct.pack("<III", pcapng.SECTION, 28, 0x12345678), "byte order mark"),
    ],
)
def test_nonsense_ends_a_file_with_a_reason(data: bytes, why: str) -> None:
    capture, records = read(data)
    assert (records, why in capture.damage) == ([], True), capture.damage


@given(st.binary(max_size=300))
def test_no_bytes_behind_a_header_make_it_raise(data: bytes) -> None:
    for head in (start("<"), start(">"), pcap_file([]), start("<") + block("<", pcapng.INTERFACE, bytes(8))):
        read(head + data)


def test_no_change_of_a_sound_file_makes_it_raise() -> None:
    draw, files = random.Random(5), [pcapng_file(SOME, {"fd00::1": "h1"}), pcap_file(SOME), pcap_file(SOME, ">", True)]
    for _ in range(20_000):
        data = bytearray(draw.choice(files))
        for _ in range(draw.randint(1, 6)):
            data[draw.randrange(4, len(data))] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        read(bytes(data))


@pytest.mark.parametrize("as_json", [False, True])
def test_whatever_is_in_a_file_is_explained_in_printable_lines(as_json: bool) -> None:
    draw, files = random.Random(6), [pcapng_file(FRAMES.values(), {"fd00::1": "h1"}), pcap_file(FRAMES.values())]
    lines = 0
    for _ in range(300):
        data = bytearray(draw.choice(files))
        for _ in range(draw.randint(1, 200)):
            data[draw.randrange(300, len(data))] = draw.randrange(256)
        for line in explained(Capture(io.BytesIO(data), "file"), Tally(), as_json=as_json):
            assert line.isprintable()
            lines += 1
    assert lines > 3000
