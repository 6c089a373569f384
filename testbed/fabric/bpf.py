"""The link program: building it with clang, loading it once, and its map as memory of this process.

One row a link direction: 2 * link.index for what end a sends, 2 * link.index + 1 for what end b sends.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.command import run
from testbed.errors import HostError
from testbed.fabric.netlink import Netlink
from testbed.netlink_wire import attributes
from testbed.sandbox import runtime_dir
from topologies import Link

SOURCE = Path(__file__).with_name("link.bpf.c")
MAX_ROWS = 8192
MAX_EVS = 8
OUTCOMES = ("tx", "dropped", "lost", "ev_dropped", "queue_dropped", "marked", "trimmed", "other")
"""What is counted, each as `<outcome>_packets` and `<outcome>_bytes`.

Every packet that was offered is in exactly one of tx, dropped (a fault that takes everything), lost (by chance), ev_dropped and
queue_dropped. Marked, trimmed and other (neither MRC nor RoCEv2) are parts of tx; `trimmed_bytes` are those cut off, so bytes offered are
the first five and trimmed_bytes together.
"""
GENERATORS = ("loss", "ev", "mark")
"""The sources of chance of a row; each has its state in `<name>_state`."""
ROW = np.dtype(
    [
        ("tx_packets", "u8"),
        ("tx_bytes", "u8"),
        ("dropped_packets", "u8"),
        ("dropped_bytes", "u8"),
        ("first_drop_ns", "u8"),
        ("last_drop_ns", "u8"),
        *((f"{outcome}_{unit}", "u8") for outcome in OUTCOMES[2:] for unit in ("packets", "bytes")),
        ("free_at_ns", "u8"),
        *((f"{name}_state", "u8") for name in GENERATORS),
        ("spare_counters", "u8", (2,)),
        ("drop_all", "u4"),
        ("drop_data", "u4"),
        ("loss_probability", "u4"),
        ("ev_probability", "u4"),
        ("ev_count", "u4"),
        ("evs", "u4", (MAX_EVS,)),
        ("rate_bytes_per_s", "u4"),
        ("room_bytes", "u4"),
        ("ecn_min_bytes", "u4"),
        ("ecn_max_bytes", "u4"),
        ("trim_bytes", "u4"),
        ("limit_bytes", "u4"),
        ("last_hop", "u4"),
        ("spare_parameters", "u4", (12,)),
    ]
)
"""Mirrors `struct link_row` of link.bpf.c; `*_ns` are CLOCK_MONOTONIC. Loading the program compares the sizes."""
MAP_PIN = Path("/sys/fs/bpf/tc/globals/testbed_links")
PROGRAM_PIN = Path("/sys/fs/bpf/testbed_link")
CLSACT_EGRESS = 0xFFFFFFF3  # TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_EGRESS), linux/pkt_sched.h
BPF_ID = 11  # TCA_BPF_ID, linux/pkt_cls.h
_OPTIONS = 2  # TCA_OPTIONS
_BPF_OBJ_PIN, _BPF_OBJ_GET, _BPF_PROG_GET_FD_BY_ID, _BPF_OBJ_GET_INFO_BY_FD = 6, 7, 13, 15  # linux/bpf.h
_MAP_INFO = struct.Struct("=IIIII")  # start of struct bpf_map_info: type, id, key size, value size, entries
_BPF_SYSCALL = {"x86_64": 321, "aarch64": 280}
_libc = ctypes.CDLL(None, use_errno=True)


def row_of(link: Link, from_a: bool) -> int:
    """The map row of what one end of `link` sends."""
    return 2 * link.index + (0 if from_a else 1)


def build_bpf(folder: Path | None = None) -> Path:
    """Compiles link.bpf.c unless the object is newer, and returns the object's path.

    It lies in `folder`, by default in `build` beside the source, or in the run's folder where that cannot be written. HostError says what
    to install.
    """
    target = (folder or _object_folder()) / "link.bpf.o"
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and target.stat().st_mtime >= max(made_of.stat().st_mtime for made_of in (SOURCE, Path(__file__))):
        return target
    if shutil.which("clang") is None:
        raise HostError("the link program needs clang and the headers of libbpf: apt install clang libbpf-dev")
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:  # then renamed: two runs may build at once
        made = Path(scratch) / "link.o"
        include = f"-I/usr/include/{platform.machine()}-linux-gnu"
        # v3: atomic compare-and-swap, which Linux has since 5.12
        argv = ["clang", "-O2", "-g", "-Wall", "-mcpu=v3", "-target", "bpf", include, "-c", str(SOURCE), "-o", str(made)]
        run(argv, "compiling the link program (apt install clang libbpf-dev linux-libc-dev)")
        made.replace(target)
    return target


class LinkProgram:
    """The loaded program and its map. `load` needs bpffs at /sys/fs/bpf (the sandbox has one)."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self.program_id = 0
        self.rows: npt.NDArray[Any] = np.zeros(0, ROW)

    def load(self, object_file: Path) -> None:
        """Loads the program once, through loopback, and pins it, so that the ports need not load and verify it again each."""
        self.unload()
        run(["tc", "qdisc", "add", "dev", "lo", "clsact"], "making room for the link program")
        load = ["filter", "add", "dev", "lo", "egress", "bpf", "da", "obj", str(object_file), "sec", "tc", "classid", "1:0"]
        run(["tc", *load], "loading the link program")  # no batch: that would cut a path with a space in two
        self.program_id = _program_on_loopback()
        _pin_program(self.program_id)
        run(["tc", "qdisc", "del", "dev", "lo", "clsact"], "taking the link program off loopback")
        self._memory, self.rows = _map_rows()

    def unload(self) -> None:
        """Removes the pins; the kernel frees program and map with the last port that uses them."""
        self.rows = np.zeros(0, ROW)
        self._memory = None  # unmapped when the last view of it is gone
        for pin in (MAP_PIN, PROGRAM_PIN):
            pin.unlink(missing_ok=True)


def _object_folder() -> Path:
    beside = SOURCE.parent
    return beside / "build" if os.access(beside, os.W_OK) else runtime_dir()


def _program_on_loopback() -> int:
    kernel = Netlink(os.getpid())
    try:
        loopback = next(interface for interface in kernel.interfaces() if interface.name == "lo")
        ids = [program_id(found.attributes) for found in kernel.filters(loopback.index, CLSACT_EGRESS)]
    finally:
        kernel.close()
    return max(ids)


def program_id(filter_attributes: dict[int, bytes]) -> int:
    """The id of the BPF program of a tc filter, 0 when it has none."""
    raw = attributes(filter_attributes.get(_OPTIONS, b"")).get(BPF_ID)
    return int.from_bytes(raw, "little") if raw else 0


def _pin_program(identity: int) -> None:
    descriptor = _bpf(_BPF_PROG_GET_FD_BY_ID, struct.pack("=III", identity, 0, 0), "opening the link program")
    try:
        path = ctypes.create_string_buffer(str(PROGRAM_PIN).encode())
        _bpf(_BPF_OBJ_PIN, struct.pack("=QII", ctypes.addressof(path), descriptor, 0), "pinning the link program")
    finally:
        os.close(descriptor)


def _map_rows() -> tuple[mmap.mmap, npt.NDArray[Any]]:
    path = ctypes.create_string_buffer(str(MAP_PIN).encode())
    descriptor = _bpf(_BPF_OBJ_GET, struct.pack("=QII", ctypes.addressof(path), 0, 0), "opening the link program's map")
    try:
        _compare_sizes(*map_sizes(descriptor))
        memory = mmap.mmap(descriptor, MAX_ROWS * ROW.itemsize, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(descriptor)
    return memory, np.frombuffer(memory, ROW)


def map_sizes(descriptor: int) -> tuple[int, int]:
    """(bytes of a value, number of entries) of an open BPF map, as the kernel tells them."""
    answer = ctypes.create_string_buffer(_MAP_INFO.size)
    _bpf(_BPF_OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", descriptor, len(answer), ctypes.addressof(answer)), "asking for the map's sizes")
    _type, _id, _key, value_bytes, entries = _MAP_INFO.unpack_from(answer)
    return value_bytes, entries


def _compare_sizes(value_bytes: int, entries: int) -> None:
    if (value_bytes, entries) != (ROW.itemsize, MAX_ROWS):
        raise HostError(
            f"link program: its map has {entries} rows of {value_bytes} bytes, this process expects {MAX_ROWS} of {ROW.itemsize}: "
            "struct link_row (link.bpf.c) and ROW (bpf.py) are out of step; remove testbed/fabric/build and start again"
        )


def _bpf(command: int, attribute: bytes, doing: str) -> int:
    number = _BPF_SYSCALL.get(platform.machine())
    if number is None:
        raise HostError(f"{doing}: unknown machine type {platform.machine()}; known: {', '.join(_BPF_SYSCALL)}")
    buffer = ctypes.create_string_buffer(attribute, len(attribute))
    result = int(_libc.syscall(number, command, buffer, len(attribute)))
    if result < 0:
        raise HostError(f"{doing}: bpf(2): {os.strerror(ctypes.get_errno())}")
    return result
