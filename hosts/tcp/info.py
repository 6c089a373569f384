"""What Linux tells of a TCP connection (TCP_INFO): the table of its structure, and the fields that are used here. Pure."""

from __future__ import annotations

import struct
from operator import itemgetter
from typing import NamedTuple

SIZE_BYTES = 512  # more than any kernel has; it fills in what it knows

# struct tcp_info of include/uapi/linux/tcp.h as of Linux 5.4; later kernels append to it. (type, names), in the machine's byte order.
TABLE: tuple[tuple[str, str], ...] = (
    ("B", "state ca_state retransmits probes backoff options window_scales flags"),
    ("I", "rto ato snd_mss rcv_mss unacked sacked lost retrans fackets last_data_sent last_ack_sent last_data_recv last_ack_recv"),
    ("I", "pmtu rcv_ssthresh rtt rttvar snd_ssthresh snd_cwnd advmss reordering rcv_rtt rcv_space total_retrans"),
    ("Q", "pacing_rate max_pacing_rate bytes_acked bytes_received"),
    ("I", "segs_out segs_in notsent_bytes min_rtt data_segs_in data_segs_out"),
    ("Q", "delivery_rate busy_time rwnd_limited sndbuf_limited"),
    ("I", "delivered delivered_ce"),
    ("Q", "bytes_sent bytes_retrans"),
    ("I", "dsack_dups reord_seen rcv_ooopack snd_wnd"),
)
NAMES = tuple(name for _, names in TABLE for name in names.split())
LAYOUT = struct.Struct("=" + "".join(letter * len(names.split()) for letter, names in TABLE))  # has no holes: each group ends aligned
UNKNOWN_US = 0xFFFFFFFF  # min_rtt before there was any


class TcpInfo(NamedTuple):
    """The fields that are used, under the kernel's names: segments with data, bytes, round trips in microseconds, cwnd in segments."""

    ca_state: int = 0
    backoff: int = 0
    rtt: int = 0
    snd_cwnd: int = 0
    total_retrans: int = 0
    bytes_acked: int = 0
    bytes_received: int = 0
    min_rtt: int = UNKNOWN_US
    data_segs_in: int = 0
    data_segs_out: int = 0
    delivered_ce: int = 0
    dsack_dups: int = 0

    @property
    def timed_out(self) -> bool:
        """Whether its retransmission timer has run out, and nothing was acknowledged since."""
        return self.backoff > 0


_USED = itemgetter(*(NAMES.index(name) for name in TcpInfo._fields))


def parse(raw: bytes) -> TcpInfo:
    """The structure as getsockopt gives it. An older kernel's is shorter: what it does not tell is 0."""
    return TcpInfo._make(_USED(LAYOUT.unpack(raw[: LAYOUT.size].ljust(LAYOUT.size, b"\0"))))
