"""All RC QPs of a host pair: what is posted goes over them in turn or in pieces, as NCCL does it, and completes in posted order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from hosts.qps import InPieces, InTurn, Ledger
from hosts.rc.params import RcParams
from hosts.rc.receiver import ReceiveQp
from hosts.rc.sender import SendAttributes, SendQp, Shared

PIECE_BYTES = 128  # pieces start at multiples of it, as those of NCCL do (src/transport/net_ib, ncclIbMultiSend)


class SendQps:
    """The send QPs to one peer. They share a window, live and fail together; `error_taken`: their error was told."""

    def __init__(self, ends: Sequence[SendAttributes], params: RcParams) -> None:
        self._params, self.shared = params, Shared(params.window_packets)
        self.peer = ends[0].peer
        self.qps = tuple(SendQp(end, params, self.shared) for end in ends)
        self._turns = itertools.cycle(self.qps)
        self._pieces = len(self.qps) if params.split_data else 1
        self._ledger: Ledger[SendQp] = Ledger()
        self.error_taken = False

    def post(self, data: memoryview, remote_offset: int, imm: int) -> None:
        """Queues a message on the next QP, or a piece of it on each."""
        for start, piece in pieces(data, self._pieces):
            qp = next(self._turns)
            qp.post(piece, remote_offset + start, imm)
            self._ledger.append(qp, qp.posted)

    @property
    def outstanding_messages(self) -> int:
        """Messages from the first one on of which not every piece is acknowledged."""
        return -(-self._ledger.outstanding() // self._pieces)

    @property
    def error(self) -> str | None:
        """Why they failed."""
        return self.shared.error

    @property
    def closed(self) -> bool:
        """Whether all that was posted before `close` is acknowledged."""
        return all(qp.closed for qp in self.qps)

    @property
    def base_rtt_s(self) -> float | None:
        """The smallest RTT that one of them has seen."""
        return min((qp.base_rtt_s for qp in self.qps if qp.base_rtt_s is not None), default=None)

    @property
    def cnps(self) -> int:
        """CNPs that were obeyed."""
        return sum(qp.rate.cnps for qp in self.qps if qp.rate is not None)

    def flow_row(self) -> tuple[Any, ...]:
        """As hosts/core.py has it: sums, bytes of whole pieces, the pair's fixed window, the mean RTT, nothing trimmed; CNPs as marks."""
        qps, known = self.qps, [qp.srtt_s for qp in self.qps if qp.srtt_s is not None]
        return (
            self.peer, sum(qp.tx_packets for qp in qps), sum(qp.rtx_packets for qp in qps), sum(qp.acked_bytes for qp in qps),
            self._params.window_packets, sum(known) / len(known) if known else 0.0, 0, self.cnps,
        )  # fmt: skip

    def path_rows(self) -> Iterator[tuple[Any, ...]]:
        """Each QP's one path as an EV; a NAK or timeout counts as one lost packet, since RC does not know how many more were."""
        state = "GOOD" if self.error is None else "ASSUMED_BAD"
        for number, qp in enumerate(self.qps):
            yield self.peer, number, state, qp.tx_packets, qp.losses, 0, 0, qp.rate.cnps if qp.rate is not None else 0


class ReceiveQps:
    """The receive QPs from one peer: `take` gives what has completed on them, in the order in which the peer posted."""

    def __init__(self, qps: Sequence[ReceiveQp], params: RcParams) -> None:
        self.qps = tuple(qps)
        kind = InPieces if params.split_data else InTurn
        self.take = kind([qp.completions for qp in qps]).take


def pieces(data: memoryview, count: int) -> list[tuple[int, memoryview]]:
    """`data` in so many pieces, each with its start; the last ones may be empty."""
    if count == 1:
        return [(0, data)]
    flat = data if data.format == "B" and data.ndim == 1 else data.cast("B")
    share = -(-len(flat) // count)
    size = -(-share // PIECE_BYTES) * PIECE_BYTES
    starts = [min(at * size, len(flat)) for at in range(count)]
    return [(start, flat[start : start + size]) for start in starts]
