"""MRC, the multipath RDMA transport, as a core without I/O. docs/mrc.md says what is done, what is approximated and what is left out."""

from hosts.mrc.core import MrcCore
from hosts.mrc.params import MrcParams

__all__ = ["MrcCore", "MrcParams"]
