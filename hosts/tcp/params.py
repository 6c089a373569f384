"""What a user may set about the job's TCP connections; each default says where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hosts.parameters import refuse_unknown
from testbed.errors import UsageError

MOST_CONNECTIONS = 16  # a pair: what NCCL opens on AWS (2 threads of 8 sockets), the most that its autodetection asks for
MOST_BUFFER_BYTES = 1 << 28
MOST_SECONDS = 86400
# Of a socket's knobs the kernel keeps 127 keepalive probes at most (include/net/tcp.h, MAX_TCP_KEEPCNT).
MOST_PROBES = 127
MOST_CONNECT_S = 50  # a run waits 60 s for its agents to be connected (testbed/run/supervisor.py)


@dataclass(frozen=True)
class TcpParams:
    """Parameters of every TCP connection of a host; UsageError names the one that makes no sense."""

    connections: int = 4
    """Connections from a host to each peer that it sends to: NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD. Unasked, NCCL takes 1 x 1, on
    Google's NICs 4 x 1, on Amazon's 2 x 8 (src/transport/net_socket.cc). With 4 a message uses several paths, and windows stay large."""
    chunk_bytes: int = 8192
    """A message is cut into as many chunks as there are connections, but into none smaller than this. NCCL's least is 64 KiB
    (MIN_CHUNKSIZE), of transfers of 512 KiB (NCCL_BUFFSIZE 4 MiB in 8 steps); ours is an eighth, too, of a message of 64 KiB."""
    congestion_control: str = "cubic"
    """Linux' own default (Kconfig DEFAULT_TCP_CONG). Named, since distributions and clouds set others, and two machines would not compare.
    Empty: whatever the host's kernel has; what was used is read back and stands in agents.json."""
    send_buffer_bytes: int = 0
    """SO_SNDBUF as asked for (the kernel doubles it for its own bookkeeping); 0: it grows by itself (tcp_wmem), as usual."""
    receive_buffer_bytes: int = 0
    """SO_RCVBUF, in the same way; 0: it grows by itself (tcp_rmem)."""
    user_timeout_s: float = 0.0
    """TCP_USER_TIMEOUT (RFC 5482): a connection whose data is not acknowledged for so long fails, and the job crashes. 0: the kernel's
    tcp_retries2 = 15 decides, 924 s (Documentation/networking/ip-sysctl.rst): in no run of minutes does TCP give up. NCCL sets none."""
    keepalive_s: int = 0
    """Seconds without a packet after which, and between which, keepalives ask (TCP_KEEPIDLE, TCP_KEEPINTVL); 0: none. NCCL sets none."""
    keepalive_probes: int = 9
    """Unanswered keepalives after which the connection fails (TCP_KEEPCNT, by the kernel's tcp_keepalive_probes 9)."""
    connect_timeout_s: float = 30.0
    """All connections must be there so long after the out-of-band exchange, else the job crashes and starts again. SYNs are sent again
    after 1, 3, 7, 15 s. NCCL waits for the kernel, up to 127 s (tcp_syn_retries 6): longer than a run waits for its agents."""

    def __post_init__(self) -> None:
        """Refuses values outside of what the kernel takes and the run waits for."""
        _whole("connections", self.connections, 1, MOST_CONNECTIONS)
        _whole("chunk_bytes", self.chunk_bytes, 1, 1 << 30)
        _whole("send_buffer_bytes", self.send_buffer_bytes, 0, MOST_BUFFER_BYTES)
        _whole("receive_buffer_bytes", self.receive_buffer_bytes, 0, MOST_BUFFER_BYTES)
        _seconds("user_timeout_s", self.user_timeout_s, 0, MOST_SECONDS)
        _whole("keepalive_s", self.keepalive_s, 0, 32767)
        _whole("keepalive_probes", self.keepalive_probes, 1, MOST_PROBES)
        _seconds("connect_timeout_s", self.connect_timeout_s, 0.1, MOST_CONNECT_S)
        name = self.congestion_control
        if not isinstance(name, str) or len(name) > 15 or not all(c.isascii() and (c.isalnum() or c in "_-") for c in name):
            raise UsageError(
                f"TCP parameter congestion_control is {name!r:.80}: give a name from /proc/sys/net/ipv4/tcp_available_congestion_control"
            )

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> TcpParams:
        """Parameters from the agent protocol's mapping; UsageError for a name that TCP does not know."""
        refuse_unknown("TCP", raw, cls)
        return cls(**raw)


def _whole(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UsageError(f"TCP parameter {name} is {value!r:.80}: give a whole number from {low} to {high}")


def _seconds(name: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UsageError(f"TCP parameter {name} is {value!r:.80}: give {low:g} to {high:g} seconds")
