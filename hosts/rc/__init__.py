"""RoCE RC, the rival: one path, go-back-N, ACK timeout and retry count. See docs/rc.md."""

from hosts.rc.core import RcCore
from hosts.rc.params import RcParams

__all__ = ["RcCore", "RcParams"]
