"""The job over the kernel's TCP: several connections a pair, messages cut into chunks and striped over them. See docs/tcp.md."""

from hosts.tcp.core import TcpCore
from hosts.tcp.network import TcpNetwork
from hosts.tcp.params import TcpParams

__all__ = ["TcpCore", "TcpNetwork", "TcpParams"]
