"""All QPs of a host pair: messages take them in turn, and complete in the order in which they were posted.

A turn is a group: plain Writes up to and including the next Write with Immediate, on one QP. So both ends know without a word on the wire
which QP the next Immediate comes on: group g on QP g modulo their number.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from hosts.core import QpError, Transmit, Turns
from hosts.mrc.ev import Ev
from hosts.mrc.evs import numbers_text
from hosts.mrc.receiver import ReceiveQp
from hosts.mrc.sender import SendQp
from hosts.qps import InTurn, Ledger
from testbed.errors import UsageError


class SendQps:
    """The send QPs to one peer. They live and fail together."""

    def __init__(self, peer: str, qps: Sequence[SendQp], write_bytes: int) -> None:
        self.peer, self.qps, self._write_bytes = peer, tuple(qps), write_bytes
        self._turn = 0
        self._ledger: Ledger[SendQp] = Ledger()

    def post(self, data: memoryview, remote_offset: int, imm: int | None) -> None:
        """Queues a message as Writes of at most `write_bytes`, of which the last one carries the immediate, if there is one."""
        flat = data if data.format == "B" and data.ndim == 1 else data.cast("B")
        qp, start, step = self.qps[self._turn], 0, self._write_bytes or len(flat)
        while len(flat) - start > step:
            qp.post(flat[start : start + step], remote_offset + start, None)
            start += step
        qp.post(flat[start:], remote_offset + start, imm)
        if imm is not None:
            self._turn = (self._turn + 1) % len(self.qps)
        if self.error is None:
            self._ledger.append(qp, qp.posted)

    @property
    def outstanding_messages(self) -> int:
        """Messages from the first one on that is not wholly acknowledged: as many as the last ones whose data must not change."""
        return self._ledger.outstanding()

    @property
    def error(self) -> QpError | None:
        """Why they failed: what the first of them says."""
        return next((qp.error for qp in self.qps if qp.error is not None), None)

    def fail(self, reason: str) -> None:
        """All of them fail, each for its own reason if it has one already."""
        for qp in self.qps:
            if qp.error is None:
                qp.fail(reason)
        self._ledger.clear()

    def refusal(self, links: Collection[str], ev_numbers: Collection[int]) -> str | None:
        """Why these EVs cannot be denied, if they cannot. UsageError: there is no such EV."""
        found = self._named(links, ev_numbers)
        return next((why for qp, evs in found if evs and (why := qp.verdicts.refusal(evs)) is not None), None)

    def deny(self, now: float, links: Collection[str], ev_numbers: Collection[int], on: bool) -> list[int]:
        """Denies (`on`) or allows these EVs and those over these links; returns their numbers. UsageError as `Verdicts.deny`."""
        found = self._named(links, ev_numbers)
        for qp, evs in found:
            qp.verdicts.deny(now, evs, on)
        return [ev.index for _, evs in found for ev in evs]

    def _named(self, links: Collection[str], ev_numbers: Collection[int]) -> list[tuple[SendQp, list[Ev]]]:
        """Each QP with those of its EVs that have these numbers or use one of these links; UsageError if a number is nobody's."""
        unknown = sorted(number for number in ev_numbers if all(qp.evs.numbered(number) is None for qp in self.qps))
        if unknown:
            known = numbers_text(ev for qp in self.qps for ev in qp.evs.evs)
            raise UsageError(f"there is no EV {unknown[0]} to {self.peer}: its EVs are {known}")
        return [(qp, qp.evs.named(links, ev_numbers)) for qp in self.qps]

    @property
    def base_rtt_s(self) -> float:
        """The smallest RTT."""
        return self.qps[0].rtt.base_s

    @property
    def idle_rtt_s(self) -> float | None:
        """The median of what their idle probes say; None without an answer."""
        known = [rtt_s for qp in self.qps if (rtt_s := qp.idle.idle_rtt_s) is not None]
        return statistics.median(known) if known else None

    @property
    def nacks(self) -> Counter[str]:
        """NACKs taken, by reason."""
        return sum((qp.nacks for qp in self.qps), Counter[str]())

    def flow_row(self) -> tuple[Any, ...]:
        """As `Core.flow_rows` has it: counters are sums; the window and the RTT are the pair's."""
        qps = self.qps
        return (
            self.peer, sum(qp.tx_packets for qp in qps), sum(qp.rtx_packets for qp in qps), sum(qp.acked_bytes for qp in qps),
            qps[0].window.cwnd_packets, qps[0].rtt.srtt_s,
            sum(qp.trimmed_packets for qp in qps), sum(qp.marked_packets for qp in qps),
        )  # fmt: skip

    def path_rows(self) -> list[tuple[Any, ...]]:
        """As `Core.path_rows` has it."""
        return [
            (self.peer, ev.index, ev.state, ev.tx_packets, ev.lost_packets, ev.probes_sent, ev.trimmed_packets, ev.marked_packets)
            for qp in self.qps
            for ev in qp.evs.evs
        ]


class Senders:
    """All send QPs of a host as one source of packets: they take turns."""

    def __init__(self, qps: Sequence[SendQp]) -> None:
        self._qps, self._turns = qps, Turns()

    @property
    def ready(self) -> bool:
        """Whether one of them may have something to send."""
        return any(qp.ready for qp in self._qps)

    def transmit(self, now: float) -> Iterator[Transmit]:
        """What they may send now."""
        return self._turns.packets(now, self._qps)


class ReceiveQps:
    """The receive QPs from one peer: `take` gives what has completed on them, as far as nothing before it is missing."""

    def __init__(self, peer: str, qps: Sequence[ReceiveQp]) -> None:
        self.peer, self.qps = peer, tuple(qps)
        self.take = InTurn([qp.completed for qp in qps]).take
