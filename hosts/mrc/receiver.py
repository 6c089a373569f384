"""The receive QP: direct placement, in-order completion, SACKs, and NACKs of what arrived trimmed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from hosts.core import Completion, PathSpec, Transmit
from hosts.mrc.frames import Framer, NackFields, SackFields
from hosts.mrc.params import MOST_MPR_PACKETS, MrcParams
from hosts.mrc.reverse import ReversePaths
from hosts.wire import (
    A_BIT,
    BITMAP_BITS,
    DUPLICATE,
    HELD,
    MPR_UNIT,
    NACKED,
    PSN_MASK,
    PSN_OOR_WINDOW,
    RECEIVED_UNIT_BYTES,
    RTX_BIT,
    SACK_PORTS,
    SKIP_NONE,
    SKIP_ONCE,
    unwrap,
)

MOST_EARLY = MOST_MPR_PACKETS  # packets beyond the window: MRC's largest window; who sends farther ahead is no peer of ours
MOST_READY = 1024  # SACKs and NACKs that wait; a flood of duplicates or probes asks for more than can be sent, and the newest say most


class ReceiveQp:
    """What one peer writes here. PSNs are endless inside; `_cack` is the last PSN up to which nothing is missing."""

    def __init__(
        self,
        peer: str,
        qp: int,
        paths: tuple[PathSpec, ...],
        params: MrcParams,
        region: memoryview,
        rkey: int,
        base: int,
        reverse: ReversePaths,
    ) -> None:
        self.peer, self.qp = peer, qp
        self.received_packets = 0
        self.completed: list[Completion] = []  # in order, until whoever drives the QP takes them
        self._paths, self._params, self._region, self._rkey, self._base = paths, params, region, rkey, base
        self._reverse = reverse
        self._framer: Framer | None = None
        self._first = self._cack = -1
        self._mask = 0  # bit i: PSN _cack + 1 + i has arrived
        self._nacked = 0  # bit i: PSN _cack + 1 + i was NACKed, and its data is still missing
        self._imms: dict[int, int] = {}  # immediates that wait for their turn
        self._received_bytes = self.sacks_sent = self.nacks_sent = 0
        self._pending = 0  # arrivals since the last SACK
        self._lowest_news = 0  # lowest PSN among them
        self._due: float | None = None
        self.owes_sack = False  # at the end of the batch of packets that is being read
        self._last_psn = self._last_entropy = self._last_stamp = 0
        self._duplicate = False
        self._return_ev = 0
        self.ready: deque[tuple[int, SackFields | NackFields]] = deque(maxlen=MOST_READY)  # to send, each with the EV to send it on

    def connect(self, framer: Framer, first_psn: int) -> None:
        """Takes the peer's attributes."""
        self._framer, self._first, self._cack = framer, first_psn, first_psn - 1

    def on_data(
        self,
        now: float,
        entropy: int,
        flags_psn: int,
        stamp: int,
        va: int,
        rkey: int,
        payload: memoryview,
        imm: int | None,
        marked: bool,
    ) -> str | None:
        """Places one data packet. Returns the reason to count when it was refused, else None.

        `flags_psn` is BTH's last word: RTX and A ask for a SACK at once; `marked`: it met a queue.
        """
        if self._framer is None:
            return "not_connected"
        expected = self._cack + 1
        psn = unwrap(flags_psn, expected)
        ahead = psn - expected
        if ahead >= self._params.mpr_packets or psn < self._first:
            return self._on_out_of_window(ahead, psn, entropy, stamp, va, rkey, len(payload))
        start = va - self._base
        if rkey != self._rkey:
            return "rkey"
        if start < 0 or start + len(payload) > len(self._region):
            return "address"
        if ahead < 0 or self._mask >> ahead & 1:
            self._reverse.hurry(now)
            self._on_duplicate(psn, entropy, stamp, marked)
            return "duplicate"
        self._region[start : start + len(payload)] = payload
        self.received_packets += 1
        self._received_bytes += len(payload)
        self._count_in(now, psn, entropy, stamp, imm, flags_psn & A_BIT != 0)
        if marked:
            self._acknowledge(held=False, skip=SKIP_ONCE)
        elif flags_psn & RTX_BIT:  # its EV is news that the sender must not lose in a batch
            self._acknowledge(held=False)
        return None

    def _on_out_of_window(self, ahead: int, psn: int, entropy: int, stamp: int, va: int, rkey: int, size_bytes: int) -> str:
        """Asks for a sound packet again that came too early, but for one that no window reaches; returns the reason to count."""
        start, early = va - self._base, ahead - self._params.mpr_packets
        if 0 <= early < MOST_EARLY and rkey == self._rkey and 0 <= start <= len(self._region) - size_bytes:
            self.ready.append((entropy, NackFields(PSN_OOR_WINDOW, entropy, psn & PSN_MASK, stamp)))
            self.nacks_sent += 1
        return "psn_out_of_window"

    def on_trimmed(self, entropy: int, psn24: int, stamp: int, va: int, rkey: int, size_bytes: int, reason: int) -> str | None:
        """Asks for the data that a switch cut off one packet. Returns the reason to count when it was refused, else None.

        Nothing protects a trimmed header, so what would not be placed is not asked for either, and nothing else follows from it.
        """
        if self._framer is None:
            return "not_connected"
        expected, start = self._cack + 1, va - self._base
        psn = unwrap(psn24, expected)
        ahead = psn - expected
        if ahead >= self._params.mpr_packets or psn < self._first:
            return "psn_out_of_window"
        if rkey != self._rkey:
            return "rkey"
        if start < 0 or start + size_bytes > len(self._region):
            return "address"
        if ahead < 0 or self._mask >> ahead & 1:
            self._on_duplicate(psn, entropy, stamp, False)
            return "duplicate"
        self._nacked |= 1 << ahead
        self._return_ev = self._another_ev()
        self.ready.append((self._return_ev, NackFields(reason, entropy, psn24, stamp)))
        self.nacks_sent += 1
        return None

    def _count_in(self, now: float, psn: int, entropy: int, stamp: int, imm: int | None, asked: bool) -> None:
        """Books a new packet, with what it completes."""
        ahead = psn - self._cack - 1
        if imm is not None:
            self._imms[psn] = imm
        completed, in_order = len(self.completed), self._mask == 0 and ahead == 0
        if ahead == 0:
            self._advance()
        else:
            self._mask |= 1 << ahead
            if self._nacked:
                self._nacked &= ~(1 << ahead)
        self._note(now, psn, entropy, stamp, in_order, asked or imm is not None or len(self.completed) > completed)

    def _advance(self) -> None:
        """The next expected PSN arrived: moves the cumulative PSN over all that follow without a gap."""
        mask = self._mask | 1
        run = (~mask & (mask + 1)).bit_length() - 1  # trailing ones
        self._mask = mask >> run
        if self._nacked:
            self._nacked >>= run
        first, self._cack = self._cack + 1, self._cack + run
        if self._imms:
            for psn in sorted(psn for psn in self._imms if first <= psn <= self._cack):
                self.completed.append(Completion(self.peer, self._imms.pop(psn)))

    def _note(self, now: float, psn: int, entropy: int, stamp: int, in_order: bool, last: bool) -> None:
        """Remembers the arrival and decides when its SACK is due."""
        params = self._params
        self._last_psn, self._last_entropy, self._last_stamp = psn, entropy, stamp
        self._return_ev = entropy
        if self._pending == 0 or psn < self._lowest_news:
            self._lowest_news = psn
        self._pending += 1
        if last or self._pending >= params.ack_every:
            self.owes_sack = True
            return
        due = now + (params.ack_delay_s if in_order else params.ack_gap_delay_s)
        if self._due is None or due < self._due:
            self._due = due

    def _on_duplicate(self, psn: int, entropy: int, stamp: int, marked: bool) -> None:
        """Perhaps our SACK was lost: answer at once, over the path it came on, and over another one than last time."""
        if self._pending:
            self._acknowledge(held=True)
        self._last_psn, self._last_entropy, self._last_stamp = psn, entropy, stamp
        self._lowest_news, self._pending, self._duplicate = psn, 1, True
        another, self._return_ev = self._another_ev(), entropy
        self._acknowledge(held=False, skip=SKIP_ONCE if marked else SKIP_NONE)
        if (another - entropy) % len(self._paths):
            self._lowest_news, self._pending, self._duplicate, self._return_ev = psn, 1, True, another
            self._acknowledge(held=False)

    def _another_ev(self) -> int:
        """One of another path than the last answer's, and of few: each EV that is used costs a template of headers."""
        return (self._return_ev + 1) % len(self._paths)

    def on_receive_done(self, now: float) -> None:
        """The socket is empty for now: acknowledges what is due."""
        if self.owes_sack:
            self._acknowledge(held=False)

    def on_timer(self, now: float) -> None:
        """Sends the SACK that waited long enough."""
        if self._due is not None and now >= self._due and self._pending:
            self._acknowledge(held=True)

    def next_deadline(self) -> float | None:
        """When a waiting SACK is due."""
        return self._due

    def on_probe(self, entropy: int, probe_id: int, stamp: int) -> str | None:
        """Answers a probe over the path it came on, so that both directions are tested. Returns the reason to count if not, else None.

        An answer that had to wait for `connect` would tell the peer a RTT that is none.
        """
        if self._framer is None:
            return "not_connected"
        offset = probe_id - 0x10000 if probe_id & 0x8000 else probe_id
        self.ready.append((entropy, self._fields(self._cack + 1, entropy, offset, stamp, 0, True)))
        return None

    def transmit(self, now: float) -> Iterator[Transmit]:
        """The SACKs and NACKs that are ready, over paths not known to be bad this way; what the caller does not take stays."""
        framer, reverse = self._framer, self._reverse
        while self.ready and framer is not None:
            wanted, say = self.ready.popleft()
            entropy = reverse.way(wanted)
            path = self._paths[entropy % len(self._paths)]
            header, trailer = framer.sack(entropy, say) if isinstance(say, SackFields) else framer.nack(entropy, say)
            yield Transmit(path.port, path.destination, header, b"", trailer, True)

    def _acknowledge(self, held: bool, skip: int = SKIP_NONE) -> None:
        """Makes the SACKs that cover all news: one, or more when the news spans more than a bitmap."""
        if not self._reverse.asked:
            self._reverse.heard()
        flags = (HELD if held else 0) | (DUPLICATE if self._duplicate else 0) | (NACKED if self._nacked else 0)
        offset = self._last_psn - (self._cack)
        if not -0x8000 <= offset < 0x8000:
            offset = 0
        for base in self._bases():
            self.ready.append((self._return_ev, self._fields(base, self._last_entropy, offset, self._last_stamp, flags, False, skip)))
            skip = SKIP_NONE  # one packet was marked: it is said once
        self._pending, self._due, self.owes_sack, self._duplicate = 0, None, False, False

    def _bases(self) -> list[int]:
        """First PSNs of the bitmaps to send: the end of what has arrived, the beginning, and all news between."""
        first, highest = self._cack + 1, self._cack + self._mask.bit_length()
        last_base = highest - BITMAP_BITS + 1
        if last_base <= first:
            return [first]
        bases = [first]
        base = max(self._lowest_news, first + BITMAP_BITS)
        while base < last_base:
            bases.append(base)
            base += BITMAP_BITS
        return [*bases, last_base]

    def _fields(
        self, base: int, entropy: int, ack_offset: int, stamp: int, cc_flags: int, probe_reply: bool, skip: int = SKIP_NONE
    ) -> SackFields:
        first = self._cack + 1
        self.sacks_sent += 1
        return SackFields(
            number=self.sacks_sent & PSN_MASK, probe_reply=probe_reply, ack_psn_offset=ack_offset, entropy=entropy,
            cack=self._cack & PSN_MASK, cc_flags=cc_flags, mpr=self._params.mpr_packets // MPR_UNIT, sack_offset=base - self._cack,
            bitmap=(self._mask >> (base - first)) & ((1 << BITMAP_BITS) - 1), stamp=stamp, out_of_order=min(self._mask.bit_count(), 0x7FFF),
            received=self._received_bytes // RECEIVED_UNIT_BYTES & 0xFFFFFF, skip=skip, penalty=self._params.receiver_penalty,
            down_ports=self._reverse.local_down & SACK_PORTS,
        )  # fmt: skip
