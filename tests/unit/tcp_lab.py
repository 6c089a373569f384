"""Two TCP cores joined by byte pipes instead of sockets: bytes arrive in pieces of any size, and pipes can be full."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping

from hosts.core import PeerSpec
from hosts.tcp.core import TcpCore
from hosts.tcp.frames import FRAME, HELLO, Frame, pack
from hosts.tcp.info import TcpInfo
from hosts.tcp.params import TcpParams

PORT = 50000


class Pipes:
    """Streams of one core; `out` holds what it has written, by connection, until the lab carries it over."""

    def __init__(self, lab: Lab, host: str) -> None:
        self.lab, self.host = lab, host
        self.full: set[int] = set()
        self.out: dict[int, bytearray] = {}
        self.far: dict[int, int] = {}  # the number of the connection at the other end
        self.closed: list[int] = []
        self.infos: dict[int, TcpInfo] = {}

    def dial(self, address: str, port: int) -> int:
        assert port == PORT
        number, far = self.lab.numbers(), self.lab.numbers()
        other = self.lab.pipes[address]
        self.out[number], other.out[far] = bytearray(), bytearray()
        self.far[number], other.far[far] = far, number
        self.lab.dialled.append((self.host, number, address, far))
        return number

    def close_connection(self, number: int, known: bool) -> None:
        self.closed.append(number)
        self.out.pop(number, None)

    def info(self, number: int) -> TcpInfo:
        return self.infos.get(number, TcpInfo())

    def options(self) -> Mapping[str, object]:
        return {"congestion_control": "none"}


class Lab:
    """Host `a` sends to host `b`. `now` is the time that the cores are told."""

    def __init__(self, region_bytes: int = 1 << 16, seed: int = 1, **params: object) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.dialled: list[tuple[str, int, str, int]] = []
        self._last = 0
        self.pipes = {name: Pipes(self, name) for name in "ab"}
        self.region = memoryview(bytearray(region_bytes))
        made = TcpParams.from_mapping(params)
        self.a = TcpCore("a", made, {"b": PeerSpec("b", "b", ())}, {}, memoryview(b""), 1, self.pipes["a"], PORT)
        self.b = TcpCore("b", made, {}, {"a": PeerSpec("a", "a", ())}, self.region, 1, self.pipes["b"], PORT)
        self.cores = {"a": self.a, "b": self.b}

    def numbers(self) -> int:
        self._last += 1
        return self._last

    def connect(self) -> Lab:
        """Out-of-band exchange, then everything that joining needs."""
        self.b.connect({"a": self.a.attributes()})
        self.a.connect({"b": self.b.attributes()})
        self.accept()
        self.run()
        return self

    def accept(self) -> None:
        while self.dialled:
            host, number, other, far = self.dialled.pop(0)
            self.cores[other].on_accepted(self.now, far)
            self.cores[host].on_connected(number)

    def run(self) -> None:
        """Until nothing moves any more."""
        while any([self.send(name) for name in "ab"] + [self.carry(name) for name in "ab"]):
            pass

    def send(self, name: str) -> int:
        """Writes what the core has to send; how many packets."""
        packets = list(self.cores[name].transmit(self.now))
        for packet in packets:
            self.pipes[name].out[packet.port] += bytes(packet.header) + bytes(packet.payload) + packet.trailer
        return len(packets)

    def carry(self, name: str, held: Collection[int] = ()) -> bool:
        """Hands some of what each connection holds to the other end, in pieces of any size; whether there was anything."""
        other, moved = "b" if name == "a" else "a", False
        for number, out in list(self.pipes[name].out.items()):
            if out and number not in held:
                moved = True
                self.give(other, self.pipes[name].far[number], out, self.random.randint(1, len(out)))
        return moved

    def give(self, name: str, number: int, data: bytearray, most: int) -> bool:
        """Up to `most` bytes of `data` to a core's connection; False when it is over."""
        core = self.cores[name]
        while data and most > 0:
            room = core.room(number)
            size = min(len(room), most, len(data))
            room[:size] = data[:size]
            del data[:size]
            most -= size
            if not core.received(number, size):
                data.clear()
                return False
        return True

    def stranger(self, data: bytes) -> bool:
        """Somebody connects to b and says this; whether b still listens."""
        number = self.numbers()
        self.pipes["b"].out[number] = bytearray()
        self.pipes["b"].far[number] = 0
        self.b.on_accepted(self.now, number)
        return self.give("b", number, bytearray(data), len(data))

    def into(self, index: int, data: bytes) -> bool:
        """A's connection `index` says this to b."""
        return self.give("b", self.b._receivers["a"].connections[index], bytearray(data), len(data))

    def back(self, index: int, data: bytes) -> bool:
        """B answers this on a's connection `index`."""
        return self.give("a", self.a._senders["b"].lanes[index].number, bytearray(data), len(data))

    def nonce(self) -> int:
        return int(self.b.attributes()["receive"]["a"])

    def hello(self, nonce: int, index: int = 0, wanted: int = 4) -> bytes:
        return pack(Frame(HELLO, nonce, 0, wanted, index))


HEADER_BYTES = FRAME.size_bytes
