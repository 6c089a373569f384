"""Tries the link program on a real port, as a fabric would have it: `python -m testbed.fabric.trial OBJECT`.

It runs in a throw-away namespace with a bpf file system at /sys/fs/bpf, where `testbed doctor` and every run start it. It loads OBJECT,
makes a veth pair with all queues, reads them back, and sends one packet that must come out trimmed. Status 0, or 3 with a sentence on
standard error.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from hosts.wire import DSCP_TRIMMABLE
from testbed.command import run
from testbed.errors import HostError
from testbed.fabric import link_parameters
from testbed.fabric.bpf import LinkProgram, row_of
from testbed.fabric.link_parameters import LinkParameters
from testbed.fabric.links import ifindex, shaping_batch, verify_port, veth_batch
from testbed.fabric.namespaces import switch_offloads_off
from testbed.fabric.netlink import Netlink
from testbed.fabric.probe import data_frame, is_ours, opened
from testbed.link_settings import LinkSettings
from topologies import Link, build

_SETTINGS = LinkSettings(rate_bps=10_000_000)
_PAYLOAD_BYTES = 1024


def main(object_file: Path) -> int:
    """The program's exit status."""
    try:
        attempt(object_file)
    except HostError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a program of its own
        return HostError.exit_code
    return 0


def attempt(object_file: Path) -> None:
    """HostError says which step this kernel refuses."""
    link = build("multi-plane", planes=1, t0s=2, t1s=1, hosts_per_t0=1).links_of("h1")[0]
    program, kernel = LinkProgram(), Netlink(os.getpid())
    program.load(object_file)
    try:
        _make(link, kernel)
        verify_port(kernel, link, True, _SETTINGS, program.program_id)
        _trim_one(program, link)
    finally:
        program.unload()
        kernel.close()


def _make(link: Link, kernel: Netlink) -> None:
    run(["ip", "-batch", "-"], "making a veth pair", input_text=veth_batch([link], lambda _node: os.getpid(), _SETTINGS))
    shaping = shaping_batch(link.a.ifname, row_of(link, True), _SETTINGS)
    run(["tc", "-batch", "-"], "giving a port its queues and the link program", input_text=shaping)
    switch_offloads_off(os.getpid(), [link.a.ifname, link.b.ifname])
    for at_a in (True, False):
        kernel.set_up(ifindex(link, at_a), True)


def _trim_one(program: LinkProgram, link: Link) -> None:
    """A data packet that finds the virtual queue full must arrive shorter, and be counted."""
    row, frame = program.rows[row_of(link, True)], data_frame(_PAYLOAD_BYTES, DSCP_TRIMMABLE)
    link_parameters.write(row, LinkParameters(rate_bps=_SETTINGS.rate_bps, trim_bytes=1))
    with opened(link.a.ifname) as sender, opened(link.b.ifname) as receiver:
        sender.send(frame)
        received = _next_of_ours(receiver)
    if not 0 < received < len(frame) - _PAYLOAD_BYTES or int(row["trimmed_packets"]) != 1:
        counted = {name: value for name, value in link_parameters.counts(row).items() if value}
        raise HostError(f"the link program does not trim: a packet of {len(frame)} bytes came out with {received}; counters {counted}")


def _next_of_ours(receiver: socket.socket) -> int:
    """The bytes of the first packet that is ours (the kernel sends some of its own); 0 when none comes."""
    while True:
        try:
            frame = receiver.recv(1 << 14)
        except TimeoutError:
            return 0
        if is_ours(frame):
            return len(frame)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
