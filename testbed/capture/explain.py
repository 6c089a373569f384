"""A capture as lines, one a packet, for people or as JSON; what the command `decode` prints, and what lies beside a run's captures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from hosts.decode import Packet, as_dict, decode, sentence
from testbed.capture.reading import Capture, Record
from testbed.units import counted

MALFORMED = "malformed"  # stands beside the kinds in a selection


@dataclass
class Tally:
    """What was met: packets a kind, problems a reason, packets that have any, packets of which the capture kept too little."""

    kinds: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    malformed: int = 0
    cut: int = 0

    @property
    def packets(self) -> int:
        """All of them."""
        return self.kinds.total()

    def add(self, packet: Packet) -> None:
        """Counts one."""
        self.kinds[packet.kind] += 1
        self.reasons.update(problem.reason for problem in packet.problems)
        self.malformed += bool(packet.problems)
        self.cut += packet.cut

    def sentences(self) -> Iterator[str]:
        """The end of the tale."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common())
        yield counted(self.packets, "packet") + (f": {kinds}" if kinds else "")
        reasons = ", ".join(f"{reason} {count}" for reason, count in self.reasons.most_common())
        yield f"{self.malformed} malformed" + (f": {reasons}" if reasons else "")
        if self.cut:
            yield f"{self.cut} of which the capture kept too little to see all"


def explained(capture: Capture, tally: Tally, only: Collection[str] = (), as_json: bool = False) -> Iterator[str]:
    """A line a packet of the kinds in `only` (all when empty; `malformed`: of any kind with a problem). Everything is counted.

    Times are seconds since time 0 of the run where the capture tells it, else since its first packet.
    """
    first_ns: int | None = None
    for number, record in enumerate(capture.records(), start=1):
        packet = decode(record.data, record.original_bytes, record.link_type)
        tally.add(packet)
        if first_ns is None:
            first_ns = record.time_ns
        if only and packet.kind not in only and not (packet.problems and MALFORMED in only):
            continue
        time_ns = record.time_ns - (first_ns if capture.zero_ns is None else capture.zero_ns)
        yield _json(number, time_ns, record, packet, capture) if as_json else _line(time_ns, record, packet, capture)


def _line(time_ns: int, record: Record, packet: Packet, capture: Capture) -> str:
    where = " ".join(part for part in (record.interface, record.direction) if part)
    return "  ".join(part for part in (f"{time_ns / 1e9:11.6f}", where, sentence(packet, capture.names)) if part)


def _json(number: int, time_ns: int, record: Record, packet: Packet, capture: Capture) -> str:
    where = {"number": number, "time_s": time_ns / 1e9, "interface": record.interface, "direction": record.direction}
    return json.dumps(where | as_dict(packet, capture.names))
