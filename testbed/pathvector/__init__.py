"""BGP as each switch would run it, as plain Python driven by events and time: the routing of `rc-bgp-ovs` (docs/bgp-ovs.md)."""

from testbed.pathvector.actions import Action, Fib, Install, Record, SendKeepalive
from testbed.pathvector.core import PathVector
from testbed.pathvector.options import BgpOvsOptions

__all__ = ["Action", "BgpOvsOptions", "Fib", "Install", "PathVector", "Record", "SendKeepalive"]
