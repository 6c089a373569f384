"""What the QPs of a host pair share towards the network, so that several of them take no more of it than one."""

from __future__ import annotations

from hosts.mrc.evs import EvSet
from hosts.mrc.loss import Flight
from hosts.mrc.nscc import NsccWindow
from hosts.mrc.params import MrcParams
from hosts.mrc.window import RttEstimator, Window


class Congestion:
    """RTT and window of a pair, and what its QPs have in flight: they use the same paths, and each hears of the same queues.

    UEC's congestion control context is the model, which connections of a pair may share.
    """

    __slots__ = ("_evs", "_flights", "rtt", "window")

    def __init__(self, params: MrcParams) -> None:
        self._flights: list[Flight] = []
        self._evs: list[EvSet] = []
        self.rtt = RttEstimator(params)
        self.window: Window = NsccWindow(params, self.rtt, self._count_ports)

    def join(self, flight: Flight, evs: EvSet) -> None:
        """One more QP."""
        self._flights.append(flight)
        self._evs.append(evs)

    @property
    def count(self) -> int:
        """Open transmissions of all QPs."""
        return sum(flight.count for flight in self._flights)

    def _count_ports(self) -> int:
        """NIC ports that a QP can use; 1 before there is one."""
        return max((evs.count_ports() for evs in self._evs), default=1)
