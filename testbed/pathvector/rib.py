"""One switch's routing tables: what each neighbour announced, what is best, and what each neighbour was told (RFC 4271 3.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from testbed.pathvector.messages import Path, Update


@dataclass(frozen=True)
class Best:
    """The way to an address: its AS path (empty: a host of this switch), and the interfaces of all ways as short (sorted)."""

    path: Path
    ports: tuple[str, ...]


class Rib:
    """`heard` and `told` have an entry for each established session, by interface: address -> AS path."""

    def __init__(self, asn: int, width: int) -> None:
        self.asn, self._width = asn, width
        self.local: dict[str, str] = {}
        self.heard: dict[str, dict[str, Path]] = {}
        self.told: dict[str, dict[str, Path]] = {}
        self.best: dict[str, Best] = {}

    def open(self, ifname: str) -> None:
        """A session is established."""
        self.heard[ifname], self.told[ifname] = {}, {}

    def close(self, ifname: str) -> set[str]:
        """A session is over; the addresses that it led to."""
        del self.told[ifname]
        return set(self.heard.pop(ifname))

    def learn(self, ifname: str, update: Update) -> set[str]:
        """Takes an UPDATE in; the addresses whose best way may have changed.

        A path with this switch's own AS number is refused (RFC 4271 9.1.2), and replaces what the neighbour announced before.
        """
        heard, touched = self.heard[ifname], set[str]()
        if self.asn in update.path:
            update = Update(withdrawn=(*update.announced, *update.withdrawn))
        for address in update.withdrawn:
            if heard.pop(address, None) is not None:
                touched.add(address)
        for address in update.announced:
            if heard.get(address) != update.path:
                heard[address] = update.path
                touched.add(address)
        return touched

    def decide(self, addresses: Iterable[str]) -> tuple[dict[str, tuple[str, ...]], set[str]]:
        """Finds the best ways anew: the new interfaces where they changed (none: unreachable), and the addresses whose path changed."""
        ports, paths = dict[str, tuple[str, ...]](), set[str]()
        for address in sorted(addresses):
            before, after = self.best.get(address), self._best(address)
            if after is None:
                self.best.pop(address, None)
            else:
                self.best[address] = after
            if (before.ports if before else ()) != (after.ports if after else ()):
                ports[address] = after.ports if after else ()
            if (before.path if before else None) != (after.path if after else None):
                paths.add(address)
        return ports, paths

    def _best(self, address: str) -> Best | None:
        """Its own hosts first, then the shortest AS path; all as short count, whatever ASes they lead through (RFC 7938 6.1)."""
        if address in self.local:
            return Best((), (self.local[address],))
        ways = [(len(heard[address]), ifname) for ifname, heard in self.heard.items() if address in heard]
        if not ways:
            return None
        least = min(ways)[0]
        ports = tuple(sorted(ifname for length, ifname in ways if length == least)[: self._width])
        return Best(self.heard[ports[0]][address], ports)

    def tell(self, ifname: str, addresses: Collection[str]) -> list[Update]:
        """What a neighbour has to be told of these addresses, and now has been: withdrawals first, one announcement a path."""
        told, gone, new = self.told[ifname], list[str](), dict[Path, list[str]]()
        for address in sorted(addresses):
            best = self.best.get(address)
            path = (self.asn, *best.path) if best else None
            if path == told.get(address):
                continue
            if path is None:
                del told[address]
                gone.append(address)
            else:
                told[address] = path
                new.setdefault(path, []).append(address)
        withdrawal = [Update(withdrawn=tuple(gone))] if gone else []
        return withdrawal + [Update(tuple(found), path) for path, found in new.items()]
