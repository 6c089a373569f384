"""Real TCP over the loopback interface: two cores and their sockets in one process."""

from __future__ import annotations

import random
import resource
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice

import pytest

from hosts.commands import SocketSettings
from hosts.core import Completion, PeerSpec
from hosts.sockets import udp_socket
from hosts.tcp.core import TcpCore
from hosts.tcp.frames import FRAME
from hosts.tcp.info import LAYOUT, NAMES, TcpInfo, parse
from hosts.tcp.network import TcpNetwork, drawn_ports
from hosts.tcp.options import READ_BACK
from hosts.tcp.params import MOST_CONNECTIONS, TcpParams
from hosts.wire import DYNAMIC_PORTS
from testbed.errors import HostError, UsageError

PATIENCE_S = 60.0
ADDRESS = "::1"


def fresh_seed() -> int:
    """Ports of the loopback interface that another test or run has just used are taken for a minute (TIME_WAIT)."""
    return random.SystemRandom().getrandbits(60)


def bound(port: int) -> socket.socket | None:
    """A socket of that port, or None if somebody has it."""
    sock = socket.socket(socket.AF_INET6)
    try:
        sock.bind((ADDRESS, port))
    except OSError:
        sock.close()
        return None
    return sock


class End:
    """A host's core and sockets."""

    def __init__(self, name: str, params: TcpParams, send_to: str, receive_from: str, region: memoryview, seed: int) -> None:
        peers = [{peer: PeerSpec(peer, ADDRESS, ())} if peer else {} for peer in (send_to, receive_from)]
        self.network = TcpNetwork(ADDRESS, params, 0, seed)
        self.core = TcpCore(name, params, *peers, region, seed, self.network, self.network.port)
        self.network.serve(self.core)

    def turn(self) -> None:
        self.network.receive()
        self.core.on_timer(time.monotonic())
        self.core.on_receive_done(time.monotonic())
        for packet in self.core.transmit(time.monotonic()):
            self.network.send(packet)


class Pair:
    """`a` sends to `b`."""

    def __init__(self, region_bytes: int, params: Mapping[str, object]) -> None:
        made = TcpParams.from_mapping(params)
        self.region = memoryview(bytearray(region_bytes))
        self.a, self.b = End("a", made, "b", "", memoryview(b""), fresh_seed()), End("b", made, "", "a", self.region, fresh_seed())
        self.ends = (self.a, self.b)

    def connect(self) -> None:
        self.a.core.connect({"b": self.b.core.attributes()})
        self.b.core.connect({"a": self.a.core.attributes()})
        self.until(lambda: self.a.core.joined and self.b.core.joined)

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "the condition never held"
            for end in self.ends:
                end.turn()

    def close(self) -> None:
        for end in self.ends:
            end.network.close()


@pytest.fixture
def pair() -> Iterator[Callable[..., Pair]]:
    made: list[Pair] = []

    def make(region_bytes: int = 1 << 16, **params: object) -> Pair:
        made.append(Pair(region_bytes, params))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_messages_larger_than_the_sockets_buffers_arrive_one_after_the_other(pair: Callable[..., Pair]):
    size, count = 8 << 20, 4
    both = pair(size * count)
    both.connect()
    data = random.Random(1).randbytes(size * count)
    for number in range(count):
        both.a.core.post_write(0.0, "b", memoryview(data)[number * size : (number + 1) * size], number * size, number)
    both.until(lambda: both.a.core.outstanding_messages("b") == 0)
    assert both.b.core.take_completions() == [Completion("a", number) for number in range(count)]
    assert both.region == data
    assert both.a.network.counters["send_blocked"] > 0
    assert not both.a.network.full


def test_the_kernel_has_counted_every_byte_on_every_connection(pair: Callable[..., Pair]):
    both = pair(connections=3)
    both.connect()
    both.a.core.post_write(0.0, "b", memoryview(bytes(3 * 8192)), 0, 7)
    both.until(lambda: both.a.core.outstanding_messages("b") == 0)
    lanes = [lane.number for lane in both.a.core._senders["b"].lanes]
    whole = 1 + FRAME.size_bytes + FRAME.size_bytes + 8192  # the SYN counts as a byte; then HELLO and one chunk
    both.until(lambda: [both.a.network.info(number).bytes_acked for number in lanes] == [whole] * 3)
    assert all(row[3] >= 1 for row in both.a.core.path_rows())


def test_counters_of_a_connection_outlive_it(pair: Callable[..., Pair]):
    both = pair()
    both.connect()
    both.a.core.post_write(0.0, "b", memoryview(bytes(8192)), 0, 7)
    both.until(lambda: both.a.core.outstanding_messages("b") == 0)
    for end in both.ends:
        end.network.close()
    assert both.a.core.report()["data_packets_sent"] >= 4 + 1
    assert both.b.core.report()["data_packets_received"] >= 4 + 1


def test_a_peer_that_ends_is_noticed(pair: Callable[..., Pair]):
    both = pair()
    both.connect()
    both.b.network.close()
    both.ends = (both.a,)
    both.until(lambda: both.a.core._failed)
    ((peer, reason),) = both.a.core.take_errors()
    assert peer == "b"
    assert reason == "closed by the peer" or "ECONNRESET" in reason


def test_nobody_listening_is_an_error_of_that_peer(pair: Callable[..., Pair]):
    both = pair()
    attributes = both.b.core.attributes()
    both.b.network.close()
    both.ends = (both.a,)
    both.a.core.connect({"b": attributes})
    both.until(lambda: both.a.core.joined)
    assert both.a.core.take_errors() == [("b", "connecting: ECONNREFUSED (Connection refused)")]


def test_a_stranger_on_the_port_is_closed_and_counted(pair: Callable[..., Pair]):
    both = pair()
    both.connect()
    with socket.create_connection((ADDRESS, both.b.network.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: example\r\nAccept: everything\r\n\r\n")
        both.until(lambda: both.b.core.report()["drops"])
    assert both.b.core.report()["drops"] == {"bad_magic": 1}
    both.a.core.post_write(0.0, "b", memoryview(bytes(8192)), 0, 7)
    both.until(lambda: both.a.core.outstanding_messages("b") == 0)


def test_every_connection_has_a_source_port_of_its_own(pair: Callable[..., Pair]):
    both = pair(connections=MOST_CONNECTIONS)
    both.connect()
    ports = {wire.socket.getsockname()[1] for wire in both.a.network._wires.values()}
    assert len(ports) == MOST_CONNECTIONS
    assert ports <= set(DYNAMIC_PORTS)


def test_ports_are_drawn_from_the_seed():
    def first(seed: int) -> list[int]:
        drawn = drawn_ports(seed)
        return [next(drawn) for _ in range(20)]

    assert first(5) == first(5) != first(6)


def test_a_port_that_is_in_use_is_passed_over():
    first = 150  # so many in a row are no reason to give up
    drawn = list(islice(drawn_ports(seed := fresh_seed()), first))
    with ExitStack() as held:
        for port in drawn:
            if (sock := bound(port)) is not None:
                held.enter_context(sock)
        network = TcpNetwork(ADDRESS, TcpParams(), 0, seed)
        held.callback(network.close)
        assert network.port not in drawn
        assert network.counters["port_in_use"] >= first


def test_options_are_read_back(pair: Callable[..., Pair]):
    both = pair(user_timeout_s=2.5, keepalive_s=3, congestion_control="reno")
    assert both.a.core.report()["options"]["user_timeout_ms"] == 2500
    both.connect()
    wires = [wire.socket for end in both.ends for wire in end.network._wires.values()]
    assert {READ_BACK["congestion_control"](sock) for sock in wires} == {"reno"}
    assert {READ_BACK["keepalive"](sock) for sock in wires} == {True}


def test_a_congestion_control_that_the_kernel_lacks_is_refused_with_those_it_has():
    with pytest.raises(HostError, match=r"'nonesuch'.*this kernel has .*reno"):
        TcpNetwork(ADDRESS, TcpParams(congestion_control="nonesuch"), 0, 1)


def test_a_foreign_address_is_refused():
    with pytest.raises(HostError, match="2001:db8::1"):
        TcpNetwork("2001:db8::1", TcpParams(), 0, 1)


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_that_can_have_no_more_sockets_is_told_what_to_do(pair: Callable[..., Pair]):
    both = pair()
    with socket.create_connection((ADDRESS, both.b.network.port)), no_more_descriptors():
        for more in (
            lambda: both.a.network.dial(ADDRESS, both.b.network.port),
            lambda: both.until(lambda: both.b.core._strangers),
            lambda: udp_socket(ADDRESS, 0, 0, 0, SocketSettings(0)),
        ):
            with pytest.raises(HostError, match=r"Too many open files: raise `ulimit -n`"):
                more()


# --- TCP_INFO and parameters -----------------------------------------------------------------------------------------------------------


def test_the_table_has_no_holes_and_the_kernels_offsets():
    assert LAYOUT.size == 232  # of the structure up to tcpi_snd_wnd, Linux 5.4
    values = list(range(len(NAMES)))
    info = parse(LAYOUT.pack(*(value % 256 for value in values)))
    assert info.snd_cwnd == NAMES.index("snd_cwnd")
    assert info.data_segs_out == NAMES.index("data_segs_out")


def test_an_older_kernels_shorter_structure_is_understood():
    assert parse(b"\1" * 8) == TcpInfo(ca_state=1, backoff=1, min_rtt=0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"connections": 0}, {"connections": MOST_CONNECTIONS + 1}, {"connections": True}, {"chunk_bytes": 0}, {"user_timeout_s": -1},
        {"connect_timeout_s": 60}, {"congestion_control": "cu bic"}, {"congestion_control": "x" * 16}, {"keepalive_probes": 0},
        {"connection": 4},
    ],
)  # fmt: skip
def test_parameters_that_make_no_sense_are_refused(wrong: dict[str, object]):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        TcpParams.from_mapping(wrong)
