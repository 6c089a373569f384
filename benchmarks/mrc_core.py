"""CPU of the MRC core a data packet, sender and receiver apart, core to core in memory: `python benchmarks/mrc_core.py`.

No sockets and no waiting: what is left of an agent's cost is system calls. Prints the median of several runs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hosts.core import Transmit
from hosts.mrc import MrcCore, MrcParams
from hosts.mrc.channel import peer_spec

STEP_S = 0.001  # virtual time of one turn: the RTT is two
MESSAGE_BYTES = 1 << 20


def pair(paths: int, batch: int) -> tuple[MrcCore, MrcCore]:
    """A connected sender and receiver."""
    params = MrcParams(cwnd_initial_packets=batch, cwnd_max_packets=batch)
    sender = MrcCore("a", "fd00::a", params, {"b": peer_spec("b", "fd00::b", paths)}, {}, memoryview(bytearray(0)), 1)
    receiver = MrcCore("b", "fd00::b", params, {}, {"a": peer_spec("a", "fd00::a", paths)}, memoryview(bytearray(MESSAGE_BYTES)), 1)
    sender.connect({"b": receiver.attributes()})
    receiver.connect({"a": sender.attributes()})
    return sender, receiver


def turn(core: MrcCore, now: float, inbox: list[bytes]) -> tuple[list[Transmit], float]:
    """One turn of an agent's loop, and the CPU seconds it took."""
    start = time.process_time()
    for packet in inbox:
        core.on_datagram(now, 0, memoryview(packet))
    core.on_receive_done(now)
    deadline = core.next_deadline()
    if deadline is not None and deadline <= now:
        core.on_timer(now)
    out = list(core.transmit(now))
    return out, time.process_time() - start


def on_wire(transmits: list[Transmit]) -> list[bytes]:
    """What the kernel would carry."""
    return [bytes(t.header) + bytes(t.payload) + t.trailer for t in transmits]


def measure(packets: int, paths: int, batch: int) -> tuple[float, float, float]:
    """(sender us, receiver us, SACKs) a data packet."""
    sender, receiver = pair(paths, batch)
    payload, now, sender_s, receiver_s, sacks = memoryview(bytes(MESSAGE_BYTES)), 1.0, 0.0, 0.0, 0
    for imm in range(packets * MrcParams.payload_bytes // MESSAGE_BYTES):
        sender.post_write(now, "b", payload, 0, imm)
    inbox: list[bytes] = []
    while sender.outstanding_messages("b"):
        sent, spent = turn(sender, now, inbox)
        sender_s, now = sender_s + spent, now + STEP_S
        answered, spent = turn(receiver, now, on_wire(sent))
        receiver_s, now, sacks = receiver_s + spent, now + STEP_S, sacks + len(answered)
        inbox = on_wire(answered)
    count = receiver.report()["data_packets_received"]
    return sender_s / count * 1e6, receiver_s / count * 1e6, sacks / count


def main() -> None:
    """Measures with large and with small batches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packets", type=int, default=20_000)
    parser.add_argument("--paths", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    for batch in (64, 4):
        rows = [measure(arguments.packets, arguments.paths, batch) for _ in range(arguments.repeats)]
        sender, receiver, sacks = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"batches of {batch:2}: sender {sender:5.1f} us, receiver {receiver:5.1f} us a data packet, {sacks:.2f} SACKs a packet")


if __name__ == "__main__":
    main()
